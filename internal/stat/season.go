package stat

import (
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// seasonQuiet is the share of the median reference below which an hour of the
// week says nothing about the level of traffic (policies.md 3).
const seasonQuiet = 0.3

// Season is what is usual at each hour of the week, in one time zone: the
// median over the weeks of the hourly highest step. Below three weeks of data
// it pools the hours of the day.
type Season struct {
	Median float64 // of the references; 0 where the series is mostly idle
	loc    *time.Location
	ref    []float64 // by hour of the week, or of the day
	reach  []float64 // R of policies.md 3
	most   float64   // highest of reach
	slots  int

	// In [from, until), Unix seconds, local time is offset seconds after UTC: to
	// ask a time for its weekday and hour takes ten times as long.
	from, until, offset int64
}

// NewSeason learns from hours that all have samples. loc nil means UTC.
func NewSeason(hours []rlc.Hour, loc *time.Location) *Season {
	if loc == nil {
		loc = time.UTC
	}
	s := &Season{loc: loc, slots: 24}
	if len(hours) >= 21*24 {
		s.slots = 168
	}
	if len(hours) > 0 {
		s.fix(hours[len(hours)-1].Start)
	}
	// The hours sorted by slot, in one piece of memory.
	slots := make([]uint8, len(hours))
	var ends [168]int
	for i, h := range hours {
		slots[i] = uint8(s.Slot(h.Start))
		ends[slots[i]]++
	}
	for i := 1; i < s.slots; i++ {
		ends[i] += ends[i-1]
	}
	by, at := make([]float64, len(hours)), ends
	for i, h := range hours {
		at[slots[i]]--
		by[at[slots[i]]] = float64(h.Max)
	}
	s.ref = make([]float64, s.slots)
	refs := make([]float64, 0, s.slots)
	for i, start := range at[:s.slots] {
		if v := by[start:ends[i]]; len(v) > 0 {
			s.ref[i] = Median(v)
			refs = append(refs, s.ref[i])
		}
	}
	s.Median = Median(refs)
	s.reach = make([]float64, s.slots)
	for i := range s.reach {
		before, after := (i+s.slots-1)%s.slots, (i+1)%s.slots
		s.reach[i] = max(s.ref[before], s.ref[i], s.ref[after], seasonQuiet*s.Median)
	}
	s.most = slices.Max(s.reach)
	return s
}

// Weekly reports whether the season tells weekdays apart.
func (s *Season) Weekly() bool { return s.slots == 168 }

// fix notes the difference from UTC around t, and how long it holds.
func (s *Season) fix(t time.Time) {
	t = t.In(s.loc)
	_, offset := t.Zone()
	from, until := t.ZoneBounds()
	s.from, s.until, s.offset = math.MinInt64, math.MaxInt64, int64(offset)
	if !from.IsZero() {
		s.from = from.Unix()
	}
	if !until.IsZero() {
		s.until = until.Unix()
	}
	const day = 24 * 60 * 60
	s.from = max(s.from, day) // so that local seconds are not negative
}

// Slot is the hour of the week (or of the day) of the hour that starts at t.
func (s *Season) Slot(t time.Time) int {
	if u := t.Unix(); u >= s.from && u < s.until {
		hour := (u + s.offset) / (60 * 60)
		if s.slots == 24 {
			return int(hour % 24)
		}
		return int((hour + 4*24) % 168) // 1 January 1970 was a Thursday
	}
	t = t.In(s.loc)
	if s.slots == 24 {
		return t.Hour()
	}
	return int(t.Weekday())*24 + t.Hour()
}

// Ref is the usual highest step of the hour that starts at t, 0 where nothing
// is known of it.
func (s *Season) Ref(t time.Time) float64 { return s.ref[s.Slot(t)] }

// Reach is the most that is usual around the hour that starts at t:
// max(ref[h−1], ref[h], ref[h+1], 0.3 × median).
func (s *Season) Reach(t time.Time) float64 { return s.reach[s.Slot(t)] }

// Tells reports whether the hour that starts at t is busy enough to speak for
// the level of traffic: ref ≥ 0.3 × median and above 0.
func (s *Season) Tells(t time.Time) bool {
	r := s.Ref(t)
	return r > 0 && r >= seasonQuiet*s.Median
}

// Busy reports whether the hour that starts at t is among the busiest: what is
// usual around it is at least 90 % of the highest.
func (s *Season) Busy(t time.Time) bool { return s.Reach(t) >= 0.9*s.most }

// Coverage is how much of a window is known.
type Coverage struct {
	Share   rlc.Ratio // present / expected steps since the series' first sample
	Busiest rlc.Ratio // the same over the busiest hours of the week
	Targets rlc.Ratio // share of the present steps at which enough targets reported; 1 where unknown
	Days    float64   // present steps, in days
}

// Least is the smaller of the two shares: a gap over the busiest hours hides as
// much as a long one.
func (c Coverage) Least() rlc.Ratio { return min(c.Share, c.Busiest) }

// Cover measures h. The window starts with the first sample: before it the
// series did not exist, and how young it is shows in Days. Hours that overlap
// an excluded window are neither expected nor present. A step at which too few
// targets reported counts as missing where the history knows of targets.
func Cover(h rlc.History, loc *time.Location, exclude []rlc.Window) Coverage {
	c := Coverage{Targets: 1}
	hours := h.Hours // not copied where all of them count
	out := func(x rlc.Hour) bool {
		return x.Present <= 0 || !x.Start.Before(h.Until) || Overlaps(exclude, x.Start)
	}
	if slices.ContainsFunc(hours, out) {
		hours = slices.DeleteFunc(slices.Clone(hours), out)
	}
	if len(hours) == 0 || h.Step <= 0 {
		return c
	}
	perHour := max(1, int(time.Hour/h.Step))
	season := NewSeason(hours, loc)
	var all, busy, seen, good struct{ present, expected int }
	next := 0
	t, left := hours[0].Start, h.Until.Sub(hours[0].Start)
	for ; left > 0; t, left = t.Add(time.Hour), left-time.Hour {
		expected, present := perHour, 0
		if left < time.Hour {
			expected = min(perHour, max(1, int(left/h.Step)))
		}
		for next < len(hours) && hours[next].Start.Before(t) { // a second sketch of one hour
			next++
		}
		if next < len(hours) && hours[next].Start.Equal(t) {
			x := &hours[next]
			if next == 0 { // the series was born within it
				expected = min(expected, x.Present)
			}
			seen.present += x.Present
			present = x.Present
			if h.Targets {
				present -= min(x.Partial, x.Present)
			}
			good.present += present
			next++
		} else if Overlaps(exclude, t) {
			continue
		}
		present = min(present, expected)
		all.present, all.expected = all.present+present, all.expected+expected
		if season.Busy(t) {
			busy.present, busy.expected = busy.present+present, busy.expected+expected
		}
	}
	share := func(a, b int) rlc.Ratio {
		if b == 0 {
			return 1
		}
		return rlc.Ratio(float64(a) / float64(b))
	}
	c.Share = share(all.present, all.expected)
	c.Busiest = share(busy.present, busy.expected)
	c.Targets = share(good.present, seen.present)
	c.Days = (time.Duration(good.present) * h.Step).Hours() / 24
	return c
}

// Overlaps reports whether one of the windows shares an instant with the hour
// that starts at t.
func Overlaps(windows []rlc.Window, t time.Time) bool {
	for _, w := range windows {
		if w.Overlaps(t, t.Add(time.Hour)) {
			return true
		}
	}
	return false
}
