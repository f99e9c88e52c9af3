package ui

// ProposalList is the page /proposals.
type ProposalList struct {
	Verdict []Part
	States  []Choice
	State   string // the one that is on, which the form keeps; "" for all
	Service string
	Owner   string
	Kinds   []Choice
	Rows    []ProposalRow
	Pager   Pager
	Empty   *Empty
}

// ProposalRow is a line of the list of proposals.
type ProposalRow struct {
	Link     Link
	Service  Link
	Chip     Chip
	Note     string // that a person has edited it; "" else
	Moves    string
	Old, New string
	Created  Time
	By       string
}
