package loop

import "time"

// counted is how many requests were counted, and for how long: each report's
// times the interval that it covers, requests × seconds. Both only grow, so that
// one that is lost costs nothing once the next arrives, and their quotient is how
// far back the requests are to be spread.
type counted struct{ requests, spans float64 }

func (c *counted) add(requests, span float64) {
	c.requests += requests
	c.spans += requests * span
}

// since is what came after another reading. A counter that began anew has none
// before.
func (c counted) since(before counted) counted {
	if c.requests < before.requests || c.spans < before.spans {
		return c
	}
	return counted{c.requests - before.requests, c.spans - before.spans}
}

// span is the mean interval, in seconds.
func (c counted) span() float64 {
	if c.requests <= 0 {
		return 0
	}
	return min(max(c.spans/c.requests, 0), longestFirst.Seconds())
}

// openSeconds is for how many seconds what is told late is entered where it
// belongs: the slowest report, and the way up.
const openSeconds = 4

// peak counts requests by the second and keeps the highest second of each
// minute. Its times count from the beginning of a clock minute. The zero value
// has counted nothing.
type peak struct {
	second       int64 // the newest
	counts       [openSeconds]float64
	minute       int64 // of the seconds that are over
	open, closed float64
}

// add counts requests that came evenly between two times.
func (p *peak) add(requests float64, from, to time.Duration) {
	if requests <= 0 {
		return
	}
	p.turn(to)
	from = max(from, 0)
	first, last := int64(from/time.Second), int64(to/time.Second)
	if from >= to || first == last {
		p.put(last, requests)
		return
	}
	per := requests / (to - from).Seconds()
	for s := first; s <= last; s++ {
		begin, end := max(from, time.Duration(s)*time.Second), min(to, time.Duration(s+1)*time.Second)
		p.put(s, per*(end-begin).Seconds())
	}
}

// put counts in a second, or in the oldest that is open.
func (p *peak) put(second int64, requests float64) {
	second = max(second, p.second-openSeconds+1)
	p.counts[second%openSeconds] += requests
}

// turn ends the seconds that are too old to change at now.
func (p *peak) turn(now time.Duration) {
	second := int64(now / time.Second)
	if second >= p.second+openSeconds+120 {
		*p = peak{second: second, minute: (second - openSeconds) / 60} // both minutes are empty
		return
	}
	for p.second < second {
		p.second++
		oldest := p.second - openSeconds // it is over
		if oldest < 0 {
			continue
		}
		if m := oldest / 60; m != p.minute {
			p.closed, p.open, p.minute = p.open, 0, m
		}
		p.open = max(p.open, p.counts[oldest%openSeconds])
		p.counts[oldest%openSeconds] = 0
	}
}

// last is the highest second of the last minute that is over at now and whose
// seconds are all known.
func (p *peak) last(now time.Duration) float64 {
	p.turn(now)
	return p.closed
}
