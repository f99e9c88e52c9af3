package web

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/web/ui"
)

// The static drawing's size, in its own units.
const (
	wide, high = 1120.0, 318.0
	roof, foot = 14.0, 300.0 // the plot lies between them
)

// chartData is what chart.js draws. Times are Unix seconds; a missing hour is
// null.
type chartData struct {
	T        []int64    `json:"t"`
	Mean     []*float64 `json:"mean"`
	Max      []*float64 `json:"max"`
	Dropped  []float64  `json:"dropped,omitempty"` // of mean; without it drops are what lies above a limit
	Virtual  []float64  `json:"virtual,omitempty"` // of max
	Sum      bool       `json:"sum,omitempty"`     // of several series: max is at most that
	Step     int64      `json:"step"`
	Zone     string     `json:"tz"`
	Live     []segmentD `json:"live"`
	Desired  *float64   `json:"desired"`
	Proposed *float64   `json:"proposed"`
	// Where a limit goes hour by hour, each past hour at the rate of the same hour
	// of the week.
	DesiredBy  []segmentD `json:"desired_by,omitempty"`
	ProposedBy []segmentD `json:"proposed_by,omitempty"`
	hourly     bool       // the live limit goes hour by hour
	Capacity   *float64   `json:"capacity,omitempty"`
	Marks      []mark     `json:"marks"`
	Excluded   []band     `json:"excluded"`
	View       *band      `json:"view"` // the part that is shown; null: all
}

type segmentD struct {
	From int64    `json:"from"`
	Rate float64  `json:"rate"`
	Mode rlc.Mode `json:"mode"`
}

type mark struct {
	T     int64  `json:"t"`
	Until int64  `json:"until,omitempty"` // 0: it happened at once
	Label string `json:"label"`
	Kind  string `json:"kind"`
}

type band struct {
	From  int64 `json:"from"`
	Until int64 `json:"until"`
}

// limitLines says which limit was in force when: the accepted ones of the
// proposals that moved this quota, oldest first, and the limit that is live now.
func limitLines(proposals []rlc.Proposal, promotions []rollout.Promotion, r *row, h rlc.History) []segmentD {
	type step struct {
		at       time.Time
		old, neu *rlc.Quota
	}
	var steps []step
	for _, p := range proposals {
		if p.State != rlc.Accepted {
			continue
		}
		for _, c := range p.Changes {
			if r.is(&c) {
				steps = append(steps, step{p.Decided, c.Was(), c.Quota()})
			}
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	var out []stretch
	add := func(at time.Time, q *rlc.Quota) {
		if q == nil {
			return
		}
		if at.Before(h.From) {
			at = h.From
			out = out[:0]
		}
		out = append(out, stretch{at, q.Limit, q.Timed()})
	}
	if len(steps) > 0 {
		add(h.From, steps[0].old)
	}
	for _, s := range steps {
		add(s.at, s.neu)
	}
	if r.live == nil {
		return nil
	}
	// What is live is known; where no proposal tells when it came, it is drawn
	// over the whole window.
	if len(out) == 0 {
		out = append(out, stretch{from: h.From})
	}
	last := &out[len(out)-1]
	last.limit, last.timed = *r.live, r.timed.live
	until := last.from
	if n := len(h.Hours); n > 0 {
		until = h.Hours[n-1].Start.Add(time.Hour)
	}
	return inShadowBefore(byTime(out, until, r.mode), promotions, r)
}

// inShadowBefore splits limit lines where the bucket went from shadow to
// enforce, as far as its last promotion tells: what lay above a line before was
// counted, not dropped.
func inShadowBefore(lines []segmentD, promotions []rollout.Promotion, r *row) []segmentD {
	since := rollout.EnforcedSince(promotions, r.plain())
	if r.mode != rlc.Enforce || since.IsZero() {
		return lines
	}
	at := since.Unix()
	var out []segmentD
	for n, l := range lines {
		if l.From >= at {
			out = append(out, l)
			continue
		}
		before := l
		before.Mode = rlc.Shadow
		out = append(out, before)
		if n+1 == len(lines) || lines[n+1].From > at {
			l.From = at
			out = append(out, l)
		}
	}
	return out
}

func chartOf(v *visit, t *truth, r *row, h rlc.History, live []segmentD, happened []happening) (*ui.Chart, error) {
	d := chartData{Step: 3600, Zone: v.zone.String(), Live: live, Marks: marks(happened), Excluded: []band{}}
	if d.Live == nil {
		d.Live = []segmentD{}
	}
	from, until := h.Hours[0].Start, h.Hours[len(h.Hours)-1].Start.Add(time.Hour)
	shown, beyond, err := spanOf(v, from, until)
	if err != nil {
		return nil, err
	}
	if shown.From.After(from) || shown.Until.Before(until) {
		d.View = &band{shown.From.Unix(), shown.Until.Unix()}
	}
	top, highest, at := 0.0, 0.0, time.Time{}
	i := 0
	for hour := from; hour.Before(until); hour = hour.Add(time.Hour) {
		for i < len(h.Hours) && h.Hours[i].Start.Before(hour) {
			i++
		}
		d.T = append(d.T, hour.Unix())
		if i < len(h.Hours) && h.Hours[i].Start.Equal(hour) && h.Hours[i].Present > 0 {
			mean, most := round(float64(h.Hours[i].Mean)), round(float64(h.Hours[i].Max))
			d.Mean, d.Max = append(d.Mean, &mean), append(d.Max, &most)
			if inside := hour.Add(time.Hour).After(shown.From) && hour.Before(shown.Until); inside && most > highest {
				highest, at = most, hour
			}
		} else {
			d.Mean, d.Max = append(d.Mean, nil), append(d.Max, nil)
		}
	}
	top = highest
	for _, l := range live {
		top = max(top, l.Rate)
	}
	d.hourly = r.timed.live.Hours != nil
	if r.desired != nil {
		rate := float64(r.desired.Rate)
		d.Desired, d.DesiredBy = &rate, ofWeek(r.desired, r.timed.desired.Hours, from, until)
		top = max(top, rate)
	}
	if r.proposed != nil {
		rate := float64(r.proposed.Rate)
		d.Proposed, d.ProposedBy = &rate, ofWeek(r.proposed, r.timed.proposed.Hours, from, until)
		top = max(top, rate)
	}
	if top <= 0 {
		top = 1
	}
	top *= 1.04
	flags := windows(t, r)
	for _, w := range flags {
		if w.Until.After(from) && w.From.Before(until) {
			d.Excluded = append(d.Excluded, band{max(w.From.Unix(), from.Unix()), min(w.Until.Unix(), until.Unix())})
		}
	}
	c := d.within(shown).draw(v, t.name+" "+quotaName(r.name, r.key), highest, at, top)
	c.Series, c.Happened = "highest step and mean per hour", markTable(v, happened)
	c.Data, c.Spans, c.Beyond = d, spans(v, shown, from, until), beyond
	return c, nil
}

// windows are what is left out of a quota's history: flagged by the policy or
// declared for the service. r is nil for the service alone.
func windows(t *truth, r *row) []rlc.Window {
	var out []rlc.Window
	if r != nil && r.change != nil {
		for _, f := range r.change.Flags {
			w := f.Window
			if f.Rule != "excluded" {
				w.Reason = "left out"
			}
			out = append(out, w)
		}
	}
	if t.service != nil {
		for _, w := range t.service.Exclude {
			if !slices.ContainsFunc(out, func(o rlc.Window) bool { return o.Overlaps(w.From, w.Until) }) {
				out = append(out, w)
			}
		}
	}
	return out
}

// draw makes the static drawing and the words around it.
func (d *chartData) draw(v *visit, name string, highest float64, at time.Time, top float64) *ui.Chart {
	first, last := float64(d.T[0]), float64(d.T[len(d.T)-1]+d.Step)
	x := func(t int64) float64 { return (float64(t) - first) / (last - first) * wide }
	y := func(r float64) float64 { return foot - r/top*(foot-roof) }
	c := &ui.Chart{
		Label: "Offered rate of " + name + " by hour, with its limits; the numbers are in the tables below",
		Idle:  "Highest step " + rate(highest) + " req/s on " + v.time(at).Text + ".",
		Data:  d,
		Kinds: ui.ChartKinds{Capacity: d.Capacity != nil, Desired: d.Desired != nil, Live: len(d.Live) > 0, Proposed: d.Proposed != nil, Excluded: len(d.Excluded) > 0},
	}
	if n := len(d.Live); n > 0 {
		limit, which := d.Live[n-1].Rate, "the live limit"
		if d.hourly {
			limit, _ = d.limit(at.Unix())
			which = "its hour’s limit"
		}
		if highest > limit && limit > 0 {
			c.Idle = strings.TrimSuffix(c.Idle, ".") + ", " + signed((highest-limit)/limit) + " against " + which + "."
		}
	}
	c.Idle += " Drag to zoom, arrow keys to read."
	var mean, upper, lower strings.Builder
	pen := "M"
	var back []string
	flush := func() {
		for i := len(back) - 1; i >= 0; i-- {
			lower.WriteString(back[i])
		}
		if len(back) > 0 {
			upper.WriteString(lower.String() + "Z")
		}
		lower.Reset()
		back, pen = nil, "M"
	}
	for i, t := range d.T {
		if d.Mean[i] == nil {
			flush()
			continue
		}
		px := coord(x(t))
		mean.WriteString(pen + px + " " + coord(y(*d.Mean[i])))
		upper.WriteString(pen + px + " " + coord(y(*d.Max[i])))
		back = append(back, "L"+px+" "+coord(y(*d.Mean[i])))
		pen = "L"
	}
	flush()
	c.Mean, c.Area = mean.String(), upper.String()
	d.over(c, x, y)
	for _, b := range d.Excluded {
		c.Bands = append(c.Bands, ui.Box{X: coord(x(b.From)), Y: coord(roof), W: coord(max(x(b.Until)-x(b.From), 3)), H: coord(foot - roof)})
	}
	c.Live, c.Desired, c.Proposed = stairs(d.Live, x, y), stairs(d.DesiredBy, x, y), stairs(d.ProposedBy, x, y)
	if d.Desired != nil && d.DesiredBy == nil {
		c.Desired = "M0 " + coord(y(*d.Desired)) + "H" + coord(wide)
	}
	if d.Proposed != nil && d.ProposedBy == nil {
		c.Proposed = "M0 " + coord(y(*d.Proposed)) + "H" + coord(wide)
	}
	if d.Capacity != nil {
		c.Capacity = "M0 " + coord(y(min(*d.Capacity, top))) + "H" + coord(wide)
	}
	c.Marks = d.flags(x)
	grid := nice(top / 4)
	for r := grid; r < top; r += grid {
		c.Grid = append(c.Grid, ui.Tick{D: "M0 " + coord(y(r)) + "H" + coord(wide), X: "2", TextY: coord(y(r) - 3), Text: rate(r)})
	}
	c.Dates = d.dates(v.zone, x)
	return c
}

// over marks what was dropped and what would have been: above a limit, or of a
// sum, the part of it that was.
func (d *chartData) over(c *ui.Chart, x func(int64) float64, y func(float64) float64) {
	mark := func(t int64, top, bottom float64, real bool) {
		c.Over = append(c.Over, ui.Box{X: coord(x(t)), Y: coord(y(top)), W: coord(max(x(t+d.Step)-x(t), 2.5)), H: coord(y(bottom) - y(top)), Real: real})
		c.Kinds.Drop, c.Kinds.Virtual = c.Kinds.Drop || real, c.Kinds.Virtual || !real
	}
	for i, t := range d.T {
		if d.Max[i] == nil {
			continue
		}
		if d.Virtual != nil && d.Virtual[i] > 0 {
			mark(t, *d.Max[i], *d.Max[i]-d.Virtual[i], false)
		}
		if d.Dropped != nil && d.Dropped[i] > 0 {
			mark(t, *d.Mean[i], *d.Mean[i]-d.Dropped[i], true)
		}
		if limit, mode := d.limit(t); limit > 0 && *d.Max[i] > limit {
			mark(t, *d.Max[i], limit, mode == rlc.Enforce)
		}
	}
}

// outside says whether a text that begins at x would end outside the drawing where
// its letters are largest, on a phone.
func outside(x float64, text string) bool { return x+20*float64(len([]rune(text))) > wide }

// flags are the marks of the drawing, each label clear of the one before it.
func (d *chartData) flags(x func(int64) float64) []ui.Tick {
	var out []ui.Tick
	free := 0.0
	for _, m := range d.Marks {
		at := x(m.T)
		if at < 0 || at > wide {
			continue
		}
		f := ui.Tick{D: "M" + coord(at) + " " + coord(roof) + "V" + coord(foot), X: coord(at + 3), TextY: coord(roof - 3)}
		if at >= free {
			if f.Ends = outside(at, m.Label); f.Ends {
				f.X = coord(at - 3)
			}
			f.Text, free = m.Label, at+float64(len([]rune(m.Label)))*7+10
		}
		out = append(out, f)
	}
	return out
}

// dates are the ticks below the drawing: days, or hours where three days or
// less are shown.
func (d *chartData) dates(zone *time.Location, x func(int64) float64) []ui.Tick {
	first, last := d.T[0], d.T[len(d.T)-1]
	start := time.Unix(first, 0).In(zone)
	midnight := time.Date(start.Year(), start.Month(), start.Day(), 0, 0, 0, 0, zone)
	next := func(at time.Time) time.Time { return at.AddDate(0, 0, max(1, int(last-first)/86400/7)) }
	if last-first <= 3*86400 {
		next = func(at time.Time) time.Time { return at.Add(6 * time.Hour) }
	}
	var out []ui.Tick
	for at := midnight; at.Unix() < last; at = next(at) {
		if at.Unix() > first {
			text := at.Format("2 Jan")
			if at.Hour() != 0 {
				text = at.Format("15:04")
			}
			out = append(out, ui.Tick{X: coord(x(at.Unix())), TextY: coord(high - 4), Text: text, Ends: outside(x(at.Unix()), text)})
		}
	}
	return out
}

// limit is what was live at t. Before anything was, it is what desired would
// have done; 0 where neither exists.
func (d *chartData) limit(t int64) (float64, rlc.Mode) {
	for i := len(d.Live) - 1; i >= 0; i-- {
		if d.Live[i].From <= t+d.Step-1 {
			return d.Live[i].Rate, d.Live[i].Mode
		}
	}
	for i := len(d.DesiredBy) - 1; i >= 0; i-- {
		if d.DesiredBy[i].From <= t {
			return d.DesiredBy[i].Rate, rlc.Shadow
		}
	}
	if d.Desired != nil {
		return *d.Desired, rlc.Shadow
	}
	return 0, ""
}

// nice is a round number near n: 1, 2 or 5 times a power of ten.
func nice(n float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(n)))
	for _, m := range []float64{1, 2, 5, 10} {
		if n <= m*p {
			return m * p
		}
	}
	return 10 * p
}

// round keeps four significant digits: what a screen can show.
func round(x float64) float64 {
	if x == 0 {
		return 0
	}
	p := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*p) / p
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// arrow draws a move on a rail of 112 units: from the old rate to the new one,
// the higher of the two at 104.8.
func arrow(old, proposed float64) (x, w, from, tip string) {
	top := max(old, proposed)
	if top <= 0 {
		return "", "", "", ""
	}
	a, b := old/top*104.8, proposed/top*104.8
	lean := "M" + coord(b) + " 12l6-5v10z"
	if b >= a {
		lean = "M" + coord(b) + " 12l-6-5v10z"
	}
	return coord(min(a, b)), coord(math.Abs(b - a)), "M" + coord(a) + " 5V19", lean
}
