package ui

// Amend is the form for a person's number in place of a proposed one.
type Amend struct {
	Quotas      []Choice // those whose number can be changed
	Rate, Burst string
	BurstHint   string // what an empty burst means
	Reason      string
	Branch      string // the commit goes there
	Preview     []Part // what the number would have done; nil before it is asked
	Post, Back  string
	Seen        string // what is edited, as the page shows it
}
