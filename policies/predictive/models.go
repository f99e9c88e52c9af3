package predictive

import (
	"math"
	"slices"
)

// model forecasts the 0.99 quantile of the steps of every hour to come, hour at
// + i in out[i]. It sees the past only.
type model struct {
	name     string // for people
	forecast func(p *past, out []float64)
}

// within is the forecast, held near what was ever seen: a residual relative to a
// silent hour means nothing in a busy one.
func (m model) within(p *past, out []float64) {
	m.forecast(p, out)
	for i := range out {
		out[i] = min(out[i], mostTimes*p.highest)
	}
}

// highest is the model that the blend has to beat.
const highest = 0

// models are simple, and wrong in different ways: what a series needs, its own
// backtest tells.
func models() []model {
	return []model{
		{"hour-of-week maximum", hourMaximum},
		{"recent level", recentLevel},
		{"smoothed level", smoothedLevel},
		{"hour of the day", hourOfDay},
	}
}

// batches is for an irregular series: nobody knows when the next batch comes, so
// the highest step stands for every hour.
func batches() []model {
	return []model{{"highest step", func(p *past, out []float64) { fill(out, p.highest) }}}
}

// past is a window up to an origin, the first hour that is not known.
type past struct {
	*window
	at      int
	slots   int       // of the season
	usual   []float64 // median of the hourly means, by slot
	tops    []float64 // highest step, by slot
	level   float64   // mean of all hours
	highest float64   // highest step of all hours
	scratch *scratch
}

// scratch is memory that the forecasts of one series use one after the other.
type scratch struct {
	usual, tops [week]float64
	means       [week][]float64
	values      []weighted
	hours       [24][]weighted
}

// until is what is known before hour at. It is good until s is used for another.
func (w *window) until(at int, s *scratch) *past {
	p := &past{window: w, at: at, slots: w.slots(at), scratch: s}
	p.usual, p.tops = s.usual[:p.slots], s.tops[:p.slots]
	clear(p.tops)
	for i := range s.means {
		s.means[i] = s.means[i][:0]
	}
	sum, seen := 0.0, 0.0
	for h := range at {
		if w.seen[h] == 0 {
			continue
		}
		i := w.slot[h] % p.slots
		s.means[i] = append(s.means[i], w.mean[h])
		p.tops[i] = max(p.tops[i], w.max[h])
		p.highest = max(p.highest, w.max[h])
		sum += w.mean[h] * w.seen[h]
		seen += w.seen[h]
	}
	p.level = sum / max(seen, math.SmallestNonzeroFloat64)
	for i := range p.usual {
		means := s.means[i]
		if len(means) == 0 { // nothing is known of it
			p.usual[i], p.tops[i] = p.level, p.highest
			continue
		}
		slices.Sort(means)
		p.usual[i] = (means[(len(means)-1)/2] + means[len(means)/2]) / 2
	}
	return p
}

// scale is what residuals are measured in: what is usual, and a little more so
// that quiet hours stay finite. It is above 0 where nothing ever came.
func (p *past) scale(usual float64) float64 { return max(usual+0.05*p.level, 1e-300) }

// hourMaximum is the highest step of the hour of the week, × 1.2.
func hourMaximum(p *past, out []float64) {
	for i := range out {
		out[i] = hourTimes * p.tops[p.slot[p.at+i]%p.slots]
	}
}

// recentLevel is 1.15 × the 95 % quantile of recent steps, whose weight halves
// every day: the recommendation of Kubernetes' vertical pod autoscaler. It knows
// no season and follows a new level fast.
func recentLevel(p *past, out []float64) {
	all := p.scratch.values[:0]
	fade, weight := math.Exp2(-1.0/24), 1.0
	for h := p.at - 1; h >= max(0, p.at-10*24); h-- { // older steps weigh less than a thousandth
		weight *= fade
		if p.seen[h] == 0 {
			continue
		}
		for i := h * levels; i < (h+1)*levels; i++ {
			all = append(all, weighted{p.value[i], p.weight[i] * weight})
		}
	}
	p.scratch.values = all
	fill(out, 1.15*quantile(all, 0.95))
}

// smoothedLevel is simple exponential smoothing with a weekly season: what is
// usual at the hour, times the level of the last days (weights halve every three
// days), plus the 99 % quantile of how much steps exceeded this, forecast a day
// ahead. These residuals are relative and pooled over all hours; their weight
// halves every week.
func smoothedLevel(p *past, out []float64) {
	const halfLevel, halfResidual = 72, week
	fade := math.Exp2(-1.0 / halfLevel)
	residuals := p.scratch.values[:0]
	level, actual, usual := 1.0, 0.0, 0.0
	weight, rise := math.Exp2(-float64(p.at)/halfResidual), math.Exp2(1.0/halfResidual)
	for h := range p.at {
		weight *= rise
		if (p.at-h)%24 == 0 {
			level = smooth(actual, usual, level)
		}
		actual, usual = actual*fade, usual*fade
		if p.seen[h] == 0 {
			continue
		}
		u := p.usual[p.slot[h]%p.slots]
		for i := h * levels; i < (h+1)*levels; i++ {
			residuals = append(residuals, weighted{(p.value[i] - u*level) / (p.scale(u) * level), p.weight[i] * weight})
		}
		actual += p.mean[h] * p.seen[h]
		usual += u * p.seen[h]
	}
	level = smooth(actual, usual, level)
	p.scratch.values = residuals
	above := quantile(residuals, upper)
	for i := range out {
		u := p.usual[p.slot[p.at+i]%p.slots]
		out[i] = max(0, level*(u+above*p.scale(u)))
	}
}

// smooth is the ratio of what came to what is usual, between 0.3 and 3; before
// where nothing is usual yet.
func smooth(actual, usual, before float64) float64 {
	if usual <= 0 {
		return before
	}
	return min(max(actual/usual, 0.3), 3)
}

// hourOfDay is what is usual at the hour of the week, plus the 99 % quantile of
// how much the steps around the same hour of any day exceeded their usual.
func hourOfDay(p *past, out []float64) {
	by := &p.scratch.hours
	for k := range by {
		by[k] = by[k][:0]
	}
	for h := range p.at {
		if p.seen[h] == 0 {
			continue
		}
		u := p.usual[p.slot[h]%p.slots]
		k := p.slot[h] % 24
		for i := h * levels; i < (h+1)*levels; i++ {
			by[k] = append(by[k], weighted{(p.value[i] - u) / p.scale(u), p.weight[i]})
		}
	}
	var above [24]float64
	for k := range above {
		around := append(p.scratch.values[:0], by[(k+23)%24]...)
		around = append(around, by[k]...)
		around = append(around, by[(k+1)%24]...)
		p.scratch.values = around
		above[k] = quantile(around, upper)
	}
	for i := range out {
		slot := p.slot[p.at+i]
		u := p.usual[slot%p.slots]
		out[i] = max(0, u+above[slot%24]*p.scale(u))
	}
}

func fill(out []float64, v float64) {
	for i := range out {
		out[i] = v
	}
}

// weighted is a value with its weight.
type weighted struct{ value, weight float64 }

// quantile is the least value such that the share q of all weight lies at or
// below it, 0 for no values. It reorders them.
func quantile(all []weighted, q float64) float64 {
	total := 0.0
	for _, x := range all {
		total += x.weight
	}
	above := (1 - q) * total * (1 + 1e-12) // may lie above the quantile
	for len(all) > 0 {
		// The highest part first: | > pivot | = pivot | < pivot |.
		pivot := middle(all[0].value, all[len(all)/2].value, all[len(all)-1].value)
		high, low := 0, len(all)
		weight, equal := 0.0, 0.0
		for i := 0; i < low; {
			switch x := all[i]; {
			case x.value > pivot:
				weight += x.weight
				all[i], all[high] = all[high], x
				high++
				i++
			case x.value < pivot:
				low--
				all[i], all[low] = all[low], x
			default:
				equal += x.weight
				i++
			}
		}
		switch {
		case weight > above:
			all = all[:high]
		case weight+equal > above || low == len(all):
			return pivot
		default:
			above -= weight + equal
			all = all[low:]
		}
	}
	return 0
}

func middle(a, b, c float64) float64 { return max(min(a, b), min(max(a, b), c)) }
