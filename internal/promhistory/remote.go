package promhistory

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"mime"
	"net/http"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
)

// Remote read: the raw samples of a plain selector, in XOR chunks as the server
// stores them, one series after the other. A day of a thousand series costs a
// thirtieth of the JSON that range queries give. Samples come to the grid of
// steps as range queries see them: a step's value is the newest sample in it,
// and a step whose newest sample is a stale marker has none.

var (
	// errNoRemote: the server has no remote read, or none that could be used.
	errNoRemote = errors.New("no streamed remote read")
	// errForeign: what remote read gives is not what range queries would see.
	errForeign = errors.New("remote read sees other labels or samples")
	// errCrowded: a bucket has more keys than quotas.max; they are ranked over a
	// whole answer, which a stream is not.
	errCrowded = errors.New("more keys than quotas.max")
	// errAgain: the chunk is to be read again, shorter or in another way.
	errAgain = errors.New("read the chunk again")
)

// staleNaN marks the end of a series (Prometheus, model/value).
const staleNaN uint64 = 0x7ff0000000000002

// streamBodies bounds the bytes of one stream: so many bodies of MaxBody.
const streamBodies = 16

// remote is the matchers by which expr can be read remotely in the chunk at
// hand; nil where it is to be range queries.
func (rd *reading) remote(expr string) []*prompb.LabelMatcher {
	if rd.r.cfg.RangeOnly || rd.rangeOnly || rd.crowded || rd.r.noRemote.Load() {
		return nil
	}
	m, ok := plainSelector(expr)
	if !ok {
		return nil
	}
	return m
}

// span is the length of the next chunk: a day where it is streamed.
func (rd *reading) span() time.Duration {
	if rd.remote(rd.sources[0]) == nil {
		return rd.fit()
	}
	const share = 25 // a streamed sample costs a fiftieth of one in JSON, and eight bytes until its hour is sketched
	hours := 24
	if rd.sets > 0 {
		hours = share * rd.r.cfg.SamplesPerQuery / (rd.sets * int(time.Hour/rd.step))
	}
	hours = min(max(hours, 1), 24)
	chunks := (24 + hours - 1) / hours
	hours = (24 + chunks - 1) / chunks // of the same length, so that none is longer than it must be
	return min(time.Duration(hours)*time.Hour, max(rd.chunk, time.Hour))
}

// again makes of a stream's error what is to be done with the chunk: errAgain
// after which nothing of it is kept, or the error itself.
func (rd *reading) again(ctx context.Context, from, to time.Time, err error) error {
	var s *status
	wait := time.Duration(0)
	switch size := to.Sub(from); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errNoRemote):
		rd.r.noRemote.Store(true)
		rd.r.cfg.Log.Info("history source has no streamed remote read: range queries instead", "reason", err)
	case errors.Is(err, errForeign), errors.Is(err, ErrQuery):
		rd.rangeOnly = true
		rd.r.cfg.Log.Info("range queries instead of remote read", "service", rd.req.Service.Name, "reason", err)
	case errors.Is(err, errCrowded):
		rd.crowded = true
	case errors.Is(err, ErrTooLarge) && size > time.Hour:
		rd.chunk = max((size / 2).Truncate(time.Hour), time.Hour)
	case errors.Is(err, ErrBusy), errors.Is(err, ErrTimeout):
		wait = time.Duration(rand.Int64N(int64(min(rd.r.cfg.MaxWait, 100*time.Millisecond<<rd.tries))))
		if errors.As(err, &s) && s.after > 0 {
			wait = min(s.after, rd.r.cfg.MaxWait)
		}
		if size > time.Hour {
			rd.chunk, rd.tries = max((size/2).Truncate(time.Hour), time.Hour), 0
		} else if rd.tries++; rd.tries > 1 {
			return err // the last resort was asked for twice
		}
	default:
		return err
	}
	rd.wipe(from, to)
	if err := sleep(ctx, wait); err != nil {
		return err
	}
	return errAgain
}

// wipe forgets what was read of the chunk at hand, [from, to).
func (rd *reading) wipe(from, to time.Time) {
	d := rd.today
	for s := range rd.series() {
		rd.release(s)
	}
	for at := int(from.Sub(d.start) / rd.step); at < int(to.Sub(d.start)/rd.step); at++ {
		hour := time.Duration(at) * rd.step / time.Hour
		d.seen[at], d.whole[hour], d.source[hour] = false, false, 0
	}
}

// streamed reads the steps of [from, to) of a selector by remote read. Take sees
// every label set's grid, whose first step is at, and removes what does not count.
func (rd *reading) streamed(ctx context.Context, expr string, matchers []*prompb.LabelMatcher, from, to time.Time, take func(at int, g *grid)) error {
	own, err := rd.ownLabels(ctx, expr)
	if err != nil {
		return err
	}
	n := int(to.Sub(from) / rd.step)
	g := &grid{
		from: from.UnixMilli(), step: rd.step.Milliseconds(), times: make([]int64, n), values: make([]float64, n),
		most: rd.r.cfg.MaxSamples - rd.samples,
	}
	first := int(from.Sub(rd.today.start) / rd.step)
	seen := map[model.Fingerprint]bool{}
	var current *route
	var labels []byte // of the current label set
	end := func() error {
		if current == nil {
			return nil
		}
		twin := g.twin || seen[current.print]
		seen[current.print] = true
		if len(seen) > rd.r.cfg.MaxSeries {
			return fmt.Errorf("%w: more than %d series in one answer", ErrTooLarge, rd.r.cfg.MaxSeries)
		}
		if g.samples > g.most {
			return fmt.Errorf("%w: more than %d", errBudget, rd.r.cfg.MaxSamples)
		}
		to, err := rd.targets(current, twin, labels)
		if err != nil {
			return err
		}
		g.end()
		take(first, g)
		for _, s := range to {
			g.addTo(rd.grid(s)[first-rd.today.first:])
		}
		return nil
	}
	req := &prompb.ReadRequest{
		Queries:               []*prompb.Query{{StartTimestampMs: from.UnixMilli() + 1, EndTimestampMs: to.UnixMilli(), Matchers: matchers}},
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
	}
	err = rd.r.http.remoteRead(ctx, req, func(p *piece) error {
		if current == nil || !bytes.Equal(labels, p.labels) {
			if err := end(); err != nil {
				return err
			}
			if current, err = rd.route(expr, own, p.labels); err != nil {
				return err
			}
			labels = append(labels[:0], p.labels...)
			g.begin()
		}
		return g.add(p.chunks)
	})
	if err == nil {
		err = end()
	}
	rd.sets = max(rd.sets, len(seen))
	rd.samples += g.samples
	rd.r.samples.Add(int64(g.samples))
	return err
}

// route is what a reading knows of a label set: it comes once a chunk, and is
// matched once.
type route struct {
	print model.Fingerprint
	hits  []routeHit
}

type routeHit struct {
	match.Hit
	key string // Key.String
}

// route finds a label set by the bytes it came as.
func (rd *reading) route(expr string, own map[string]bool, labels []byte) (*route, error) {
	known := rd.routes[expr]
	if r := known[string(labels)]; r != nil {
		return r, nil
	}
	m, err := labelSet(labels)
	if err != nil {
		return nil, fmt.Errorf("%w: a broken frame: %w", ErrBusy, err)
	}
	for name := range m {
		if rd.reads[string(name)] && !own[string(name)] {
			return nil, fmt.Errorf("%w: %s is an external label", errForeign, clip(string(name)))
		}
	}
	attrs := attributes(rd.req.Profile, m)
	rd.carried = true
	for a := range attrs {
		rd.labels[a] = true
	}
	r := &route{print: m.Fingerprint()}
	for _, h := range all(rd.matcher.Match(attrs)) {
		r.hits = append(r.hits, routeHit{h, h.Key.String()})
	}
	if known == nil || len(known) >= rd.r.cfg.MaxSeries {
		known = map[string]*route{}
		rd.routes[expr] = known
	}
	known[string(labels)] = r
	return r, nil
}

// targets are the series that a label set's samples are added to.
func (rd *reading) targets(r *route, twin bool, labels []byte) ([]*series, error) {
	to := rd.to[:0]
	for _, h := range r.hits {
		b := &rd.buckets[h.Bucket]
		if twin {
			m, _ := labelSet(labels)
			rd.freeze(h.Bucket, "the same label set came twice: "+clip(m.String()))
		}
		to = append(to, b.whole)
		if len(b.Each) == 0 {
			continue
		}
		k := b.keys[h.key]
		if k == nil {
			if most := rd.req.Service.MaxQuotas; b.only == nil && most > 0 && len(b.keys) >= most && storable(h.Key) {
				return nil, errCrowded
			}
			k = b.key(rd, h.Hit)
		}
		if k != nil {
			to = append(to, k)
		}
	}
	rd.to = to
	return to, nil
}

// ownLabels are the names of the labels that expr's series have in the server's
// index, once per reading. Remote read adds the server's external labels, which
// queries do not see: a label that matters and is not the series' own is one.
func (rd *reading) ownLabels(ctx context.Context, expr string) (map[string]bool, error) {
	if own := rd.own[expr]; own != nil {
		return own, nil
	}
	names, warnings, _, err := rd.r.api.LabelNames(ctx, []string{expr}, rd.today.start, rd.until)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("%w: list labels: %w", errForeign, rd.r.http.translate(err))
	case warningText(warnings) != "":
		return nil, fmt.Errorf("%w: list labels: %s", errForeign, warningText(warnings))
	}
	own := map[string]bool{}
	for _, n := range names {
		own[string(n)] = true
	}
	rd.own[expr] = own
	return own, nil
}

// readLabels are the names of the labels that decide where a sample goes.
func readLabels(p *rlc.Profile, exprs ...string) map[string]bool {
	names := map[string]bool{}
	for _, a := range p.Attributes {
		for _, l := range a.Metric {
			names[l] = true
		}
	}
	for _, e := range exprs {
		matchers, _ := plainSelector(e)
		for _, m := range matchers {
			names[m.Name] = true
		}
	}
	return names
}

// grid holds the newest sample of each step of one label set. Its size is that
// of a chunk, whatever the number of label sets.
type grid struct {
	from, step  int64 // milliseconds; step i is (from + i×step, from + (i+1)×step]
	times       []int64
	values      []float64
	first, last int   // the steps that may hold a sample
	newest      int64 // of the label set so far
	twin        bool  // the label set came twice
	samples     int   // seen so far, of all label sets
	most        int   // that may be seen
	chunk       samples
}

// begin makes the grid empty for the next label set.
func (g *grid) begin() {
	clear(g.times)
	g.first, g.last, g.newest, g.twin = len(g.times), 0, math.MinInt64, false
}

// add puts a frame's chunks of the label set on the grid. A frame goes on where
// the one before ended, or it is the same label set once more.
func (g *grid) add(chunks []xorChunk) error {
	before := g.newest
	for _, c := range chunks {
		if c.encoding != int32(prompb.Chunk_XOR) {
			return fmt.Errorf("%w: chunks of encoding %d", errForeign, c.encoding)
		}
		if err := g.chunk.decode(c.data); err != nil {
			return fmt.Errorf("%w: a broken chunk: %w", ErrBusy, err)
		}
		if !g.row(before) {
			g.each(before)
		}
		if g.samples > g.most {
			return fmt.Errorf("%w: %d more than are left", errBudget, g.samples-g.most)
		}
	}
	return nil
}

// row puts the decoded chunk on the grid as a whole, where it is as usual: a
// sample a step, after all that is there. It reports whether that is so.
func (g *grid) row(before int64) bool {
	times, values := g.chunk.times, g.chunk.values
	if !g.chunk.regular || len(times) < 2 || times[1]-times[0] != g.step {
		return false
	}
	if early := g.from - times[0]; early >= 0 { // old servers send whole chunks
		n := min(int(early/g.step)+1, len(times))
		times, values = times[n:], values[n:]
	}
	if len(times) == 0 {
		return true
	}
	i := int((times[0] - g.from - 1) / g.step)
	if i >= len(g.times) {
		return true
	}
	n := min(len(times), len(g.times)-i)
	if i < g.last || times[0] <= before {
		return false
	}
	copy(g.times[i:], times[:n])
	copy(g.values[i:], values[:n])
	g.samples += n
	g.newest = max(g.newest, times[n-1])
	g.first, g.last = min(g.first, i), i+n
	return true
}

// each is row sample by sample.
func (g *grid) each(before int64) {
	for k, t := range g.chunk.times {
		i := (t - g.from - 1) / g.step
		if t <= g.from || i >= int64(len(g.times)) {
			continue
		}
		g.samples++
		g.twin = g.twin || t <= before
		g.newest = max(g.newest, t)
		if g.times[i] == 0 || t >= g.times[i] {
			g.times[i], g.values[i] = t, g.chunk.values[k]
			g.first, g.last = min(g.first, int(i)), max(g.last, int(i)+1)
		}
	}
}

// end removes the steps at which the label set ended.
func (g *grid) end() {
	for i, v := range g.values[g.first:max(g.first, g.last)] {
		if math.Float64bits(v) == staleNaN {
			g.times[g.first+i] = 0
		}
	}
}

// addTo adds the label set's samples to rates, whose first step is the grid's.
func (g *grid) addTo(rates []float64) {
	if g.first >= g.last {
		return // no sample
	}
	times, values := g.times[g.first:g.last], g.values[g.first:g.last]
	rates = rates[g.first:g.last]
	for i, t := range times {
		if t == 0 {
			continue
		}
		v, had := values[i], rates[i]
		switch rate := v >= 0 && v <= math.MaxFloat64; {
		case rate && had >= 0:
			rates[i] = had + v
		case rate && had != had: // the first
			rates[i] = v + 0
		default:
			rates[i] = plus(had, v)
		}
	}
}

// remoteRead sends one request and hands on the answer's series as they come.
func (c *client) remoteRead(ctx context.Context, q *prompb.ReadRequest, use func(*piece) error) error {
	b, err := q.Marshal()
	if err != nil {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL("/api/v1/read", nil).String(), bytes.NewReader(snappy.Encode(nil, b)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	return c.send(ctx, req, func(res *http.Response) error {
		switch kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); {
		case res.StatusCode == http.StatusNotFound, res.StatusCode == http.StatusMethodNotAllowed, res.StatusCode == http.StatusNotImplemented, res.StatusCode == http.StatusUnsupportedMediaType:
			return fmt.Errorf("%w: status %d", errNoRemote, res.StatusCode)
		case res.StatusCode/100 != 2:
			body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
			return c.status(res, body)
		case kind != "application/x-streamed-protobuf":
			return fmt.Errorf("%w: an answer of type %q", errNoRemote, clip(kind))
		}
		return frames(bufio.NewReaderSize(res.Body, 64<<10), c.maxBody, use)
	})
}
