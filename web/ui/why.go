package ui

// AskAction is where a request for more is sent.
const AskAction = "/why"

// Why is the page /why.
type Why struct {
	Services []string
	Fields   []Field // the form's: service first, then attributes
	Verdict  []Part
	Tiles    []Tile
	Grid     Grid
	Empty    *Empty
	JSON     string
	CSV      string
	Ask      *AskForm
	Asks     []AskRow
}

// AskForm is where a caller asks for more.
type AskForm struct {
	Fields  []Field // hidden
	Quota   string
	Rate    string // what is suggested
	Because string
	Owner   string
	SignIn  string // where to sign in; "" for those who may ask
}

// AskRow is what somebody asked for.
type AskRow struct {
	At     Time
	Quota  Link
	Text   string
	By     string
	Answer string // where the answer is posted to; "" for those who may not
}
