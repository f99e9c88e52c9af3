package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/redis/rueidis"
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

// breaker is the one of the shard that holds a slot.
func (c *Counter) breaker(slot uint16) *breaker {
	if c.cluster.Load() {
		return &c.breakers[slot/(slots/breakers)]
	}
	return &c.breakers[0]
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
	start := time.Now()
	for i := range queries {
		if !c.breaker(queries[i].slot).allow(start) {
			for j := range i {
				c.breaker(queries[j].slot).forget()
			}
			return nil, c.fail(BreakerOpen, "not asked: it did not answer a moment ago")
		}
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
	return answers, c.judge(queries, answers, fate)
}

// judge reports to the breakers how queries went, and picks the error.
func (c *Counter) judge(queries []query, answers []answer, fate error) error {
	now := time.Now()
	var timeout *Error
	for i := range queries {
		b := c.breaker(queries[i].slot)
		var err *Error
		switch {
		case fate == nil:
			err = answers[i].err
		case errors.As(fate, &timeout):
			err = timeout
		default: // the caller went away
			b.forget()
			continue
		}
		if b.report(now, !err.bad()) {
			c.log.Warn("redis does not answer: not asked for a while", "reason", err.kind, "error", err)
			if k := err.kind; !c.cluster.Load() && (k == Timeout || k == Refused || k == ReadOnly || k == MasterDown) {
				// A new connection may reach another server, or this one again.
				c.conn.Drop()
			}
		}
		if fate == nil && err != nil {
			return err
		}
	}
	return fate
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
