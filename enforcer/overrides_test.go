package enforcer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// override is an entry for service "s" that stands for an hour from noon.
func override(id string, change func(*enforcer.Override)) enforcer.Override {
	o := enforcer.Override{
		ID: id, Service: "s", Match: map[string]enforcer.Pattern{"caller": {"search"}}, Action: enforcer.BlockAction,
		From: noon, Until: noon.Add(time.Hour), Actor: "ana", Reason: "INC-1",
	}
	if change != nil {
		change(&o)
	}
	return o
}

func limited(rate rlc.Rate, burst rlc.Burst) func(*enforcer.Override) {
	return func(o *enforcer.Override) { o.Action, o.Rate, o.Burst = enforcer.LimitAction, &rate, &burst }
}

func document(t testing.TB, list ...enforcer.Override) []byte {
	t.Helper()
	data, err := json.Marshal(enforcer.Overrides{List: append([]enforcer.Override{}, list...)})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func overlay(t testing.TB, e *enforcer.Enforcer, number uint64, list ...enforcer.Override) {
	t.Helper()
	if err := e.LoadOverrides(rlc.Version{Epoch: 1, Number: number}, document(t, list...)); err != nil {
		t.Fatal(err)
	}
}

func TestOverridesAreReadStrictly(t *testing.T) {
	good := `{"id":"o1","service":"s","match":{"caller":"search","procedure":["A","B"]},"action":"limit","rate":5,"from":"2026-11-02T12:00:00Z","until":"2026-11-02T13:00:00Z","actor":"ana","reason":"INC-1"}`
	if o, err := enforcer.ParseOverrides([]byte(`{"overrides":[` + good + `]}`)); err != nil || len(o.List) != 1 || *o.List[0].Rate != 5 || len(o.List[0].Match["procedure"]) != 2 {
		t.Fatalf("a good one: %+v, %v", o, err)
	}
	if _, err := enforcer.ParseOverrides([]byte(`{"overrides":[]}`)); err != nil {
		t.Errorf("nothing overridden: %v", err)
	}
	with := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the example", old)
		}
		return `{"overrides":[` + strings.Replace(good, old, new, 1) + `]}`
	}
	for doc, want := range map[string]string{
		"":                                "empty",
		"null":                            "null",
		"[]":                              "the body must be an object, not a list",
		"{}":                              `want {"overrides": [...]}`,
		`{"overrides":null}`:              "null",
		`{"overrides":[]} {}`:             "more than one JSON value",
		`{"overrides":[],"x":1}`:          `unknown name "x"`,
		`{"overrides":[` + good:           "ends in the middle",
		"{\"overrides\":[],\"\xff\":1}":   "not valid UTF-8",
		`{"overrides":[],"overrides":[]}`: `"overrides" is given twice`,
		`{"overrides":[` + good + `,` + good + `]}`:                              "is given twice",
		with(`"id"`, `"ID"`):                                                     `unknown name "ID"`,
		with(`"id":"o1"`, `"id":"o1","id":"o2"`):                                 `"id" is given twice`,
		with(`"id":"o1"`, `"id":" "`):                                            "id is missing",
		with(`"id":"o1",`, ``):                                                   "id is missing",
		with(`"actor":"ana"`, `"actor":""`):                                      "actor is missing",
		with(`"reason":"INC-1"`, `"reason":""`):                                  "reason is missing",
		with(`"reason":"INC-1"`, `"reason":null`):                                "null",
		with(`"service":"s"`, `"service":""`):                                    "service is missing",
		with(`"action":"limit"`, `"action":"stop"`):                              `action "stop"`,
		with(`"rate":5`, `"rate":-1`):                                            "rate −1 is outside",
		with(`"rate":5`, `"rate":1e12`):                                          "rate 1,000,000,000,000 is outside",
		with(`"rate":5`, `"rate":"5"`):                                           "rate",
		with(`"rate":5`, `"rate":5,"burst":0`):                                   "burst 0 is below 1",
		with(`"rate":5,`, ``):                                                    "limit needs a rate",
		with(`"rate":5`, `"rate":5,"drop_ratio":0.5`):                            "drop_ratio beside limit",
		with(`"action":"limit","rate":5`, `"action":"block","rate":5`):           "rate or burst beside block",
		with(`"action":"limit","rate":5`, `"action":"drop"`):                     "drop_ratio 0 is outside",
		with(`"action":"limit","rate":5`, `"action":"drop","drop_ratio":1`):      "to drop everything, block",
		with(`"action":"limit","rate":5`, `"action":"lift","ramp_seconds":5`):    "beside lift",
		with(`"rate":5`, `"rate":5,"ramp_seconds":-1`):                           "ramp_seconds −1",
		with(`"until":"2026-11-02T13:00:00Z"`, `"until":"2026-11-02T12:00:00Z"`): "until is not after from",
		with(`"until":"2026-11-02T13:00:00Z"`, `"until":"2026-11-10T13:00:00Z"`): "at most 7d",
		with(`"until":"2026-11-02T13:00:00Z",`, ``):                              "from and until are required",
		with(`"caller":"search"`, `"caller":""`):                                 "a pattern is empty",
		with(`"caller":"search"`, `"caller":[]`):                                 "at least one",
		with(`"caller":"search"`, `"caller":["a","b*"]`):                         "a list holds exact values",
		with(`"caller":"search"`, `"caller":"a*b"`):                              "a star may only end one",
		with(`"caller":"search"`, `"caller":{"x":{"y":{"z":1}}}`):                "nested deeper",
	} {
		_, err := enforcer.ParseOverrides([]byte(doc))
		if !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant …%s…", doc, err, want)
		}
	}
}

func TestAnOverrideActsOnTopOfTheSnapshotAndEndsAtTheSecond(t *testing.T) {
	for name, c := range map[string]struct {
		change               func(*enforcer.Override)
		admit, drop, virtual int // of 20 in one instant, on a shadow quota of 10
	}{
		"block": {nil, 0, 20, 0},
		// The limit admits 4; the quota would have admitted them.
		"limit": {limited(0.00001, 4), 4, 16, 0},
		"zero":  {limited(0, 0), 0, 20, 0},
		"lift":  {func(o *enforcer.Override) { o.Action = enforcer.LiftAction }, 10, 0, 10},
	} {
		t.Run(name, func(t *testing.T) {
			e, at := start(t, enforcer.Config{})
			load(t, e, snap(1, policy("s", "buckets:\n  - {name: callers, each: [caller], limit: "+tenADay+"}\n")))
			o := override("o1", c.change)
			o.From = noon.Add(time.Minute)
			overlay(t, e, 1, o)
			wantOutcomes(t, "before", ask(e, 1, "s", rlc.Attributes{"caller": "first"}), 1, 0, 0)
			at.t = noon.Add(time.Minute)
			wantOutcomes(t, "somebody else", ask(e, 1, "s", rlc.Attributes{"caller": "other"}), 1, 0, 0)
			wantOutcomes(t, "while it stands", ask(e, 20, "s", search), c.admit, c.drop, c.virtual)
			if d := e.Decide(enforcer.Request{Service: "s", Attributes: search, Peek: true}); c.drop > 0 && (d.Bucket != enforcer.Overridden || d.Key["id"] != "o1" || d.RetryAfter <= 0) {
				t.Errorf("the refusal: %+v", d)
			}
			at.t = noon.Add(time.Hour - 1)
			if got := ask(e, 1, "s", search)[enforcer.Drop]; c.drop > 0 && got != 1 {
				t.Error("over a nanosecond too early")
			}
			at.t = noon.Add(time.Hour)
			// Within its old limit, a caller comes back at once.
			wantOutcomes(t, "at its end", ask(e, 1, "s", rlc.Attributes{"caller": "other"}), 1, 0, 0)
			m := `rlc_enforcer_override_requests_total{outcome="drop",override="o1",service="s"}`
			if got := metrics(t, e)[m]; c.drop > 0 && got != fmt.Sprint(c.drop+1) {
				t.Errorf("%s: %s, want %d", m, got, c.drop+1)
			}
			wantMetrics(t, e, map[string]string{"rlc_enforcer_overrides_active": "0", "rlc_enforcer_overrides_version": "1"})
		})
	}
}

func TestALiftMakesAnEnforcingQuotaVirtualAndLeavesCaps(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: "+twoADay+"}\n  - {name: all, role: cap, limit: "+fiveADay+"}\n")))
	overlay(t, e, 1, override("o1", func(o *enforcer.Override) { o.Action = enforcer.LiftAction }))
	wantOutcomes(t, "lifted", ask(e, 10, "s", search), 2, 5, 3)
	overlay(t, e, 2)
	wantOutcomes(t, "taken back", ask(e, 10, "s", rlc.Attributes{"caller": "other"}), 0, 10, 0)
}

func TestADropOverrideDropsItsShare(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "buckets:\n  - {name: callers, each: [caller]}\n")))
	overlay(t, e, 1, override("o1", func(o *enforcer.Override) {
		o.Action, o.DropRatio, o.Service, o.Match = enforcer.DropAction, 0.3, "*", map[string]enforcer.Pattern{"procedure": {"G*"}}
	}))
	// σ of 20,000 draws is 0.0032; five of them.
	if share := float64(ask(e, 20_000, "s", search)[enforcer.Drop]) / 20_000; math.Abs(share-0.3) > 0.017 {
		t.Errorf("%g dropped, want 0.3", share)
	}
	wantOutcomes(t, "another procedure", ask(e, 100, "s", rlc.Attributes{"caller": "search", "procedure": "Put"}), 100, 0, 0)
}

func TestRequestsAboveTheirOldLimitComeBackLittleByLittle(t *testing.T) {
	e, at := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "buckets:\n  - {name: callers, each: [caller], limit: {rate: 10, burst: 10}}\n")))
	overlay(t, e, 1, override("o1", func(o *enforcer.Override) { o.RampSeconds = 100 }))
	at.t = noon.Add(time.Hour)
	// 1,000/s on a limit of 10/s in shadow: nearly all are above it, and are
	// dropped with a probability that falls from 1 to 0 in 100 s.
	for i, want := range []float64{0.9, 0.7, 0.5, 0.3, 0.1} { // means of 20 s each
		dropped := 20*1000 - perSecondAll(e, at, 20, 1000)
		if got := float64(dropped) / 20_000 / 0.99; math.Abs(got-want) > 0.02 {
			t.Errorf("after %d s: %g dropped, want %g", i*20, got, want)
		}
	}
	at.advance(time.Second)
	if got := perSecondAll(e, at, 5, 1000); got != 5000 {
		t.Errorf("after the ramp %d of 5000 admitted", got)
	}
}

// perSecondAll is perSecond for all that were let pass, virtual drops too.
func perSecondAll(e *enforcer.Enforcer, at *clock, seconds, n int) (passed int) {
	for range seconds * n {
		at.advance(time.Second / time.Duration(n))
		passed += 1 - ask(e, 1, "s", search)[enforcer.Drop]
	}
	return passed
}

func TestOverridesKeepTheirVersionOverARestartAndNeverGoBack(t *testing.T) {
	dir := t.TempDir()
	body := policy("s", "buckets:\n  - {name: callers, each: [caller]}\n")
	e, at := start(t, enforcer.Config{StateDir: dir})
	load(t, e, snap(1, body))
	overlay(t, e, 5, override("o1", nil))
	overlay(t, e, 5, override("o1", nil)) // again: nothing new
	for _, v := range []rlc.Version{{Epoch: 1, Number: 4}, {Number: 99}, {Epoch: 1, Number: 5}} {
		if err := e.LoadOverrides(v, document(t)); !errors.Is(err, rlc.ErrRefused) {
			t.Errorf("%s after 1.5: %v", v, err)
		}
	}
	if err := e.LoadOverrides(rlc.Version{Epoch: 1, Number: 6}, []byte(`{"overrides":[{}]}`)); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("a bad one: %v", err)
	}
	if a := e.Ack(); a.Overrides != (rlc.Version{Epoch: 1, Number: 5}) || !strings.Contains(a.OverridesRefused, "id is missing") || a.Refused != "" {
		t.Errorf("acknowledgement %+v", a)
	}
	wantMetrics(t, e, map[string]string{
		`rlc_enforcer_overrides_refused_total{reason="older"}`:   "3",
		`rlc_enforcer_overrides_refused_total{reason="invalid"}`: "1",
	})
	closeIt(t, e)

	again, _ := start(t, enforcer.Config{StateDir: dir, Now: at.now})
	wantOutcomes(t, "after the restart", ask(again, 3, "s", search), 0, 3, 0)
	if v, list := again.Overrides(); v.Number != 5 || len(list.List) != 1 {
		t.Errorf("%s %+v after the restart", v, list)
	}
	// An emergency does not wait for a disk.
	if err := os.MkdirAll(filepath.Join(dir, "last-good.overrides.new", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	overlay(t, again, 7)
	wantOutcomes(t, "not kept, yet in force", ask(again, 3, "s", search), 3, 0, 0)
	if _, notes := again.Ready(); !strings.Contains(strings.Join(notes, "\n"), "would not outlive a restart") {
		t.Errorf("notes: %v", notes)
	}
	closeIt(t, again)

	for name, damage := range map[string]func([]byte) []byte{
		"cut short": func(b []byte) []byte { return b[:len(b)-3] },
		"one bit":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		file := filepath.Join(dir, "last-good.overrides")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, damage(append([]byte(nil), data...)), 0o600); err != nil {
			t.Fatal(err)
		}
		hurt, _ := start(t, enforcer.Config{StateDir: dir, Now: at.now})
		wantOutcomes(t, name, ask(hurt, 3, "s", search), 3, 0, 0)
		wantMetrics(t, hurt, map[string]string{`rlc_enforcer_overrides_refused_total{reason="store"}`: "1"})
		closeIt(t, hurt)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnOverrideThatEndsWhileAnotherBeginsIsReplacedInTheSameSecond(t *testing.T) {
	e, at := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "buckets:\n  - {name: callers, each: [caller]}\n")))
	second := override("o2", limited(1000, 3))
	second.From = noon.Add(time.Hour)
	second.Until = noon.Add(2 * time.Hour)
	overlay(t, e, 1, override("o1", nil), second)
	wantOutcomes(t, "the first", ask(e, 5, "s", search), 0, 5, 0)
	at.t = noon.Add(time.Hour)
	wantOutcomes(t, "the second", ask(e, 5, "s", search), 3, 2, 0)
}
