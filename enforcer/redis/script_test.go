package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// drawLimit is a limit of any kind, among them calendar windows over a change
// of the clocks.
func drawLimit(t *rapid.T, name string, kind string) gcra.Limit {
	var l gcra.Limit
	var err error
	burst := rapid.OneOf(rapid.Int64Range(1, 8), rapid.Int64Range(1, 3000)).Draw(t, name+" burst")
	if kind != rlc.TokenBucket && kind != rlc.LeakyBucket && rapid.Bool().Draw(t, name+" window") {
		per := rapid.SampledFrom([]string{rlc.PerSecond, rlc.PerMinute, rlc.PerHour, rlc.PerDay}).Draw(t, name+" per")
		w := rlc.WindowLimit{Requests: burst, Per: per, Calendar: kind == rlc.FixedWindow && rapid.Bool().Draw(t, name+" calendar")}
		if w.Calendar {
			w.Location = "Europe/Paris"
		}
		l, err = gcra.CompileWindow(kind, w)
	} else {
		rate := rapid.OneOf(rapid.Float64Range(0.01, 5), rapid.Float64Range(1, 400_000), rapid.Just(50.0)).Draw(t, name+" rate")
		l, err = gcra.CompileAs(kind, rlc.Limit{Rate: rlc.Rate(rate), Burst: rlc.Burst(burst)})
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The scripts are the arithmetic of package gcra, written once more: whatever
// comes, both say the same.
func TestScriptsDecideAsGCRADoes(t *testing.T) {
	server := redistest.Start(t)
	c := virtual(t, server, Config{Strict: true})
	n := 0
	kinds := []string{rlc.TokenBucket, rlc.LeakyBucket, rlc.FixedWindow, rlc.SlidingWindow, rlc.SlidingLog}
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		l := drawLimit(t, "limit", kind)
		n++
		key := strconv.Itoa(n)
		// The night of 29 March 2026, in which Paris loses an hour.
		now := time.Date(2026, 3, 28, 22, 0, 0, 0, time.UTC).UnixMicro() + rapid.Int64Range(0, 8e9).Draw(t, "start")
		// Keys without traffic expire on the real clock, which stands still here.
		var s gcra.State
		type charge struct{ at, cost int64 }
		var open []charge // not settled yet
		for i := range rapid.IntRange(1, 25).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Int64Range(-2000, 3000), rapid.Int64Range(0, 3_000_000), rapid.Int64Range(0, 4e9), rapid.Just(int64(0))).Draw(t, "gap")
			// A bucket that owes more than its burst is left to pay it here: over
			// a change, the two may book a little of it differently.
			owing := l.Length() == 0 && s.Prev > 0
			if rapid.IntRange(0, 9).Draw(t, "change") == 0 && !owing {
				if next := drawLimit(t, "next", kind); next.Length() == l.Length() {
					l = next // of windows, only the requests
				}
			}
			set := c.Set([]gcra.Charge{{Bucket: "b", Key: key, Limit: l}})
			if rapid.IntRange(0, 7).Draw(t, "settle") == 0 && !owing {
				at, by := now, rapid.Int64Range(-6, 20).Draw(t, "by")
				if len(open) > 0 && rapid.Bool().Draw(t, "late") {
					n := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					at, by = open[n].at, max(by, -open[n].cost)
					open = slices.Delete(open, n, n+1)
				}
				if kind == rlc.SlidingLog && at <= now-l.Length() {
					continue // forgotten, unless the next step goes back before that
				}
				c.set(now)
				if err := set.(enforcer.Settler).Settle(context.Background(), at-c.ahead.Load(), by); err != nil {
					t.Fatal(err)
				}
				l.Settle(&s, at, by)
				continue
			}
			cost := rapid.Int64Range(0, 6).Draw(t, "cost")
			got, err := set.Take(context.Background(), now, cost)
			if err != nil {
				t.Fatal(err)
			}
			next, v := l.Take(s, now, cost)
			if cost > 0 && (v.OK || next.At < s.At) {
				s = next // a refusal is remembered only where the clock was set back
			}
			if cost > 0 && v.OK {
				open = append(open, charge{max(now, s.At), cost})
			}
			var want gcra.Tally
			want.Add(0, v)
			if got != want {
				t.Fatalf("step %d, %s at %d, cost %d: got %+v, want %+v (state %+v)", i, l.String(), now, cost, got, want, s)
			}
		}
	})
}

// bare is a part and a way to call its script past the checks of package redis.
func bare(t *testing.T, c *Counter, l gcra.Limit, name string) (p *part, call func(args ...string) ([]int64, error)) {
	t.Helper()
	p = &part{}
	c.prepare(p, gcra.Charge{Bucket: "bare", Key: name, Limit: l})
	return p, func(args ...string) ([]int64, error) {
		answers, err := c.ask(t.Context(), patience, []query{{script: p.script, keys: []string{p.name}, args: args}}, false)
		if err != nil {
			return nil, err
		}
		return answers[0].numbers, nil
	}
}

// Whatever is wrong with the arguments, the script says so and writes nothing.
func TestScriptsWriteNothingForWrongArguments(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{})
	limits := []gcra.Limit{compile(t, 10, 10), window(t, rlc.FixedWindow, false), window(t, rlc.FixedWindow, true), window(t, rlc.SlidingWindow, false), window(t, rlc.SlidingLog, false)}
	for i, l := range limits {
		p, call := bare(t, c, l, strconv.Itoa(i))
		good := p.query(c, opTake, 1, 0, time.Now().UnixMicro()).args
		put := func(at int, bad float64) []string {
			args := append([]string(nil), good...)
			i, skip := 1, 8*at
			if at >= 2 {
				i, skip = 2, 1+8*(at-2)
			}
			args[i] = args[i][:skip] + string(binary.BigEndian.AppendUint64(nil, math.Float64bits(bad))) + args[i][skip+8:]
			return args
		}
		for at := range 9 {
			if used := map[byte]int{'b': 9, 'c': 8, 'l': 6}[p.kind]; at >= max(used, 5) {
				continue // a number that this counter has no use for
			}
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, -100, 1e300} {
				if at == 8 && bad > 0 {
					continue // a bound that lies high bounds nothing
				}
				if _, err := call(put(at, bad)...); err == nil {
					t.Errorf("kind %c: number %d is %g: answered", p.kind, at+1, bad)
				}
			}
		}
		for _, args := range [][]string{nil, good[:2], append(good[:3:3], "1"), {"", good[1], good[2]}, {"TAKE", good[1], good[2]}, {opTake, "1", good[2]}, {opTake, good[1], good[2][:40]}, {opTake, good[1], "x" + good[2][1:]}, put(0, 0), put(0, 1.5), put(0, 1e11+1)} {
			if _, err := call(args...); err == nil {
				t.Errorf("kind %c: %q: answered", p.kind, args)
			}
		}
		if n := server.Do("DBSIZE")[0]; n != "0" {
			t.Fatalf("kind %c: %s keys", p.kind, n)
		}
		if numbers, err := call(good...); err != nil || numbers[0] != 1 {
			t.Fatalf("kind %c: good arguments: %v %v", p.kind, numbers, err)
		}
		server.Do("FLUSHALL")
	}
}

func window(t testing.TB, algorithm string, calendar bool) gcra.Limit {
	t.Helper()
	w := rlc.WindowLimit{Requests: 10, Per: rlc.PerMinute, Calendar: calendar}
	if calendar {
		w.Per = rlc.PerDay
	}
	l, err := gcra.CompileWindow(algorithm, w)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A stored time is all that is left of a clock that was stepped: back by an
// hour means that it lies ahead, forward that it lies far behind.
func TestAStepOfRedissClockNeitherFreezesNorFloods(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{Strict: true})
	for _, step := range []time.Duration{time.Hour, -time.Hour, 8_000_000 * time.Second, -50 * 365 * 24 * time.Hour} {
		key := step.String()
		l := compile(t, 1, 5)
		p, _ := bare(t, c, l, key)
		set := c.Set([]gcra.Charge{{Bucket: "bare", Key: key, Limit: l}})
		now := time.Now()
		stored := make([]byte, 16)
		binary.BigEndian.PutUint64(stored, math.Float64bits(5e6)) // empty
		binary.BigEndian.PutUint64(stored[8:], math.Float64bits(float64(now.Add(step).UnixMicro())))
		server.Do("SET", p.name, string(stored), "PX", "60000")
		admitted, wait := 0, time.Duration(0)
		for range 20 {
			tally := take(t, set, 0, 1)
			if tally.OK() {
				admitted++
			}
			wait = max(wait, tally.Wait)
		}
		want := 0 // the clock was set back: the bucket goes on, empty
		if step < 0 {
			want = 5 // time went by: it is full, and no more
		}
		if admitted < want || admitted > want+1 || wait > 6*time.Second {
			t.Errorf("a stored time %s from now: %d admitted, waits up to %s", step, admitted, wait)
		}
	}
}

// Names are data: whatever they hold, each has a counter of its own, no key
// holds a brace or a control character, and slots are spread evenly.
func TestNamesChooseNeitherShardNorNeighbour(t *testing.T) {
	c := counter(t, "redis://127.0.0.1:1", Config{Prefix: "p:"})
	name := func(bucket, key string) (string, uint16) {
		var p part
		c.prepare(&p, gcra.Charge{Bucket: bucket, Key: key, Limit: compile(t, 1, 1)})
		return p.name, p.slot
	}
	seen := map[string]string{}
	add := func(bucket, key string) {
		k, _ := name(bucket, key)
		id := fmt.Sprintf("%q %q", bucket, key)
		if other, ok := seen[k]; ok && other != id {
			t.Errorf("%s and %s share %s", other, id, k)
		}
		if seen[k] = id; !regexp.MustCompile(`^p:b:[A-Za-z0-9_-]{28}$`).MatchString(k) {
			t.Errorf("%s: key %q", id, k)
		}
	}
	hostile := []string{"", "a", "a_b", "b_c", "{", "}", "{}", "{a}", "a{b}c", " ", "\r\n", "\x00", "a\x00b", "ä", "\xff\xfe", "*", "?", "[a]", strings.Repeat("x", 64<<10), "\u202e", "../..", "%7B"}
	for _, bucket := range hostile {
		for _, key := range hostile {
			add(bucket, key)
			add(bucket+key, "")
			add("", bucket+key)
		}
	}
	// 64 groups of 256 slots, 32,768 names: χ² with 63 degrees of freedom is
	// above 103.4 once in a thousand for even spreading; these names are fixed.
	var groups [64]float64
	const names = 32_768
	for i := range names {
		_, s := name("{bucket}", fmt.Sprint("{caller}", i))
		groups[s/256]++
	}
	chi := 0.0
	for _, n := range groups {
		chi += (n - names/64) * (n - names/64) / (names / 64)
	}
	if chi > 103.4 {
		t.Errorf("χ² %.1f over 63", chi)
	}
}

// Every key is gone some time after its last use, whatever was asked.
func TestEveryKeyExpires(t *testing.T) {
	callers := 3000
	if testing.Short() {
		callers = 300
	}
	if n, err := strconv.Atoi(os.Getenv("RLC_CALLERS")); err == nil {
		callers = n
	}
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{LeaseFrom: 1})
	limits := []gcra.Limit{compile(t, 1000, 10), compile(t, 0.001, 1), window(t, rlc.FixedWindow, false), window(t, rlc.FixedWindow, true), window(t, rlc.SlidingWindow, false), window(t, rlc.SlidingLog, false)}
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := g; i < callers; i += 8 {
				ch := gcra.Charge{Bucket: strconv.Itoa(i % len(limits)), Key: strconv.Itoa(rand.IntN(1 << 40)), Limit: limits[i%len(limits)]}
				set := c.Set([]gcra.Charge{ch}).(*Set)
				for cost := range int64(4) {
					if _, err := set.Take(t.Context(), time.Now().UnixMicro(), 3*cost); err != nil {
						t.Error(err)
						return
					}
				}
				if err := errors.Join(set.Settle(t.Context(), time.Now().UnixMicro(), 20), set.Settle(t.Context(), time.Now().UnixMicro(), -2)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	total, longest := 0, 0
	for cursor := "0"; ; {
		page := server.Do("SCAN", cursor, "COUNT", "1000")
		for _, key := range page[1:] {
			left, err := strconv.Atoi(server.Do("PTTL", key)[0])
			if err != nil || left == -1 {
				t.Fatalf("%s never expires (%d, %v)", key, left, err)
			}
			longest = max(longest, left)
			total++
		}
		if cursor = page[0]; cursor == "0" {
			break
		}
	}
	// A bucket lives a day at most, a window its own length and an hour more.
	if total < callers*2/3 || longest > 26*60*60*1000 {
		t.Errorf("%d keys of %d callers, the longest lives %d ms", total, callers, longest)
	}
}
