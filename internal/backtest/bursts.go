package backtest

import (
	"math"
	"time"

	"github.com/openrlc/rlc"
)

// bursts is what the counted seconds of a history say of a limit that differs by
// time; nil where nobody counted any. The law is the replay's at a step of one
// second, from full tokens: a second fits if it brings no more than the burst and
// what the limit refills in it. An hour in which a window begins or ends is held to
// the lower limit.
func bursts(h rlc.History, limit rlc.Limit, timed rlc.Timed) *rlc.Bursts {
	var out rlc.Bursts
	holds := 1.0
	for _, x := range h.Hours {
		if x.Second <= 0 {
			if x.Max > 0 {
				out.Unseen++
			}
			continue
		}
		out.Hours++
		if x.Second > out.Highest.Rate {
			out.Highest = rlc.Peak{Rate: x.Second, At: x.Start}
		}
		at := timed.Of(limit, x.Start)
		for _, edge := range timed.Edges(x.Start, x.Start.Add(time.Hour)) {
			if l := timed.Of(limit, edge); takes(l) < takes(at) {
				at = l
			}
		}
		if float64(x.Second) > takes(at)*(1+1e-9) {
			out.Over++
		}
		beyond := float64(x.Second - at.Rate)
		switch rate, hourly := timed.Hours.OfWeek(x.Start); {
		case at != limit && (!hourly || at != limit.WithRate(rate)):
			continue // a window's, which has a burst of its own
		case at.Rate > 0 && at.Rate != limit.Rate: // an hour's burst is the limit's in proportion
			beyond *= float64(limit.Rate / at.Rate)
		}
		holds = max(holds, beyond)
	}
	if out.Hours == 0 {
		return nil
	}
	out.Holds = rlc.Burst(math.Ceil(min(holds, rlc.MaxRate) - 1e-9))
	return &out
}

// takes is how many requests of one second fit into a full bucket.
func takes(l rlc.Limit) float64 { return float64(l.Rate) + float64(l.Burst) }

// mostOver bounds what the highest second is multiplied with.
const mostOver = 2

// BurstOf is the burst that a rate takes whose highest second was counted: that
// second times over, 1 to 2, as the rate is of its peak; at least a second of the
// rate. A second may all come at one instant, so that nothing is counted on that
// the limit refills in it.
func BurstOf(second rlc.Rate, over float64, rate rlc.Rate) rlc.Burst {
	want := max(float64(second)*Over(over), float64(rate))
	return rlc.Burst(max(1, math.Ceil(min(want, rlc.MaxRate)-1e-9)))
}

// Over is how much above its highest second a burst lies whose rate lies so far
// above its peak: no less than that second, and no more than twice it.
func Over(rate float64) float64 { return min(max(rate, 1), mostOver) }

// Suggestion is the burst that a choice takes at a limit's rate by the seconds
// that were counted in the hours it keeps; ok is false where none were.
func (c Choice) Suggestion(h rlc.History, rate rlc.Rate) (burst rlc.Burst, second rlc.Rate, ok bool) {
	for _, x := range h.Hours {
		if c.keeps(h, x) {
			second = max(second, x.Second)
		}
	}
	if second <= 0 || rate <= 0 {
		return 0, 0, false
	}
	return BurstOf(second, 1+c.Headroom, rate), second, true
}
