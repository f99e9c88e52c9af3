package audit

import (
	"embed"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Table is an audit's outcome. Its size is bounded: rows beyond MaxRows count in
// Totals alone.
type Table struct {
	Profile string          `json:"profile"`
	From    time.Time       `json:"from"`
	Until   time.Time       `json:"until"`
	Totals  map[Verdict]int `json:"totals"`
	Known   int             `json:"limits_known"`   // quotas whose peak that counts is known
	Fitting int             `json:"limits_fitting"` // of them, those that fit: see rlc.Fits
	Rows    []Row           `json:"rows"`
	Omitted int             `json:"rows_omitted,omitempty"`
	Notes   []string        `json:"notes"`
}

// Add takes a row in.
func (t *Table) Add(r Row) {
	if t.Totals == nil {
		t.Totals = map[Verdict]int{}
	}
	t.Totals[r.Verdict]++
	if r.Fits != nil {
		if t.Known++; *r.Fits {
			t.Fitting++
		}
	}
	if len(t.Rows) >= MaxRows {
		t.Omitted++
		return
	}
	t.Rows = append(t.Rows, r)
}

// Sort puts the gravest rows first: call it after the last Add.
func (t *Table) Sort() { slices.SortStableFunc(t.Rows, order) }

// Summary is the outcome in one sentence.
func (t *Table) Summary() string {
	total := 0
	var parts []string
	for _, v := range Verdicts() {
		total += t.Totals[v]
		if n := t.Totals[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	if total == 0 {
		return "Nothing was found: no limit and no traffic."
	}
	what := fmt.Sprintf("%d limits and callers", total)
	if total == 1 {
		what = "1 limit or caller"
	}
	return fmt.Sprintf("%s over %s: %s.", what, rlc.Plural(int(math.Round(t.Until.Sub(t.From).Hours()/24)), "day"), strings.Join(parts, ", "))
}

var columns = []string{"VERDICT", "SERVICE", "BUCKET", "KEY", "LIMIT", "PEAK THAT COUNTS", "HIGHEST STEP", "DROPS", "SUGGESTED", "WHY"}

// cells are a row for people.
func (r Row) cells() []string {
	drops := "–"
	if r.Limit != nil && r.Highest != nil {
		drops = atLeast(r.AtLeast) + strconv.FormatFloat(r.Drops, 'f', 0, 64)
	}
	limit := limitText(r.Limit)
	if r.Window != "" {
		limit = r.Window
	}
	return []string{string(r.Verdict), r.Service, r.Bucket, r.Key.String(), limit, peakText(r.Peak), peakText(r.Highest), drops, limitText(r.Suggested), r.Detail}
}

func atLeast(b bool) string {
	if b {
		return "at least "
	}
	return ""
}

func peakText(p *rlc.Peak) string {
	if p == nil {
		return "–"
	}
	return stat.RateText(p.Rate)
}

func limitText(l *rlc.Limit) string {
	if l == nil {
		return "–"
	}
	return stat.RateText(l.Rate) + " burst " + rlc.Number(l.Burst)
}

// WriteText writes the table for a terminal. Names from outside lose their
// control characters.
func (t *Table) WriteText(w io.Writer) error {
	fmt.Fprintln(w, t.Summary())
	tw := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	if len(t.Rows) > 0 {
		fmt.Fprintln(tw, strings.Join(columns, "\t"))
	}
	for _, r := range t.Rows {
		cells := r.cells()
		for i := range cells {
			cells[i] = printable(cells[i])
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, n := range t.notes() {
		fmt.Fprintln(w, printable(n))
	}
	return nil
}

// notes are the table's own and what was left out.
func (t *Table) notes() []string {
	notes := slices.Clone(t.Notes)
	if t.Known > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d quotas lie at %g to %g times the peak that counts, as the scorecard has it; caps and limits that stand in a policy are not among them.", t.Fitting, t.Known, rlc.FitLeast, rlc.FitMost))
	}
	if t.Omitted > 0 {
		notes = append(notes, fmt.Sprintf("%s beyond %d are counted but not listed", rlc.Plural(t.Omitted, "row"), MaxRows))
	}
	return notes
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' {
			return '\uFFFD'
		}
		return r
	}, s)
}

// WriteCSV writes one line for each row. A cell that a spreadsheet would take
// for a formula begins with a quote.
func (t *Table) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write([]string{"verdict", "service", "bucket", "key", "rate", "burst", "window", "peak", "peak_at", "highest_step", "highest_step_at", "requests", "drops", "drops_left_out", "at_least", "days", "suggested_rate", "suggested_burst", "why"})
	for _, r := range t.Rows {
		rate, burst := numbers(r.Limit)
		suggested, size := numbers(r.Suggested)
		peak, at := peakCells(r.Peak)
		highest, highestAt := peakCells(r.Highest)
		c.Write([]string{
			string(r.Verdict), cell(r.Service), cell(r.Bucket), cell(r.Key.String()), rate, burst, cell(r.Window), peak, at, highest, highestAt,
			strconv.FormatFloat(r.Requests, 'f', 0, 64), strconv.FormatFloat(r.Drops, 'f', 0, 64), strconv.FormatFloat(r.LeftOut, 'f', 0, 64), strconv.FormatBool(r.AtLeast),
			strconv.FormatFloat(r.Days, 'f', 2, 64), suggested, size, cell(r.Detail),
		})
	}
	c.Flush()
	return c.Error()
}

func peakCells(p *rlc.Peak) (rate, at string) {
	if p == nil {
		return "", ""
	}
	return number(float64(p.Rate)), p.At.UTC().Format(time.RFC3339)
}

func numbers(l *rlc.Limit) (rate, burst string) {
	if l == nil {
		return "", ""
	}
	return number(float64(l.Rate)), strconv.FormatInt(int64(l.Burst), 10)
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func cell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

//go:embed audit.html
var pages embed.FS

// WriteHTML writes one file that needs no other: no script, no font, no link.
func (t *Table) WriteHTML(w io.Writer) error {
	page, err := template.New("audit.html").ParseFS(pages, "audit.html")
	if err != nil {
		return fmt.Errorf("read the audit's page: %w", err)
	}
	type line struct {
		Class string
		Cells []string
	}
	classes := map[Verdict]string{TooTight: "tight", None: "none", Nothing: "loose", Fine: "fine", Unknown: "unknown"}
	view := struct {
		*Table
		Sentence string
		Says     []string
		Columns  []string
		Lines    []line
	}{Table: t, Sentence: t.Summary(), Says: t.notes(), Columns: []string{"Verdict", "Service", "Bucket", "Key", "Limit", "Peak that counts", "Highest step", "Drops", "Suggested", "Why"}}
	for _, r := range t.Rows {
		view.Lines = append(view.Lines, line{classes[r.Verdict], r.cells()})
	}
	return page.Execute(w, view)
}
