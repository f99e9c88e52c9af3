package predictive

import (
	"math"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// levels is how many weighted values stand for the steps of one hour.
const levels = 4

// window is a series as the models see it: every clock hour from the first to
// now, and those to come. An hour without samples that count is a gap.
type window struct {
	start time.Time
	n     int       // hours of the past; those from n on are to come
	slot  []int     // local hour of the week, past and to come
	seen  []float64 // share of the hour's steps that are there; 0 for a gap
	max   []float64 // highest step
	mean  []float64
	// The hour's steps as weighted values, levels of them an hour, highest
	// first. The weights of an hour sum to seen.
	value, weight []float64
	steps         int     // of an hour
	growth        float64 // a week, at least 1; max, mean and value are brought to the level of hour n
}

// newWindow puts the hours that count on a grid. hours are ascending and not
// empty; ahead is how many hours are to come; loc nil means UTC.
func newWindow(hours []rlc.Hour, counts func(i int) bool, step time.Duration, now time.Time, ahead int, loc *time.Location) *window {
	if loc == nil {
		loc = time.UTC
	}
	start := hours[0].Start.Truncate(time.Hour)
	w := &window{start: start, n: int(now.Truncate(time.Hour).Sub(start) / time.Hour), growth: 1}
	w.steps = max(1, int(time.Hour/max(step, time.Second)))
	w.slot = make([]int, w.n+ahead)
	for i := range w.slot {
		t := start.Add(time.Duration(i) * time.Hour)
		_, offset := t.In(loc).Zone()
		const thursday = 4 * 24 // the day of the week at Unix time 0
		w.slot[i] = int((t.Unix()+int64(offset))/3600+thursday) % 168
	}
	buffer := make([]float64, (3+2*levels)*w.n)
	cut := func(n int) (part []float64) {
		part, buffer = buffer[:n:n], buffer[n:]
		return part
	}
	w.seen, w.max, w.mean = cut(w.n), cut(w.n), cut(w.n)
	w.value, w.weight = cut(levels*w.n), cut(levels*w.n)
	shape := newShape(w.steps)
	for i, h := range hours {
		at := int(h.Start.Sub(start) / time.Hour)
		if at >= w.n || !counts(i) {
			continue
		}
		w.max[at] = float64(h.Max)
		w.mean[at] = min(max(0, float64(h.Mean)), w.max[at])
		w.seen[at] = min(1, float64(h.Present)/float64(w.steps))
		shape.spread(w.value[at*levels:][:levels], w.weight[at*levels:][:levels], w.max[at], w.mean[at], w.seen[at])
	}
	return w
}

// shape says where the steps of an hour lie between its mean and its highest.
type shape struct {
	steps  int
	weight [levels]float64
	height [levels]float64 // (value − mean) / (highest − mean)
}

// newShape takes the steps of an hour for a normal sample, of which the highest
// of n lies about Φ⁻¹((n − 3/8) / (n + 1/4)) deviations above the mean (Blom,
// Statistical Estimates and Transformed Beta-Variables, 1958). The values are the
// highest step, the middle of the tenth below it, the middle of the next third,
// and a rest that keeps the mean. One step is itself; two are known exactly.
func newShape(n int) shape {
	s := shape{steps: n}
	switch n {
	case 1:
		s.weight[0], s.height[0] = 1, 1
		return s
	case 2:
		s.weight[0], s.weight[1] = 0.5, 0.5
		s.height[0], s.height[1] = 1, -1
		return s
	}
	top := 1 / float64(n)
	cuts := [levels + 1]float64{0, top, top + 0.1*(1-top), top + 0.4*(1-top), 1}
	deviation := 1 / normalQuantile((float64(n)-0.375)/(float64(n)+0.25))
	sum := 0.0
	for i := range levels {
		s.weight[i] = cuts[i+1] - cuts[i]
		switch i {
		case 0:
			s.height[i] = 1
		case levels - 1:
			s.height[i] = -sum / s.weight[i]
		default:
			s.height[i] = min(1, deviation*normalQuantile(1-(cuts[i]+cuts[i+1])/2))
		}
		sum += s.weight[i] * s.height[i]
	}
	return s
}

func (s *shape) spread(value, weight []float64, highest, mean, seen float64) {
	for i := range levels {
		value[i] = max(0, mean+s.height[i]*(highest-mean))
		weight[i] = s.weight[i] * seen
	}
}

// normalQuantile is the quantile function of the standard normal distribution.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// detrend brings the past to the level of now, where every week of the last
// four was higher than the one before it. Growth is the least of these rises,
// at most maxGrowth: what only some weeks show is noise. It takes three weeks
// that have nearly all their hours.
func (w *window) detrend() {
	var sum, seen [4]float64
	for h := max(0, w.n-4*week); h < w.n; h++ {
		k := (w.n - 1 - h) / week
		sum[k] += w.mean[h] * w.seen[h]
		seen[k] += w.seen[h]
	}
	growth, rises := maxGrowth, 0
	for k := range 3 {
		if seen[k] >= fullWeek && seen[k+1] >= fullWeek && sum[k+1] > 0 {
			growth = min(growth, (sum[k]/seen[k])/(sum[k+1]/seen[k+1]))
			rises++
		}
	}
	if rises < 2 || growth <= 1 {
		return
	}
	w.growth = growth
	for h := range w.n {
		f := w.trend(h - w.n)
		w.max[h] *= f
		w.mean[h] *= f
		for i := h * levels; i < (h+1)*levels; i++ {
			w.value[i] *= f
		}
	}
}

// trend is what hours past hour n are multiplied with for growth; for hours
// before it, what brings them to n's level.
func (w *window) trend(hours int) float64 {
	return math.Pow(w.growth, math.Abs(float64(hours))/week)
}

// judge is the verdict on a limit for hour h.
func (w *window) judge(h int, limit float64) verdict {
	var v verdict
	for i := h * levels; i < (h+1)*levels; i++ {
		v.loss += w.weight[i] * stat.Pinball(upper, w.value[i], limit)
		if w.value[i] <= limit {
			v.covered += w.weight[i]
		}
	}
	return v
}

// irregular reports whether most hours are without any request, and those with
// requests are not the same ones from week to week (from day to day below two
// weeks): of such batches the hour says nothing.
func (w *window) irregular() bool {
	slots := w.slots(w.n)
	var active [week]int
	known, all := 0, 0
	for h, seen := range w.seen {
		if seen > 0 {
			known++
			if w.max[h] > 0 {
				all++
				active[w.slot[h]%slots]++
			}
		}
	}
	again := 0
	for _, n := range active {
		if n > 1 {
			again += n
		}
	}
	return 2*all < known && float64(again) < returning*float64(all)
}

// slots is how many hours a season has for who knows the first hours: those of
// a week, or of a day below two weeks.
func (w *window) slots(hours int) int {
	if hours < 2*week {
		return 24
	}
	return week
}
