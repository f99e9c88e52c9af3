package enforcer_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

const oneBucket = "defaults: {mode: enforce}\nbuckets:\n  - {name: b, match: {caller: search}, limit: " + twoADay + "}\n"

func TestABadSnapshotChangesNothing(t *testing.T) {
	good := func() rlc.Snapshot { return snap(5, policy("s", oneBucket)) }
	for name, c := range map[string]struct {
		bad    rlc.Snapshot
		want   error
		reason string
	}{
		"half a file":              {snap(6, rlc.Files{"services/s/policy.yaml": []byte(policyHead + "service: s\nbuckets:\n  - {name: b, ma")}), rlc.ErrInvalid, "invalid"},
		"one bad file of two":      {snap(6, policy("s", oneBucket), policy("other", "buckets: [{name: x, rate: 5}]\n")), rlc.ErrInvalid, "invalid"},
		"a newer schema":           {snap(6, rlc.Files{"services/s/policy.yaml": []byte("apiVersion: rlc/v9\nkind: ServicePolicy\nservice: s\nbuckets: []\n")}), rlc.ErrInvalid, "invalid"},
		"an invalid quota":         {snap(6, policy("s", "buckets:\n  - {name: b, each: [caller]}\n"), quotas("s", quota("b", "caller: x", -1, 1))), rlc.ErrInvalid, "invalid"},
		"no files":                 {snap(6), rlc.ErrRefused, "empty"},
		"no service":               {snap(6, rlc.Files{"defaults.yaml": []byte("apiVersion: rlc/v1\nkind: Defaults\n")}), rlc.ErrRefused, "empty"},
		"an older number":          {snap(4, policy("s", oneBucket)), rlc.ErrRefused, "older"},
		"an older epoch":           {rlc.Snapshot{Version: rlc.Version{Number: 99}, Files: policy("s", oneBucket)}, rlc.ErrRefused, "older"},
		"other files, same number": {snap(5, policy("s", "buckets:\n  - {name: b, limit: {rate: 9, burst: 9}}\n")), rlc.ErrRefused, "older"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e, _ := start(t, enforcer.Config{StateDir: dir})
			load(t, e, good())
			kept, err := os.ReadFile(filepath.Join(dir, "last-good.snapshot"))
			if err != nil {
				t.Fatal(err)
			}
			err = e.Load(c.bad)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if e.Version() != good().Version {
				t.Errorf("version %s in force", e.Version())
			}
			if now, _ := os.ReadFile(filepath.Join(dir, "last-good.snapshot")); !bytes.Equal(now, kept) {
				t.Error("the last good file changed")
			}
			wantOutcomes(t, "limits", ask(e, 5, "s", search), 2, 3, 0)
			wantMetrics(t, e, map[string]string{
				`rlc_enforcer_snapshots_refused_total{reason="` + c.reason + `"}`: "1",
				`rlc_enforcer_snapshot_version`:                                   "5",
			})
			// A late delivery says nothing about the newest snapshot.
			if ack := e.Ack(); (ack.Refused == "") != (c.reason == "older") || ack.Version != good().Version || ack.Enforcer != "e1" {
				t.Errorf("acknowledgement %+v", ack)
			}
			load(t, e, snap(7, policy("s", oneBucket)))
			if ack := e.Ack(); ack.Refused != "" || ack.Version.Number != 7 {
				t.Errorf("acknowledgement after a good one %+v", ack)
			}
		})
	}
}

// manyServices is a fleet of n services with one bucket and one quota each.
func manyServices(n int) rlc.Files {
	all := []rlc.Files{}
	for i := range n {
		s := fmt.Sprintf("s%03d", i)
		all = append(all, policy(s, "buckets:\n  - {name: callers, each: [caller]}\n"), quotas(s, quota("callers", "caller: a", 5, 10)))
	}
	return snap(0, all...).Files
}

func TestAbsenceIsNotDeletion(t *testing.T) {
	for _, c := range []struct {
		before, after int
		by            string
		refused       bool
	}{
		{100, 89, "", true},    // 11 of 100
		{100, 90, "", false},   // a tenth
		{20, 10, "", false},    // ten
		{20, 9, "", true},      // eleven of 20
		{100, 1, "", true},     //
		{100, 1, "ana", false}, // a person's commits removed them
		{200, 185, "", false},  // 15 of 200 is less than a tenth
		{100, 120, "", false},  // growth
	} {
		prev, next := snap(1, manyServices(c.before)), snap(2, manyServices(c.after))
		next.RemovedBy = c.by
		e, _ := start(t, enforcer.Config{})
		load(t, e, prev)
		err := e.Load(next)
		if errors.Is(err, rlc.ErrRefused) != c.refused {
			t.Errorf("%d to %d services by %q: %v", c.before, c.after, c.by, err)
		}
		if again := enforcer.Check(&prev, next); (again == nil) != (err == nil) {
			t.Errorf("%d to %d: Check says %v, Load %v", c.before, c.after, again, err)
		}
	}

	// The buckets stay and the quotas go.
	prev := snap(1, manyServices(30))
	next := snap(2, manyServices(30))
	for i := range 11 {
		next.Files[fmt.Sprintf("services/s%03d/quotas.yaml", i)] = quotas(fmt.Sprintf("s%03d", i), quota("callers", "caller: b", 5, 10))[fmt.Sprintf("services/s%03d/quotas.yaml", i)]
	}
	if err := enforcer.Check(&prev, next); !errors.Is(err, rlc.ErrRefused) || !strings.Contains(err.Error(), "11 of the 30 quotas") {
		t.Errorf("got %v", err)
	}
}

func TestTheVersionNeverGoesDownHoweverSnapshotsArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := &clock{noon}
		e, err := enforcer.New(enforcer.Config{Now: at.now})
		if err != nil {
			t.Fatal(err)
		}
		var top rlc.Version
		for range rapid.IntRange(1, 12).Draw(t, "deliveries") {
			v := rlc.Version{Epoch: rapid.Uint64Range(0, 2).Draw(t, "epoch"), Number: rapid.Uint64Range(1, 5).Draw(t, "number")}
			burst := v.Epoch*10 + v.Number
			s := rlc.Snapshot{Version: v, Files: policy("s", fmt.Sprintf("buckets:\n  - {name: b, limit: {rate: 1, burst: %d}}\n", burst))}
			err := e.Load(s)
			if v.Compare(top) > 0 {
				top = v
			}
			if (err == nil) != (v == top) || e.Version() != top {
				t.Fatalf("delivered %s: %v, in force %s, want %s", v, err, e.Version(), top)
			}
			if got := e.Describe("s")[0].Limit.Burst; uint64(got) != top.Epoch*10+top.Number {
				t.Fatalf("at %s with burst %d", top, got)
			}
		}
	})
}

func TestTheLastGoodSnapshotSurvivesARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "demand")
	e, at := start(t, enforcer.Config{StateDir: dir})
	if reasons, _ := e.Ready(); len(reasons) != 1 {
		t.Errorf("ready without a snapshot: %v", reasons)
	}
	if got := ask(e, 3, "s", search)[enforcer.Admit]; got != 3 {
		t.Errorf("%d of 3 admitted without a snapshot", got)
	}
	load(t, e, snap(5, policy("s", oneBucket)))

	at.advance(24 * time.Hour)
	closeIt(t, e)
	again, _ := start(t, enforcer.Config{StateDir: dir, Now: at.now})
	if again.Version() != (rlc.Version{Epoch: 1, Number: 5}) {
		t.Fatalf("version %s after the restart", again.Version())
	}
	if reasons, _ := again.Ready(); reasons != nil {
		t.Errorf("not ready: %v", reasons)
	}
	wantOutcomes(t, "limits", ask(again, 5, "s", search), 2, 3, 0)
	wantMetrics(t, again, map[string]string{"rlc_enforcer_snapshot_age_seconds": "86400"})
	// The source is back and says that this is still the newest.
	load(t, again, snap(5, policy("s", oneBucket)))
	wantMetrics(t, again, map[string]string{"rlc_enforcer_snapshot_age_seconds": "0"})
	if err := again.Load(snap(4, policy("s", oneBucket))); !errors.Is(err, rlc.ErrRefused) {
		t.Errorf("an older one after the restart: %v", err)
	}
}

func TestADamagedLastGoodFileIsRefusedAndTheEnforcerStarts(t *testing.T) {
	whole := func(t *testing.T) (dir string, data []byte) {
		dir = t.TempDir()
		e, _ := start(t, enforcer.Config{StateDir: dir})
		load(t, e, snap(5, policy("s", oneBucket)))
		data, err := os.ReadFile(filepath.Join(dir, "last-good.snapshot"))
		if err != nil {
			t.Fatal(err)
		}
		closeIt(t, e)
		return dir, data
	}
	for name, damage := range map[string]func([]byte) []byte{
		"cut short":      func(b []byte) []byte { return b[:len(b)-7] },
		"one bit":        func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"empty":          func([]byte) []byte { return nil },
		"something else": func([]byte) []byte { return []byte("hello\nworld") },
	} {
		t.Run(name, func(t *testing.T) {
			dir, data := whole(t)
			if err := os.WriteFile(filepath.Join(dir, "last-good.snapshot"), damage(data), 0o600); err != nil {
				t.Fatal(err)
			}
			e, _ := start(t, enforcer.Config{StateDir: dir})
			if e.Version() != (rlc.Version{}) || e.Ack().Refused == "" {
				t.Errorf("version %s, refused %q", e.Version(), e.Ack().Refused)
			}
			wantMetrics(t, e, map[string]string{`rlc_enforcer_snapshots_refused_total{reason="store"}`: "1"})
			load(t, e, snap(6, policy("s", oneBucket)))
		})
	}
	t.Run("a crash before the rename", func(t *testing.T) {
		dir, _ := whole(t)
		if err := os.WriteFile(filepath.Join(dir, "last-good.snapshot.new"), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		e, _ := start(t, enforcer.Config{StateDir: dir})
		if e.Version().Number != 5 {
			t.Errorf("version %s", e.Version())
		}
		load(t, e, snap(6, policy("s", oneBucket)))
	})
}

func TestASnapshotThatCannotBeKeptIsNotPutInForce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	e, _ := start(t, enforcer.Config{StateDir: dir})
	load(t, e, snap(5, policy("s", oneBucket)))
	// A folder in the temporary file's place: the write fails, for root too.
	if err := os.MkdirAll(filepath.Join(dir, "last-good.snapshot.new", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := e.Load(snap(6, policy("s", oneBucket))); err == nil || e.Version().Number != 5 {
		t.Errorf("got %v, version %s", err, e.Version())
	}
	wantMetrics(t, e, map[string]string{`rlc_enforcer_snapshots_refused_total{reason="store"}`: "1"})
	if err := os.RemoveAll(filepath.Join(dir, "last-good.snapshot.new")); err != nil {
		t.Fatal(err)
	}
	load(t, e, snap(6, policy("s", oneBucket)))
}

func TestDescribeListsTheLimitsInForce(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1,
		policy("s", "buckets:\n  - {name: callers, each: [caller], new_key: {limit: {rate: 2, burst: 4}}}\n  - {name: cap, role: cap, mode: enforce, policy: {kind: capacity}}\n  - {name: mine, match: {caller: x}, limit: {rate: 7, burst: 8}}\nunmatched: {limit: {rate: 1, burst: 1}}\ncapacity: {rate: 100}\n"),
		quotas("s", quota("callers", "caller: a", 5, 10), quota("callers", "caller: b", 6, 12))))
	var got []string
	for _, l := range e.Describe("") {
		limit := "none"
		if l.Limit != nil {
			limit = fmt.Sprintf("%g/%d", l.Limit.Rate, l.Limit.Burst)
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s %s", l.Bucket, l.Role, l.Mode, l.Source, limit, l.Key)))
	}
	want := []string{
		"callers quota shadow quota 5/10 caller=a",
		"callers quota shadow quota 6/12 caller=b",
		"callers quota shadow new_key 2/4",
		"cap cap enforce none none",
		"mine quota shadow policy 7/8",
		"__unmatched__ quota shadow unmatched 1/1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
