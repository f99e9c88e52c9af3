package ui

// Grid is a table whose cells are finished text. Each row has as many cells as
// there are columns; the first heads its row.
type Grid struct {
	Caption string
	Columns []Column
	Rows    [][]Cell
}

// Cell is one cell. Kind is bad, violet, soft or "" for plain text.
type Cell struct {
	Text, URL, Kind string
	At              Time   // before the text, in full where it is pointed at; the zero value shows none
	Chip            Chip   // before the text; the zero value shows none
	Level           string // a sign before the text: good, warn, bad, note; "" for none
}

// Caller is the page /callers/{caller}.
type Caller struct {
	Head    Head
	Section string // heading of the table
	About   string // what its numbers are
	Verdict []Part
	Tiles   []Tile
	Note    string
	Grid    Grid
	Pager   Pager
	Empty   *Empty
}
