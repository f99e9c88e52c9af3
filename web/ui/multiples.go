package ui

// Histogram is how many limits stand at which multiple of their peak.
type Histogram struct {
	At         Time // when they were counted
	Label      string
	Say        []Part
	Wide, Slim Bars // for a screen, and for a phone
	Table      Grid // the classes that hold a limit
	Sheets     Pager
}

// Bars are a histogram's drawing.
type Bars struct {
	ViewBox, Width string
	Band           Box // where limits fit
	Bars           []Bar
	Ticks          []Tick
	Peak, Fit      Tick // the line where a limit is its peak, and the band's name
}

// Bar is one class; Tight ones lie below the band.
type Bar struct {
	Box
	Tight bool
}
