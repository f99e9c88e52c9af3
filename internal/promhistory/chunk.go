package promhistory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
)

// complete is the share of targets below which a step is partial.
const complete = 0.95

// unknown marks a step of which a part is not known: the sum is not either.
const unknown = -1

// readChunk reads [from, to) of today from every query and adds it to the
// series. A sample at t is the mean rate of the step that ends at t.
func (rd *reading) readChunk(ctx context.Context, from, to time.Time) error {
	missing := [2]time.Time{from, to} // the hours that no source has had data for
	for i, source := range rd.sources {
		first, last := missing[0], missing[1]
		if m := rd.remote(source); m != nil {
			if err := rd.streamed(ctx, source, m, first, last, func(at int, g *grid) { rd.offersAll(at, g, i) }); err != nil {
				return rd.again(ctx, from, to, err)
			}
		} else if err := rd.each(ctx, source, first, last, rd.step, rd.step, func(m model.Matrix) error { return rd.offered(ctx, m, i) }); err != nil {
			return err
		}
		if missing = rd.without(first, last); !missing[0].Before(missing[1]) {
			break
		}
	}
	if m := rd.remote(rd.refused); m != nil {
		if err := rd.streamed(ctx, rd.refused, m, from, to, rd.offeredToo); err != nil {
			return rd.again(ctx, from, to, err)
		}
	} else if rd.refused != "" {
		err := rd.each(ctx, rd.refused, from, to, rd.step, rd.step, func(m model.Matrix) error {
			return rd.partition(ctx, m, func(s *series, at int, v float64) {
				if rd.today.seen[at] {
					rd.add(s, at, v)
				}
			})
		})
		if err != nil {
			return err
		}
	}
	if err := rd.states(ctx, from, to); err != nil {
		return err
	}
	if first, last := from.Truncate(time.Hour), to.Truncate(time.Hour); rd.drops != "" && first.Before(last) {
		err := rd.each(ctx, rd.drops, first, last, time.Hour, 0, func(m model.Matrix) error {
			return rd.dropped(ctx, m)
		})
		if err != nil {
			return err
		}
	}
	return rd.readPeaks(ctx, from, to)
}

// each evaluates expr over the steps of [from, to), in as many queries as it
// takes, and hands each answer on. On a busy server or a timeout the queries
// halve, down to an hour; on an answer that is too large, down to some steps.
// Retry-After is waited for.
func (rd *reading) each(ctx context.Context, expr string, from, to time.Time, step, lookback time.Duration, use func(model.Matrix) error) error {
	tries := 0
	for size := rd.fit(); from.Before(to); {
		end := from.Add(size)
		if end.After(to) {
			end = to
		}
		m, err := rd.r.rangeQuery(ctx, expr, from.Add(step), end, step, lookback)
		var s *status
		switch {
		case err == nil:
		case errors.Is(err, ErrTooLarge):
			if size = end.Sub(from) / 2; size < 5*step {
				return err
			}
			size = size.Truncate(step)
			rd.chunk = min(rd.chunk, max(size.Truncate(time.Hour), time.Hour))
			continue
		case errors.Is(err, ErrBusy), errors.Is(err, ErrTimeout):
			wait := time.Duration(rand.Int64N(int64(min(rd.r.cfg.MaxWait, 100*time.Millisecond<<tries))))
			if errors.As(err, &s) && s.after > 0 {
				wait = min(s.after, rd.r.cfg.MaxWait)
			}
			if size = min(size, end.Sub(from)); size <= time.Hour {
				// The last resort is asked for twice.
				if tries > 0 {
					return err
				}
			} else {
				size = max((size / 2).Truncate(time.Hour), time.Hour)
				rd.chunk = min(rd.chunk, size)
				tries = -1
			}
			tries++
			if err := sleep(ctx, wait); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		for _, s := range m {
			rd.samples += len(s.Values)
			rd.r.samples.Add(int64(len(s.Values)))
		}
		if rd.samples > rd.r.cfg.MaxSamples {
			return fmt.Errorf("%w: more than %d", errBudget, rd.r.cfg.MaxSamples)
		}
		if err := use(m); err != nil {
			return err
		}
		from, tries = end, 0
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// without bounds the hours of [from, to) that no source had data for.
func (rd *reading) without(from, to time.Time) [2]time.Time {
	first, last := to, from
	for t := from; t.Before(to); t = t.Truncate(time.Hour).Add(time.Hour) {
		if rd.today.source[rd.hour(t)] == 0 {
			if t.Before(first) {
				first = t
			}
			if last = t.Truncate(time.Hour).Add(time.Hour); last.After(to) {
				last = to
			}
		}
	}
	return [2]time.Time{first, last}
}

func (rd *reading) hour(t time.Time) int { return int(t.Sub(rd.today.start) / time.Hour) }

// offered adds a source's answer, for the hours that an earlier source has no
// data of.
func (rd *reading) offered(ctx context.Context, m model.Matrix, source int) error {
	rd.sets = max(rd.sets, len(m))
	for _, s := range m {
		for _, p := range s.Values {
			if at, ok := rd.at(p.Timestamp); ok {
				rd.offers(at, float64(p.Value), source)
			}
		}
	}
	return rd.partition(ctx, m, func(s *series, at int, v float64) {
		if rd.offers(at, v, source) {
			rd.add(s, at, v)
		}
	})
}

// offers notes a source's value at a step and reports whether it counts: the
// hour must not be an earlier source's.
func (rd *reading) offers(at int, v float64, source int) bool {
	d := rd.today
	hour := time.Duration(at) * rd.step / time.Hour
	if had := d.source[hour]; had != 0 && had != source+1 {
		return false
	}
	if valid(v) {
		d.seen[at], d.source[hour] = true, source+1
	}
	return true
}

// offersAll is offers for a label set's steps, the first of which is at: those
// that do not count leave the grid.
func (rd *reading) offersAll(at int, g *grid, source int) {
	d := rd.today
	hour := int(time.Hour / rd.step)
	for i := g.first; i < g.last; {
		n := (at + i) / hour
		end := min(g.last, (n+1)*hour-at)
		if had := d.source[n]; had != 0 && had != source+1 {
			clear(g.times[i:end])
			i = end
			continue
		}
		if d.whole[n] { // nothing to learn
			i = end
			continue
		}
		count := 0
		for ; i < end; i++ {
			if g.times[i] != 0 && valid(g.values[i]) {
				d.seen[at+i], d.source[n] = true, source+1
				count++
			}
		}
		d.whole[n] = count == hour
	}
}

// offeredToo takes the steps off the grid at which nothing was offered.
func (rd *reading) offeredToo(at int, g *grid) {
	for i := g.first; i < g.last; i++ {
		if !rd.today.seen[at+i] {
			g.times[i] = 0
		}
	}
}

// at is the index in today of the step that ends at t; ok is false where t does
// not lie on the grid of the chunk at hand.
func (rd *reading) at(t model.Time) (int, bool) {
	d := rd.today
	since := t.Time().Sub(d.start)
	i := int(since/rd.step) - 1
	return i, since%rd.step == 0 && i >= d.first && i < d.last
}

func valid(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }

func (rd *reading) add(s *series, at int, v float64) {
	rates := rd.grid(s)
	at -= rd.today.first
	rates[at] = plus(rates[at], v)
}

// grid is a series' rates in the chunk at hand.
func (rd *reading) grid(s *series) []float64 {
	if s.rates != nil {
		return s.rates
	}
	n := rd.today.last - rd.today.first
	if last := len(rd.free) - 1; last >= 0 && cap(rd.free[last]) >= n {
		s.rates, rd.free = rd.free[last][:n], rd.free[:last]
	} else {
		s.rates = make([]float64, n)
	}
	for i := range s.rates {
		s.rates[i] = math.NaN()
	}
	return s.rates
}

// release takes a series' grid back.
func (rd *reading) release(s *series) {
	if s.rates != nil {
		rd.free, s.rates = append(rd.free, s.rates), nil
	}
}

// plus adds a label set's value to what a step has: unknown once a part is.
func plus(had, v float64) float64 {
	switch {
	case !valid(v) || had == unknown:
		return unknown
	case math.IsNaN(had):
		return v + 0 // minus zero is a legal answer, and no rate
	}
	return had + v
}

// partition gives every sample of every label set to the series that the
// matcher names: one quota bucket's, its caps', and those of the buckets as a
// whole. A label set that comes twice freezes its buckets.
func (rd *reading) partition(ctx context.Context, m model.Matrix, add func(s *series, at int, v float64)) error {
	hits := make([]match.Result, len(m))
	seen := make(map[model.Fingerprint]model.Metric, len(m))
	for i, s := range m {
		attrs := attributes(rd.req.Profile, s.Metric)
		rd.carried = true
		for a := range attrs {
			rd.labels[a] = true
		}
		hits[i] = rd.matcher.Match(attrs)
		if twin, ok := seen[s.Metric.FastFingerprint()]; ok && twin.Equal(s.Metric) {
			for _, h := range all(hits[i]) {
				rd.freeze(h.Bucket, "the same label set came twice: "+clip(s.Metric.String()))
			}
		}
		if !ascending(s.Values) {
			for _, h := range all(hits[i]) {
				rd.freeze(h.Bucket, "samples came twice or out of order: "+clip(s.Metric.String()))
			}
		}
		seen[s.Metric.FastFingerprint()] = s.Metric
	}
	if err := rd.bound(ctx, m, hits); err != nil {
		return err
	}
	for i, s := range m {
		for _, h := range all(hits[i]) {
			b := &rd.buckets[h.Bucket]
			to := []*series{b.whole}
			if len(b.Each) > 0 {
				if k := b.key(rd, h); k != nil {
					to = append(to, k)
				}
			}
			for _, p := range s.Values {
				if at, ok := rd.at(p.Timestamp); ok {
					for _, series := range to {
						add(series, at, float64(p.Value))
					}
				}
			}
		}
	}
	return nil
}

// ascending reports whether each sample is newer than the one before it.
func ascending(values []model.SamplePair) bool {
	for i := 1; i < len(values); i++ {
		if values[i].Timestamp <= values[i-1].Timestamp {
			return false
		}
	}
	return true
}

// all lists the buckets that a label set belongs to.
func all(r match.Result) []match.Hit {
	if r.Quota.Bucket < 0 {
		return r.Caps
	}
	return append([]match.Hit{r.Quota}, r.Caps...)
}

// freeze keeps a bucket as it was before today: the server contradicts itself.
func (rd *reading) freeze(bucket int, why string) {
	b := &rd.buckets[bucket]
	if b.problem == nil {
		b.problem = &rlc.HistoryProblem{Rule: "duplicate", Detail: why}
		b.end = rd.today.start
	}
}

// key finds or makes the series of a key; nil where it is left out.
func (b *bucketState) key(rd *reading, h match.Hit) *series {
	name := h.Key.String()
	if s := b.keys[name]; s != nil {
		return s
	}
	if !storable(h.Key) {
		b.odd++
		return nil
	}
	if b.only != nil && !b.only[name] {
		b.left[name] = true
		return nil
	}
	s := &series{SeriesKey: rlc.SeriesKey{ID: rd.ids.of(h.Bucket, h.Key), Service: rd.req.Service.Name, Bucket: b.Name, Key: h.Key}}
	b.keys[name] = s
	return s
}

// bound sees to it that no bucket has more keys than quotas.max: the smallest
// by traffic over the window are left out.
func (rd *reading) bound(ctx context.Context, m model.Matrix, hits []match.Result) error {
	for i := range rd.buckets {
		b := &rd.buckets[i]
		most := rd.req.Service.MaxQuotas
		if len(b.Each) == 0 || b.only != nil || most <= 0 || len(b.keys)+len(hits) <= most {
			continue
		}
		keys := map[string]bool{}
		for name := range b.keys {
			keys[name] = true
		}
		for _, r := range hits {
			for _, h := range all(r) {
				if h.Bucket == i && storable(h.Key) {
					keys[h.Key.String()] = true
				}
			}
		}
		if len(keys) <= most {
			continue
		}
		if err := rd.rank(ctx, m, hits); err != nil {
			return err
		}
		for id := range rd.ranks {
			if name, ok := strings.CutPrefix(id, b.Name+"/"); ok {
				keys[name] = true
			}
		}
		order := make([]string, 0, len(keys))
		for name := range keys {
			order = append(order, name)
		}
		sort.Slice(order, func(x, y int) bool {
			p, q := rd.ranks[b.Name+"/"+order[x]], rd.ranks[b.Name+"/"+order[y]]
			return p > q || p == q && order[x] < order[y]
		})
		b.only = map[string]bool{}
		for n, name := range order {
			if n < most {
				b.only[name] = true
			} else {
				b.left[name] = true
				delete(b.keys, name)
			}
		}
	}
	return nil
}

// rank learns the mean rate of every key over the window, once per reading and
// only where there are too many: one query at a sample an hour. Where it is
// refused, the chunk at hand decides.
func (rd *reading) rank(ctx context.Context, m model.Matrix, hits []match.Result) error {
	if rd.ranks != nil {
		return nil
	}
	rd.ranks = map[string]float64{}
	window := max(rd.until.Sub(rd.from).Truncate(time.Hour), time.Hour)
	for _, source := range rd.sources {
		v, err := rd.r.instant(ctx, fmt.Sprintf("sum_over_time((%s)[%ds:1h])", source, int(window.Seconds())), rd.until)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			rd.r.cfg.Log.Warn("rank keys by traffic", "service", rd.req.Service.Name, "error", err)
			rd.ranks = map[string]float64{}
			break
		}
		for _, s := range v {
			if valid(float64(s.Value)) {
				rd.weigh(rd.matcher.Match(attributes(rd.req.Profile, s.Metric)), float64(s.Value))
			}
		}
	}
	if len(rd.ranks) == 0 {
		for i, s := range m {
			for _, p := range s.Values {
				if valid(float64(p.Value)) {
					rd.weigh(hits[i], float64(p.Value))
				}
			}
		}
	}
	return nil
}

func (rd *reading) weigh(r match.Result, v float64) {
	for _, h := range all(r) {
		if len(h.Key) > 0 && storable(h.Key) {
			rd.ranks[h.ID] += v
		}
	}
}

// states reads, for the steps of [from, to), whether the service was healthy
// and which share of its targets reported.
func (rd *reading) states(ctx context.Context, from, to time.Time) error {
	if rd.healthy != "" {
		if err := rd.health(ctx, from, to); err != nil {
			return err
		}
	}
	if rd.share == "" {
		return nil
	}
	return rd.each(ctx, rd.share, from, to, rd.step, 0, func(m model.Matrix) error {
		rd.points(m, func(at int, v float64) {
			// Of several answers the least share counts.
			if had := rd.today.share[at]; valid(v) && (math.IsNaN(had) || v < had) {
				rd.today.share[at] = v
			}
		})
		return nil
	})
}

func (rd *reading) points(m model.Matrix, f func(at int, v float64)) {
	for _, s := range m {
		for _, p := range s.Values {
			if at, ok := rd.at(p.Timestamp); ok {
				f(at, float64(p.Value))
			}
		}
	}
}

// dropped adds what enforcers dropped in the hour that ends at each sample.
func (rd *reading) dropped(ctx context.Context, m model.Matrix) error {
	return rd.partition(ctx, m, func(s *series, at int, v float64) {
		if end := time.Duration(at+1) * rd.step; valid(v) && end%time.Hour == 0 {
			if s.drops == nil {
				s.drops = make([]float64, 24)
			}
			s.drops[end/time.Hour-1] += v
		}
	})
}

// series are all of a reading's, in no order.
func (rd *reading) series() iter.Seq[*series] {
	return func(yield func(*series) bool) {
		for i := range rd.buckets {
			b := &rd.buckets[i]
			if !yield(b.whole) {
				return
			}
			for _, s := range b.keys {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// all lists a bucket's series, the bucket as a whole last: its days say how far
// reading has come, and are saved when those of its keys are.
func (b *bucketState) all() []*series {
	all := make([]*series, 0, len(b.keys)+1)
	for _, name := range slices.Sorted(maps.Keys(b.keys)) {
		all = append(all, b.keys[name])
	}
	return append(all, b.whole)
}
