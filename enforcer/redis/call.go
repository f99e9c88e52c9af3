package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/bits"
	"slices"
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
	if c.shape.Load() != cluster {
		return which, 1
	}
	for i := range queries {
		which[i] = uint8(queries[i].slot / (slots / breakers))
		all |= 1 << which[i]
	}
	return which, all
}

// ask sends the queries, each to its shard, and answers within that time
// whatever the library does. With undo set, what some of them charged is given
// back where others refused or failed. An error is the first that there was.
func (c *Counter) ask(ctx context.Context, within time.Duration, queries []query, undo bool) ([]answer, error) {
	if c.closed.Load() {
		return nil, c.fail(Refused, "closed")
	}
	which, all := c.shards(queries)
	if !c.allow(all) {
		return nil, c.notAsked()
	}
	return c.askAllowed(ctx, within, queries, undo, which, all)
}

func (c *Counter) notAsked() *Error {
	return c.fail(BreakerOpen, "not asked: it did not answer a moment ago")
}

// askAllowed is ask once the breakers have been.
func (c *Counter) askAllowed(ctx context.Context, within time.Duration, queries []query, undo bool, which [gcra.MaxCharges]uint8, all uint64) ([]answer, error) {
	answers, fate := c.answers(ctx, within, queries, undo)
	return answers, c.judge(which[:len(queries)], all, answers, fate)
}

// answers waits for the queries' answers until the deadline.
func (c *Counter) answers(ctx context.Context, within time.Duration, queries []query, undo bool) ([]answer, error) {
	if c.shape.Load() == unknown {
		began := time.Now()
		dialling, cancel := context.WithTimeout(ctx, within)
		_, err := c.client(dialling)
		cancel()
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, c.failure(err)
		}
		within -= time.Since(began)
	}
	if c.shape.Load() == cluster {
		return c.direct(ctx, within, queries, undo)
	}
	calls, shared := merge(queries, &c.main)
	var answers []answer
	var err error
	if len(calls) > 1 {
		answers, err = c.direct(ctx, within, calls, undo)
	} else {
		answers, err = c.batched(ctx, within, &calls[0])
	}
	if err != nil || shared == nil {
		return answers, err
	}
	return split(answers, calls, shared), nil
}

// client is the connection, which is made where there is none; then the
// server's shape is known.
func (c *Counter) client(ctx context.Context) (rueidis.Client, error) {
	client, err := c.conn.Client(ctx)
	if err == nil && c.shape.Load() == unknown {
		shape := single
		if client.Mode() == rueidis.ClientModeCluster {
			shape = cluster
		}
		c.shape.Store(shape)
	}
	return client, err
}

// The shapes of a server.
const (
	unknown int32 = iota // never connected
	single
	cluster
)

// allow asks the breakers of some shards: all or none.
func (c *Counter) allow(all uint64) bool {
	for rest := all; rest != 0; rest &= rest - 1 {
		if i := bits.TrailingZeros64(rest); !c.breakers[i].allow() {
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
		if b.report(!err.bad()) {
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
		if c.shape.Load() != cluster {
			c.conn.Drop()
		}
	}
}

// direct sends calls side by side, in a goroutine of their own: the library
// gives up for no context while it connects.
func (c *Counter) direct(ctx context.Context, within time.Duration, calls []query, undo bool) ([]answer, error) {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	select {
	case c.slots <- struct{}{}:
		done := make(chan []answer, 1)
		c.calls.Go(func() {
			defer func() { <-c.slots }()
			done <- c.exchange(calls, undo)
		})
		select {
		case answers := <-done:
			return answers, nil
		case <-deadline.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case <-deadline.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, c.late()
}

func (c *Counter) late() *Error { return c.fail(Timeout, "no answer in time") }

// exchange sends calls and takes their answers.
func (c *Counter) exchange(calls []query, undo bool) []answer {
	answers := make([]answer, len(calls))
	c.send(calls, answers)
	if undo && len(calls) > 1 {
		c.undo(calls, answers)
	}
	return answers
}

// send runs calls. Whoever waits for them has a deadline; behind the library's
// nothing waits.
func (c *Counter) send(calls []query, answers []answer) {
	ctx := context.Background()
	client, err := c.client(ctx) // there is one, or there was and it is closed
	if err == nil {
		c.run(ctx, client, calls, answers)
		return
	}
	e := c.failure(err)
	for i := range answers {
		answers[i].err = e
	}
}

// split gives each query its part of its call's answer.
func split(answers []answer, calls []query, shared []int) []answer {
	out := make([]answer, len(shared))
	var before [gcra.MaxCharges]int // queries of a call that had their part
	for i, at := range shared {
		out[i] = answers[at]
		if n := out[i].numbers; n != nil && len(calls[at].keys) > 1 {
			// The call's first two numbers and the query's own four.
			j := before[at]
			before[at]++
			out[i].numbers = append(n[:2:2], n[2+4*j:6+4*j]...)
		}
	}
	return out
}

// merge joins the queries of one script, which one server can answer in one
// atomic call, and says which call each went into; nil for each into its own.
func merge(queries []query, of *script) (calls []query, at []int) {
	if len(queries) == 1 {
		return queries, nil
	}
	first := -1
	for _, q := range queries {
		switch {
		case q.script != of:
			at = append(at, len(calls))
			calls = append(calls, q)
		case first < 0:
			first = len(calls)
			at = append(at, first)
			calls = append(calls, q)
		default:
			at = append(at, first)
			calls[first].keys = append(slices.Clip(calls[first].keys), q.keys...)
			calls[first].args = append(slices.Clip(calls[first].args), q.args[header:]...)
		}
	}
	return calls, at
}

// run calls each script by its hash, and once more by its text where the hash
// is not known. A call is never repeated for another reason.
func (c *Counter) run(ctx context.Context, client rueidis.Client, calls []query, answers []answer) {
	commands := make([]rueidis.Completed, len(calls))
	for i := range calls {
		q := &calls[i]
		commands[i] = client.B().Evalsha().Sha1(q.script.hash).Numkeys(int64(len(q.keys))).Key(q.keys...).Arg(q.args...).Build()
	}
	var unknown []int
	for i, r := range c.do(ctx, client, commands) {
		if c.take(r, &calls[i], &answers[i]) {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) == 0 {
		return
	}
	commands = commands[:0]
	for _, i := range unknown {
		q := &calls[i]
		commands = append(commands, client.B().Eval().Script(q.script.text).Numkeys(int64(len(q.keys))).Key(q.keys...).Arg(q.args...).Build())
	}
	for j, r := range c.do(ctx, client, commands) {
		i := unknown[j]
		answers[i].err = nil
		c.take(r, &calls[i], &answers[i])
	}
}

// do sends commands, in one packet to each server.
func (c *Counter) do(ctx context.Context, client rueidis.Client, commands []rueidis.Completed) []rueidis.RedisResult {
	c.sent.Add(uint64(len(commands)))
	began := time.Now()
	defer func() { c.times.add(time.Since(began)) }()
	if len(commands) == 1 {
		return []rueidis.RedisResult{client.Do(ctx, commands[0])}
	}
	return client.DoMulti(ctx, commands...)
}

// take enters what a call was answered, and reports whether its script is not
// known.
func (c *Counter) take(r rueidis.RedisResult, call *query, a *answer) (unknown bool) {
	text, err := r.ToString()
	switch {
	case err == nil && len(text) == 8*(2+4*len(call.keys)):
		a.numbers = unpack(text)
	case err == nil:
		a.err = c.fail(Other, "its answer is no script's of ours")
	default:
		a.err = c.failure(err)
		known, ok := rueidis.IsRedisErr(err)
		return ok && known.IsNoScript()
	}
	return false
}

// undo gives back what some calls charged, where not all did.
func (c *Counter) undo(calls []query, answers []answer) {
	all := true
	var back []query
	for i := range calls {
		if !answers[i].ok() {
			all = false
			continue
		}
		q := calls[i]
		n := unpack(q.args[1])[0]
		q.args = append([]string{opSettle, pack(-n, answers[i].numbers[1])}, q.args[header:]...)
		back = append(back, q)
	}
	if !all && len(back) > 0 {
		// What cannot be given back is lost, never minted.
		c.send(back, make([]answer, len(back)))
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
