package enforcer

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/loop"
)

// world is a set of counters with what they stand for. Its parts are charged
// in stages, all or none: those of a later stage that refuses are given back
// by the earlier ones. Nearly every world has one stage and no slots.
type world struct {
	parts   []part  // the quota bucket first
	ratio   bool    // some stage goes by the loop's ratio
	slots   []int   // parts that are caps on what is in flight: asked first
	stages  []stage // in process before the shared store, so that a refusal there costs no trip
	metered bool    // some part has a meter
}

// part is one limit that a request is held to.
type part struct {
	bucket  *bucket
	key     rlc.Key // sensitive values are hashed
	limit   *rlc.Limit
	cost    int64  // tokens for each unit of a request's cost, at least 1
	who     string // under which name its refusals are listed
	slot    *slot  // not nil: a cap on what is in flight, which has no counter
	meter   *meter // not nil: the counter is shared, and fails to a local one
	enforce bool
	after   bool // cost is a reserve, settled once the real one is known
}

// draft is a part before its world is made.
type draft struct {
	part
	charge gcra.Charge
	source string
	shared bool       // the counter lives in the shared store
	class  loop.Class // of the request
	ratio  string     // not "": the loop's name of the bucket, which it tells what to drop of
}

// stage is a group of counters in one store that are charged with the same
// cost.
type stage struct {
	set     Set
	charges []gcra.Charge // the set's
	parts   []int         // of the world, ascending: what the charges stand for
	cost    int64
	shared  bool
	after   bool
	ratio   *ratio // not nil: the loop decides, once it has said anything
	local   atomic.Pointer[local]
}

// verdict is what one world says of a request. Its bits, and Worst, count the
// world's parts.
type verdict struct {
	gcra.Tally
	fell   uint64 // parts whose store did not answer
	reason reason // why it did not
	closed bool   // refused for that alone
}

// newWorld groups limits into stages. The world in which all enforce has
// counters of its own. With look set nothing is remembered of the request.
func (e *Enforcer) newWorld(drafts []draft, asIf, look bool) world {
	if len(drafts) == 0 {
		return world{}
	}
	type kind struct {
		shared, after, ratio bool
		cost                 int64
	}
	w := world{parts: make([]part, len(drafts))}
	var kinds []kind
	groups := map[kind][]int{}
	for i := range drafts {
		d := &drafts[i]
		p := &w.parts[i]
		*p = d.part
		if p.slot != nil {
			s := *p.slot
			if asIf {
				s.key = asIfPrefix + s.key
			}
			p.slot = &s
			w.slots = append(w.slots, i)
			continue
		}
		k := kind{d.shared, p.after, d.ratio != "", p.cost}
		if groups[k] == nil {
			kinds = append(kinds, k)
		}
		groups[k] = append(groups[k], i)
	}
	slices.SortStableFunc(kinds, func(a, b kind) int { return cmp.Compare(number(a.shared), number(b.shared)) })
	w.stages = make([]stage, len(kinds))
	for n, k := range kinds {
		st := &w.stages[n]
		st.parts, st.cost, st.shared, st.after = groups[k], k.cost, k.shared, k.after
		st.charges = make([]gcra.Charge, len(st.parts))
		for i, j := range st.parts {
			c := &st.charges[i]
			*c = drafts[j].charge
			if asIf {
				c.Bucket = drafts[j].bucket.asIf
			}
			if p := &w.parts[j]; k.shared && !look && p.bucket.OnFailure == rlc.FailLocal {
				p.meter = e.meters.get(c.Bucket, c.Key, e.now().Unix())
				w.metered = w.metered || p.meter != nil
			}
		}
		st.set = e.store(k.shared).Set(st.charges)
		if k.ratio {
			st.ratio = e.newRatio(drafts, st.parts, asIf, look)
			w.ratio = w.ratio || st.ratio != nil
		}
	}
	return w
}

// trips is how often a decision may have to wait for the shared store to answer.
func (w *world) trips() (n int) {
	for i := range w.stages {
		if w.stages[i].shared {
			n++
		}
	}
	return n
}

// store is where counters are kept.
func (e *Enforcer) store(shared bool) Counter {
	if shared {
		return e.counter
	}
	return e.local
}

// charged is a set that was charged, when and with what.
type charged struct {
	set        Set
	at, amount int64
}

// settle corrects what was charged by by tokens, where the set can. Of a store
// that does not answer now nothing more is to be had.
func (c charged) settle(ctx context.Context, by int64) {
	if s, ok := c.set.(Settler); ok && by != 0 {
		_ = s.Settle(ctx, c.at, by)
	}
}

// take charges one world with cost and enters what it says into v, which is
// empty. What the request keeps until it is over goes into h, which is nil
// where it keeps nothing.
func (e *Enforcer) take(ctx context.Context, w *world, at instant, cost int64, peek bool, h *held, v *verdict) {
	if len(w.stages) == 1 && len(w.slots) == 0 && h == nil {
		_ = e.ask(ctx, w, &w.stages[0], at, cost, peek, v)
		return
	}
	if len(w.parts) > 0 {
		e.takeStages(ctx, w, at, cost, peek, h, v)
	}
}

// takeStages is take for any world.
func (e *Enforcer) takeStages(ctx context.Context, w *world, at instant, cost int64, peek bool, h *held, v *verdict) {
	v.Remaining = -1 // not known yet: part 0's where nothing refuses
	var first *lease
	for _, i := range w.slots {
		p := &w.parts[i]
		got, one := e.flight.enter(p, at.micros, peek)
		v.merge([]int{i}, got)
		if one != nil {
			one.also, first = first, one
		}
	}
	var few [4]charged
	done := few[:0]
	for i := range w.stages {
		if v.Refused != 0 && !peek {
			break
		}
		st := &w.stages[i]
		if set := e.ask(ctx, w, st, at, cost, peek, v); set != nil {
			done = append(done, charged{set, at.micros, cost * st.cost})
		}
	}
	v.Remaining = max(v.Remaining, 0)
	if peek {
		return
	}
	if v.Refused != 0 {
		first.leave()
		for _, c := range done {
			c.settle(ctx, -c.amount)
		}
		return
	}
	if h != nil {
		h.keep(first, w, done)
	}
}

// ask charges one stage and enters what it says into v. It returns the set
// that was charged, nil where none was.
func (e *Enforcer) ask(ctx context.Context, w *world, st *stage, at instant, cost int64, peek bool, v *verdict) Set {
	n := cost * st.cost
	if peek {
		n = -n
	}
	if st.ratio != nil && st.ratio.ask(w, st, at, n, peek, v) {
		return nil // counted by the loop: there is nothing to give back
	}
	if at.micros == 0 {
		at = e.exact() // the loop was to decide alone, and has said nothing yet
	}
	set := st.set
	if st.ratio != nil {
		heads := st.ratio.handle.Heads()
		if heads > 0 && !peek {
			w.parts[st.parts[0]].bucket.counts.fallbacks[byLoop].Add(1)
		}
		if heads > 1 && !st.shared {
			set = e.byHead(w, st, heads)
		}
	}
	// The store has a deadline of its own: who has no other need not pay for one.
	tally, err := set.Take(ctx, at.micros, n)
	if err != nil {
		set, tally = e.fall(w, st, at, n, reasonOf(err), v)
	}
	if len(st.parts) == len(w.parts) {
		v.Tally = tally
	} else {
		v.merge(st.parts, tally)
	}
	if !tally.OK() {
		return nil
	}
	return set
}

// merge enters what some of the world's parts said.
func (v *verdict) merge(parts []int, t gcra.Tally) {
	worst := parts[t.Worst]
	if !t.OK() && (v.OK() || t.Wait > v.Wait) || t.OK() && v.OK() && worst == 0 {
		v.Worst, v.Remaining, v.Wait = worst, t.Remaining, t.Wait
	}
	v.Pace = max(v.Pace, t.Pace)
	for i, p := range parts {
		v.Refused |= t.Refused >> i & 1 << p
		v.Untracked |= t.Untracked >> i & 1 << p
	}
}

// count counts what a world said of a request: buckets that had no room for
// another counter, stores that did not answer, rates, and who was refused.
func (w *world) count(v *verdict, at instant, cost int64, refused Outcome) {
	if v.Untracked|v.fell|v.Refused == 0 && !w.metered {
		return
	}
	for i := range w.parts {
		p, bit := &w.parts[i], uint64(1)<<i
		if v.Untracked&bit != 0 {
			p.bucket.counts.fallbacks[byFull].Add(1)
		}
		// Once for both worlds: under the one that the bucket decides in.
		if v.fell&bit != 0 && (refused == Drop) == p.enforce {
			p.bucket.counts.fallbacks[v.reason.fallback()].Add(1)
		}
		if v.Refused&bit != 0 && (refused == Drop) == p.enforce {
			p.bucket.counts.top.add(p.who, p.key, refused, at.second)
		}
		if p.meter != nil && v.Refused == 0 {
			p.meter.add(at.second, cost*p.cost)
		}
	}
}
