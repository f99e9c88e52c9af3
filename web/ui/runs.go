package ui

// Run is the page /runs/{id}. Services or Quotas is nil where the page does not
// show that table.
type Run struct {
	Head     Head
	CanAct   bool
	SignIn   string
	Again    string // where the button posts to
	Verdict  []Part
	More     string
	Tiles    []Tile
	Services *RunServices
	Quotas   *RunQuotas
}

// RunServices is what a run found, service by service.
type RunServices struct {
	Query string
	Only  string // changed, held or "": the filter that a search keeps
	Show  []Choice
	Rows  []RunService
	Pager Pager
	Empty *Empty
}

// RunService is a line of that table.
type RunService struct {
	Service  Link
	Quotas   Link
	Changed  Link // without a URL where nothing changed
	Held     string
	Sign     Sign
	Because  []Link // why quotas are held, the most first
	Proposal Link
	Chip     Chip // the proposal's state; the zero value for none
}

// RunQuotas is what a run found, quota by quota.
type RunQuotas struct {
	Title   string
	About   string
	Back    Link     // to the services; the zero value on the page that shows them
	Service string   // the one that is shown; "" for all
	Show    []Choice // nil where the list has no filter
	Rows    []RunChange
	More    Link
	Pager   Pager
	Empty   *Empty
}

// RunChange is what a run found for one quota.
type RunChange struct {
	Service  Link
	Quota    Link
	Chip     Chip
	Old, New string
	Because  string
	Level    string
}
