package ui

// Settings is /settings.
type Settings struct {
	Head     Head
	Verdict  []Part
	Switches []Sign
	Parts    Grid
	Profiles Grid
	Broken   []Sign // profiles that do not validate
	Keys     Grid
	Filters  []Choice
	Search   string
	Show     string // the filter of the address, which a search keeps
	Pager    Pager
	Empty    *Empty
	Withheld string // where to sign in to read values; "" where they are shown
}
