package ui

// Scorecard is the page /scorecard.
type Scorecard struct {
	Head    Head
	At      Time // when today's score was computed
	Windows []Choice
	Verdict []Part
	Tiles   []Tile
	Owners  Grid
	Pager   Pager
	ByDay   Grid
	DaysCSV string
	// Multiples are the window's last; nil where no score has them.
	Multiples *Histogram
	Empty     *Empty
}
