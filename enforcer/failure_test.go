package enforcer_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// away is a store's error of a kind.
type away string

func (a away) Error() string  { return "store: " + string(a) }
func (a away) Reason() string { return string(a) }

// failing is an enforcer whose shared store answers until *fail is set.
func failing(t testing.TB, c enforcer.Config) (*enforcer.Enforcer, *clock, *error) {
	t.Helper()
	fail := new(error)
	c.Counter = faulty{enforcer.InProcess(nil), fail, ""}
	e, at := start(t, c)
	return e, at, fail
}

func TestEachBucketSaysWhatBecomesOfItWhileTheStoreIsAway(t *testing.T) {
	for onFailure, want := range map[string]struct {
		admit, drop, virtual int
		failure              string
	}{
		"open":   {10, 10, 0, ""},       // the whole limit, in this process
		"local":  {2, 18, 0, ""},        // a fifth of it
		"closed": {0, 20, 0, "loading"}, // nothing
		"shadow": {0, 0, 20, ""},        // closed, and in shadow
		"":       {2, 18, 0, ""},        // local is the default
	} {
		t.Run(onFailure, func(t *testing.T) {
			e, _, fail := failing(t, enforcer.Config{Peers: enforcer.Peers{Global: 5}})
			body := map[string]string{"shadow": "mode: shadow, on_failure: closed", "": "mode: enforce"}[onFailure]
			if body == "" {
				body = "mode: enforce, on_failure: " + onFailure
			}
			load(t, e, snap(1, policy("s", "buckets:\n  - {name: b, each: [caller], "+body+", limit: "+tenADay+"}\n")))
			*fail = away("loading")
			got, failure := map[enforcer.Outcome]int{}, ""
			for range 20 {
				d := e.Decide(enforcer.Request{Service: "s", Attributes: search})
				got[d.Outcome]++
				failure = d.Failure
			}
			wantOutcomes(t, onFailure, got, want.admit, want.drop, want.virtual)
			if failure != want.failure {
				t.Errorf("failure %q, want %q", failure, want.failure)
			}
			wantMetrics(t, e, map[string]string{
				`rlc_enforcer_fallbacks_total{bucket="b",reason="loading",service="s"}`: "20",
				`rlc_enforcer_fallbacks_total{bucket="b",reason="other",service="s"}`:   "",
			})
			*fail = nil
			wantOutcomes(t, "the store answers again", ask(e, 1, "s", search), 1, 0, 0)
		})
	}
}

func TestEveryKindOfFailureIsCountedUnderItsName(t *testing.T) {
	e, _, fail := failing(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: b, each: [caller], limit: "+tenADay+"}\n")))
	want := map[string]string{}
	for _, kind := range enforcer.Reasons() {
		*fail = fmt.Errorf("take: %w", away(kind))
		ask(e, 1, "s", search)
		want[`rlc_enforcer_fallbacks_total{bucket="b",reason="`+kind+`",service="s"}`] = "1"
	}
	for _, err := range []error{errors.New("no kind"), away("unheard of")} {
		*fail = err
		ask(e, 1, "s", search)
	}
	want[`rlc_enforcer_fallbacks_total{bucket="b",reason="other",service="s"}`] = "3"
	wantMetrics(t, e, want)
}

// perSecond sends n requests each second for some seconds, evenly, and counts
// those admitted.
func perSecond(e *enforcer.Enforcer, at *clock, seconds, n int, attrs rlc.Attributes) (admitted int) {
	for range seconds * n {
		at.advance(time.Second / time.Duration(n))
		admitted += ask(e, 1, "s", attrs)[enforcer.Admit]
	}
	return admitted
}

func TestTheLocalLimitFollowsTheRateBeforeTheFailureAndDoesNotCreep(t *testing.T) {
	e, at, fail := failing(t, enforcer.Config{Peers: enforcer.Peers{Global: 20}})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: b, each: [caller], limit: {rate: 100, burst: 100}}\n")))
	busy, quiet := rlc.Attributes{"caller": "busy"}, rlc.Attributes{"caller": "quiet"}
	for range 90 {
		perSecond(e, at, 1, 40, busy)
		perSecond(e, at, 1, 1, quiet)
	}
	// In the last minute, at two seconds a round: busy 20/s, so 1.5 × 20 = 30/s;
	// quiet 0.5/s, so its equal share, 100/20 = 5/s.
	*fail = away("timeout")
	perSecond(e, at, 60, 200, busy)
	for minute := range 3 {
		if got := perSecond(e, at, 60, 200, busy); math.Abs(float64(got)-30*60) > 60 {
			t.Errorf("minute %d of the failure: %d admitted, want 30/s", minute+1, got)
		}
	}
	perSecond(e, at, 10, 50, quiet)
	if got := perSecond(e, at, 60, 50, quiet); math.Abs(float64(got)-5*60) > 10 {
		t.Errorf("the quiet one: %d admitted, want 5/s", got)
	}
}

func TestWhatOneStoreRefusesIsGivenBackByTheOther(t *testing.T) {
	e, _, fail := failing(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: shared, match: {caller: search}, on_failure: closed, limit: "+twoADay+"}\n"+
		"  - {name: paced, role: cap, algorithm: leaky_bucket, limit: {rate: 0.00001, burst: 5}}\n")))
	// The queue is this process's own and is asked first: five places. Two go
	// to search; what the store refuses must not take the other three.
	wantOutcomes(t, "refused by the store", ask(e, 10, "s", search), 2, 8, 0)
	*fail = away("timeout")
	if d := e.Decide(enforcer.Request{Service: "s", Attributes: search}); d.Outcome != enforcer.Drop || d.Bucket != "shared" || d.Failure != "timeout" {
		t.Errorf("closed: %+v", d)
	}
	wantOutcomes(t, "the rest of the queue", ask(e, 10, "s", rlc.Attributes{"caller": "other"}), 3, 7, 0)
	// Full, the queue refuses before the store is asked.
	before := metrics(t, e)[`rlc_enforcer_fallbacks_total{bucket="shared",reason="timeout",service="s"}`]
	if d := e.Decide(enforcer.Request{Service: "s", Attributes: search}); d.Bucket != "paced" || d.Failure != "" {
		t.Errorf("full queue: %+v", d)
	}
	wantMetrics(t, e, map[string]string{`rlc_enforcer_fallbacks_total{bucket="shared",reason="timeout",service="s"}`: before})
}

// A fleet of 20 enforcers carries ten callers at 70 % of their limits, the load
// of enforcers and callers skewed by Zipf's law. The store goes away: nearly
// nobody may notice, and no caller gets more than twice its limit.
func TestASkewedFleetHardlyNoticesThatTheStoreIsAway(t *testing.T) {
	const nodes, callers = 20, 10
	shared, fail := enforcer.InProcess(nil), new(error)
	at := &clock{noon}
	var fleet [nodes]*enforcer.Enforcer
	body := "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller]}\n"
	var entries []string
	for c := range callers {
		entries = append(entries, quota("callers", fmt.Sprintf("caller: c%d", c), 100/float64(c+1), 200/(c+1)))
	}
	for i := range fleet {
		fleet[i], _ = start(t, enforcer.Config{Name: fmt.Sprint("e", i), Now: at.now, Counter: faulty{shared, fail, ""}, Peers: enforcer.Peers{Global: nodes}})
		load(t, fleet[i], snap(1, policy("s", body), quotas("s", entries...)))
	}
	weights := make([]float64, nodes)
	sum := 0.0
	for i := range weights {
		weights[i] = 1 / float64(i+1)
		sum += weights[i]
	}
	random := rand.New(rand.NewPCG(1, 2))
	run := func(seconds int, load float64) (offered, dropped int, admitted [callers]int) {
		for range seconds * 10 { // tenths
			at.advance(time.Second / 10)
			for c := range callers {
				for i := range fleet {
					mean := load * 100 / float64(c+1) * weights[i] / sum / 10
					for n := poisson(random, mean); n > 0; n-- {
						offered++
						if fleet[i].Decide(enforcer.Request{Service: "s", Attributes: rlc.Attributes{"caller": fmt.Sprint("c", c)}}).Outcome == enforcer.Drop {
							dropped++
						} else {
							admitted[c]++
						}
					}
				}
			}
		}
		return offered, dropped, admitted
	}
	run(100, 0.7)
	*fail = away("refused")
	offered, dropped, _ := run(100, 0.7)
	if float64(dropped) > 0.001*float64(offered) {
		t.Errorf("%d of %d dropped, want at most 0.1 %%", dropped, offered)
	}
	// And a tenfold surge meanwhile stays bounded.
	run(20, 7)
	_, _, admitted := run(20, 7)
	for c, n := range admitted {
		if limit := 100 / float64(c+1); float64(n)/20 > 2*limit {
			t.Errorf("caller %d: %g/s admitted on a limit of %g/s", c, float64(n)/20, limit)
		}
	}
	t.Logf("%d of %d dropped (%.4f %%); in a tenfold surge %v admitted in 20 s", dropped, offered, 100*float64(dropped)/float64(offered), admitted)
}

// poisson draws a number of arrivals.
func poisson(r *rand.Rand, mean float64) (n int) {
	for p := r.Float64(); p > math.Exp(-mean); p *= r.Float64() {
		n++
	}
	return n
}

// How many there are outlives a restart while nobody can count them; a number
// that is configured holds until then.
func TestTheNumberOfEnforcersOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		configured int
		admitted   int // of twenty under ten a day
		counted    int // afterwards; 0: not at all
	}{{0, 10, 5}, {0, 2, 0}, {10, 1, 0}, {0, 2, 0}} {
		e, _, fail := failing(t, enforcer.Config{StateDir: dir, Peers: enforcer.Peers{Zone: c.configured, Region: c.configured, Global: c.configured}})
		if e.Snapshot() == nil {
			load(t, e, snap(1, policy("s", "buckets:\n  - {name: b, each: [caller], mode: enforce, limit: "+tenADay+"}\n")))
		}
		*fail = away("refused")
		wantOutcomes(t, fmt.Sprint(c), ask(e, 20, "s", search), c.admitted, 20-c.admitted, 0)
		if c.counted > 0 {
			e.SetPeers(enforcer.Peers{Zone: 1, Region: c.counted, Global: c.counted})
			e.SetPeers(enforcer.Peers{}) // a bus that lost all says nothing
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
