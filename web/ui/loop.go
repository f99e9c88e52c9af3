package ui

// Loop is /loop.
type Loop struct {
	Service string // the filter; "" for all
	Verdict []Part
	Zones   []Sign // what each zone did last, and the flagged nodes
	Rows    []LoopRow
	Pager   Pager
	Empty   *Empty
}

// LoopRow is one counter of the loop.
type LoopRow struct {
	Service, Quota           Link
	World                    Chip
	Scope                    string
	Offered, Limit, Admitted string
	Ratio                    string
	Some, Real               bool // a share is dropped; it is, not only would be
	Gauge                    Gauge
	Nodes, Zones, Age        string
	Old                      bool // a zone is silent
}
