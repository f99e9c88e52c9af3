package gcra_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

const second = int64(1_000_000)

// drawn is a limit of any kind with what it promises.
type drawn struct {
	gcra.Limit
	algorithm string
	requests  int64
	length    int64 // microseconds; 0 for the buckets
}

func drawWindow(t *rapid.T, algorithms ...string) drawn {
	algorithm := rapid.SampledFrom(algorithms).Draw(t, "algorithm")
	w := rlc.WindowLimit{
		Requests: rapid.Int64Range(1, 12).Draw(t, "requests"),
		Length:   time.Duration(rapid.Int64Range(1000, 5_000_000).Draw(t, "length")) * time.Microsecond,
	}
	if algorithm == rlc.FixedWindow {
		w.Calendar = rapid.Bool().Draw(t, "calendar")
	}
	l, err := gcra.CompileWindow(algorithm, w)
	if err != nil {
		t.Fatalf("compile %+v: %v", w, err)
	}
	return drawn{l, algorithm, w.Requests, w.Length.Microseconds()}
}

// drawAny draws a limit of any algorithm.
func drawAny(t *rapid.T, name string) drawn {
	algorithm := rapid.SampledFrom([]string{rlc.TokenBucket, rlc.LeakyBucket, rlc.FixedWindow, rlc.SlidingWindow, rlc.SlidingLog}).Draw(t, name)
	lim := drawLimit(t, name)
	l, err := gcra.CompileAs(algorithm, lim)
	if err != nil {
		t.Fatalf("compile %s %+v: %v", algorithm, lim, err)
	}
	return drawn{l, algorithm, int64(lim.Burst), l.Length()}
}

// charged is an admitted request.
type charged struct{ at, cost int64 }

// most is the largest sum of costs within any half-open span of length.
func most(all []charged, length int64) int64 {
	worst := int64(0)
	for i := range all {
		sum := int64(0)
		for j := i; j < len(all) && all[j].at < all[i].at+length; j++ {
			sum += all[j].cost
		}
		worst = max(worst, sum)
	}
	return worst
}

func TestWindowsAdmitWhatTheyPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawWindow(t, rlc.FixedWindow, rlc.SlidingWindow, rlc.SlidingLog)
		var s gcra.State
		var all []charged
		byWindow := map[int64]int64{} // a fixed window's end → taken
		for _, r := range trace(t) {
			at := max(r.at-rapid.Int64Range(0, 2000).Draw(t, "late"), 0)
			var v gcra.Verdict
			s, v = d.Take(s, at, r.cost)
			if v.Remaining < 0 || v.Remaining > d.requests {
				t.Fatalf("remaining %d outside 0 to %d", v.Remaining, d.requests)
			}
			if !v.OK || r.cost == 0 {
				continue
			}
			if at = max(at, s.At); d.algorithm == rlc.SlidingLog {
				at = s.At
			}
			all = append(all, charged{at, r.cost})
			byWindow[s.End] += r.cost
			if d.algorithm == rlc.FixedWindow && byWindow[s.End] > d.requests {
				t.Fatalf("%d of %d in the window that ends at %d", byWindow[s.End], d.requests, s.End)
			}
		}
		bound := 2 * d.requests // across an edge
		switch d.algorithm {
		case rlc.SlidingWindow:
			bound-- // 199 of 100
		case rlc.SlidingLog:
			bound = d.requests
		}
		if got := most(all, d.length); got > max(bound, d.requests) {
			t.Fatalf("%s of %d in %d µs admitted %d in one length: %v", d.algorithm, d.requests, d.length, got, all)
		}
	})
}

// Scenario: 100 a second, and 100 requests on each side of a second's edge.
func TestTheBoundAcrossAnEdgeIsTheDocumentedOne(t *testing.T) {
	hundred := rlc.Limit{Rate: 100, Burst: 100}
	for algorithm, want := range map[string]int64{
		rlc.TokenBucket: 101, // limit + burst·time: one comes back in the 10 ms between
		rlc.LeakyBucket: 101, rlc.SlidingLog: 100, rlc.SlidingWindow: 100, rlc.FixedWindow: 200,
	} {
		l, err := gcra.CompileAs(algorithm, hundred)
		if algorithm == rlc.FixedWindow {
			l, err = gcra.CompileWindow(algorithm, rlc.WindowLimit{Requests: 100, Per: rlc.PerSecond, Calendar: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		var s gcra.State
		admitted := int64(0)
		for _, at := range []int64{second - 5000, second + 5000} {
			for range 100 {
				var v gcra.Verdict
				if s, v = l.Take(s, at, 1); v.OK {
					admitted++
				}
			}
		}
		if admitted != want {
			t.Errorf("%s admitted %d, want %d", algorithm, admitted, want)
		}
	}
}

func TestARefusedRequestOfAWindowIsAdmittedAfterItsWaitAndNotBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawWindow(t, rlc.FixedWindow, rlc.SlidingWindow, rlc.SlidingLog)
		var s gcra.State
		for _, r := range trace(t) {
			next, v := d.Take(s, r.at, r.cost)
			if !v.OK && v.Wait != gcra.Forever {
				wait := int64(v.Wait / time.Microsecond)
				if _, later := d.Take(next, r.at+wait, r.cost); !later.OK {
					t.Fatalf("not admitted after the wait of %v: %+v", v.Wait, later)
				}
				if _, sooner := d.Take(next, r.at+wait-1, r.cost); wait > 0 && sooner.OK {
					t.Fatalf("admitted 1 µs before the wait of %v", v.Wait)
				}
			}
			if v.Wait == gcra.Forever && r.cost <= d.requests {
				t.Fatalf("cost %d of %d: never", r.cost, d.requests)
			}
			s = next
		}
	})
}

// A refusal may leave the state at a later time; nobody sees it.
func TestARefusalOrAPeekLeavesLaterVerdictsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawAny(t, "limit")
		var stored, dropped gcra.State
		for _, r := range trace(t) {
			a, va := d.Take(stored, r.at, r.cost)
			b, vb := d.Take(dropped, r.at, r.cost)
			if va != vb {
				t.Fatalf("a kept refusal changed a verdict: %+v, %+v", va, vb)
			}
			stored = a
			if vb.OK && r.cost > 0 {
				dropped = b
			}
		}
	})
}

// Whatever is done to a limit on a live counter, what was taken stays taken.
func TestAChangeOfAlgorithmMintsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawAny(t, "before"), drawAny(t, "after")
		at := 1000*second + rapid.Int64Range(0, 5*second).Draw(t, "at")
		taken := rapid.Int64Range(1, before.requests).Draw(t, "taken")
		s, v := before.Take(gcra.State{}, at, taken)
		if !v.OK {
			t.Fatalf("a new counter refused %d of %d", taken, before.requests)
		}
		_, v = after.Take(s, at, 0)
		if want := max(after.requests-taken, 0); v.Remaining > want {
			t.Fatalf("%d taken under %s, then %s: %d of %d left, at most %d", taken, before.algorithm, after.algorithm, v.Remaining, after.requests, want)
		}
		// And it is given back in the end.
		_, v = after.Take(s, at+40*3600*second*24*366, 0)
		if v.Remaining != after.requests {
			t.Fatalf("%s to %s: %d of %d left after forty years", before.algorithm, after.algorithm, v.Remaining, after.requests)
		}
	})
}

func TestAClockSetBackFreezesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawAny(t, "limit")
		far := 3 * max(d.Length(), 12*100*second*1000)
		at := 10 * far
		s, _ := d.Take(gcra.State{}, at, d.requests)
		s, v := d.Take(s, at-far, 1)
		if v.OK {
			t.Fatal("the clock was set back, and an exhausted counter admits")
		}
		if _, v = d.Take(s, at-far+int64(v.Wait/time.Microsecond), 1); !v.OK {
			t.Fatalf("refused after the wait: %+v", v)
		}
	})
}

// The net of what is charged and given back later obeys the limit as if it had
// been charged at first.
func TestWhatIsGivenBackMintsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d drawn
		if rapid.Bool().Draw(t, "window") {
			d = drawWindow(t, rlc.FixedWindow, rlc.SlidingLog)
		} else {
			d = drawAny(t, "limit")
		}
		var s gcra.State
		var open, all []charged
		byWindow := map[int64]int64{}
		window := map[int]int64{}
		for _, r := range trace(t) {
			if n := len(open); n > 0 && rapid.Bool().Draw(t, "settle") {
				i := rapid.IntRange(0, n-1).Draw(t, "which")
				back := rapid.Int64Range(0, all[i].cost).Draw(t, "back")
				back = min(back, open[i].cost)
				open[i].cost = 0
				d.Settle(&s, all[i].at, -back)
				all[i].cost -= back
				byWindow[window[i]] -= back
			}
			var v gcra.Verdict
			if s, v = d.Take(s, r.at, r.cost); v.Remaining < 0 || v.Remaining > d.requests {
				t.Fatalf("remaining %d outside 0 to %d", v.Remaining, d.requests)
			}
			if v.OK && r.cost > 0 {
				window[len(all)] = s.End
				byWindow[s.End] += r.cost
				all, open = append(all, charged(r)), append(open, charged(r))
			}
			if s.Debt < 0 || s.Prev < 0 || len(s.Log) > 80 {
				t.Fatalf("state %+v", s)
			}
		}
		switch d.algorithm {
		case rlc.SlidingLog:
			if got := most(all, d.length); got > d.requests {
				t.Fatalf("net %d of %d in one length", got, d.requests)
			}
		case rlc.FixedWindow:
			for end, sum := range byWindow {
				if sum > d.requests {
					t.Fatalf("net %d of %d in the window that ends at %d", sum, d.requests, end)
				}
			}
		case rlc.TokenBucket, rlc.LeakyBucket:
			for i := range all {
				sum := int64(0)
				for j := i; j < len(all); j++ {
					sum += all[j].cost
					given := float64(d.Rate()+1)/1e6*float64(all[j].at-all[i].at)/1e6 + 1e-5
					if float64(sum) > float64(d.requests)+given {
						t.Fatalf("net %d in %d µs of %s", sum, all[j].at-all[i].at, d.String())
					}
				}
			}
		}
	})
}

// What a leaky bucket holds it lets go at the rate.
func TestPacedRequestsGoOnAtTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lim := drawLimit(t, "limit")
		l, err := gcra.CompileAs(rlc.LeakyBucket, lim)
		if err != nil {
			t.Fatal(err)
		}
		var s gcra.State
		rate := float64(l.Rate()) / 1e6 // as compiled
		free := 0.0                     // when the one before is out of the way
		for _, r := range trace(t) {
			var v gcra.Verdict
			s, v = l.Take(s, r.at, r.cost)
			if !v.OK || r.cost == 0 {
				continue
			}
			goes := float64(r.at) + float64(v.Wait/time.Microsecond)
			if goes < free-2-2/rate {
				t.Fatalf("goes on at %f, %f µs before the one ahead is done", goes, free-goes)
			}
			if held := float64(v.Wait) / 1e9; held > float64(lim.Burst)/rate+1e-5 {
				t.Fatalf("held for %g s by a queue of %d at %g/s", held, lim.Burst, rate)
			}
			free = goes + float64(r.cost)/rate*1e6
		}
	})
}

// Of a window that rolls only the end is kept, so that one that is shortened
// while it is full ends one new length after somebody asked.
func TestAFullWindowThatIsShortenedEndsWithinItsNewLength(t *testing.T) {
	day, err := gcra.CompileWindow(rlc.FixedWindow, rlc.WindowLimit{Requests: 1, Per: rlc.PerDay})
	if err != nil {
		t.Fatal(err)
	}
	minute, err := gcra.CompileWindow(rlc.FixedWindow, rlc.WindowLimit{Requests: 1, Per: rlc.PerMinute})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := day.Take(gcra.State{}, 0, 1)
	s, v := minute.Take(s, second, 1)
	if v.OK || v.Wait != time.Minute {
		t.Fatalf("full, and shortened: %+v", v)
	}
	if _, v = minute.Take(s, 61*second, 1); !v.OK {
		t.Errorf("after the wait: %+v", v)
	}
}

func TestALogsMemoryIsBounded(t *testing.T) {
	l, err := gcra.CompileWindow(rlc.SlidingLog, rlc.WindowLimit{Requests: 1_000_000, Length: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var s gcra.State
	longest := 0
	for us := int64(0); us < 3*second; us += 7 {
		s, _ = l.Take(s, us, 1)
		longest = max(longest, cap(s.Log))
	}
	if len(s.Log) > 1024 || longest > 2*1100 {
		t.Errorf("%d entries, room for %d", len(s.Log), longest)
	}
}

// zones have summer times at odd hours, half an hour of it, at midnight, none,
// and a day that was left out.
var zones = []string{"UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kolkata", "Pacific/Apia", "Asia/Gaza", "Africa/Casablanca"}

func TestWindowsOfTheCalendarFollowEachOther(t *testing.T) {
	usual := map[string]time.Duration{rlc.PerDay: 24 * time.Hour, rlc.PerWeek: 7 * 24 * time.Hour, rlc.PerMonth: 30 * 24 * time.Hour}
	rapid.Check(t, func(t *rapid.T) {
		w := rlc.WindowLimit{
			Requests: 1, Per: rapid.SampledFrom([]string{rlc.PerDay, rlc.PerWeek, rlc.PerMonth}).Draw(t, "per"), Calendar: true,
			Location: rapid.SampledFrom(zones).Draw(t, "zone"), Reset: time.Duration(rapid.IntRange(0, 24*60-1).Draw(t, "reset")) * time.Minute,
		}
		compiled := func() gcra.Limit {
			l, err := gcra.CompileWindow(rlc.FixedWindow, w)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		used := compiled() // keeps the window that it was asked for last
		at := time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() + rapid.Int64Range(0, 30*366*24*3600).Draw(t, "at")*second
		first, firstEnd := at, used.End(at)
		for range 3 {
			fresh := compiled()
			end := fresh.End(at)
			if again := used.End(at); again != end {
				t.Fatalf("the end of the window at %d is %d, and %d when asked before", at, end, again)
			}
			length := time.Duration(end-at) * time.Microsecond
			if end <= at || length > usual[w.Per]+49*time.Hour {
				t.Fatalf("at %d the window ends at %d", at, end)
			}
			if last := fresh.End(end - 1); last != end {
				t.Fatalf("the window ends at %d, just before that at %d", end, last)
			}
			local := time.UnixMicro(end).In(mustZone(w.Location))
			if w.Per == rlc.PerWeek && local.Weekday() != time.Monday && local.Weekday() != time.Tuesday && local.Weekday() != time.Sunday {
				t.Fatalf("a week ends on %s", local.Weekday())
			}
			at = end
		}
		if again := used.End(first); again != firstEnd {
			t.Fatalf("the end of the window at %d is %d, and %d when asked for later ones before", first, firstEnd, again)
		}
		earlier, fresh := first-3*24*3600*second, compiled()
		if got, want := used.End(earlier), fresh.End(earlier); got != want {
			t.Fatalf("the end of the window at %d is %d, and %d when asked for a later one before", earlier, want, got)
		}
	})
}

func mustZone(name string) *time.Location {
	l, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return l
}

func TestOnlyWhatCountsIsCompiled(t *testing.T) {
	good := rlc.WindowLimit{Requests: 1, Per: rlc.PerDay}
	for name, f := range map[string]func() (gcra.Limit, error){
		"concurrency":      func() (gcra.Limit, error) { return gcra.CompileAs(rlc.Concurrency, rlc.Limit{Rate: 1, Burst: 1}) },
		"unknown":          func() (gcra.Limit, error) { return gcra.CompileAs("leaky", rlc.Limit{Rate: 1, Burst: 1}) },
		"bucket of window": func() (gcra.Limit, error) { return gcra.CompileWindow(rlc.TokenBucket, good) },
		"sliding calendar": func() (gcra.Limit, error) {
			return gcra.CompileWindow(rlc.SlidingLog, rlc.WindowLimit{Requests: 1, Per: rlc.PerDay, Calendar: true})
		},
		"sliding month": func() (gcra.Limit, error) {
			return gcra.CompileWindow(rlc.SlidingWindow, rlc.WindowLimit{Requests: 1, Per: rlc.PerMonth})
		},
		"zone": func() (gcra.Limit, error) {
			return gcra.CompileWindow(rlc.FixedWindow, rlc.WindowLimit{Requests: 1, Per: rlc.PerDay, Calendar: true, Location: "Mars"})
		},
		"negative": func() (gcra.Limit, error) {
			return gcra.CompileWindow(rlc.FixedWindow, rlc.WindowLimit{Requests: -1, Per: rlc.PerDay})
		},
		"no window": func() (gcra.Limit, error) { return gcra.CompileWindow(rlc.FixedWindow, rlc.WindowLimit{Requests: 1}) },
		"two windows": func() (gcra.Limit, error) {
			return gcra.CompileWindow(rlc.FixedWindow, rlc.WindowLimit{Requests: 1, Per: rlc.PerDay, Length: time.Hour})
		},
		"unknown unit": func() (gcra.Limit, error) {
			return gcra.CompileWindow(rlc.FixedWindow, rlc.WindowLimit{Requests: 1, Per: "year"})
		},
		"too long": func() (gcra.Limit, error) {
			return gcra.CompileWindow(rlc.FixedWindow, rlc.WindowLimit{Requests: 1, Length: 367 * 24 * time.Hour})
		},
		"reset": func() (gcra.Limit, error) {
			return gcra.CompileWindow(rlc.FixedWindow, rlc.WindowLimit{Requests: 1, Per: rlc.PerDay, Calendar: true, Reset: 24 * time.Hour})
		},
	} {
		if _, err := f(); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	l, err := gcra.CompileWindow(rlc.FixedWindow, good)
	if got := fmt.Sprint(&l); err != nil || got != "fixed_window 1 in 1d" {
		t.Errorf("%s, %v", got, err)
	}
}
