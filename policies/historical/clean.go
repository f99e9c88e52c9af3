package historical

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// mark says whether an hour counts, and if not why.
type mark int

const (
	counts    mark = iota
	spiky          // far above what is usual there
	unhealthy      // the service was failing: retries inflate what came in
	drops          // enforcement dropped more than 1 %
	excluded       // a declared incident
)

// rule is the mark's name in a flag.
func (m mark) rule() string {
	return [...]string{"", "spike", "unhealthy", "enforced_drops", "excluded"}[m]
}

// weeks are the hours of a window, each with its mark.
type weeks struct {
	hours     []rlc.Hour
	marks     []mark
	season    *stat.Season
	tail      []rlc.Sample
	now       time.Time
	since     time.Time // when the level that reaches now began; zero for no shift
	young     bool      // and it is younger than a day
	recurrent int       // hours far above usual that count because they come back
}

// usable are the window's hours that have plausible samples.
func usable(in rlc.Input, window time.Duration) []rlc.Hour {
	from := in.Now.Add(-window)
	out := func(h rlc.Hour) bool {
		return h.Present <= 0 || !(h.Max >= 0) || math.IsInf(float64(h.Max), 0) || h.Start.Before(from) || !h.Start.Before(in.Now)
	}
	hours := in.History.Hours
	for len(hours) > 0 && out(hours[0]) { // the hour in which the window begins
		hours = hours[1:]
	}
	if !slices.ContainsFunc(hours, out) {
		return hours // nearly always: not copied
	}
	return slices.DeleteFunc(slices.Clone(hours), out)
}

// clean marks every hour of the window.
func clean(in rlc.Input, hours []rlc.Hour) *weeks {
	w := &weeks{hours: hours, marks: make([]mark, len(hours)), tail: in.History.Tail, now: in.Now}
	for i, h := range hours {
		switch {
		case stat.Overlaps(in.Exclude, h.Start):
			w.marks[i] = excluded
		case stat.Overlaps(in.Count, h.Start): // a person's word
		case h.Drops > maxDrops:
			w.marks[i] = drops
		case h.Unhealthy:
			w.marks[i] = unhealthy
		}
	}
	learn := hours
	if slices.Contains(w.marks, excluded) {
		learn = slices.DeleteFunc(slices.Clone(hours), func(h rlc.Hour) bool { return stat.Overlaps(in.Exclude, h.Start) })
	}
	w.season = stat.NewSeason(learn, in.Location)
	if w.season.Median == 0 { // mostly idle: its batches are its traffic
		return w
	}
	w.findShift()
	var far, candidates []int // hours far above usual, and those of them that do not come back
	for i, h := range hours {
		if w.marks[i] == excluded || stat.Overlaps(in.Count, h.Start) || float64(h.Max) <= spike*w.season.Reach(h.Start) {
			continue
		}
		if !w.since.IsZero() && !h.Start.Before(w.since) {
			continue
		}
		far = append(far, i)
		if w.comesBack(i) {
			w.recurrent++
			continue
		}
		candidates = append(candidates, i)
	}
	w.findRise(far, candidates)
	for _, i := range candidates {
		if !w.young || hours[i].Start.Before(w.now.Add(-day)) {
			w.marks[i] = spiky
		}
	}
	return w
}

// findShift looks for a new level: over the last 24 present hours that are
// busy enough, the median of max / ref is at least 1.5, and over the last three it
// still is. The whole run of such windows that reaches now is the new regime.
func (w *weeks) findShift() {
	ratios, at := make([]float64, 0, len(w.hours)), make([]time.Time, 0, len(w.hours))
	for i, h := range w.hours {
		if w.marks[i] != excluded && w.season.Tells(h.Start) {
			ratios = append(ratios, float64(h.Max)/w.season.Ref(h.Start))
			at = append(at, h.Start)
		}
	}
	if n := len(ratios); n < 24 || stat.Median(ratios[n-3:]) < shifted { // whatever it was, it has ended
		return
	}
	first := -1
	for end := len(ratios); end >= 24 && stat.Median(ratios[end-24:end]) >= shifted; end-- {
		first = end - 24
	}
	if first < 0 {
		return
	}
	for ratios[first] < shifted { // a window of median 1.5 holds such an hour
		first++
	}
	w.since = at[first]
	w.young = w.now.Sub(w.since) < day
}

// findRise looks for a level that is too young to fill half of a window: hours
// far above usual, at most a pause apart, that began in the last day, some of them
// not come back, and one of the last three hours still up. Nobody can tell a storm
// from a shift then. One that has not yet lasted for a pause is a spike like any
// other: most storms end before they could teach a limit.
func (w *weeks) findRise(far, candidates []int) {
	if !w.since.IsZero() {
		return
	}
	since := w.now
	for _, i := range slices.Backward(far) {
		start := w.hours[i].Start
		if since.Sub(start) > pause || start.Before(w.now.Add(-day)) {
			break
		}
		since = start
	}
	if n := len(candidates); n == 0 || w.hours[candidates[n-1]].Start.Before(since) || w.now.Sub(since) < pause {
		return
	}
	for k := max(0, len(w.hours)-3); k < len(w.hours); k++ {
		h := w.hours[k]
		usual := max(w.season.Ref(h.Start), 0.3*w.season.Median)
		if w.marks[k] != excluded && w.now.Sub(h.Start) <= pause && float64(h.Max) >= shifted*usual {
			w.young, w.since = true, since
			return
		}
	}
}

// risen reports whether hour i lies in the last day and far above usual.
func (w *weeks) risen(i int) bool {
	h := w.hours[i]
	return !h.Start.Before(w.now.Add(-day)) && float64(h.Max) > spike*w.season.Reach(h.Start)
}

// comesBack reports whether three peaks, hour i included, that lie at least
// 24 h apart reached half of its size. Hours whose traffic is inflated support
// only their like.
func (w *weeks) comesBack(i int) bool {
	half := recurrence * float64(w.hours[i].Max)
	peer := func(k int) bool {
		return float64(w.hours[k].Max) >= half && w.marks[k] != excluded && (w.marks[k] == counts || w.marks[i] != counts)
	}
	n, last := 1, w.hours[i].Start
	for k := i + 1; k < len(w.hours) && n < 3; k++ {
		if peer(k) && w.hours[k].Start.Sub(last) >= day {
			n, last = n+1, w.hours[k].Start
		}
	}
	last = w.hours[i].Start
	for k := i - 1; k >= 0 && n < 3; k-- {
		if peer(k) && last.Sub(w.hours[k].Start) >= day {
			n, last = n+1, w.hours[k].Start
		}
	}
	return n >= 3
}

// peaks are the highest steps of the weeks counted back from now, of the hours
// that keep accepts; the newest week first.
func (w *weeks) peaks(keep func(m mark, i int) bool) []float64 {
	var p []float64
	for i, h := range w.hours {
		if !keep(w.marks[i], i) {
			continue
		}
		n := w.week(h.Start)
		for len(p) <= n {
			p = append(p, 0)
		}
		p[n] = max(p[n], float64(h.Max))
	}
	return p
}

// week counts back from now: an hour that starts seven days ago is still in
// week 0.
func (w *weeks) week(start time.Time) int { return int((w.now.Sub(start) - 1) / week) }

// growth is the median ratio of a week's peak to the one before it, between 1
// and 1.15; 1 below three weeks that have nearly all their hours.
func (w *weeks) growth(peaks []float64) float64 {
	seen := make([]int, len(peaks))
	for _, h := range w.hours {
		if n := w.week(h.Start); n < len(seen) {
			seen[n]++
		}
	}
	full := 0
	for n := range peaks {
		if seen[n] >= fullWeek && peaks[n] > 0 {
			full++
		}
	}
	if full < growthWeeks {
		return 1
	}
	var ratios []float64
	for n := 1; n < len(peaks); n++ {
		if seen[n] >= fullWeek && seen[n-1] >= fullWeek && peaks[n] > 0 {
			ratios = append(ratios, peaks[n-1]/peaks[n])
		}
	}
	return min(max(stat.Median(ratios), 1), maxGrowth)
}

// highest is the highest hour that keep accepts, with the time of its step
// where the tail knows it.
func (w *weeks) highest(keep func(mark) bool) rlc.Peak {
	var p rlc.Peak
	for i, h := range w.hours {
		if keep(w.marks[i]) && (h.Max > p.Rate || p.At.IsZero()) {
			p = rlc.Peak{Rate: h.Max, At: h.Start}
		}
	}
	for _, s := range w.tail {
		if s.Rate == p.Rate && !s.Time.Before(p.At) && s.Time.Before(p.At.Add(time.Hour)) {
			p.At = s.Time
			break
		}
	}
	return p
}

// flags joins neighbouring hours left out for one reason into windows. with
// computes the quota's rate of the hours that it is given.
func (w *weeks) flags(declared []rlc.Window, with func(func(mark, int) bool) rlc.Rate) []rlc.Flag {
	var flags []rlc.Flag
	for i := 0; i < len(w.hours); {
		m, from := w.marks[i], i
		var peak rlc.Rate
		for i < len(w.hours) && w.marks[i] == m && (i == from || w.hours[i].Start.Sub(w.hours[i-1].Start) <= time.Hour) {
			peak = max(peak, w.hours[i].Max)
			i++
		}
		if m == counts {
			continue
		}
		until := i
		f := rlc.Flag{Rule: m.rule(), Peak: peak, Window: rlc.Window{From: w.hours[from].Start, Until: w.hours[until-1].Start.Add(time.Hour)}}
		f.With = with(func(k mark, j int) bool { return k == counts || from <= j && j < until })
		f.Reason = w.reason(m, from, declared)
		flags = append(flags, f)
	}
	return flags
}

func (w *weeks) reason(m mark, i int, declared []rlc.Window) string {
	h := w.hours[i]
	switch m {
	case spiky:
		return fmt.Sprintf("more than %.1f × the usual %s", spike, stat.RateText(rlc.Rate(w.season.Reach(h.Start))))
	case unhealthy:
		return "the service was failing"
	case drops:
		return fmt.Sprintf("enforcement dropped %.0f %%", 100*float64(h.Drops))
	}
	for _, d := range declared {
		if d.Overlaps(h.Start, h.Start.Add(time.Hour)) && d.Reason != "" {
			return d.Reason
		}
	}
	return "declared"
}

// clippedAt reports whether traffic looks clipped at a limit in force: nothing
// is known to have been dropped, and in the last week the highest steps that
// count reach the limit and never pass it (but for its burst).
func (w *weeks) clippedAt(limit rlc.Limit, step time.Duration) bool {
	if step <= 0 || limit.Rate <= 0 {
		return false
	}
	top := 1.02*float64(limit.Rate) + float64(limit.Burst)/step.Seconds()
	reached := false
	for i, h := range w.hours {
		switch {
		case w.marks[i] == excluded || w.week(h.Start) > 0:
		case h.Drops > 0 || float64(h.Max) > top:
			return false
		case w.marks[i] == counts && float64(h.Max) >= clipped*float64(limit.Rate):
			reached = true
		}
	}
	return reached
}

func (w *weeks) count(m mark) int {
	n := 0
	for _, x := range w.marks {
		if x == m {
			n++
		}
	}
	return n
}

// leftOut names what does not count: "3 h spike, 2 h unhealthy"; "" for
// nothing.
func (w *weeks) leftOut() string {
	var parts []string
	for m := spiky; m <= excluded; m++ {
		if n := w.count(m); n > 0 {
			parts = append(parts, fmt.Sprintf("%d h %s left out", n, strings.ReplaceAll(m.rule(), "_", " ")))
		}
	}
	return strings.Join(parts, ", ")
}
