package ui

// WhatIf is a form of choices, the answer to them and its curve.
type WhatIf struct {
	Hidden       []Field // what the form keeps
	Stats        []Choice
	Windows      []Choice
	Floor        string
	Headroom     string
	HeadroomText string
	HeadroomMax  string
	Burst        string
	BurstText    string
	Exclude      []Pick
	Answer       []Part
	Notes        []string
	Take         []Part    // how the answer gets in force; nil where the page does not say
	Curve        *Frontier // nil where nothing can be drawn
	Others       []OneChange
	OthersCSV    string
	KeysCSV      string
	Empty        *Empty
	Live         string     // where the answer is had alone; "": at the page's own address
	Sheets       Pager      // CSV and JSON of the curve
	Keys         []FleetRow // of a whole service: the keys that would lose most
	KeysOf       string     // how many there are
}

// Pick is a box to tick.
type Pick struct {
	Value, Label string
	On           bool
}

// OneChange is a choice that differs from the one shown in one thing.
type OneChange struct {
	Link                          Link
	Limit, Drops, Share, Episodes string
}

// Frontier is the curve of headroom against the share dropped.
type Frontier struct {
	Label      string
	RateLabel  string
	Grid       []Tick
	Marks      []Tick
	Area, Line string
	At         *Tick // the choice shown; nil where it lies outside
	Knee       string
	Bend       *Tick  // where it lies; nil where there is none
	Flat       string // said instead of a curve that lies at 0; "" where it does not
	Rows       []FrontierRow
}

// FrontierRow is a line of the table behind the curve.
type FrontierRow struct{ Headroom, Rate, Drops, Share string }

// ServiceWhatIf is the page /services/{service}/whatif.
type ServiceWhatIf struct {
	Head   Head
	WhatIf *WhatIf
}

// QuotaWhatIf is the page /services/{service}/buckets/{bucket}/whatif.
type QuotaWhatIf struct {
	Head   Head
	WhatIf *WhatIf
	None   *Empty // why there is nothing to ask about; nil where there is
}

// FleetRow is one key under a service-wide choice.
type FleetRow struct {
	Quota                           Link
	Now, Limit, Delta, Drops, Share string
	Some                            bool
}
