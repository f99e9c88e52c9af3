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

// spend takes cost tokens of k's lease. Leased is false where k is not asked
// for often, and Redis is to decide.
func (c *Counter) spend(ctx context.Context, k *key, p *part, now, cost int64) (v gcra.Verdict, leased bool, err error) {
	for fresh := true; ; fresh = false {
		k.mu.Lock()
		if k.gone {
			k.mu.Unlock()
			p.hot.CompareAndSwap(k, nil)
			if k = c.keys.find(p); k == nil {
				return v, false, nil
			}
			continue
		}
		k.idle = 0
		l := &p.charge.Limit
		if k.part != p && k.part.charge.Limit != *l {
			k.deny = 0 // a raised limit is usable at once, of a lowered one no more is held
			k.tokens = min(k.tokens, l.Burst())
		}
		k.part = p
		if fresh {
			k.measure(now, cost, c.config.LeaseFrom)
		}
		valid := now < k.until && k.until-now <= c.config.LeaseTTL.Microseconds()
		switch {
		case k.tokens >= cost && valid:
			k.tokens -= cost
			v = gcra.Verdict{OK: true, Remaining: k.left + k.tokens}
			k.mu.Unlock()
			return v, true, nil
		case !k.hot && k.tokens == 0 && k.refill == nil:
			k.mu.Unlock()
			return v, false, nil
		case cost > l.Burst():
			v = gcra.Verdict{Remaining: k.left + k.tokens, Wait: gcra.Forever}
			k.mu.Unlock()
			return v, true, nil
		case now < k.deny && k.deny-now <= denyMost:
			v = k.refuse(now, cost)
			k.mu.Unlock()
			return v, true, nil
		}
		r := k.refill
		mine := r == nil
		var wants, has int64
		if mine {
			r = &refill{done: make(chan struct{})}
			k.refill = r
			wants, has = k.wants(now, cost, c.config.LeaseFor), k.tokens
			k.tokens = 0 // nobody spends what may go back
		}
		k.mu.Unlock()
		if mine {
			c.lease(ctx, k, p, r, now, wants, has, cost)
		} else if err := c.await(ctx, r); err != nil {
			return v, true, err
		}
		if r.err != nil {
			return v, true, r.err
		}
	}
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

// await waits for another's lease.
func (c *Counter) await(ctx context.Context, r *refill) error {
	deadline := time.NewTimer(c.config.Timeout)
	defer deadline.Stop()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-deadline.C:
		return c.fail(Timeout, "no answer in time")
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

// lease asks Redis for wants tokens where has are held, cost of them at once,
// and ends r.
func (c *Counter) lease(ctx context.Context, k *key, p *part, r *refill, now, wants, has, cost int64) {
	numbers, err := c.askLease(ctx, p, now, wants, has, cost)
	l := &p.charge.Limit
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refill, r.err = nil, err
	defer close(r.done)
	if err != nil {
		// What was to be given may be lost, and what was to go back is: at most
		// one lease, and never twice.
		k.tokens += min(has, wants)
		return
	}
	given, before := numbers[0], numbers[2:]
	k.tokens += max(has+given, 0)
	k.until = now + c.config.LeaseTTL.Microseconds()
	debt := min(max(before[0]+given*micro, 0), l.Burst()*micro)
	k.left = l.Burst() - (debt+micro-1)/micro
	k.after = gcra.State{Debt: debt, At: now + before[1], Prev: before[3]}
	k.deny = 0
	if has+given < wants && k.part.charge.Limit == *l {
		k.deny = now + pause(l, c.config.LeaseFor)
		if k.tokens < cost {
			k.deny = now + min(k.refuse(now, cost).Wait.Microseconds(), denyMost)
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

// askLease calls the script.
func (c *Counter) askLease(ctx context.Context, p *part, now, wants, has, least int64) ([]int64, error) {
	q := p.query(c, opLease, wants, has, now)
	use := q.args[header]
	q.args[header] = use[:len(use)-8] + pack(max(least, 1))
	answers, err := c.askEven(context.WithoutCancel(ctx), []query{q}, false)
	if err != nil {
		return nil, err
	}
	c.ahead.Store(answers[0].numbers[1] - now)
	return answers[0].numbers, nil
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
func (c *Counter) sweep(ctx context.Context, often time.Duration) {
	for _, k := range c.keys.all() {
		k.mu.Lock()
		k.idle++
		idle := time.Duration(k.idle) * often
		back := k.tokens > 0 && idle > c.config.LeaseTTL
		k.mu.Unlock()
		if back {
			c.giveBack(ctx, k)
		} else if idle > time.Minute {
			c.keys.forget(k)
		}
	}
}

// giveBack returns what is held of a lease. Where Redis does not answer it is
// lost.
func (c *Counter) giveBack(ctx context.Context, k *key) {
	k.mu.Lock()
	if k.tokens == 0 || k.refill != nil {
		k.mu.Unlock()
		return
	}
	r := &refill{done: make(chan struct{})}
	has, p := k.tokens, k.part
	k.refill, k.tokens, k.hot = r, 0, false
	now := k.until
	k.mu.Unlock()
	c.lease(ctx, k, p, r, now, 0, has, 0)
}
