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

// fold adds the hours of the chunk at hand to the sketches of today, and gives
// its grids back: whatever the step, a reading holds the samples of one chunk.
func (rd *reading) fold(ctx context.Context) error {
	d := rd.today
	hour := int(time.Hour / rd.step)
	if err := rd.seed(ctx, func(s *series) bool { return s.rates != nil }); err != nil {
		return err
	}
	for s := range rd.series() {
		if s.rates == nil {
			continue
		}
		if !s.begun {
			if s.today == nil {
				s.today = &stat.Day{}
			}
			s.today.Begin(d.start, rd.step, s.before(d.start))
			s.begun = true
		}
		for i, v := range s.rates {
			s.rates[i] = cut(v)
		}
		s.today.Foresee(s.rates)
		for first := 0; first < len(s.rates); first += hour {
			values := s.rates[first:min(first+hour, len(s.rates))]
			h := s.today.Add(time.Duration(d.first+first)*rd.step, rd.step, values)
			if h == nil {
				continue
			}
			h.Mean = rlc.Rate(cut(float64(h.Mean)))
			rd.annotate(h, d.first+first, values)
			for i := len(values) - 1; i >= 0; i-- {
				if valid(values[i]) {
					s.latest = d.start.Add(time.Duration(d.first+first+i+1) * rd.step)
					break
				}
			}
		}
		rd.release(s)
	}
	return nil
}

// cut leaves of a rate the digits that a float32 has, seven, and never makes it
// more: what is recorded of a day takes half the bytes then. Limits are rounded up
// to three digits.
func cut(v float64) float64 {
	const rest = 1<<(52-23) - 1
	return math.Float64frombits(math.Float64bits(v) &^ rest)
}

// finish ends the sketches of today.
func (rd *reading) finish(ctx context.Context) error {
	d := rd.today
	if err := rd.seed(ctx, func(s *series) bool { return s.whole }); err != nil {
		return err
	}
	for i := range rd.buckets {
		b := &rd.buckets[i]
		end := d.start.Add(day)
		for _, limit := range []time.Time{rd.end, b.end} {
			if !limit.IsZero() && limit.Before(end) {
				end = limit
			}
		}
		for some := range slices.Chunk(b.all(), together) {
			had, err := rd.had(ctx, some)
			if err != nil {
				return err
			}
			for _, s := range some {
				if err := rd.finishSeries(ctx, s, end, had[s.ID]); err != nil {
					return err
				}
			}
			if rd.unsaved.size >= mostUnsaved {
				if err := rd.save(ctx); err != nil {
					return err
				}
			}
		}
	}
	if rd.end.IsZero() || rd.end.After(d.start) {
		line := rd.sourceDay()
		return rd.keep(rd.line.SeriesKey, &line, true)
	}
	return nil
}

// finishSeries ends today's sketch of a series, and that of its one-second peaks.
// Only a bucket's sum tells how far reading has come: a key without samples today
// has no day.
func (rd *reading) finishSeries(ctx context.Context, s *series, end time.Time, had rlc.SeriesDay) error {
	if end.After(rd.today.start) && (s.whole || s.begun) {
		d := rd.sketch(s, end, had)
		if err := rd.keep(s.SeriesKey, &d, s.whole); err != nil {
			return err
		}
	}
	if end.After(rd.today.start) && s.seconds != nil {
		key, peaks, err := rd.secondsDay(ctx, s, end)
		if err != nil {
			return err
		}
		if err := rd.keep(key, &peaks, false); err != nil {
			return err
		}
	}
	s.begun, s.drops, s.seconds = false, nil, nil
	return nil
}

// had are the days that today replaces, of the series that have one.
func (rd *reading) had(ctx context.Context, all []*series) (map[rlc.SeriesID]rlc.SeriesDay, error) {
	d := rd.today
	var again []*series
	for _, s := range all {
		if s.known && !d.start.After(s.sealed) && (s.whole || s.begun) {
			again = append(again, s)
		}
	}
	had := make(map[rlc.SeriesID]rlc.SeriesDay, len(again))
	return had, rd.stored(ctx, again, d.start, d.start.Add(day), func(s *series, d *rlc.SeriesDay) error {
		had[s.ID] = *d
		d.Hours, d.Tail = nil, nil // ours now
		return nil
	})
}

// sketch is today's day of a series, of what was read before end, until the next
// one is made. Had is the stored day that it replaces, the zero value for none.
func (rd *reading) sketch(s *series, end time.Time, had rlc.SeriesDay) rlc.SeriesDay {
	out := rlc.SeriesDay{Series: s.ID, Day: rd.today.start}
	if s.begun {
		out, s.newest = s.today.Sketch(s.ID, rd.sketched), s.latest
		rd.sketched = out
	}
	for i := range out.Hours {
		rd.dropsOf(s, &out.Hours[i])
	}
	if had.Series != "" {
		if reaches(had, rd.until, rd.step) {
			fresh := out
			fresh.Hours, fresh.Tail = slices.Clone(out.Hours), slices.Clone(out.Tail)
			s.fresh = &fresh
		}
		out = better(out, had)
	}
	out.Sealed = rd.sealed(end)
	if s.point == nil {
		s.running.Add(out)
	}
	return out
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

// pointFor is how long a series' running point serves the readings after the one
// that found it: of 28 days two move it little, and a tail always holds the
// upper 5 % of its own day.
const pointFor = 48 * time.Hour

// before is the running point of the days before a day, which is begun.
func (s *series) before(day time.Time) rlc.Rate {
	rate, ok := s.remembered(day)
	if !ok {
		rate = s.running.Point()
	}
	s.had[0], s.had[1] = s.had[1], begun{day, rate}
	return rate
}

// remembered is what the reading before knows of a day's running point.
func (s *series) remembered(midnight time.Time) (rlc.Rate, bool) {
	switch p := s.point; {
	case p == nil:
		return 0, false
	case p.had[0].day.Equal(midnight):
		return p.had[0].rate, true
	case p.had[1].day.Equal(midnight):
		return p.had[1].rate, true
	default:
		return p.rate, !midnight.Before(p.at.Truncate(day))
	}
}

// seed gives the series that want it their running point: the one that the
// reading before found, or that of the days before today.
func (rd *reading) seed(ctx context.Context, wants func(*series) bool) error {
	var unknown []*series
	rd.r.mu.Lock()
	for s := range rd.series() {
		if s.seeded || !wants(s) {
			continue
		}
		s.seeded = true
		if !s.known {
			continue
		}
		p, ok := rd.r.points[s.ID]
		if since := rd.until.Sub(p.at); ok && since >= 0 && since <= pointFor {
			s.point = &p
			if _, ok := s.remembered(rd.today.start); ok {
				continue
			}
			s.point = nil
		}
		unknown = append(unknown, s)
	}
	rd.r.mu.Unlock()
	return rd.stored(ctx, unknown, rd.today.start.Add(-28*day), rd.today.start, func(s *series, d *rlc.SeriesDay) error {
		s.running.Add(*d)
		return nil
	})
}

// mostPoints bounds what is remembered of series that may be gone.
const mostPoints = 1 << 20

// remember keeps the running point for the reading after this one. Of a series
// that was not seeded from its days, window has them.
func (rd *reading) remember(s *series, window *stat.Running) {
	if s.point == nil {
		window = &s.running
	}
	rate := window.Point()
	s.running = stat.Running{} // thousands of them are what a reading holds most of
	rd.r.mu.Lock()
	defer rd.r.mu.Unlock()
	if len(rd.r.points) >= mostPoints {
		clear(rd.r.points)
	}
	rd.r.points[s.ID] = point{rate, rd.until, s.had}
}

// annotate adds what the profile's other queries told of an hour whose steps
// begin at first. An hour is unhealthy where the service was so in 5 % of the
// steps that have a sample; a step of which the share of targets is unknown is
// partial.
func (rd *reading) annotate(h *rlc.Hour, first int, values []float64) {
	if rd.healthy == "" && rd.share == "" {
		return
	}
	d := rd.today
	sick := 0
	for i, v := range values {
		if !valid(v) {
			continue
		}
		if rd.healthy != "" && !d.healthy[first+i] {
			sick++
		}
		if rd.share != "" && !(d.share[first+i] >= complete) {
			h.Partial++
		}
	}
	h.Unhealthy = sick > 0 && float64(sick) >= 0.05*float64(h.Present)
}

// dropsOf adds the share of an hour's requests that our own enforcers dropped.
func (rd *reading) dropsOf(s *series, h *rlc.Hour) {
	if s.drops == nil {
		return
	}
	dropped := s.drops[h.Start.Sub(rd.today.start)/time.Hour]
	if dropped <= 0 {
		return
	}
	h.Drops = 1
	if offered := float64(h.Mean) * float64(h.Present) * rd.step.Seconds(); offered > dropped {
		h.Drops = rlc.Ratio(dropped / offered)
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
			differ[id] = fmt.Sprintf("the source changed at %s; over the %d steps that both have, the mean is %s and %s", when, n, stat.RateText(rlc.Rate(a/float64(n))), stat.RateText(rlc.Rate(b/float64(n))))
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
