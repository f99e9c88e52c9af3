package enforcer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

const enforcing = "defaults: {mode: enforce}\nbuckets:\n  - {name: b, match: {caller: search}, limit: " + twoADay + "}\n"

func TestTheKillFileWorksWithinASecondAndOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kill")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, at := start(t, enforcer.Config{StateDir: dir})
	load(t, e, snap(1, policy("s", enforcing)))
	overlay(t, e, 1, override("o1", func(o *enforcer.Override) { o.Match = map[string]enforcer.Pattern{"caller": {"blocked"}} }))
	blocked := rlc.Attributes{"caller": "blocked"}
	wantOutcomes(t, "before", ask(e, 5, "s", search), 2, 3, 0)
	for text, want := range map[string][2]bool{
		"":                                   {true, false}, // somebody in a hurry
		"all to shaddow\n":                   {true, false},
		"# why\nALL-TO-SHADOW\n":             {true, false},
		"stop-distribution\n":                {false, true},
		"stop-distribution\nall-to-shadow\n": {true, true},
	} {
		write(text)
		e.Tick()
		for i, s := range enforcer.Switches() {
			if e.Switched(s) != want[i] {
				t.Errorf("%q: %s is %v", text, s, !want[i])
			}
		}
		wantMetrics(t, e, map[string]string{
			`rlc_enforcer_kill_switch{switch="all-to-shadow"}`:     fmt.Sprint(map[bool]int{true: 1}[want[0]]),
			`rlc_enforcer_kill_switch{switch="stop-distribution"}`: fmt.Sprint(map[bool]int{true: 1}[want[1]]),
		})
	}
	write("all-to-shadow")
	e.Tick()
	// In shadow, the bucket's virtual counter is its own: two, then virtual drops.
	wantOutcomes(t, "all in shadow", ask(e, 5, "s", search), 2, 0, 3)
	wantOutcomes(t, "an override, too", ask(e, 5, "s", blocked), 5, 0, 0)
	if got := e.Describe("s")[0].Mode; got != rlc.Shadow {
		t.Errorf("/v1/config says %s", got)
	}
	if _, notes := e.Ready(); !strings.Contains(strings.Join(notes, "\n"), "kill switch all-to-shadow is on") {
		t.Errorf("notes: %v", notes)
	}
	closeIt(t, e)
	again, _ := start(t, enforcer.Config{StateDir: dir, Now: at.now})
	wantOutcomes(t, "after a restart", ask(again, 5, "s", search), 2, 0, 3)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	again.Tick()
	wantOutcomes(t, "let go", ask(again, 5, "s", search), 2, 3, 0)
	wantOutcomes(t, "the override again", ask(again, 5, "s", blocked), 0, 5, 0)
}

func TestRunLooksAtTheKillFileEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "elsewhere")
		e, err := enforcer.New(enforcer.Config{KillFile: file})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		<-time.After(1100 * time.Millisecond)
		if !e.Switched(enforcer.AllToShadow) {
			t.Error("not thrown after a second")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestASwitchThrownByHandDropsNothingAtOnce(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", enforcing)))
	wantOutcomes(t, "before", ask(e, 3, "s", search), 2, 1, 0)
	e.Switch(enforcer.AllToShadow, true)
	wantOutcomes(t, "thrown", ask(e, 3, "s", search), 2, 0, 1)
	e.Switch(enforcer.AllToShadow, false)
	wantOutcomes(t, "let go", ask(e, 3, "s", search), 0, 3, 0)
}

func TestStoppedDistributionKeepsTheSnapshotAndTakesOverrides(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", enforcing)))
	e.Switch(enforcer.StopDistribution, true)
	if err := e.Load(snap(2, policy("s", oneBucket))); !errors.Is(err, rlc.ErrRefused) || !strings.Contains(e.Ack().Refused, "stopped") {
		t.Errorf("a newer snapshot: %v, acknowledged %q", err, e.Ack().Refused)
	}
	load(t, e, snap(1, policy("s", enforcing))) // the same one is confirmed
	overlay(t, e, 1, override("o1", nil))
	wantOutcomes(t, "an override", ask(e, 3, "s", search), 0, 3, 0)
	shown := decode(t, call(e, "GET", "/v1/config", ""))
	if fmt.Sprintf("%v %v", shown["kill_switches"], shown["overrides_version"]) != "[stop-distribution] 1.1" || len(shown["overrides"].([]any)) != 1 {
		t.Errorf("/v1/config shows %v", shown)
	}
	wantMetrics(t, e, map[string]string{`rlc_enforcer_snapshots_refused_total{reason="stopped"}`: "1", "rlc_enforcer_snapshot_version": "1"})
	e.Switch(enforcer.StopDistribution, false)
	load(t, e, snap(2, policy("s", oneBucket)))
}

func TestTwoEnforcersNeverShareAStateFolder(t *testing.T) {
	dir := t.TempDir()
	e, _ := start(t, enforcer.Config{StateDir: dir})
	_, err := enforcer.New(enforcer.Config{StateDir: dir})
	if err == nil || !strings.Contains(err.Error(), "another enforcer runs on the state folder "+dir) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the second: %v", err)
	}
	closeIt(t, e)
	again, _ := start(t, enforcer.Config{StateDir: dir})
	closeIt(t, again)
}

// The mesh loses every caller's name. Until then strangers are one in a hundred
// and held to a small limit; all of a company's traffic must not be.
func TestAMeshThatLosesTheCallersDoesNotSendThemToUnmatched(t *testing.T) {
	dir := t.TempDir()
	body := "defaults: {mode: enforce}\nbuckets:\n" +
		"  - {name: callers, each: [caller], limit: {rate: 50, burst: 100}}\n" +
		"  - {name: whole, role: cap, limit: {rate: 1000, burst: 1000}}\n" +
		"unmatched: {mode: enforce, limit: {rate: 5, burst: 5}}\n"
	e, at := start(t, enforcer.Config{StateDir: dir})
	load(t, e, snap(1, policy("s", body)))
	second := func(e *enforcer.Enforcer, requests, named int) (dropped int) {
		for i := range requests {
			attrs := rlc.Attributes{"caller": fmt.Sprint("c", i%10)}
			if i >= named {
				attrs = nil
			}
			dropped += ask(e, 1, "s", attrs)[enforcer.Drop]
		}
		at.advance(time.Second)
		e.Tick()
		return dropped
	}
	breaker := `rlc_enforcer_identity_breaker{service="s"}`
	for range 600 {
		if n := second(e, 200, 198); n > 0 {
			t.Fatalf("%d dropped while all is well", n)
		}
	}
	// A surge of strangers that is not three times the usual share, and one that
	// does not last, change nothing.
	for range 50 {
		second(e, 200, 150)
	}
	for range 20 {
		second(e, 200, 198)
	}
	wantMetrics(t, e, map[string]string{breaker: "0"})
	closeIt(t, e) // the usual share was kept: a restart in the middle changes nothing
	e, _ = start(t, enforcer.Config{StateDir: dir, Now: at.now})

	for range 70 {
		second(e, 200, 0)
	}
	wantMetrics(t, e, map[string]string{breaker: "1"})
	for range 60 {
		if n := second(e, 200, 0); n > 0 {
			t.Fatalf("%d of 200 dropped below capacity while the breaker acts", n)
		}
	}
	// Caps hold: 1,000/s of 1,500.
	second(e, 1500, 0)
	if n := second(e, 1500, 0); n != 500 {
		t.Errorf("%d of 1500 dropped by the cap, want 500", n)
	}
	if _, notes := e.Ready(); !strings.Contains(strings.Join(notes, "\n"), "identity breaker of s") {
		t.Errorf("notes: %v", notes)
	}
	// The names are back.
	for range 70 {
		second(e, 200, 198)
	}
	wantMetrics(t, e, map[string]string{breaker: "0"})
	if n := second(e, 200, 150); n == 0 {
		t.Error("strangers are not held to their limit again")
	}
}

func TestAServiceThatIsNewTripsNoBreaker(t *testing.T) {
	e, at := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller]}\n")))
	for range 300 {
		ask(e, 50, "s", search) // without a quota, all of them
		at.advance(time.Second)
		e.Tick()
	}
	wantMetrics(t, e, map[string]string{`rlc_enforcer_identity_breaker{service="s"}`: "0", `rlc_enforcer_unidentified_total{service="s"}`: "15000"})
}

// A kill file that somebody made and this process may not read is not passed
// over in silence.
func TestAKillFileThatCannotBeReadIsSaid(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kill")
	if err := os.Mkdir(file, 0o700); err != nil { // reading a folder fails, whoever reads
		t.Fatal(err)
	}
	e, _ := start(t, enforcer.Config{KillFile: file})
	if _, notes := e.Ready(); !strings.Contains(strings.Join(notes, "\n"), "the kill file cannot be read") {
		t.Errorf("notes: %q", notes)
	}
}
