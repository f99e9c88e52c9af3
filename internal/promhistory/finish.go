package promhistory

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// batch is how many days are saved in one transaction.
const batch = 500

// finish turns today's samples into sketches and saves them.
func (rd *reading) finish(ctx context.Context) error {
	d := rd.today
	var keys []rlc.SeriesKey
	var days []rlc.SeriesDay
	flush := func() error {
		if len(keys) > 0 {
			if err := rd.r.cfg.Store.SaveSeries(ctx, keys); err != nil {
				return err
			}
		}
		if len(days) > 0 {
			if err := rd.r.cfg.Store.SaveDays(ctx, days); err != nil {
				return err
			}
		}
		keys, days = keys[:0], days[:0]
		return nil
	}
	for i := range rd.buckets {
		b := &rd.buckets[i]
		end := d.start.Add(day)
		for _, limit := range []time.Time{rd.end, b.end} {
			if !limit.IsZero() && limit.Before(end) {
				end = limit
			}
		}
		for _, s := range b.all() {
			// Only the bucket's sum tells how far reading has come: a key
			// without samples today has no day.
			if end.After(d.start) && (s == b.whole || s.rates != nil) {
				sketch, err := rd.sketch(ctx, s, end)
				if err != nil {
					return err
				}
				keys, days = append(keys, s.SeriesKey), append(days, sketch)
			}
			s.rates, s.drops = nil, nil
			if len(days) >= batch {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if rd.end.IsZero() || rd.end.After(d.start) {
		keys, days = append(keys, rd.line.SeriesKey), append(days, rd.sourceDay())
	}
	return flush()
}

// sketch is today's day of a series, of what was read before end.
func (rd *reading) sketch(ctx context.Context, s *series, end time.Time) (rlc.SeriesDay, error) {
	d := rd.today
	if err := rd.seed(ctx, s); err != nil {
		return rlc.SeriesDay{}, err
	}
	n := min(d.steps, int(end.Sub(d.start)/rd.step))
	values := s.rates
	if values == nil {
		values = make([]float64, n)
		for i := range values {
			values[i] = math.NaN()
		}
	}
	values = values[:n]
	out := stat.SketchDay(s.ID, d.start, rd.step, values, s.running.Point())
	for i := range out.Hours {
		rd.annotate(s, &out.Hours[i], values)
	}
	for i := n - 1; i >= 0; i-- {
		if valid(values[i]) {
			s.newest = d.start.Add(time.Duration(i+1) * rd.step)
			break
		}
	}
	if s.known && !d.start.After(s.sealed) {
		had, err := rd.r.cfg.Store.Days(ctx, s.ID, d.start, d.start.Add(day))
		if err != nil {
			return out, err
		}
		if len(had) == 1 {
			if reaches(had[0], rd.until, rd.step) {
				fresh := out
				fresh.Hours = slices.Clone(out.Hours)
				s.fresh = &fresh
			}
			out = better(out, had[0])
		}
	}
	out.Sealed = rd.sealed(end)
	s.running.Add(out)
	return out, nil
}

// reaches reports whether a day holds steps that end after until: another
// reading has seen more than this one may.
func reaches(d rlc.SeriesDay, until time.Time, step time.Duration) bool {
	for _, h := range d.Hours {
		if h.Start.Add(time.Duration(h.Present) * step).After(until) {
			return true
		}
	}
	n := len(d.Tail)
	return n > 0 && d.Tail[n-1].Time.Add(step).After(until)
}

// sealed is the end of today's closed hours among what was read before end.
func (rd *reading) sealed(end time.Time) time.Time {
	sealed := rd.req.Now.UTC().Add(-sealAfter).Truncate(time.Hour)
	for _, limit := range []time.Time{end.Truncate(time.Hour), rd.today.start.Add(day)} {
		if limit.Before(sealed) {
			sealed = limit
		}
	}
	if sealed.Before(rd.today.start) {
		return rd.today.start
	}
	return sealed
}

// seed gives a series its running point: the days before today.
func (rd *reading) seed(ctx context.Context, s *series) error {
	if s.seeded {
		return nil
	}
	s.seeded = true
	if !s.known {
		return nil
	}
	days, err := rd.r.cfg.Store.Days(ctx, s.ID, rd.today.start.Add(-28*day), rd.today.start)
	if err != nil {
		return err
	}
	for _, d := range days {
		s.running.Add(d)
	}
	return nil
}

// annotate adds what the profile's other queries told of an hour. An hour is
// unhealthy where the service was so in 5 % of the steps that have a sample; a
// step of which the share of targets is unknown is partial.
func (rd *reading) annotate(s *series, h *rlc.Hour, values []float64) {
	d := rd.today
	first := int(h.Start.Sub(d.start) / rd.step)
	sick := 0
	for i := first; i < min(first+int(time.Hour/rd.step), len(values)); i++ {
		if !valid(values[i]) {
			continue
		}
		if rd.healthy != "" && !d.healthy[i] {
			sick++
		}
		if rd.share != "" && !(d.share[i] >= complete) {
			h.Partial++
		}
	}
	h.Unhealthy = sick > 0 && float64(sick) >= 0.05*float64(h.Present)
	if s.drops != nil {
		offered := float64(h.Mean) * float64(h.Present) * rd.step.Seconds()
		if dropped := s.drops[h.Start.Sub(d.start)/time.Hour]; dropped > 0 {
			h.Drops = 1
			if offered > dropped {
				h.Drops = rlc.Ratio(dropped / offered)
			}
		}
	}
}

// better is a day read again: hours of which less came back than is stored
// keep what is stored.
func better(read, stored rlc.SeriesDay) rlc.SeriesDay {
	keep := map[time.Time]rlc.Hour{}
	for _, h := range stored.Hours {
		keep[h.Start] = h
	}
	for _, h := range read.Hours {
		if h.Present >= keep[h.Start].Present {
			delete(keep, h.Start)
		}
	}
	if len(keep) == 0 {
		return read
	}
	kept := func(t time.Time) bool { _, ok := keep[t.Truncate(time.Hour)]; return ok }
	floor := max(read.TailFloor, stored.TailFloor)
	out := rlc.SeriesDay{Series: read.Series, Day: read.Day, TailFloor: floor}
	for _, h := range read.Hours {
		if !kept(h.Start) {
			out.Hours = append(out.Hours, h)
		}
	}
	out.Hours = slices.AppendSeq(out.Hours, maps.Values(keep))
	slices.SortFunc(out.Hours, func(a, b rlc.Hour) int { return a.Start.Compare(b.Start) })
	for _, s := range read.Tail {
		if !kept(s.Time) && s.Rate >= floor {
			out.Tail = append(out.Tail, s)
		}
	}
	for _, s := range stored.Tail {
		if kept(s.Time) && s.Rate >= floor {
			out.Tail = append(out.Tail, s)
		}
	}
	slices.SortFunc(out.Tail, func(a, b rlc.Sample) int { return a.Time.Compare(b.Time) })
	return out
}

// sourceDay notes which source each of today's hours came from: its index
// stands where a series' rate does.
func (rd *reading) sourceDay() rlc.SeriesDay {
	d := rd.today
	out := rlc.SeriesDay{Series: rd.line.ID, Day: d.start}
	end := d.start.Add(day)
	if !rd.end.IsZero() && rd.end.Before(end) {
		end = rd.end
	}
	for n, i := range d.source {
		if at := d.start.Add(time.Duration(n) * time.Hour); i > 0 && at.Before(end) {
			v := rlc.Rate(i - 1)
			out.Hours = append(out.Hours, rlc.Hour{Start: at, Max: v, P99: v, Mean: v, Present: 1, Expected: 1})
		}
	}
	out.Sealed = rd.sealed(end)
	return out
}

// change is a change of source: from one hour to the next that has data.
type change struct {
	line     rlc.SeriesID
	at       time.Time
	from, to int
}

// maxChanges bounds the changes of source that a run looks into; older ones of
// a source that comes and goes are not.
const maxChanges = 4

// compareSources looks into the changes of source in the window: the day in
// which both sources should have data is read from both. A change is compared
// once per process.
func (rd *reading) compareSources(ctx context.Context) error {
	if len(rd.sources) < 2 || rd.problem != nil {
		return nil
	}
	days, err := rd.r.cfg.Store.Days(ctx, rd.line.ID, rd.from, rd.until)
	if err != nil {
		return err
	}
	var changes []change
	var last rlc.Hour
	for _, d := range days {
		for _, h := range d.Hours {
			if last.Present > 0 && h.Max != last.Max {
				changes = append(changes, change{rd.line.ID, h.Start, int(last.Max), int(h.Max)})
			}
			last = h
		}
	}
	changes = changes[max(0, len(changes)-maxChanges):]
	for _, c := range changes {
		rd.r.mu.Lock()
		differ, done := rd.r.agreed[c]
		rd.r.mu.Unlock()
		if done {
			rd.differ = append(rd.differ, differ)
			continue
		}
		differ, err := rd.compare(ctx, c)
		if err != nil {
			if rd.problem = rd.hold(ctx, err); rd.problem == nil {
				return err
			}
			rd.problems = append(rd.problems, *rd.problem)
			return nil
		}
		rd.differ = append(rd.differ, differ)
		if rd.until.Sub(c.at) < day {
			continue // there will be more to compare
		}
		rd.r.mu.Lock()
		if len(rd.r.agreed) >= 10_000 {
			clear(rd.r.agreed)
		}
		rd.r.agreed[c] = differ
		rd.r.mu.Unlock()
	}
	return nil
}

// compare finds the quotas for which two sources differ by more than 2 % over
// the steps that both have. An earlier source (a recording rule) that begins
// overlaps the later one in the day after the change; one that ends, in the day
// before.
func (rd *reading) compare(ctx context.Context, c change) (map[string]string, error) {
	from, to := c.at, c.at.Add(day)
	if c.to > c.from {
		from, to = c.at.Add(-day), c.at
	}
	if to.After(rd.until) {
		to = rd.until
	}
	steps := int(to.Sub(from) / rd.step)
	var sums [2]map[string][]float64 // by quota ID; NaN where there is no sample
	for n, source := range []int{c.from, c.to} {
		sums[n] = map[string][]float64{}
		err := rd.each(ctx, rd.sources[source], from, to, rd.step, rd.step, func(m model.Matrix) error {
			for _, s := range m {
				for _, h := range all(rd.matcher.Match(attributes(rd.req.Profile, s.Metric))) {
					if h.Key != nil && rd.buckets[h.Bucket].keys[h.Key.String()] == nil {
						continue
					}
					sum := sums[n][h.ID]
					if sum == nil {
						sum = slices.Repeat([]float64{math.NaN()}, steps)
						sums[n][h.ID] = sum
					}
					for _, p := range s.Values {
						at := int(p.Timestamp.Time().Sub(from)/rd.step) - 1
						switch v := float64(p.Value); {
						case at < 0 || at >= steps || !valid(v):
						case math.IsNaN(sum[at]):
							sum[at] = v
						default:
							sum[at] += v
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	when := c.at.UTC().Format("2006-01-02 15:04 UTC")
	differ := map[string]string{}
	ids := maps.Clone(sums[0])
	maps.Copy(ids, sums[1])
	for id := range ids {
		x, y := sums[0][id], sums[1][id]
		var a, b float64
		n := 0
		for i := range min(len(x), len(y)) {
			if !math.IsNaN(x[i]) && !math.IsNaN(y[i]) {
				a, b, n = a+x[i], b+y[i], n+1
			}
		}
		switch {
		case n == 0:
			differ[id] = fmt.Sprintf("the source changed at %s and the two have no step in common", when)
		case math.Abs(a-b) > 0.02*max(a, b):
			differ[id] = fmt.Sprintf("the source changed at %s; over the %d steps that both have, the mean is %.4g/s and %.4g/s", when, n, a/float64(n), b/float64(n))
		}
	}
	return differ, nil
}

// changed says why a series' source cannot be taken for one, "" where it can.
func (rd *reading) changed(s *series) string {
	for _, differ := range rd.differ {
		if why := differ[rlc.QuotaID(s.Bucket, s.Key)]; why != "" {
			return why
		}
	}
	return ""
}
