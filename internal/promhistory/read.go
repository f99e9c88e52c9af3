package promhistory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
	"github.com/openrlc/rlc/internal/stat"
)

const (
	day = 24 * time.Hour
	// sealAfter is how long after its end an hour may still change.
	sealAfter = 15 * time.Minute
	// mendFor is how long a sealed hour that misses samples is read again.
	mendFor = 48 * time.Hour
	// maxSkew is how far the server's clock may be off.
	maxSkew = 2 * time.Minute
	// silentFor is how long a series may be silent before it counts as gone.
	silentFor = 24 * time.Hour
)

// Service reads the history of every bucket of a service up to req.Now, saves
// the sketches, and yields those of the computed buckets one at a time, sorted
// by bucket and key. What cannot be trusted is in a series' Problems, the
// gravest first; they hold the quota. An error means that the service as a
// whole could not be read and that nothing was yielded for want of it, or that
// yield or the store failed.
//
// Hand-written and cap buckets are sketched too, for their charts. A bucket
// with each of which keys were left out, or whose attributes history lacks, is
// yielded once more without a key, for the problem it carries.
//
// The window begins with the UTC day of Now − Lookback; History is cut to it.
// Its hours and its tail are yield's until that returns.
func (r *Reader) Service(ctx context.Context, req rlc.HistoryRequest, yield func(rlc.Series) error) error {
	defer r.serve(req.Service.Name)()
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ServiceTimeout)
	defer cancel()
	rd, err := r.prepare(ctx, req)
	if err == nil {
		err = rd.read(ctx)
		rd.letGo()
	}
	if err == nil {
		err = rd.yield(ctx, yield)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && outer.Err() == nil:
		return fmt.Errorf("read history of %s: it takes longer than the %s that a service has: %w", req.Service.Name, rlc.DurationText(r.cfg.ServiceTimeout), err)
	}
	return fmt.Errorf("read history of %s: %w", req.Service.Name, err)
}

// serve waits until nobody else reads the service.
func (r *Reader) serve(service string) (done func()) {
	r.mu.Lock()
	m := r.servings[service]
	if m == nil {
		m = &sync.Mutex{}
		r.servings[service] = m
	}
	r.mu.Unlock()
	m.Lock()
	return m.Unlock
}

// reading is one reading of one service.
type reading struct {
	r       *Reader
	req     rlc.HistoryRequest
	matcher *match.Matcher
	ids     *identity
	sources []string // expanded, as are the next three; "" for none
	refused string
	healthy string
	share   string // of targets that report
	drops   string // dropped requests by our own enforcers, per hour
	peaks   string // highest one-second rate, per hour
	step    time.Duration
	from    time.Time // midnight
	until   time.Time // end of the last step that is over

	buckets   []bucketState
	line      *series // which source each hour came from
	chunk     time.Duration
	sets      int // label sets in the last answer
	samples   int
	tries     int                          // of a stream that could not be shorter
	rangeOnly bool                         // remote read cannot be used in this reading
	crowded   bool                         // nor in the chunk at hand
	reads     map[string]bool              // labels that decide where a sample goes
	own       map[string]map[string]bool   // by expression: labels that its series have
	routes    map[string]map[string]*route // by expression and label fields
	to        []*series                    // room for targets
	ranks     map[string]float64           // traffic by quota ID, once keys had to be ranked
	labels    map[string]bool              // attributes that some label set carried
	carried   bool                         // some label set was read

	today    *dayState
	free     [][]float64   // grids that no series uses
	sketched rlc.SeriesDay // room for the next
	unsaved  unsaved
	window   stat.Running          // of the series whose days are read
	joined   []stat.Joined         // of the series that are yielded next
	saved    map[rlc.SeriesID]bool // by name, in this reading
	end      time.Time             // nothing from here on is sealed or kept: the first chunk that failed
	problem  *rlc.HistoryProblem   // why
	problems []rlc.HistoryProblem
	differ   []map[string]string // by quota ID: why a change of source in the window is one
}

// bucketState is what a reading knows of one bucket.
type bucketState struct {
	*rlc.Bucket
	whole   *series            // the bucket's sum; for a bucket without each its only series
	keys    map[string]*series // by Key.String
	only    map[string]bool    // the keys that may have a series, once they are too many
	left    map[string]bool    // keys left out
	odd     int                // label sets whose key cannot be written down
	end     time.Time          // like reading.end, for this bucket
	problem *rlc.HistoryProblem
	lacks   []string // attributes that history does not carry
}

// series is one stored series.
type series struct {
	rlc.SeriesKey
	sealed  time.Time // what was sealed before this reading
	known   bool      // it was stored before
	whole   bool      // a bucket's sum
	seeded  bool      // running holds the days before today, or point is known
	point   *point    // found by the reading before; nil where running tells it
	had     [2]begun  // the last days begun
	running stat.Running
	rates   []float64      // of the chunk at hand: NaN absent, negative unknown; nil without samples
	begun   bool           // today has samples
	today   *stat.Day      // of the chunks before the one at hand
	drops   []float64      // dropped requests per hour of today; nil for none
	seconds []float64      // highest one-second rate per hour of today; nil for none
	latest  time.Time      // end of the newest step read
	newest  time.Time      // the same, of what was kept
	fresh   *rlc.SeriesDay // the last day up to until, where the stored one goes on beyond it
}

// dayState is what is known of the steps of the day that is being read.
type dayState struct {
	start   time.Time
	steps   int // of the day, up to until
	first   int // the chunk at hand is steps first to last
	last    int
	seen    []bool    // some label set had a sample
	whole   []bool    // per hour: one label set had them all
	healthy []bool    // the service was healthy
	share   []float64 // of targets that reported; NaN for unknown
	source  []int     // per hour: index in sources, plus one; 0 where none had data
}

func (r *Reader) prepare(ctx context.Context, req rlc.HistoryRequest) (*reading, error) {
	p, s := req.Profile, req.Service
	step := p.Step
	if step < time.Second || step > time.Hour || time.Hour%step != 0 {
		return nil, fmt.Errorf("%w: profile %s: step %s does not divide an hour", rlc.ErrInvalid, p.Name, rlc.DurationText(step))
	}
	if len(p.Sources) == 0 {
		return nil, fmt.Errorf("%w: profile %s names no source", rlc.ErrInvalid, p.Name)
	}
	matcher, problems := match.Compile(s)
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: %s", rlc.ErrInvalid, problems[0])
	}
	rd := &reading{
		r: r, req: req, matcher: matcher, ids: newIdentity(s, p, r.cfg.Replica), step: step,
		from: req.Now.Add(-req.Lookback).UTC().Truncate(day), until: req.Now.UTC().Truncate(step),
		labels: map[string]bool{},
	}
	for _, source := range p.Sources {
		if name := rawCounter(source); name != "" {
			return nil, fmt.Errorf("%w: source %s reads the counter %s as if it were a rate; write rate(%s[1m])", rlc.ErrInvalid, source, name, name)
		}
		expr, err := expand(source, s.Name)
		if err != nil {
			return nil, err
		}
		if _, plain := plainSelector(expr); plain {
			expr = r.once(expr)
		}
		rd.sources = append(rd.sources, expr)
	}
	for _, e := range []struct {
		to   *string
		expr string
	}{{&rd.refused, p.Refused}, {&rd.healthy, p.Healthy}, {&rd.share, p.Complete}, {&rd.drops, r.dropsQuery(p)}, {&rd.peaks, r.peaksQuery(p)}} {
		var err error
		if *e.to, err = expand(e.expr, s.Name); err != nil {
			return nil, err
		}
	}
	if _, plain := plainSelector(rd.refused); plain {
		rd.refused = r.once(rd.refused)
	}
	rd.reads, rd.own = readLabels(p, append([]string{rd.refused}, rd.sources...)...), map[string]map[string]bool{}
	rd.routes, rd.saved = map[string]map[string]*route{}, map[rlc.SeriesID]bool{}
	return rd, rd.known(ctx)
}

// dropsQuery counts what our own enforcers dropped, per hour: one small query
// more per chunk, and only where history is their counters.
func (r *Reader) dropsQuery(p *rlc.Profile) string {
	if p.Name != "rlc" {
		return ""
	}
	var labels []string
	for _, a := range p.Attributes {
		labels = append(labels, a.Metric...)
	}
	slices.Sort(labels)
	dropped := r.once(fmt.Sprintf(`increase(%s{service="${service}",outcome="drop"}[1h])`, requestsTotal))
	return fmt.Sprintf(`sum by (%s) (%s)`, strings.Join(slices.Compact(labels), ", "), dropped)
}

// known lists the series of the service as it is configured now, with what the
// store has of them.
func (rd *reading) known(ctx context.Context) error {
	s, store := rd.req.Service, rd.r.cfg.Store
	stored, err := store.SeriesOf(ctx, s.Name)
	if err != nil {
		return err
	}
	sealed, err := store.SealedUntil(ctx, s.Name)
	if err != nil {
		return err
	}
	make := func(bucket string, key rlc.Key, id rlc.SeriesID) *series {
		at, known := sealed[id]
		return &series{SeriesKey: rlc.SeriesKey{ID: id, Service: s.Name, Bucket: bucket, Key: key}, sealed: at, known: known}
	}
	// Bookkeeping series stand under the empty bucket: no quota is theirs.
	sourceID := rlc.SeriesID(digest("sources", rd.ids.source, s.Name))
	rd.line = make("", rlc.Key{"sources": "of each hour"}, sourceID)
	for i := range s.Buckets {
		b := bucketState{Bucket: &s.Buckets[i], keys: map[string]*series{}, left: map[string]bool{}}
		id := rd.ids.of(i, nil)
		if len(b.Each) > 0 {
			b.whole = make("", rlc.Key{"bucket": b.Name}, id)
		} else {
			b.whole = make(b.Name, nil, id)
		}
		b.whole.whole = true
		for _, a := range rd.matcher.Uses(i) {
			if len(rd.req.Profile.Attributes[a].Metric) == 0 {
				b.lacks = append(b.lacks, a)
			}
		}
		for _, k := range stored {
			if len(b.Each) > 0 && k.Bucket == b.Name && rd.ids.of(i, k.Key) == k.ID {
				b.keys[k.Key.String()] = make(b.Name, k.Key, k.ID)
			}
		}
		rd.sets += len(b.keys)
		rd.buckets = append(rd.buckets, b)
	}
	return nil
}

// wholes are the series by which the progress of reading is known.
func (rd *reading) wholes() []*series {
	all := []*series{rd.line}
	for i := range rd.buckets {
		all = append(all, rd.buckets[i].whole)
	}
	return all
}

// start is the midnight from which days are read: that of the first hour that
// some bucket has not sealed, or of one that misses samples and may be mended.
func (rd *reading) start(ctx context.Context) (time.Time, error) {
	first := rd.until
	for _, s := range rd.wholes() {
		if s.sealed.Before(first) {
			first = s.sealed
		}
	}
	if mend := rd.until.Add(-mendFor); mend.Before(first) {
		at, err := rd.incomplete(ctx, mend.Truncate(time.Hour), first)
		if err != nil {
			return first, err
		}
		first = at
	}
	first = first.Truncate(day)
	if first.Before(rd.from) {
		first = rd.from
	}
	return first, nil
}

// incomplete is the first sealed hour of [from, until) that misses samples: all
// or some of a bucket's sum, or some of a key's. A key without any is not there
// to miss, nor is a bucket that had no traffic at all.
func (rd *reading) incomplete(ctx context.Context, from, until time.Time) (time.Time, error) {
	first := until
	var all []*series
	absentToo := map[*series]bool{}
	for i := range rd.buckets {
		b := &rd.buckets[i]
		absentToo[b.whole] = true
		for _, s := range append(slices.Collect(maps.Values(b.keys)), b.whole) {
			if s.known {
				all = append(all, s)
			}
		}
	}
	var of *series
	present := map[time.Time]int{} // steps of each of its hours
	look := func() {
		for t := from; t.Before(first); t = t.Add(time.Hour) {
			if n, ok := present[t]; ok && n < int(time.Hour/rd.step) || !ok && absentToo[of] && len(present) > 0 {
				first = t
			}
		}
		clear(present)
	}
	err := rd.stored(ctx, all, from, until, func(s *series, d *rlc.SeriesDay) error {
		if s != of {
			look()
			of = s
		}
		for _, h := range d.Hours {
			present[h.Start] = h.Present
		}
		return nil
	})
	look()
	return first, err
}

// read reads the days that are not sealed and saves them, however it ends. What a
// server could not give whole ends the reading early, with rd.problem; any other
// error is returned.
func (rd *reading) read(ctx context.Context) error {
	err := rd.readDays(ctx)
	if err := errors.Join(err, rd.saveLast(ctx)); err != nil {
		return err
	}
	rd.judge()
	return rd.compareSources(ctx)
}

func (rd *reading) readDays(ctx context.Context) error {
	start, err := rd.start(ctx)
	if err != nil {
		return err
	}
	rd.chunk = day
	if err := rd.probe(ctx); err != nil {
		return err
	}
	for midnight := start; midnight.Before(rd.until) && rd.problem == nil; midnight = midnight.Add(day) {
		end := midnight.Add(day)
		if end.After(rd.until) {
			end = rd.until
		}
		rd.begin(midnight, end)
		for from := midnight; from.Before(end); {
			to := from.Add(rd.span())
			if to.After(end) {
				to = end
			}
			rd.today.first, rd.today.last = int(from.Sub(midnight)/rd.step), int(to.Sub(midnight)/rd.step)
			if err := rd.readChunk(ctx, from, to); errors.Is(err, errAgain) {
				continue
			} else if err != nil {
				problem := rd.hold(ctx, err)
				if problem == nil {
					return err
				}
				rd.problem, rd.end = problem, from
				rd.wipe(from, to)
				break
			}
			if err := rd.fold(ctx); err != nil {
				return err
			}
			from, rd.tries, rd.crowded = to, 0, false
		}
		if err := rd.finish(ctx); err != nil {
			return err
		}
	}
	return nil
}

// letGo gives up what only reading needs before the series are handed on: who
// takes them needs room as well.
func (rd *reading) letGo() {
	rd.free, rd.to, rd.routes, rd.unsaved, rd.sketched = nil, nil, nil, unsaved{}, rlc.SeriesDay{}
	for s := range rd.series() {
		s.today, s.rates = nil, nil
	}
}

// probe asks how many label sets there are, so that the chunks have the right
// length from the first. It is a hint: an answer that cannot be used counts
// them as none, and the length follows from what is read.
func (rd *reading) probe(ctx context.Context) error {
	for _, source := range rd.sources {
		v, err := rd.r.instant(ctx, "count("+source+")", rd.until)
		if err != nil && rd.hold(ctx, err) == nil {
			return err
		}
		if err != nil {
			rd.sets = 0
			return nil
		}
		if len(v) == 1 && valid(float64(v[0].Value)) {
			rd.sets = max(rd.sets, int(min(float64(v[0].Value), 1e9)))
			return nil
		}
	}
	rd.sets = max(rd.sets, 1)
	return nil
}

// hold is the problem that an error is for the series it concerns; nil for an
// error that concerns the service as a whole.
func (rd *reading) hold(ctx context.Context, err error) *rlc.HistoryProblem {
	var w *warning
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.As(err, &w):
		return &rlc.HistoryProblem{Rule: "warning", Detail: w.text}
	case errors.Is(err, ErrTooLarge), errors.Is(err, errBudget):
		return &rlc.HistoryProblem{Rule: "budget", Detail: err.Error()}
	case errors.Is(err, ErrBusy), errors.Is(err, ErrTimeout):
		return &rlc.HistoryProblem{Rule: "failed", Detail: err.Error()}
	}
	return nil
}

var errBudget = errors.New("the run's budget of samples is spent")

// fit is the length of the next chunk: as many whole hours as are likely to
// hold SamplesPerQuery, one while nothing is known.
func (rd *reading) fit() time.Duration {
	hours := 1
	if rd.sets > 0 {
		hours = rd.r.cfg.SamplesPerQuery / (rd.sets * int(time.Hour/rd.step))
	}
	return min(time.Duration(min(max(hours, 1), 24))*time.Hour, max(rd.chunk, time.Hour))
}

func (rd *reading) begin(midnight, end time.Time) {
	n := int(end.Sub(midnight) / rd.step)
	d := &dayState{start: midnight, steps: n, seen: make([]bool, n), whole: make([]bool, 24), healthy: make([]bool, n), share: make([]float64, n), source: make([]int, 24)}
	for i := range d.share {
		d.share[i] = math.NaN()
	}
	rd.today = d
}
