package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/openrlc/rlc/enforcer/gcra"
)

//go:embed counters.lua
var countersSource string

//go:embed log.lua
var logSource string

// script is called by its hash; its text goes over the wire only where the
// server does not know it.
type script struct{ text, hash string }

func newScript(source, with string) script {
	text := strings.Replace(source, clock, with, 1)
	sum := sha1.Sum([]byte(text))
	return script{text, hex.EncodeToString(sum[:])}
}

// query is one script call, for keys of one shard.
type query struct {
	script *script
	slot   uint16 // of its key
	keys   []string
	args   []string
}

// answer is what a script said: whether all admitted (or what was given), the
// time there, and four numbers for each key.
type answer struct {
	numbers []int64
	err     *Error
}

func (a answer) ok() bool { return a.err == nil && a.numbers[0] != 0 }

// shards is which breakers stand before the queries, a bit each.
func (c *Counter) shards(queries []query) (which [gcra.MaxCharges]uint8, all uint64) {
	if !c.cluster.Load() {
		return which, 1
	}
	for i := range queries {
		which[i] = uint8(queries[i].slot / (slots / breakers))
		all |= 1 << which[i]
	}
	return which, all
}

// ask sends the queries, each to its shard, and answers within the deadline
// whatever the library does. With undo set, what some of them charged is given
// back where others refused or failed. An error is the first that there was.
func (c *Counter) ask(ctx context.Context, queries []query, undo bool) ([]answer, error) {
	if c.closed.Load() {
		return nil, c.fail(Refused, "closed")
	}
	return c.askEven(ctx, queries, undo)
}

// askEven is ask, even while the Counter closes.
func (c *Counter) askEven(ctx context.Context, queries []query, undo bool) ([]answer, error) {
	which, all := c.shards(queries)
	if !c.allow(all) {
		return nil, c.fail(BreakerOpen, "not asked: it did not answer a moment ago")
	}
	deadline := time.NewTimer(c.config.Timeout)
	defer deadline.Stop()
	var answers []answer
	fate := error(c.fail(Timeout, "no answer in time"))
	select {
	case c.slots <- struct{}{}:
		done := make(chan []answer, 1)
		c.calls.Go(func() {
			defer func() { <-c.slots }()
			done <- c.exchange(queries, undo)
		})
		select {
		case answers = <-done:
			fate = nil
		case <-deadline.C:
		case <-ctx.Done():
			fate = ctx.Err()
		}
	case <-deadline.C:
	case <-ctx.Done():
		fate = ctx.Err()
	}
	return answers, c.judge(which[:len(queries)], all, answers, fate)
}

// allow asks the breakers of some shards: all or none.
func (c *Counter) allow(all uint64) bool {
	now := time.Now()
	for rest := all; rest != 0; rest &= rest - 1 {
		if i := bits.TrailingZeros64(rest); !c.breakers[i].allow(now) {
			for before := all & (1<<i - 1); before != 0; before &= before - 1 {
				c.breakers[bits.TrailingZeros64(before)].forget()
			}
			return false
		}
	}
	return true
}

// judge reports to each breaker once how its queries went, and picks the error.
// Fate is what became of all of them; nil where there are answers.
func (c *Counter) judge(which []uint8, all uint64, answers []answer, fate error) error {
	first, failed := fate, [breakers]*Error{}
	late, known := fate.(*Error)
	for i, shard := range which {
		if fate == nil && answers[i].err != nil {
			if failed[shard] == nil || answers[i].err.bad() {
				failed[shard] = answers[i].err
			}
			if first == nil {
				first = answers[i].err
			}
		}
	}
	now := time.Now()
	for ; all != 0; all &= all - 1 {
		shard := bits.TrailingZeros64(all)
		b, err := &c.breakers[shard], failed[shard]
		switch {
		case fate != nil && !known: // the caller went away
			b.forget()
			continue
		case fate != nil:
			err = late
		}
		if b.report(now, !err.bad()) {
			c.tripped(err)
		}
	}
	return first
}

// tripped says that a breaker opened. A new connection may reach another
// server, or this one again.
func (c *Counter) tripped(err *Error) {
	c.log.Warn("redis does not answer: not asked for a while", "reason", err.kind, "error", err)
	switch err.kind {
	case Timeout, Refused, ReadOnly, MasterDown:
		if !c.cluster.Load() {
			c.conn.Drop()
		}
	}
}

// exchange sends queries and takes their answers.
func (c *Counter) exchange(queries []query, undo bool) []answer {
	ctx := context.Background() // whoever waits has a deadline; nothing waits behind the library's
	dialling, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := c.conn.Client(dialling)
	if err != nil {
		answers := make([]answer, len(queries))
		e := c.failure(err)
		for i := range answers {
			answers[i].err = e
		}
		return answers
	}
	cluster := client.Mode() == rueidis.ClientModeCluster
	c.cluster.Store(cluster)
	calls, shared := queries, []int(nil)
	if !cluster && len(queries) > 1 {
		calls, shared = c.merge(queries)
	}
	answers := make([]answer, len(calls))
	c.run(ctx, client, calls, answers)
	if undo && len(calls) > 1 {
		c.undo(ctx, client, calls, answers)
	}
	if shared == nil {
		return answers
	}
	out := make([]answer, len(queries))
	for i, at := range shared {
		out[i] = answers[at]
		if n := out[i].numbers; n != nil && len(calls[at].keys) > 1 {
			// The j-th of its call: the call's first two numbers and its own four.
			j := 0
			for _, before := range shared[:i] {
				if before == at {
					j++
				}
			}
			out[i].numbers = append(n[:2:2], n[2+4*j:6+4*j]...)
		}
	}
	return out
}

// merge joins the queries that one server can answer in one atomic call, and
// says which call each went into.
func (c *Counter) merge(queries []query) (calls []query, at []int) {
	first := -1
	for _, q := range queries {
		switch {
		case q.script != &c.main:
			at = append(at, len(calls))
			calls = append(calls, q)
		case first < 0:
			first = len(calls)
			at = append(at, first)
			calls = append(calls, q)
		default:
			at = append(at, first)
			calls[first].keys = append(calls[first].keys, q.keys...)
			calls[first].args = append(calls[first].args, q.args[header:]...)
		}
	}
	return calls, at
}

// run calls each script by its hash, and once more by its text where the hash
// is not known. A call is never repeated for another reason.
func (c *Counter) run(ctx context.Context, client rueidis.Client, queries []query, answers []answer) {
	command := func(q *query, text bool) rueidis.Completed {
		if text {
			return client.B().Eval().Script(q.script.text).Numkeys(int64(len(q.keys))).Key(q.keys...).Arg(q.args...).Build()
		}
		return client.B().Evalsha().Sha1(q.script.hash).Numkeys(int64(len(q.keys))).Key(q.keys...).Arg(q.args...).Build()
	}
	take := func(i int, r rueidis.RedisResult) (unknown bool) {
		text, err := r.ToString()
		switch {
		case err == nil && len(text) == 8*(2+4*len(queries[i].keys)):
			answers[i] = answer{numbers: unpack(text)}
		case err == nil:
			answers[i].err = c.fail(Other, "its answer is no script's of ours")
		default:
			answers[i].err = c.failure(err)
			known, ok := rueidis.IsRedisErr(err)
			return ok && known.IsNoScript()
		}
		return false
	}
	c.sent.Add(uint64(len(queries)))
	if len(queries) == 1 {
		if take(0, client.Do(ctx, command(&queries[0], false))) {
			c.sent.Add(1)
			take(0, client.Do(ctx, command(&queries[0], true)))
		}
		return
	}
	commands := make([]rueidis.Completed, len(queries))
	for i := range queries {
		commands[i] = command(&queries[i], false)
	}
	for i, r := range client.DoMulti(ctx, commands...) {
		if take(i, r) {
			c.sent.Add(1)
			take(i, client.Do(ctx, command(&queries[i], true)))
		}
	}
}

// undo gives back what some queries charged, where not all did.
func (c *Counter) undo(ctx context.Context, client rueidis.Client, queries []query, answers []answer) {
	all := true
	var back []query
	for i := range queries {
		if !answers[i].ok() {
			all = false
			continue
		}
		q := queries[i]
		n := unpack(q.args[1])[0]
		q.args = append([]string{opSettle, pack(-n, answers[i].numbers[1])}, q.args[header:]...)
		back = append(back, q)
	}
	if !all && len(back) > 0 {
		// What cannot be given back is lost, never minted.
		c.run(ctx, client, back, make([]answer, len(back)))
	}
}

// pack writes numbers as the scripts take them. Beyond 2^53 they are rounded.
func pack(numbers ...int64) string {
	text := make([]byte, 0, 8*len(numbers))
	for _, n := range numbers {
		text = binary.BigEndian.AppendUint64(text, math.Float64bits(float64(n)))
	}
	return rueidis.BinaryString(text)
}

// unpack reads what pack and the scripts write.
func unpack(text string) []int64 {
	numbers := make([]int64, len(text)/8)
	for i := range numbers {
		numbers[i] = int64(math.Float64frombits(binary.BigEndian.Uint64([]byte(text[8*i : 8*i+8]))))
	}
	return numbers
}
