// Package ui holds the components of the pages and the view structs that they
// render. A view carries finished strings and geometry; a component has no
// store, no clock and no arithmetic.
package ui

import (
	"regexp"
	"strings"
)

// Frame is what every page shares.
type Frame struct {
	Title   string // of the document
	Tab     string // which entry of the main navigation is this page's: overview, services, proposals, runs
	Assets  string // path prefix of the static files, with their version
	Theme   string // "light", "dark", or "" for the system's
	Flip    string // the theme that the switch leads to
	Search  string // text in the search box
	Zones   []Choice
	Keep    []Field // this page's other query parameters, kept when the zone changes
	Zone    string  // short name of the zone that times are shown in
	User    string  // who acts; "" for a viewer
	Back    string  // this page's own address, for coming back after signing in
	Open    string  // how many proposals wait; "" for none
	Banners []Banner
	Done    string // what the act before this page did; "" for nothing
	Chart   bool   // the page draws charts
	Every   int    // seconds after which its parts are asked for again; 0: never
	At      Time   // when it was made; shown where it is asked for again
	// Overrides are those that concern the page; MoreOver says that there are
	// more.
	Overrides []OverrideRow
	MoreOver  string
	OverZones []Sign // how far they have come, where the page says so
}

// Choice is an option of a select or of a segmented control.
type Choice struct {
	Value, Label string
	URL          string
	On           bool
}

// Field is a name and a value that a form carries along.
type Field struct{ Name, Label, Value string }

// Banner is a message above the page. Level is good, warn, bad or note.
type Banner struct {
	Level, Text, Detail string
	Since               Time
	Follow              bool // shows the button that lets RLC follow a rewritten history
}

// Time is an instant: for machines, for people, and in full.
type Time struct{ ISO, Text, Full string }

// Link is text that leads somewhere; without a URL it is only text.
type Link struct{ Text, URL string }

// Sign is a sentence with its sign: good, warn, bad or note.
type Sign struct {
	Level  string
	Before string
	Link   Link
	After  string
	Soft   string
}

// Chip is a mode or a state in a word. Mode chooses its look: enforce, shadow,
// override, held, new or none.
type Chip struct{ Mode, Text string }

// Gauge shows a peak beside its limit; the zero value draws nothing.
type Gauge struct {
	Show bool
	Fill string // width of the filled part
	Over string // width of the part above the limit; "" for none
	Real bool   // what lies above the limit is dropped, not only counted
}

// Spark is a small line of a week with its limit, and marks where something was
// dropped or would have been; without a line it is empty.
type Spark struct {
	Area, Line, Limit string
	Over              []Box
}

// Tile is a label, a figure and where it comes from.
type Tile struct {
	Label, Figure, Unit, From string
	Level                     string // "" or bad
	At                        Time   // the instant that Figure is; the zero value for none
	Spark                     Spark  // how it was; the zero value draws nothing
}

// Truth is one of the three truths about a limit.
type Truth struct {
	Kind   string // desired, proposed, live
	Name   string
	Figure string // "" for none
	Unit   string
	Delta  string
	Before string
	Link   Link
	After  string
	Sign   string // good, warn or "" for no sign
}

// Column heads a table that can be sorted.
type Column struct {
	Label string
	URL   string // "" where the column cannot be sorted
	Sort  string // ascending, descending or ""
	Class string
}

// Pager is the foot of a table.
type Pager struct {
	Range      string // "1–50 of 1,104"
	Prev, Next string // URLs; "" for none
	CSV, JSON  string
}

// Empty says why there is nothing, with the query and the fix.
type Empty struct {
	Title, Reason, Query string
	Fix                  Link
}

// Head is a page's first line.
type Head struct {
	Margin string // two lines at most, in the margin
	Parent Link
	Title  string
	Chips  []Chip
	Facts  []Link
	Tabs   *Tabs // the pages of the service beside this one; nil for none
}

// Overview is the page /.
type Overview struct {
	Date, Clock string
	Say         []Sign
	Verdict     []Part
	RunAction   bool
	Queue       []Task
	Low         []ServiceRow
	LowNote     string
	Empty       *Empty
	Counted     string     // how far back drops reach: "24 h"
	Sheets      Pager      // the queue as CSV, all of it as JSON
	LowRows     Pager      // the rows of Low
	Multiples   *Histogram // nil where no score has it
}

// Part is a piece of a sentence: plain, bold, or a link.
type Part struct {
	Text string
	URL  string
	Bold bool
	At   Time // the instant that Text is; the zero value for none
}

// Task is something that waits for a person.
type Task struct {
	Chip          Chip
	Title, Detail string
	Action        Link
}

// Services is the page /services.
type Services struct {
	Count    string
	Counted  string // how far back drops reach: "24 h"
	Owner    string // the list is of this owner's; "" for all
	Verdict  []Part
	Asof     string
	Query    string
	Show     []Choice
	ShowName string // value of the hidden field that keeps the choice
	Sort     string
	Dir      string
	Columns  []Column
	Rows     []ServiceRow
	Pager    Pager
	Empty    *Empty
}

// ServiceRow is a line of the list of services.
type ServiceRow struct {
	Link     Link
	Owners   []Link
	Chips    []Chip
	Headroom string
	Bad      bool
	Gauge    Gauge
	Virtual  string
	VirtualN bool // above zero
	Drops    string
	DropsN   bool
	Review   Link
	Sync     Sign
	Spark    Spark
}

// Tabs are a service's pages.
type Tabs struct {
	Quotas, Shadow, Proposals, History, Policy, Export Link
	At                                                 string
}

// Service is the page /services/{service}.
type Service struct {
	Head Head
	Name string
	// Recalculate is where the button posts to.
	Recalculate string
	WhatIf      string // address of the service-wide what-if
	Replay      string // and of the replay of all callers
	Why         string // and of the page that explains one request
	Emergency   string // and where an override of it is begun
	Verdict     []Part
	More        string
	Tiles       []Tile
	Chart       *Chart // the last week; nil where no hour is known
	Until       Time
	Counted     string // how far back the counts reach: "24 h"
	Drops       string // heads the column of drops
	Problems    []string
	Query       string
	Modes       []Choice
	Sort        string
	Dir         string
	Columns     []Column
	Rows        []QuotaRow
	Pager       Pager
	Empty       *Empty
	Notes       []string
	Asks        []AskRow // what callers asked for
}

// QuotaRow is a line of a service's table.
type QuotaRow struct {
	Link                    Link
	Role                    string
	Caller                  Link
	Procedure               string
	Chips                   []Chip
	Live, Desired, Proposed string
	Delta                   string
	Range                   bool      // Proposed is a range: Delta stands below it
	Exact                   [3]string // titles of live, desired, proposed
	Peak                    string    // the one that counts
	Highest                 string    // the highest step, where it lies above that; "" else
	Headroom                string
	Bad                     bool
	Note                    string // instead of a headroom
	Gauge                   Gauge
	Drops                   string
	Kind                    string // virtual, real or "" for none
	Spark                   Spark  // its last 7 days; empty where none is known
}

// Bucket is the page of one bucket or key.
type Bucket struct {
	Head Head
	// Recalculate is where the button posts to.
	Recalculate string
	Action      string // where verdicts are posted to
	Truths      []Truth
	Verdict     []Part
	Resolve     string
	Coverage    string
	Read        Link
	ReadAt      Time
	Offered     string // what the chart counts
	SightName   string
	Sight       string // what is known of peaks shorter than a step; "" for nothing to say
	Chart       *Chart
	NoChart     *Empty
	Days        []Day
	WhyTitle    string
	WhyRun      Link
	Policy      string
	Steps       []Step
	Outcome     string
	WhyEmpty    *Empty
	Command     string
	WhatIf      *WhatIf // nil where no history is stored
	Flags       []FlagRow
	Episodes    []EpisodeRow
	EpisodeOf   string
	EpisodeFt   []string
	NoEpisode   *Empty
	EpisodeCSV  string
	StepsCSV    string
	JSON        string // the page for programs: days, steps, what is left out, episodes
	FlagsCSV    string
	DaysCSV     string
	Emergency   string // where an override of it is begun
	History     []HistoryRow
	Pager       Pager
	NoHistory   *Empty
	Overridden  Grid       // the newest overrides that touched it; without rows where none did
	Keys        []QuotaRow // of a bucket that counts per key, where no key is chosen
	Drops       string     // heads their column of drops
	KeysPager   Pager
	KeysNote    string // what could not be read for them; "" for nothing
	Columns     []Column
}

// Chart is a figure with its static drawing and the data of its moving one.
type Chart struct {
	Label    string
	Idle     string
	Area     string
	Mean     string
	Desired  string
	Live     string
	Proposed string
	Grid     []Tick
	Dates    []Tick
	Bands    []Box
	Over     []Box
	Capacity string
	Marks    []Tick // deploys, runs, overrides, events
	Series   string // what the line and the band are
	Happened Grid   // the marks as a table
	Days     Grid   // what is drawn, by the day; without rows where the page has its own
	// The tables as sheets.
	MarksCSV, MarksJSON string
	DaysCSV, DaysJSON   string // hour by hour
	Beyond              string // what the address asks for and is not there; ""
	Kinds               ChartKinds
	Spans               []Choice // windows that the chart can show
	Data                any
}

// ChartKinds says which marks the legend explains.
type ChartKinds struct{ Capacity, Desired, Live, Proposed, Drop, Virtual, Excluded bool }

// Tick is a place on an axis.
type Tick struct {
	X, Y, TextY, Text, D string
	Ends                 bool // the text ends at X; it begins there else
}

// Box is a rectangle of the static drawing.
type Box struct {
	X, Y, W, H string
	Real       bool
}

// Day is a line of the data table behind a chart.
type Day struct{ Day, Mean, P99, Max, Coverage string }

// Step is one line of the waterfall. Bar kinds: base, up, down, end; "" for a
// line that changed nothing.
type Step struct {
	Label, Detail, Rate, Bar, X, W, Delta string
	Sign                                  string
}

// FlagRow is a window that the policy left out, with its question.
type FlagRow struct {
	From, Until Time
	FromRaw     string
	UntilRaw    string
	Lasted      string
	Rule        string
	Reason      string
	Peak, With  string
	Word        string // the standing verdict, in words; "" for none
	Declared    bool   // a declared window: nothing to ask
}

// EpisodeRow is a line of a table of episodes.
type EpisodeRow struct {
	From   Time
	Lasted string
	Quota  Link
	Chip   Chip
	Peak   string
	Gauge  Gauge
	Drops  string
	Share  string
	Real   bool
	// What is only on the page of a service's shadow: a guess, the standing
	// verdict, and where a new one is posted to; "" for those who may not.
	Cause, Word, Post string
	Asleep            bool // it is put off
	FromRaw, UntilRaw string
}

// HistoryRow is one change of a quota.
type HistoryRow struct {
	At       Time
	Old, New string
	Chip     Chip
	By       string // "by ana" who decided; "" where nobody has
	Run      Link
	Proposal Link // without a URL where none put it up
	Why      string
}

// Shadow is the page /services/{service}/shadow.
type Shadow struct {
	Head        Head
	Name        string
	Verdict     []Part
	More        string
	Ways        []Link // each bucket's checklist before it enforces
	Tiles       []Tile
	Until       Time   // when the live counters were read
	Counted     string // how far back they reach, before that time
	Offered     string // heads their column of requests
	Live        []LiveRow
	LiveRest    string // how many quotas are not listed; "" for none
	LiveCSV     string // the same as a sheet, of all quotas
	CompareCSV  string
	CompareJSON string
	NoLive      *Empty
	Compare     []CompareRow
	CompareRest string // why fewer are listed than were replayed; ""
	Compared    Time   // the comparison's 24 h end here
	Rows        []EpisodeRow
	Asleep      string // how many episodes are put off; "" for none
	Pager       Pager
	Sight       string
	Empty       *Empty
}

// LiveRow is what enforcers counted for one quota in 24 h.
type LiveRow struct {
	Quota                   Link
	Offered, Virtual, Share string
	Some                    bool // Virtual is above zero
}

// CompareRow sets the backtest of one quota beside its live counter.
type CompareRow struct {
	Quota                     Link
	Backtest, Live, Off, Note string
	Level                     string
}

// Proposal is the page /proposals/{id}.
type Proposal struct {
	ID       string
	Head     Head
	State    string // open, pending, accepted, rejected, superseded
	CanAct   bool   // it waits, and the viewer has signed in
	Waits    bool
	Accept   string
	Seen     string // what is accepted, as the page shows it
	Reject   string
	SignIn   string
	Steps    []Choice
	Was      string // heads the numbers that it would change
	Verdict  []Part
	Risk     string
	Edit     string // how to change the numbers instead
	EditURL  string // asks for another number; "" where this page takes none
	Amend    *Amend // nil where nobody asks for it
	Review   string // where the forge shows it; "" for nowhere else
	Rest     Link   // the quotas that stay
	Caption  string
	Rows     []MoveRow
	Total    *MoveRow
	Guards   []Sign
	Tight    []Task
	Timeline []Event
	Diff     []DiffLine
	Path     string
	Command  string
	Facts    []string
	CSV      string
	JSON     string
}

// MoveRow is one quota that a proposal changes.
type MoveRow struct {
	Link       Link
	Chip       Chip
	Old, New   string
	OldX, NewX string // exact values
	Note       string // how sure New is; "" where it is
	Delta      string
	Dir        string // up, down, new or same
	ArrowX     string
	ArrowW     string
	From, Tip  string // places on the rail
	Peak       string
	PeakX      string // when it was
	Headroom   string
	Bad        bool
	EditURL    string // asks for another number; "" where this page takes none
	DropsOld   string
	DropsNew   string
	Real       bool
	SomeOld    bool
	SomeNew    bool
	Why        string
}

// Event is a point of a timeline.
type Event struct {
	At    Time
	Label string // instead of a time
	Parts []Part
	Next  bool
}

// DiffLine is a line of a diff: Kind del, ins, i or "".
type DiffLine struct{ Kind, Text string }

// Runs is the page /runs.
type Runs struct {
	Verdict []Part
	CanAct  bool
	SignIn  string
	Rows    []RunRow
	Pager   Pager
	Empty   *Empty
}

// RunRow is a line of the list of runs.
type RunRow struct {
	Link     Link
	At       Time
	Trigger  string
	Scope    string
	Sign     Sign
	Took     string
	Total    string
	Held     string
	Changed  string
	HeldSome bool
}

// Login is the page /login.
type Login struct {
	Next     string
	Error    string
	User     string
	Off      bool   // the server has no token
	Provider bool   // an identity provider lets people in
	Back     string // Next, escaped for a query
}

// Fault is an error as a browser shows it.
type Fault struct {
	Status string
	Title  string
	Detail string
	SignIn string
	Resend []Field // a form that can be sent again as it was; nil for none
	Again  string  // the same page again; "" where asking again may not help
	Next   Link    // where what was asked for comes to be; its URL "" for nowhere
}

// following is what follows a word: after a space, unless it begins with a mark that
// belongs to the word.
func following(after string) string {
	if after == "" || strings.ContainsRune(",;:.", rune(after[0])) {
		return after
	}
	return " " + after
}

var unit = regexp.MustCompile(`([0-9]) (%|(?:h|d|s|min|ms|req/s|million|billion)\b)`)

// kept is a text whose numbers stay in one line with their units.
func kept(text string) string { return unit.ReplaceAllString(text, "$1\u00a0$2") }
