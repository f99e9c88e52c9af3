package enforcer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// rules is a random service: quota buckets and caps that overlap, each with a
// limit and a mode.
type rules struct {
	buckets []rule
	share   bool
}

type rule struct {
	text   string // but for limit and mode
	limit  string // and algorithm
	none   string // the same, so high that it limits nothing
	shadow bool
}

// drawLimit is a limit of any algorithm, and the same without effect.
func drawLimit(t *rapid.T) (limit, none string) {
	n := rapid.IntRange(1, 4).Draw(t, "burst")
	switch algorithm := rapid.SampledFrom([]string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "concurrency"}).Draw(t, "algorithm"); algorithm {
	case "concurrency":
		form := "algorithm: concurrency, limit: {concurrent: %d, timeout: 2s}"
		return fmt.Sprintf(form, n), fmt.Sprintf(form, 1_000_000)
	case "fixed_window", "sliding_window", "sliding_log":
		form := "algorithm: " + algorithm + ", limit: {requests: %d, window: 3s}"
		return fmt.Sprintf(form, n), fmt.Sprintf(form, 1_000_000)
	default:
		form := "algorithm: " + algorithm + ", limit: {rate: %.2f, burst: %d}"
		return fmt.Sprintf(form, rapid.SampledFrom([]float64{0.05, 0.5, 5}).Draw(t, "rate"), n), fmt.Sprintf(form, 100_000_000.0, 100_000_000)
	}
}

func drawRules(t *rapid.T) rules {
	all := []string{
		"name: callers, each: [caller]",
		"name: exact, match: {caller: a}",
		"name: both, match: {caller: b, procedure: P}",
		"name: cap-all, role: cap",
		"name: cap-p, role: cap, match: {procedure: P}",
		"name: cap-each, role: cap, each: [caller]",
		"name: cap-ab, role: cap, match: {caller: [a, b]}",
	}
	var r rules
	for _, text := range all {
		if rapid.Bool().Draw(t, "has "+text) {
			limit, none := drawLimit(t)
			if rapid.IntRange(0, 3).Draw(t, "weighed") == 0 {
				text += ", cost: {P: 2}"
			}
			r.buckets = append(r.buckets, rule{text, limit, none, rapid.Bool().Draw(t, "shadow")})
		}
	}
	if len(r.buckets) == 0 {
		limit, none := drawLimit(t)
		r.buckets = []rule{{text: all[0], limit: limit, none: none}}
	}
	r.share = rapid.Bool().Draw(t, "share")
	return r
}

// file is the policy with modes chosen by mode; "" leaves the bucket's limit
// out of the way.
func (r rules) file(mode func(rule) string) rlc.Files {
	var b strings.Builder
	if r.share {
		b.WriteString("counters: {max: 2, on_full: share}\n")
	}
	b.WriteString("buckets:\n")
	for _, x := range r.buckets {
		limit, m := x.limit, mode(x)
		if m == "" {
			limit, m = x.none, "enforce"
		}
		fmt.Fprintf(&b, "  - {%s, mode: %s, %s}\n", x.text, m, limit)
	}
	return policy("s", b.String())
}

type offered struct {
	after time.Duration
	req   enforcer.Request
}

func drawTrace(t *rapid.T) []offered {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) offered {
		return offered{
			after: time.Duration(rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 100), rapid.IntRange(0, 2000)).Draw(t, "ms")) * time.Millisecond,
			req: enforcer.Request{Service: "s", Cost: rapid.SampledFrom([]int64{1, 1, 1, 2, 3}).Draw(t, "cost"), Attributes: rlc.Attributes{
				"caller":    rapid.SampledFrom([]string{"a", "b", "c", "d", ""}).Draw(t, "caller"),
				"procedure": rapid.SampledFrom([]string{"P", "Q"}).Draw(t, "procedure"),
			}},
		}
	}), 1, 120).Draw(t, "trace")
}

// replay decides the trace. With store set, counters that can are shared, in a
// store that does not answer each third time it is asked in a row.
func replay(t *rapid.T, files rlc.Files, trace []offered, store bool) []enforcer.Outcome {
	at := &clock{noon}
	c := enforcer.Config{Name: "e1", Now: at.now, Peers: enforcer.Peers{Global: 2}}
	fail := new(error)
	if store {
		c.Counter = faulty{enforcer.InProcess(nil), fail, ""}
	}
	e, err := enforcer.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Load(snap(1, files)); err != nil {
		t.Fatal(err)
	}
	out := make([]enforcer.Outcome, len(trace))
	for i, o := range trace {
		at.advance(o.after)
		if *fail = nil; i%3 == 2 {
			*fail = away("timeout")
		}
		out[i] = e.Decide(o.req).Outcome
	}
	return out
}

// The law of enforcement.md 6, request by request: what all shadow calls a
// virtual drop is what all enforcing drops; and in a mixture, the enforcing
// buckets decide as if the shadow ones were not there.
func TestVirtualDropsAreTheDropsThatEnforcingWouldMake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, trace, store := drawRules(t), drawTrace(t), rapid.Bool().Draw(t, "store")
		shadow := replay(t, r.file(func(rule) string { return "shadow" }), trace, store)
		enforce := replay(t, r.file(func(rule) string { return "enforce" }), trace, store)
		mixed := replay(t, r.file(func(x rule) string {
			if x.shadow {
				return "shadow"
			}
			return "enforce"
		}), trace, store)
		alone := replay(t, r.file(func(x rule) string {
			if x.shadow {
				return ""
			}
			return "enforce"
		}), trace, store)
		inFlight := slices.ContainsFunc(r.buckets, func(x rule) bool { return strings.Contains(x.limit, "concurrent") })
		for i := range trace {
			if enforce[i] == enforcer.VirtualDrop || shadow[i] == enforcer.Drop {
				t.Fatalf("request %d: %s while all enforce, %s while all are in shadow", i, enforce[i], shadow[i])
			}
			if (shadow[i] == enforcer.VirtualDrop) != (enforce[i] == enforcer.Drop) {
				t.Fatalf("request %d: %s in shadow, %s enforcing", i, shadow[i], enforce[i])
			}
			if (mixed[i] == enforcer.Drop) != (alone[i] == enforcer.Drop) {
				t.Fatalf("request %d: %s beside shadow buckets, %s without them", i, mixed[i], alone[i])
			}
			if inFlight {
				continue // what the mixture drops has no place to keep in the other world
			}
			if mixed[i] == enforcer.VirtualDrop && enforce[i] != enforcer.Drop || mixed[i] == enforcer.Admit && enforce[i] == enforcer.Drop {
				t.Fatalf("request %d: %s in the mixture, %s once all enforce", i, mixed[i], enforce[i])
			}
		}
	})
}

// An enforcing bucket is charged in the world where all enforce by requests
// that no shadow bucket sees, too: else the cap below would be charged for a
// request that the quota refuses there.
func TestTheWorldInWhichAllEnforceSeesEveryRequest(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "buckets:\n"+
		"  - {name: a, match: {caller: a}, mode: enforce, limit: {rate: 0.001, burst: 1}}\n"+
		"  - {name: cap-p, role: cap, match: {procedure: P}, mode: shadow, limit: {rate: 0.001, burst: 1}}\n")))
	for i, c := range []struct {
		caller, procedure string
		want              enforcer.Outcome
	}{
		{"a", "Q", enforcer.Admit},
		{"a", "P", enforcer.Drop},  // the quota is used up, so the cap is not charged
		{"b", "P", enforcer.Admit}, // the cap has its token
		{"b", "P", enforcer.VirtualDrop},
	} {
		if got := e.Decide(enforcer.Request{Service: "s", Attributes: rlc.Attributes{"caller": c.caller, "procedure": c.procedure}}).Outcome; got != c.want {
			t.Errorf("request %d: %s, want %s", i, got, c.want)
		}
	}
}
