package redis

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/openrlc/rlc/enforcer/gcra"
)

// A key that is asked for often is leased: one call takes a batch of tokens,
// which are then spent in memory. A lease says what it wants and what it still
// has, and gets at most half of what is free, so that nodes which ask after
// another find something. Wants follows the measured rate. Where a node got less
// than it wanted, it refuses by itself until it may ask again, so that a flood
// beyond the limit costs Redis no more than traffic within it.
//
// Tokens are taken from the counter before they are spent. So at any time the
// fleet admits at most what the limit allows plus the leases outstanding, and a
// node that dies loses its own and no more.

// span is over how long a rate is measured, in microseconds.
const span = 100_000

// waits is how long a Take may wait, over all that it waits for.
type waits struct {
	within time.Duration
	end    time.Time // zero: it has waited for nothing yet
}

// rest is what is left of that time.
func (w *waits) rest() time.Duration {
	if w.end.IsZero() {
		return w.within
	}
	return time.Until(w.end)
}

// spend takes cost tokens of k's lease. Leased is false where k is not asked
// for often, and Redis is to decide.
func (c *Counter) spend(ctx context.Context, w *waits, k *key, p *part, now, cost int64) (v gcra.Verdict, leased bool, err error) {
	for fresh := true; ; fresh = false {
		v, is, r := k.spend(&c.config, p, now, cost, fresh)
		switch is {
		case spent:
			return v, true, nil
		case cold:
			return v, false, nil
		case forgotten:
			p.hot.CompareAndSwap(k, nil)
			if k = c.keys.find(p); k == nil {
				return v, false, nil
			}
			continue
		case lacking:
			c.lease(k, r)
		}
		if err := c.await(ctx, w, r); err != nil {
			return v, true, err
		}
		if r.err != nil {
			return v, true, r.err
		}
	}
}

// What a key is found to be.
type found int

const (
	spent     found = iota // it decided
	cold                   // not leased
	forgotten              // to be looked for again
	lacking                // of tokens: a refill was begun, to be asked for
	refilling              // somebody asked for one
)

// spend looks whether k can decide by itself. Fresh says that the request is
// not measured yet.
func (k *key) spend(config *Config, p *part, now, cost int64, fresh bool) (v gcra.Verdict, is found, r *refill) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return v, forgotten, nil
	}
	k.idle = 0
	l := &p.charge.Limit
	if k.part != p && k.part.charge.Limit != *l {
		k.deny = 0 // a raised limit is usable at once, of a lowered one no more is held
		k.tokens = min(k.tokens, l.Burst())
	}
	k.part = p
	if fresh {
		k.measure(now, cost, config.LeaseFrom)
	}
	valid := now < k.until && k.until-now <= config.LeaseTTL.Microseconds()
	switch {
	case k.tokens >= cost && valid:
		k.tokens -= cost
		return gcra.Verdict{OK: true, Remaining: k.left + k.tokens}, spent, nil
	case !k.hot && k.tokens == 0 && k.refill == nil:
		return v, cold, nil
	case cost > l.Burst():
		return gcra.Verdict{Remaining: k.left + k.tokens, Wait: gcra.Forever}, spent, nil
	case now < k.deny && k.deny-now <= denyMost:
		return k.refuse(now, cost), spent, nil
	case k.refill != nil:
		return v, refilling, k.refill
	}
	return v, lacking, k.refills(&refill{part: p, now: now, wants: k.wants(now, cost, config.LeaseFor), cost: cost})
}

// denyMost bounds, in microseconds, how long a node refuses without asking.
const denyMost = 1_000_000

// refuse is the verdict of what is not held: until nobody is asked again and,
// where that is longer, as Redis's counter would pay for it by itself. The caller
// holds k.mu.
func (k *key) refuse(now, cost int64) gcra.Verdict {
	_, v := k.part.charge.Limit.Take(k.after, now, min(k.tokens-cost, -1))
	pause := time.Duration(k.deny-now) * time.Microsecond
	return gcra.Verdict{Remaining: k.tokens, Wait: max(v.Wait, pause)}
}

// await waits for a lease, which everybody who needs it waits for: it is there
// for the others where one of them has no more time.
func (c *Counter) await(ctx context.Context, w *waits, r *refill) error {
	select {
	case <-r.done:
		return nil // the breaker is open
	default:
	}
	if w.end.IsZero() {
		w.end = time.Now().Add(w.within)
	}
	deadline := time.NewTimer(w.rest())
	defer deadline.Stop()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-deadline.C:
		return c.late()
	}
}

// measure counts a request of cost. The caller holds k.mu.
func (k *key) measure(now, cost int64, from float64) {
	passed := now - k.from
	if passed >= span || passed < 0 {
		k.rate = 0
		if passed > 0 {
			k.rate = float64(k.count) * micro / float64(passed)
		}
		k.hot = k.rate >= from
		k.from, k.count = now, 0
	}
	k.count += cost
	// Do not wait for the span to end where it holds enough already.
	k.hot = k.hot || float64(k.count)*micro >= max(from, 100)*span
}

// wants is how many tokens to hold: what is spent in a lease's time, at most
// what the limit gives in it or an eighth of the burst. The caller holds k.mu.
func (k *key) wants(now, cost int64, ahead time.Duration) int64 {
	rate := max(k.rate, float64(k.count)*micro/float64(max(now-k.from, 1000)))
	l := &k.part.charge.Limit
	most := max(float64(l.Rate())/micro*ahead.Seconds(), float64(l.Burst()/8), 1)
	wants := int64(math.Ceil(min(rate*ahead.Seconds(), most)))
	return min(max(wants, cost), l.Burst())
}

// refills begins a refill: nobody spends what may go back. The caller holds k.mu.
func (k *key) refills(r *refill) *refill {
	r.done, r.has = make(chan struct{}), k.tokens
	k.refill, k.tokens = r, 0
	return r
}

// lease asks Redis for a refill, which ends when it has answered, or at once
// where it is not to be asked. It does not wait for that.
func (c *Counter) lease(k *key, r *refill) {
	queries := []query{r.part.leaseQuery(c, r.now, r.wants, r.has, r.cost)}
	which, all := c.shards(queries)
	switch {
	case c.closed.Load() && r.wants > 0:
		k.leased(c, r, nil, c.fail(Refused, "closed"))
		return
	case !c.allow(all):
		k.leased(c, r, nil, c.notAsked())
		return
	}
	c.calls.Go(func() {
		answers, err := c.askAllowed(context.Background(), c.config.Timeout, queries, false, which, all)
		var numbers []int64
		if err == nil {
			numbers = answers[0].numbers
			c.ahead.Store(numbers[1] - r.now)
		}
		k.leased(c, r, numbers, err)
	})
}

// leased enters what Redis answered, and ends the refill.
func (k *key) leased(c *Counter, r *refill, numbers []int64, err error) {
	l := &r.part.charge.Limit
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refill, r.err = nil, err
	defer close(r.done)
	if err != nil {
		// What was to be given may be lost, and what was to go back is: at most
		// one lease, and never twice.
		k.tokens += min(r.has, r.wants)
		return
	}
	given, before := numbers[0], numbers[2:]
	k.tokens += max(r.has+given, 0)
	k.until = r.now + c.config.LeaseTTL.Microseconds()
	debt := min(max(before[0]+given*micro, 0), l.Burst()*micro)
	k.left = l.Burst() - (debt+micro-1)/micro
	k.after = gcra.State{Debt: debt, At: r.now + before[1], Prev: before[3]}
	k.deny = 0
	if r.has+given < r.wants && k.part.charge.Limit == *l {
		k.deny = r.now + pause(l, c.config.LeaseFor)
		if k.tokens < r.cost {
			k.deny = r.now + min(k.refuse(r.now, r.cost).Wait.Microseconds(), denyMost)
		}
	}
}

// pause is how long to leave Redis alone after it gave less than was wanted, in
// microseconds: about as long as a lease is meant to last, but not so long that
// the bucket could fill up meanwhile. It varies, so that nodes take turns.
func pause(l *gcra.Limit, ahead time.Duration) int64 {
	long := ahead.Microseconds()
	if rate := l.Rate(); rate > 0 {
		long = min(long, after(l.Burst()*micro/4, rate))
	}
	return max(long/2+rand.Int64N(long+1), 1000)
}

// leaseQuery is the script call for a lease, of which least tokens are of use.
func (p *part) leaseQuery(c *Counter, now, wants, has, least int64) query {
	q := p.query(c, opLease, wants, has, now)
	use := q.args[header]
	q.args[header] = use[:len(use)-8] + pack(max(least, 1))
	return q
}

// unspend puts tokens back into the leases that they came from.
func unspend(spent []*key, cost int64) {
	for _, k := range spent {
		if k != nil {
			k.mu.Lock()
			k.tokens += cost
			k.mu.Unlock()
		}
	}
}

// sweep returns the leases that nobody spends any more, and forgets keys that
// were not asked for in a minute. It is called every so often.
func (c *Counter) sweep(often time.Duration) {
	for _, k := range c.keys.all() {
		k.mu.Lock()
		k.idle++
		idle := time.Duration(k.idle) * often
		back := k.tokens > 0 && idle > c.config.LeaseTTL
		k.mu.Unlock()
		if back {
			c.giveBack(k)
		} else if idle > time.Minute {
			c.keys.forget(k)
		}
	}
}

// giveBack returns what is held of a lease. Where Redis does not answer it is
// lost.
func (c *Counter) giveBack(k *key) {
	k.mu.Lock()
	if k.tokens == 0 || k.refill != nil {
		k.mu.Unlock()
		return
	}
	r := k.refills(&refill{part: k.part, now: k.until})
	k.hot = false
	k.mu.Unlock()
	c.lease(k, r)
	<-r.done // within the deadline
}
