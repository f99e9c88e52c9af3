package enforcer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/loop"
)

// ratio is a stage whose buckets the drop-ratio loop decides. Its set stands in
// until the loop has said something of each: a bucket that goes from a token
// bucket to the loop is limited all the time.
type ratio struct {
	handle *loop.Handle
	class  loop.Class
}

// retryRatio is what a request is told to wait that the ratio refused: by then
// the loop has closed. Whoever answers adds the jitter.
const retryRatio = time.Second

// ratioName is the loop's name of a bucket's key, "" where there is no loop. It
// names no zone or region: the loop compares each at its own tier.
func (e *Enforcer) ratioName(service, bucket, id string) string {
	if e.config.Loop == nil {
		return ""
	}
	return service + "\x00" + bucket + "\x00" + id
}

// newRatio finds the loop's handle for some parts of a world, in their order: a
// quota bucket before the caps around it. It is nil for a look at what nobody
// has asked for yet.
func (e *Enforcer) newRatio(drafts []draft, parts []int, asIf, look bool) *ratio {
	path := make(loop.Path, len(parts))
	for i, j := range parts {
		path[i] = drafts[j].ratio
		if asIf {
			path[i] = asIfPrefix + path[i]
		}
	}
	r := &ratio{class: drafts[parts[0]].class}
	if look {
		r.handle = e.config.Loop.Find(path)
	} else {
		r.handle = e.config.Loop.Handle(path)
	}
	if r.handle == nil {
		return nil
	}
	return r
}

// ask decides by the ratio and enters what it says into v. It reports false
// where the loop has said nothing yet; the request is then counted, so that it
// will, and the stage's set is to decide.
func (r *ratio) ask(w *world, st *stage, at instant, n int64, peek bool, v *verdict) bool {
	by := loop.Admitted
	if peek {
		by = r.handle.Look(r.class, at.draw)
	} else {
		if r.handle.Local() {
			w.parts[st.parts[0]].bucket.counts.fallbacks[byLoop].Add(1)
		}
		by = r.handle.Take(r.class, uint64(n), at.draw)
	}
	room := r.handle.Room()
	if room < 0 {
		return false
	}
	var t gcra.Tally
	if by == loop.Admitted {
		t.Remaining = room
	} else {
		t.Add(by, gcra.Verdict{Wait: retryRatio})
	}
	if len(st.parts) == len(w.parts) {
		v.Tally = t
	} else {
		v.merge(st.parts, t)
	}
	return true
}

// byHead is the stage's set at this process's equal part of the limits, for a
// loop that says nothing: so many whole limits side by side would be none.
func (e *Enforcer) byHead(w *world, st *stage, heads int) Set {
	share := 1 / float64(heads)
	if l := st.local.Load(); l != nil && l.shares[0] == share {
		return l.set
	}
	l := &local{shares: []float64{share}}
	charges := slices.Clone(st.charges)
	for i := range charges {
		charges[i].Limit = scaled(&w.parts[st.parts[i]], charges[i].Limit, share)
	}
	l.set = e.local.Set(charges)
	st.local.Store(l)
	return l.set
}

// byLoop finds out whether the loop decides alone: there is one world, of one stage,
// and the quota bucket has a part in it.
func (t *route) byLoop() {
	w, enforce := &t.live, true
	if len(w.parts) == 0 {
		w, enforce = &t.asIf, false
	} else if len(t.asIf.parts) > 0 {
		return
	}
	if len(w.stages) != 1 || len(w.slots) > 0 || w.metered || w.stages[0].ratio == nil || w.parts[0].bucket != t.quota {
		return
	}
	st := &w.stages[0]
	if st.cost > math.MaxUint8 {
		return
	}
	t.alone, t.enforce, t.limit = uint8(st.cost), enforce, w.parts[0].limit
	t.handle, t.class = st.ratio.handle, st.ratio.class
}

// open lets a route that is cached decide by itself, where the loop does alone.
func (t *route) open() {
	if t.alone != 0 {
		t.handle.Open(&t.lane, t.class)
	}
}

// close gives back what the route has counted for the loop.
func (t *route) close() {
	if t.alone != 0 {
		t.handle.Close(&t.lane)
	}
}

// byRatio decides, charges and counts a request that the loop decides alone. It
// does nothing and reports false where the loop has said nothing yet.
func (e *Enforcer) byRatio(t *route, cost int64, at instant, d *Decision) bool {
	n := uint64(cost) * uint64(t.alone)
	t.enter(Admit, at.second) // reads it from memory while the route is being written
	draw, admitted := t.lane.Take(n)
	room := t.lane.Room()
	if !admitted {
		if draw == 0 {
			if room = t.handle.Room(); room < 0 {
				return false
			}
			if t.handle.Local() {
				t.quota.counts.fallbacks[byLoop].Add(1)
			}
		}
		if by := t.handle.Answer(t.class, n, draw); by != loop.Admitted {
			e.refuseByRatio(t, by, cost, at, d)
			return true
		}
	}
	d.Bucket, d.Key = t.quota.Name, t.key
	d.Limit, d.Remaining = t.limit, room
	if t.enforce {
		// Field by field: a copy of the whole would wait for the fields.
		s := &d.Enforced
		s.Bucket, s.Key, s.Limit, s.Remaining = t.quota.Name, t.key, t.limit, room
	}
	t.count(Admit, at.second)
	if t.noted {
		for _, b := range t.caps {
			b.counts.outcomes[Admit.index()].Add(1)
		}
	}
	return true
}

// refuseByRatio answers and counts a request that the bucket at position by of the
// path refuses.
func (e *Enforcer) refuseByRatio(t *route, by int, cost int64, at instant, d *Decision) {
	var both [2]verdict
	live, asIf := &both[0], &both[0]
	if len(t.live.parts) == 0 {
		asIf = &both[1]
	}
	asIf.Add(by, gcra.Verdict{Wait: retryRatio})
	t.answer(d, live, asIf)
	e.count(t, d.Outcome, live, asIf, at, cost)
}

// loopSilent is from when on people should know that the loop is away: by then its
// word has run out.
const loopSilent = loop.TTL

// loopNote is what people should know of the loop; "" for nothing.
func (e *Enforcer) loopNote() string {
	if e.config.Loop == nil {
		return ""
	}
	switch s := e.config.Loop.State(); {
	case s.Buckets == 0:
		return ""
	case !s.Talking:
		return fmt.Sprintf("nothing was heard of the loop yet: %d of its buckets are token buckets here", s.Buckets)
	case s.Silent > loopSilent:
		return fmt.Sprintf("the loop is silent for %s: %d of its buckets are held to this enforcer's own share", rlc.DurationText(s.Silent.Round(time.Second)), s.Local)
	default:
		return ""
	}
}

// loopAnswer is what /v1/config says of the loop.
type loopAnswer struct {
	Heard   bool    `json:"heard"`          // anything, ever
	Silent  float64 `json:"silent_seconds"` // since it last was
	Buckets int     `json:"buckets"`
	Local   int     `json:"local"` // held to this enforcer's own share
}

// loopAnswer is nil without a loop.
func (e *Enforcer) loopAnswer() *loopAnswer {
	if e.config.Loop == nil {
		return nil
	}
	s := e.config.Loop.State()
	return &loopAnswer{s.Talking, s.Silent.Seconds(), s.Buckets, s.Local}
}

// classAlong is the priority of a caller's requests on the way from its quota bucket
// to the caps around it: one for all of it, that of the first bucket whose tiers name
// the caller.
func classAlong(hits []hit, caller string) loop.Class {
	for _, h := range hits {
		if class := classOf(h.bucket.Tier, caller); class != loop.Normal {
			return class
		}
	}
	return loop.Normal
}

// classOf is the priority of a caller in a bucket's tiers; Normal where they do
// not name it.
func classOf(t rlc.Tier, caller string) loop.Class {
	for _, tier := range []struct {
		callers []string
		class   loop.Class
	}{{t.Critical, loop.Critical}, {t.Batch, loop.Batch}} {
		for _, pattern := range tier.callers {
			prefix, any := strings.CutSuffix(pattern, "*")
			if caller != "" && (caller == pattern || any && strings.HasPrefix(caller, prefix)) {
				return tier.class
			}
		}
	}
	return loop.Normal
}

// LoopName is what the loop's name of a bucket stands for.
type LoopName struct {
	Service, Bucket string
	Key             rlc.Key
	AsIf            bool // the world in which every bucket enforces
}

// ParseLoopName reads the loop's name of a bucket. Of a limit override the
// bucket is Overridden and the key its id.
func ParseLoopName(name string) (n LoopName) {
	name, n.AsIf = strings.CutPrefix(name, asIfPrefix)
	if rest, ok := strings.CutPrefix(name, overrideSpace); ok {
		id, service, _ := strings.Cut(rest, "\x00")
		n.Service, n.Bucket, n.Key = service, Overridden, rlc.Key{"override": id}
		return n
	}
	var id string
	n.Service, id, _ = strings.Cut(name, "\x00")
	n.Bucket, id, _ = strings.Cut(id, "\x00")
	_, key, _ := strings.Cut(id, "/")
	n.Key, _ = rlc.ParseKey(key)
	return n
}

// LoopLimit is what the snapshot and the overrides in force say of a bucket by
// the loop's name, for a zone's or region's data planes; false where it is no
// drop_ratio bucket with a limit. A controller asks it.
func (e *Enforcer) LoopLimit(name string, at loop.Place) (loop.Setting, bool) {
	name = strings.TrimPrefix(name, asIfPrefix)
	now := e.now()
	l := e.current(now)
	if l == nil {
		return loop.Setting{}, false
	}
	if rest, ok := strings.CutPrefix(name, overrideSpace); ok {
		id, service, _ := strings.Cut(rest, "\x00")
		return l.loopOverride(id, service)
	}
	service, rest, _ := strings.Cut(name, "\x00")
	bucket, id, _ := strings.Cut(rest, "\x00")
	s := e.elsewhere.service(l.compiled, place{at.Zone, at.Region}, service)
	if s == nil {
		return loop.Setting{}, false
	}
	for i := range s.buckets {
		b := &s.buckets[i]
		if b.Name != bucket || b.Algorithm != rlc.DropRatio {
			continue
		}
		limit, _, _ := l.limit(s, b, id)
		if limit == nil {
			return loop.Setting{}, false
		}
		return loop.Setting{Rate: float64(limit.Rate), Scope: loopScope(b.Scope)}, true
	}
	return loop.Setting{}, false
}

// LoopSeries is how enforcers' series label the requests that the loop counts
// under a name: caller and procedure are "" where they do not matter. It is false
// for what they have no series of its own for: caps, overrides, and keys that
// tell requests apart by more or by less than the series do.
func (e *Enforcer) LoopSeries(n LoopName) (caller, procedure string, ok bool) {
	l := e.current(e.now())
	if l == nil || l.services[n.Service] == nil {
		return "", "", false
	}
	for i := range l.services[n.Service].buckets {
		b := &l.services[n.Service].buckets[i]
		if b.Name != n.Bucket || b.Role == rlc.CapRole {
			continue
		}
		carried := 0
		for name, carries := range map[string]bool{"caller": b.caller, "procedure": b.procedure} {
			if _, keyed := n.Key[name]; keyed != carries {
				return "", "", false
			}
			if carries {
				carried++
			}
		}
		return label(n.Key["caller"]), label(n.Key["procedure"]), carried == len(n.Key)
	}
	return "", "", false
}

func loopScope(scope string) loop.Scope {
	switch scope {
	case rlc.ScopeZone:
		return loop.Zone
	case rlc.ScopeRegion:
		return loop.Region
	}
	return loop.Global
}

// loopOverride is the limit that an override sets, for a service.
func (l *loaded) loopOverride(id, service string) (loop.Setting, bool) {
	s := l.services[service]
	if s == nil {
		return loop.Setting{}, false
	}
	for _, o := range s.overrides {
		if o.ID == id && o.Action == LimitAction && o.stands(l.at) {
			return loop.Setting{Rate: float64(o.limit().Rate)}, true
		}
	}
	return loop.Setting{}, false
}
