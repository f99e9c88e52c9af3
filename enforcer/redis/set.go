package redis

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

// What a script can be asked to do.
const (
	opTake   = "take"
	opPeek   = "peek"
	opSettle = "settle"
	opLease  = "lease"
)

const micro = 1_000_000

// header is how many arguments a script takes before those of its counters,
// one each.
const header = 2

// Set is a group of counters that a request is charged to, all or none.
type Set struct {
	counter *Counter
	parts   []part
}

// part is one counter of a set, ready to be asked for.
type part struct {
	charge gcra.Charge
	name   string    // the key in Redis
	keys   [1]string // it, as a call takes it
	slot   uint16
	script *script
	kind   byte
	args   [7]int64
	packed string        // kind and args, as the script takes them
	anew   string        // the same for a bucket that Redis may have lost
	refill time.Duration // of a bucket
	hot    atomic.Pointer[key]
}

// prepare makes p ready for a charge.
func (c *Counter) prepare(p *part, ch gcra.Charge) {
	p.charge, p.script = ch, &c.main
	l := &p.charge.Limit
	const hour = int64(time.Hour / time.Microsecond)
	p.args = [7]int64{hour / 1000, l.Burst(), l.Length()}
	family := "w"
	switch l.Kind() {
	case gcra.TokenBucket, gcra.LeakyBucket:
		family, p.kind = "b", 'b'
		burst, rate := l.Burst()*micro, l.Rate()
		refill := after(burst, rate)
		p.refill = time.Duration(min(refill, math.MaxInt64/1000)) * time.Microsecond
		p.args = [7]int64{
			min(refill/1000+1000, day), rate / micro, rate % micro, burst,
			burst - min(burst, max(rate, micro)), far(refill), max(min(60*rate, maxOwed), burst),
		}
		p.anew = p.pack()
		p.args[4] = 0
	case gcra.FixedWindow:
		switch p.kind = 'g'; {
		case l.Rolls():
			p.kind = 'r'
		case l.Length() > hour:
			p.kind = 'c'
		}
	case gcra.SlidingWindow:
		family, p.kind = "s", 's'
	case gcra.SlidingLog:
		family, p.kind, p.script, p.args[3] = "l", 'l', &c.logs, l.Grain()
	}
	p.packed = p.pack()
	p.name = c.config.Prefix + family + ":" + encode(ch.Bucket, ch.Key)
	p.slot, p.keys[0] = slot(p.name), p.name
}

// packedOne is what nearly every call asks for: one token.
var packedOne = pack(1, 0)

func (p *part) pack() string { return string(p.kind) + pack(p.args[:]...) }

const (
	day     = 24 * 60 * 60 * 1000 // milliseconds
	maxOwed = 1e17                // micro-tokens
)

// after is how long a bucket takes to earn n micro-tokens, in microseconds, at
// most never.
func after(n, rate int64) int64 {
	if rate <= 0 {
		return never
	}
	hi, lo := bits.Mul64(uint64(n), micro)
	if hi >= uint64(rate) {
		return never
	}
	q, rem := bits.Div64(hi, lo, uint64(rate))
	if rem > 0 {
		q++
	}
	return int64(min(q, never))
}

// never is ten thousand years, in microseconds.
const never = 1 << 58

// far is how far ahead, in microseconds, a stored time may be: two refills and
// at least a second. A bucket that never refills goes by the day.
func far(refill int64) int64 {
	if refill == never {
		return day * 1000
	}
	return max(min(2*refill, 1<<52), micro)
}

// encode makes a key of names, which are data: whatever they hold, different
// names give different keys, and none chooses its shard.
func encode(bucket, key string) string {
	h := sha256.New()
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(bucket)))
	h.Write(length[:])
	h.Write([]byte(bucket))
	h.Write([]byte(key))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:21])
}

// Take asks every counter for cost tokens and charges all when all admit: in
// one atomic step where they lie on one server, else by reserving on every
// shard at once and giving back where one refused. Keys that are leased are
// asked first; where one of them refuses, the others are not asked and count as
// admitting. A cost of 0 is a peek at 1 and one below 0 at -cost, past the leases.
func (s *Set) Take(ctx context.Context, now, cost int64) (gcra.Tally, error) {
	op := opTake
	if cost <= 0 {
		op, cost = opPeek, max(-cost, 1)
	}
	if t, never := s.never(); never {
		return t, nil
	}
	waits := waits{within: s.counter.config.Timeout}
	var few [4]gcra.Verdict
	verdicts := few[:min(len(s.parts), len(few))]
	if len(s.parts) > len(few) {
		verdicts = make([]gcra.Verdict, len(s.parts))
	}
	var cold uint64
	var spent [gcra.MaxCharges]*key
	refused := false
	for i := range s.parts {
		p := &s.parts[i]
		k := s.counter.key(p, op)
		if k == nil {
			cold |= 1 << i
			continue
		}
		v, leased, err := s.counter.spend(ctx, &waits, k, p, now, cost)
		if err != nil {
			unspend(spent[:len(s.parts)], cost)
			return gcra.Tally{}, err
		}
		if !leased {
			cold |= 1 << i
			continue
		}
		verdicts[i] = v
		if v.OK {
			spent[i] = k
		}
		refused = refused || !v.OK
	}
	if refused {
		for i := range s.parts {
			if cold&(1<<i) != 0 {
				verdicts[i] = gcra.Verdict{OK: true, Remaining: s.parts[i].charge.Limit.Burst()}
			}
		}
	} else if cold != 0 {
		err := s.ask(ctx, waits.rest(), op, now, cost, cold, verdicts)
		if err != nil {
			unspend(spent[:len(s.parts)], cost)
			return gcra.Tally{}, err
		}
	}
	var t gcra.Tally
	for i := range verdicts {
		t.Add(i, verdicts[i])
	}
	if !t.OK() {
		unspend(spent[:len(s.parts)], cost)
	}
	return t, nil
}

// never answers for limits of nothing, which need no counter.
func (s *Set) never() (t gcra.Tally, never bool) {
	for i := range s.parts {
		never = never || s.parts[i].charge.Limit.Burst() == 0
	}
	if !never {
		return t, false
	}
	for i := range s.parts {
		v := gcra.Verdict{OK: true, Remaining: s.parts[i].charge.Limit.Burst()}
		if v.Remaining == 0 {
			v = gcra.Verdict{Wait: gcra.Forever}
		}
		t.Add(i, v)
	}
	return t, true
}

// ask charges the parts in which, or none of them, and enters their verdicts.
func (s *Set) ask(ctx context.Context, within time.Duration, op string, now, cost int64, which uint64, verdicts []gcra.Verdict) error {
	answers, err := s.counter.ask(ctx, within, s.queries(op, cost, 0, now, which), op == opTake)
	if err != nil {
		return err
	}
	s.counter.ahead.Store(answers[0].numbers[1] - now)
	all, refused := true, false
	for _, a := range answers {
		all = all && a.ok()
	}
	if op == opPeek {
		cost = -cost
	}
	first := bits.TrailingZeros64(which)
	for i, q := first, 0; i < len(s.parts); i++ {
		if which&(1<<i) == 0 {
			continue
		}
		v := s.parts[i].verdict(answers[q].numbers, cost)
		v.OK = v.OK || all // the script's word, which charged
		refused = refused || !v.OK
		verdicts[i] = v
		q++
	}
	if !all && !refused {
		verdicts[first].OK = false // by a rounding apart; the script's word, again
	}
	return nil
}

// queries are the script calls for the parts in which, in their order.
func (s *Set) queries(op string, n, third, now int64, which uint64) []query {
	queries := make([]query, 0, len(s.parts))
	for i := range s.parts {
		if p := &s.parts[i]; which&(1<<i) != 0 {
			queries = append(queries, p.query(s.counter, op, n, third, now))
		}
	}
	return queries
}

// query is the script call for one counter.
func (p *part) query(c *Counter, op string, n, third, now int64) query {
	how := packedOne
	if n != 1 || third != 0 {
		how = pack(n, third)
	}
	args := []string{op, how, p.packed}
	switch {
	case p.kind == 'b' && c.restarts.lately(c.conn.Turns(), p.refill):
		args[header] = p.anew
	case p.kind == 'c':
		args[header] = p.around(now + c.ahead.Load())
	}
	return query{script: p.script, slot: p.slot, keys: p.keys[:], args: args}
}

// around packs a calendar window with the edges around a time. Redis picks one
// of them, since its clock is the one that counts.
func (p *part) around(now int64) string {
	l := &p.charge.Limit
	next := l.End(now)
	last := l.End(now - l.Length() - int64(3*time.Hour/time.Microsecond))
	for e := l.End(last); e < next; e = l.End(e) {
		last = e
	}
	with := part{kind: p.kind, args: p.args}
	with.args[3], with.args[4], with.args[5] = last, next, l.End(next)
	return with.pack()
}

// verdict is what an answer says of the part, by the arithmetic that every
// counter shares.
func (p *part) verdict(numbers []int64, cost int64) gcra.Verdict {
	l := &p.charge.Limit
	now, of := numbers[1], numbers[2:]
	if l.Kind() == gcra.SlidingLog {
		asked := cost
		if cost < 0 {
			asked = -cost
		}
		free := max(l.Burst()-of[0], 0)
		switch {
		case asked > l.Burst():
			return gcra.Verdict{Remaining: free, Wait: gcra.Forever}
		case asked > free:
			return gcra.Verdict{Remaining: free, Wait: time.Duration(of[2]) * time.Microsecond}
		}
		return gcra.Verdict{OK: true, Remaining: free - max(cost, 0)}
	}
	st := gcra.State{Debt: of[0], At: now + of[1], Prev: of[3]}
	if p.kind != 'b' {
		st.Debt, st.Prev = of[0]*micro, of[3]*micro
		if of[2] != 0 {
			st.End = now + of[2]
		}
	}
	_, v := l.Take(st, now, cost)
	return v
}

// Settle charges every counter with by tokens more, or gives them back where by
// is negative, each by itself, in Redis: a lease that paid gets nothing back. Now
// is when they were charged, on the callers' clock. It is sent whatever becomes
// of ctx, whose end ends the waiting only.
func (s *Set) Settle(ctx context.Context, now, by int64) error {
	if _, never := s.never(); never || by == 0 {
		return nil
	}
	most := int64(0)
	for i := range s.parts {
		most = max(most, s.parts[i].charge.Limit.Burst())
	}
	by = min(max(by, -most), rlc.MaxRate)
	at := max(now+s.counter.ahead.Load(), 0)
	send := func() error {
		_, err := s.counter.ask(context.WithoutCancel(ctx), s.counter.config.Timeout, s.queries(opSettle, by, at, now, 1<<len(s.parts)-1), false)
		return err
	}
	if ctx.Done() == nil {
		return send()
	}
	sent := make(chan error, 1)
	s.counter.calls.Go(func() { sent <- send() })
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
