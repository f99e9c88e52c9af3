package ui

// Promote is the page /services/{service}/buckets/{bucket}/promote.
type Promote struct {
	Head    Head
	Verdict []Part
	Checks  []CheckRow
	Pager   Pager
	Open    bool   // every check is passed
	SignIn  bool   // the visitor may not act
	Zones   string // those that enforcers report
	Post    string
	History string
}

// CheckRow is one line of the checklist.
type CheckRow struct {
	OK               bool
	Text, Found, Fix string
}

// History is the page /services/{service}/history.
type History struct {
	Head          Head
	Rows          []RevisionRow
	Pager         Pager
	Before, After string // the two revisions compared

	BeforeAt, AfterAt Time
	BeforeBy, AfterBy string
	Back, BackHash    string // the revision that the comparison leads back to; "" where it does not lead from the newest
	Diff              []DifferenceRow
	Policy            []DiffLine // lines of policy.yaml that differ
	Promotions        []PromotionRow
	Pins              []PinRow
	// The tables as sheets.
	PromotionSheets, PinSheets, DiffSheets Pager
	Shadow                                 []Link // buckets that may be promoted
	Post                                   string
	SignIn                                 bool
}

// RevisionRow is one commit.
type RevisionRow struct {
	At                      Time
	Hash, Full, By, Subject string
	From, To                bool // it is one of the two compared
	Newest                  bool
	Back                    string // compares the newest with it
}

// DifferenceRow is one quota or mode that differs.
type DifferenceRow struct{ Quota, Old, New, Delta string }

// PromotionRow is one bucket on its way, or one that was.
type PromotionRow struct {
	Bucket                       Link
	State, Level, Zones, By, Why string
	At                           Time
	Growing                      bool
	Post                         string // takes it back to shadow
}

// PinRow is a number that no run proposes again.
type PinRow struct {
	Quota, Limit, By, Reason string
	At                       Time
	Post                     string
}
