package ui

// Replay is the page /services/{service}/replay.
type Replay struct {
	Head        Head
	From, Until string
	Verdict     []Part
	Notes       []string
	Rows        []ReplayRow
	Caps        []string
	Pager       Pager
	Empty       *Empty
}

// ReplayRow is what one key met.
type ReplayRow struct {
	Quota          Link
	Chip           Chip
	Offered        string
	Refused, Share string
	Some           bool
	Quotas, Caps   string // refused by its quota, by caps
	First, Last    Time
}
