package gcra_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/gcra/gcratest"
)

func compile(t interface{ Fatalf(string, ...any) }, rate rlc.Rate, burst rlc.Burst) gcra.Limit {
	l, err := gcra.Compile(rlc.Limit{Rate: rate, Burst: burst})
	if err != nil {
		t.Fatalf("compile %g burst %d: %v", rate, burst, err)
	}
	return l
}

func TestVectorsGiveTheirVerdicts(t *testing.T) {
	vectors, _, err := gcratest.Load()
	if err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			limits, err := v.Limits()
			if err != nil {
				t.Fatal(err)
			}
			var s gcra.State
			for i, step := range v.Steps {
				if step.Settle != 0 {
					limits[i].Settle(&s, step.Charged, step.Settle)
					continue
				}
				var got gcra.Verdict
				if s, got = limits[i].Take(s, step.At, step.Cost); got != step.Verdict() {
					t.Errorf("step %d: got %+v, want %+v", i, got, step.Verdict())
				}
			}
		})
	}
}

func TestStreamsAdmitWhatTheReplayLawSays(t *testing.T) {
	_, streams, err := gcratest.Load()
	if err != nil || len(streams) == 0 {
		t.Fatalf("%d streams, %v", len(streams), err)
	}
	for _, st := range streams {
		t.Run(st.Name, func(t *testing.T) {
			l, err := st.Compile()
			if err != nil {
				t.Fatal(err)
			}
			var s gcra.State
			for i, n := range st.Counts {
				admitted := int64(0)
				for r := range n {
					at := int64(i)*st.Step*1e6 + st.Step*1e6*(r+1)/n
					var v gcra.Verdict
					if s, v = l.Take(s, at, 1); v.OK {
						admitted++
					}
				}
				if d := admitted - st.Admitted[i]; d < -1 || d > 1 {
					t.Errorf("step %d: admitted %d, want %d ± 1", i, admitted, st.Admitted[i])
				}
			}
		})
	}
}

// 367,000 requests/s is the largest published surge of a single caller.
func TestTheRateDoesNotDriftWhenChargedThousandsOfTimesASecond(t *testing.T) {
	for _, rate := range []rlc.Rate{367_000, 366_999.7, 61.3, 999_999} {
		l := compile(t, rate, 1000)
		var s gcra.State
		admitted := 0.0
		const seconds = 5
		// One try each microsecond, so that every token is taken as it comes.
		for us := int64(0); us < seconds*1e6; us++ {
			var v gcra.Verdict
			if s, v = l.Take(s, us, 1); v.OK {
				admitted++
			}
		}
		want := float64(rate)*seconds + 1000
		if math.Abs(admitted-want)/want > 0.001 {
			t.Errorf("rate %g: admitted %g in %d s, want %g ± 0.1 %%", rate, admitted, seconds, want)
		}
	}
}

func TestALimitThatCannotBeEnforcedIsRefused(t *testing.T) {
	for _, l := range []rlc.Limit{{Rate: -1, Burst: 1}, {Rate: rlc.Rate(math.NaN()), Burst: 1}, {Rate: rlc.Rate(math.Inf(1)), Burst: 1}, {Rate: 1}, {Rate: 1, Burst: -5}, {Rate: 2 * rlc.MaxRate, Burst: 1}} {
		if _, err := gcra.Compile(l); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", l, err)
		}
	}
}

type request struct{ at, cost int64 }

// trace draws requests in order of time, sometimes with a small step back.
func trace(t *rapid.T) []request {
	n := rapid.IntRange(1, 80).Draw(t, "n")
	out := make([]request, n)
	at := int64(0)
	for i := range out {
		at += rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 3_000_000), rapid.Just(int64(0))).Draw(t, "gap")
		out[i] = request{at: at, cost: rapid.Int64Range(0, 6).Draw(t, "cost")}
	}
	return out
}

func drawLimit(t *rapid.T, name string) rlc.Limit {
	return rlc.Limit{
		Rate:  rlc.Rate(rapid.OneOf(rapid.Float64Range(0.01, 5), rapid.Float64Range(1, 400_000)).Draw(t, name+" rate")),
		Burst: rlc.Burst(rapid.Int64Range(1, 12).Draw(t, name+" burst")),
	}
}

func TestTokensAreNeverMinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lim := drawLimit(t, "limit")
		l := compile(t, lim.Rate, lim.Burst)
		var s gcra.State
		type admitted struct{ at, cost int64 }
		var got []admitted
		for _, r := range trace(t) {
			at := r.at - rapid.Int64Range(0, 2000).Draw(t, "late")
			at = max(at, 0)
			var v gcra.Verdict
			s, v = l.Take(s, at, r.cost)
			if v.Remaining < 0 || v.Remaining > int64(lim.Burst) {
				t.Fatalf("remaining %d outside 0 to %d", v.Remaining, lim.Burst)
			}
			if s.Debt < 0 || s.Debt > int64(lim.Burst)*1e6 {
				t.Fatalf("debt %d outside 0 to the burst", s.Debt)
			}
			if v.OK && r.cost > 0 {
				got = append(got, admitted{max(at, s.At), r.cost})
			}
		}
		// In any window: at most the burst and what the rate gives. The rate
		// is kept to a millionth of a request per second.
		for i := range got {
			sum := int64(0)
			for j := i; j < len(got); j++ {
				sum += got[j].cost
				span := float64(got[j].at-got[i].at) / 1e6
				if most := float64(lim.Burst) + (float64(lim.Rate)+1e-6)*span + 1e-6; float64(sum) > most {
					t.Fatalf("admitted %d in %g s under %+v, at most %g", sum, span, lim, most)
				}
			}
		}
	})
}

func TestARefusedRequestIsAdmittedAfterItsWaitAndNotBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lim := drawLimit(t, "limit")
		l := compile(t, lim.Rate, lim.Burst)
		var s gcra.State
		for _, r := range trace(t) {
			next, v := l.Take(s, r.at, r.cost)
			if !v.OK && v.Wait != gcra.Forever {
				wait := int64(v.Wait / time.Microsecond)
				if _, later := l.Take(next, r.at+wait, r.cost); !later.OK {
					t.Fatalf("not admitted after the wait of %v: %+v", v.Wait, later)
				}
				// Early by more than the rounding of one micro-token: refused.
				early := wait - 1 - int64(1/float64(lim.Rate)) - 1
				if early > 0 {
					if _, sooner := l.Take(next, r.at+early, r.cost); sooner.OK {
						t.Fatalf("admitted %d µs after, wait said %d", early, wait)
					}
				}
			}
			if v.Wait == gcra.Forever && r.cost <= int64(lim.Burst) {
				t.Fatalf("cost %d of burst %d: never", r.cost, lim.Burst)
			}
			s = next
		}
	})
}

func TestAChangeOfLimitKeepsTheDebt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawLimit(t, "before"), drawLimit(t, "after")
		l, m := compile(t, before.Rate, before.Burst), compile(t, after.Rate, after.Burst)
		taken := rapid.Int64Range(0, int64(before.Burst)).Draw(t, "taken")
		var s gcra.State
		if taken > 0 {
			s, _ = l.Take(s, 1_000_000, taken)
		}
		_, v := m.Take(s, 1_000_000, 0)
		if want := max(int64(after.Burst)-taken, 0); v.Remaining != want {
			t.Fatalf("%d of %d taken, burst now %d: %d left, want %d", taken, before.Burst, after.Burst, v.Remaining, want)
		}
	})
}

func TestATallyReportsTheLongestWaitOfThoseThatRefused(t *testing.T) {
	var tally gcra.Tally
	tally.Add(0, gcra.Verdict{OK: true, Remaining: 7})
	tally.Add(1, gcra.Verdict{Remaining: 1, Wait: time.Second})
	tally.Add(2, gcra.Verdict{Wait: time.Minute})
	tally.Add(3, gcra.Verdict{Wait: time.Millisecond})
	if want := (gcra.Tally{Refused: 0b1110, Worst: 2, Wait: time.Minute}); tally != want {
		t.Errorf("got %+v, want %+v", tally, want)
	}
	tally = gcra.Tally{}
	tally.Add(0, gcra.Verdict{OK: true, Remaining: 7})
	tally.Add(1, gcra.Verdict{OK: true, Remaining: 2})
	if want := (gcra.Tally{Remaining: 7}); tally != want || !tally.OK() {
		t.Errorf("got %+v, want %+v", tally, want)
	}
}

func BenchmarkTake(b *testing.B) {
	l := compile(b, 367_000, 1000)
	var s gcra.State
	now := int64(0)
	for b.Loop() {
		now += 2
		s, _ = l.Take(s, now, 1)
	}
}
