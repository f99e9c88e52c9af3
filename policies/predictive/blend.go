package predictive

import (
	"math"
	"slices"
)

// outlook is what a series' models, blended, expect of the hours to come.
type outlook struct {
	q50, q99 []float64
	blend    []float64 // each model's share, sums to 1
	models   []model
	days     int     // of the past that were forecast to find the shares
	coverage float64 // share of their steps at or below the limits forecast; 1 without days
	relative float64 // loss / loss of the hour-of-week maximum on these days; 1 without days
	fallback bool    // the hour-of-week maximum stands, times 1.2
	growth   float64 // a week
	lift     float64 // limits are multiplied with it, as too many steps of these days lay above; at least 1
	batches  bool    // nobody knows when requests come
}

// look forecasts the hours to come. Each model's share is found by forecasting
// the days of the last week, each from what was known before it; as, where it is
// not nil, is the outlook whose models and shares are taken over instead.
func (w *window) look(as *outlook) outlook {
	var o outlook
	if as != nil {
		o = *as
	} else if o.batches = w.irregular(); o.batches {
		o.models = batches()
	} else {
		o.models = models()
	}
	if !o.batches {
		w.detrend()
	}
	o.growth = w.growth
	s := &scratch{values: make([]weighted, 0, levels*w.n)}
	if as == nil {
		w.backtest(&o, s)
	}
	p := w.until(w.n, s)
	ahead := len(w.slot) - w.n
	o.q50, o.q99 = w.middle(p, ahead), make([]float64, ahead)
	one := make([]float64, ahead)
	for m, share := range o.blend {
		if share == 0 {
			continue
		}
		o.models[m].within(p, one)
		for i, v := range one {
			o.q99[i] += share * v
		}
	}
	for i := range o.q99 {
		f := w.trend(i)
		o.q50[i] *= f
		o.q99[i] *= f * o.lift
		o.q50[i] = min(o.q50[i], o.q99[i])
	}
	return o
}

// middle is the median expected of each hour: what is usual, times the level of
// the last three days.
func (w *window) middle(p *past, ahead int) []float64 {
	actual, usual := 0.0, 0.0
	for h := max(0, p.at-72); h < p.at; h++ {
		actual += w.mean[h] * w.seen[h]
		usual += p.usual[w.slot[h]%p.slots] * w.seen[h]
	}
	level := smooth(actual, usual, 1)
	out := make([]float64, ahead)
	for i := range out {
		out[i] = level * p.usual[w.slot[p.at+i]%p.slots]
	}
	return out
}

// day is one day of the past that was forecast.
type day struct {
	at     int
	limits [][]float64 // by model and hour
	loss   []float64   // by model
}

// limit is the blended one of the day's hour i.
func (d *day) limit(blend []float64, i int) float64 {
	limit := 0.0
	for m, share := range blend {
		limit += share * d.limits[m][i]
	}
	return limit
}

// backtest forecasts the days of the last week, each from what was known before
// it, and gives every model a share that falls with the cube of its loss. How
// the blend itself did is told honestly: each day is judged with the shares that
// the other days give. Where it lost more than the hour-of-week maximum, over all
// and on most days, that stands instead. What stands is lifted where it covered
// too little.
func (w *window) backtest(o *outlook, s *scratch) {
	var days []day
	total := make([]float64, len(o.models))
	seen := 0.0
	for at := w.n - 24; at >= max(leastPast, w.n-backtestDays*24); at -= 24 {
		d := w.replay(at, o.models, s)
		if d.limits == nil {
			continue
		}
		for m, loss := range d.loss {
			total[m] += loss
		}
		for _, x := range w.seen[at : at+24] {
			seen += x
		}
		days = append(days, d)
	}
	o.days, o.coverage, o.relative, o.lift = len(days), 1, 1, 1
	least := 1e-9 * w.until(w.n, s).level * seen
	if len(days) == 0 {
		o.fallback = true
		o.blend = alone(highest, len(o.models))
		return
	}
	o.blend = shares(total, least)
	var mine, tops []verdict // of each day
	for _, d := range days {
		others := slices.Clone(total)
		for m := range others {
			others[m] -= d.loss[m]
		}
		if len(days) == 1 {
			others = total
		}
		mine = append(mine, w.rejudge(d, shares(others, least)))
		tops = append(tops, w.rejudge(d, alone(highest, len(o.models))))
	}
	own, top := sum(mine), sum(tops)
	if top.loss > 0 {
		o.relative = own.loss / top.loss
	}
	o.coverage = own.covered / seen
	if yields(mine, tops) {
		o.fallback, o.coverage = true, top.covered/seen
		o.blend = alone(highest, len(o.models))
	}
	if !o.batches {
		o.lift = w.lift(days, o.blend, s)
	}
}

// lift is what the blend's limits of these days had to be multiplied with for
// the share upper of the steps to stay within: at least 1, at most mostLift.
func (w *window) lift(days []day, blend []float64, s *scratch) float64 {
	all := s.values[:0]
	for _, d := range days {
		for i := range 24 {
			limit := d.limit(blend, i)
			if limit <= 0 {
				continue
			}
			for k := (d.at + i) * levels; k < (d.at+i+1)*levels; k++ {
				all = append(all, weighted{w.value[k] / limit, w.weight[k]})
			}
		}
	}
	s.values = all
	return min(max(quantile(all, upper), 1), mostLift)
}

// verdict is what limits are worth: their pinball loss, and the weight of the
// steps that they cover.
type verdict struct{ loss, covered float64 }

func (v *verdict) add(o verdict) { v.loss, v.covered = v.loss+o.loss, v.covered+o.covered }

func sum(all []verdict) (v verdict) {
	for _, x := range all {
		v.add(x)
	}
	return v
}

// yields reports whether the blend, judged day by day, is to stand back: it lost
// more than the hour-of-week maximum over all, and on most days. One day that
// nobody could forecast does not outweigh the others.
func yields(blend, maximum []verdict) bool {
	worse := 0
	for i := range blend {
		if blend[i].loss > maximum[i].loss {
			worse++
		}
	}
	return sum(blend).loss > sum(maximum).loss && 2*worse > len(blend)
}

// rejudge is the verdict on a day's blended limits.
func (w *window) rejudge(d day, blend []float64) verdict {
	var v verdict
	for i := range 24 {
		v.add(w.judge(d.at+i, d.limit(blend, i)))
	}
	return v
}

// replay forecasts the 24 hours from at; no limits where either side of at has
// nothing.
func (w *window) replay(at int, models []model, s *scratch) day {
	known := func(hours []float64) bool { return slices.ContainsFunc(hours, func(x float64) bool { return x > 0 }) }
	if !known(w.seen[:at]) || !known(w.seen[at:at+24]) {
		return day{}
	}
	d := day{at: at, loss: make([]float64, len(models))}
	p := w.until(at, s)
	for m := range models {
		out := make([]float64, 24)
		models[m].within(p, out)
		for i, limit := range out {
			d.loss[m] += w.judge(at+i, limit).loss
		}
		d.limits = append(d.limits, out)
	}
	return d
}

// shares fall with the cube of the loss; least keeps them finite.
func shares(loss []float64, least float64) []float64 {
	best := slices.Min(loss) + least
	out := make([]float64, len(loss))
	sum := 0.0
	for m, l := range loss {
		r := best / max(l+least, math.SmallestNonzeroFloat64)
		out[m] = r * r * r
		sum += out[m]
	}
	for m := range out {
		if sum == 0 {
			out[m] = 1 / float64(len(out))
		} else {
			out[m] /= sum
		}
	}
	return out
}

func alone(m, n int) []float64 {
	out := make([]float64, n)
	out[m] = 1
	return out
}
