package ui

// Onboard is the page /services/{service}/onboard.
type Onboard struct {
	Head    Head
	Verdict []Part
	Doubts  []Sign
	Grid    Grid
	Pager   Pager
	Empty   *Empty
	Policy  string
	Post    string
	CanAct  bool
	SignIn  string
}
