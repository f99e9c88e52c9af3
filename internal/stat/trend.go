package stat

import (
	"math"
	"time"

	"github.com/openrlc/rlc"
)

// Part is one quota's share in a service's trend.
type Part struct {
	Hours  []rlc.Hour // ascending
	Limit  rlc.Rate   // that holds now; 0 for none
	Shadow time.Time  // hours that start before it were counted in shadow; zero for none
}

// known is the share of an hour's traffic from which the hour is shown: the
// rule that policies hold histories to.
const known = 0.95

// Trend adds up the hours of parts in [from, until), which are whole hours. A
// part is expected between its first and its last hour there, at the mean of
// those it has; an hour of which less than 95 % of what is expected is known
// stays unknown, so that a gap is never drawn as less traffic.
func Trend(parts []Part, from, until time.Time) rlc.Trend {
	n := max(0, int(until.Sub(from)/time.Hour))
	all := make([]sums, n)
	for _, p := range parts {
		p.addTo(all, from)
	}
	out := rlc.Trend{Until: until, Mean: make([]*rlc.Rate, n), Most: make([]*rlc.Rate, n)}
	dropped, virtual := make([]rlc.Rate, n), make([]rlc.Rate, n)
	any, drops, virtuals := false, false, false
	for i, s := range all {
		if s.parts == 0 || s.had < known*s.expected {
			continue
		}
		mean, most := digits(s.mean), digits(s.most)
		out.Mean[i], out.Most[i], any = &mean, &most, true
		dropped[i], virtual[i] = digits(s.dropped), digits(s.virtual)
		drops, virtuals = drops || dropped[i] > 0, virtuals || virtual[i] > 0
	}
	if !any {
		return rlc.Trend{}
	}
	if drops {
		out.Dropped = dropped
	}
	if virtuals {
		out.Virtual = virtual
	}
	return out
}

// sums are one hour of all parts.
type sums struct {
	parts                        int // that have it
	expected, had                float64
	mean, most, dropped, virtual float64
}

func (p Part) addTo(all []sums, from time.Time) {
	index := func(h rlc.Hour) (int, bool) {
		i := int(h.Start.Sub(from) / time.Hour)
		return i, !h.Start.Before(from) && i < len(all) && h.Present > 0
	}
	sum, first, last, hours := 0.0, len(all), -1, 0.0
	for _, h := range p.Hours {
		if i, ok := index(h); ok {
			sum, first, last, hours = sum+float64(h.Mean), min(first, i), i, hours+1
		}
	}
	usual := sum / max(hours, 1)
	for i := first; i <= last; i++ {
		all[i].expected += usual
	}
	for _, h := range p.Hours {
		i, ok := index(h)
		if !ok {
			continue
		}
		s := &all[i]
		s.parts++
		s.had += usual
		s.mean += float64(h.Mean)
		s.most += float64(h.Max)
		s.dropped += float64(h.Mean) * float64(h.Drops)
		if p.Limit > 0 && h.Start.Before(p.Shadow) {
			s.virtual += max(0, float64(h.Max-p.Limit))
		}
	}
}

// digits keeps four of them: more than a drawing can show.
func digits(x float64) rlc.Rate {
	if x == 0 {
		return 0
	}
	p := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return rlc.Rate(math.Round(x*p) / p)
}
