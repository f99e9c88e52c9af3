package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/distribute"
	"github.com/openrlc/rlc/internal/distribute/redistest"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/store/pgtest"
)

// block is an override of all that search sends to checkout.
func block(life time.Duration) rlc.Override {
	now := time.Now()
	return rlc.Override{Service: "checkout", Match: map[string][]string{"caller": {"search"}}, Action: "block", From: now, Until: now.Add(life), Reason: "INC-1"}
}

func outcome(a *app.App, service, caller string) enforcer.Outcome {
	return decided(a.Enforcer, service, caller)
}

func decided(e *enforcer.Enforcer, service, caller string) enforcer.Outcome {
	return e.Decide(enforcer.Request{Service: service, Attributes: rlc.Attributes{"caller": caller, "procedure": "Get"}}).Outcome
}

func TestAnOverrideIsInForceUntilItIsEndedAndIsAudited(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), twoServices(), nil)
	o, err := a.SetOverride(t.Context(), block(time.Hour), "ana")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "dropped", func() bool { return outcome(a, "checkout", "search") == enforcer.Drop })
	if got := outcome(a, "checkout", "web"); got == enforcer.Drop {
		t.Error("another caller is dropped, too")
	}
	if _, err := a.ExtendOverride(t.Context(), o.ID, time.Time{}, 8*24*time.Hour, "ana"); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("beyond seven days: %v", err)
	}
	longer, err := a.ExtendOverride(t.Context(), o.ID, time.Time{}, time.Hour, "bob")
	if err != nil || !longer.Until.Equal(o.Until.Add(time.Hour)) {
		t.Errorf("extended: %+v, %v", longer, err)
	}
	for range 2 { // a double click
		longest, err := a.ExtendOverride(t.Context(), o.ID, longer.Until, time.Hour, "bob")
		if err != nil || !longest.Until.Equal(longer.Until.Add(time.Hour)) {
			t.Errorf("extended from what was shown: %+v, %v", longest, err)
		}
	}
	if _, err := a.EndOverride(t.Context(), o.ID, "bob"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "let pass", func() bool { return outcome(a, "checkout", "search") != enforcer.Drop })
	if _, err := a.EndOverride(t.Context(), o.ID, "bob"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("ended again: %v", err)
	}
	unknown := block(time.Hour)
	unknown.Service = "nobody"
	if _, err := a.SetOverride(t.Context(), unknown, "ana"); !errors.Is(err, rlc.ErrNotFound) {
		t.Errorf("an unknown service: %v", err)
	}
	log, _, err := a.Records.OverrideLog(t.Context(), rlc.Page{})
	if err != nil || len(log) != 1 || log[0].EndedBy != "bob" {
		t.Errorf("log %+v, %v", log, err)
	}
	entries, _, err := a.Records.Audit(t.Context(), rlc.Page{})
	var acts []string
	for _, e := range entries {
		if strings.HasPrefix(e.Action, "override.") {
			acts = append(acts, e.Action+" "+e.Actor)
		}
	}
	if err != nil || strings.Join(acts, ", ") != "override.ended bob, override.extended bob, override.extended bob, override.set ana" {
		t.Errorf("audit %v, %v", acts, err)
	}
}

// fleet is n enforcers of one process that follow a bus.
func fleet(t *testing.T, n int, follow func(context.Context, func(distribute.Message) rlc.Ack) error) []*enforcer.Enforcer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all []*enforcer.Enforcer
	var following sync.WaitGroup
	for i := range n {
		e, err := enforcer.New(enforcer.Config{Name: fmt.Sprintf("edge-%d", i), Zone: fmt.Sprintf("zone-%d", i%3)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
		following.Go(func() {
			_ = follow(ctx, func(m distribute.Message) rlc.Ack {
				if m.Snapshot != nil {
					_ = e.Load(*m.Snapshot)
				}
				if o := m.Overrides; o != nil {
					_ = e.LoadOverrides(o.Version, o.Content)
				}
				return e.Ack()
			})
		})
	}
	t.Cleanup(func() { cancel(); following.Wait() })
	return all
}

// reach waits until every enforcer drops what search sends, and returns how
// long the slowest of 99 in 100 took.
func reach(t *testing.T, fleet []*enforcer.Enforcer, since time.Time) time.Duration {
	t.Helper()
	took := make([]time.Duration, len(fleet))
	eventually(t, "dropped everywhere", func() bool {
		all := true
		for i, e := range fleet {
			if took[i] == 0 && decided(e, "checkout", "search") == enforcer.Drop {
				took[i] = time.Since(since)
			}
			all = all && took[i] > 0
		}
		return all
	})
	slices.Sort(took)
	return took[len(took)*99/100]
}

func TestFiftyEnforcersHaveAnOverrideFromTheHub(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), twoServices(), nil)
	all := fleet(t, 50, a.Follow)
	began := time.Now()
	if _, err := a.SetOverride(t.Context(), block(time.Hour), "ana"); err != nil {
		t.Fatal(err)
	}
	t.Logf("50 enforcers, hub: p99 %s", reach(t, all, began))
}

// With PostgreSQL, the config repository and Prometheus gone, the server still
// takes an override and brings it to enforcers over Redis; it is recorded, with
// its audit row, when the records are back.
func TestWithEverythingElseAwayAnOverrideIsInForceAndIsRecordedLater(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	redis := redistest.Start(t)
	dir := t.TempDir()
	a := open(t, dir, twoServices(), func(c *config.Server) {
		c.Store = config.Inline(server.DSN(t))
		c.Redis.URL = config.Inline(redis.URL())
		c.Prometheus.URL = "http://127.0.0.1:1" // nobody is there
	})
	bus, err := distribute.NewRedis(distribute.RedisConfig{URL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	all := fleet(t, 50, bus.Follow)
	began := time.Now()
	first, err := a.SetOverride(t.Context(), block(time.Hour), "ana")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("50 enforcers, Redis: p99 %s", reach(t, all, began))
	if _, err := a.EndOverride(t.Context(), first.ID, "ana"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "let pass everywhere", func() bool {
		return !slices.ContainsFunc(all, func(e *enforcer.Enforcer) bool { return decided(e, "checkout", "search") == enforcer.Drop })
	})
	eventually(t, "its end recorded", func() bool {
		_, gone := os.Stat(filepath.Join(dir, "emergency.journal"))
		log, _, err := a.Records.OverrideLog(t.Context(), rlc.Page{})
		return err == nil && len(log) == 1 && log[0].EndedBy == "ana" && os.IsNotExist(gone)
	})

	server.Kill(t)
	if err := os.Rename(filepath.Join(dir, "config.git"), filepath.Join(dir, "gone.git")); err != nil {
		t.Fatal(err)
	}

	began = time.Now()
	o, err := a.SetOverride(t.Context(), block(time.Hour), "bob")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("50 enforcers, Redis, all else away: p99 %s", reach(t, all, began))
	if err := a.SetSwitch(t.Context(), rlc.StopAutomation, true, "bob", "INC-1"); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, "emergency.journal")); err != nil || strings.Count(string(kept), `"audit"`) != 2 {
		t.Errorf("journal %q, %v", kept, err)
	}
	if shown := a.Overrides(); !slices.ContainsFunc(shown, func(x rlc.Override) bool { return x.ID == o.ID }) {
		t.Errorf("shown: %+v", shown)
	}
	page, err := http.Get(a.URL + "/emergency")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	if text, err := io.ReadAll(page.Body); err != nil || page.StatusCode != 200 || !strings.Contains(string(text), "INC-1") {
		t.Errorf("the page without records: %d, %v", page.StatusCode, err)
	}

	server.Start(t)
	eventually(t, "recorded, and the journal is gone", func() bool {
		_, gone := os.Stat(filepath.Join(dir, "emergency.journal"))
		log, _, err := a.Records.OverrideLog(t.Context(), rlc.Page{})
		return err == nil && len(log) == 2 && log[0].ID == o.ID && os.IsNotExist(gone)
	})
	entries, _, err := a.Records.Audit(t.Context(), rlc.Page{})
	if err != nil || len(entries) < 2 || entries[0].Action != "switch.on" || entries[1].Action != "override.set" || entries[1].Actor != "bob" {
		t.Errorf("audit %+v, %v", entries, err)
	}
	eventually(t, "automation stays stopped", func() bool {
		_, err := a.Run(t.Context(), planner.Ask{Service: "checkout"})
		return errors.Is(err, rlc.ErrRefused)
	})
	if got := decided(all[0], "checkout", "search"); got != enforcer.Drop {
		t.Errorf("after the replay: %s", got)
	}
}

func TestAnOverrideEndsByItselfAndOutlivesARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := config.Server{Listen: "127.0.0.1:0", Data: dir, Poll: 50 * time.Millisecond, Scrape: time.Second}
	start := func() (*app.App, func()) {
		a, err := app.Open(t.Context(), c, app.Options{Files: twoServices(), Author: dana})
		if err != nil {
			t.Fatal(err)
		}
		return a, carry(t, a)
	}
	a, stop := start()
	eventually(t, "ready", func() bool { return len(a.Ready()) == 0 })
	o := block(12 * time.Second)
	o.RampSeconds = 1
	if _, err := a.SetOverride(t.Context(), o, "ana"); err != nil {
		t.Fatal(err)
	}
	before := a.OverridesSent()
	stop()
	a, stop = start()
	defer stop()
	eventually(t, "it stands after the restart", func() bool { return outcome(a, "checkout", "search") == enforcer.Drop })
	eventually(t, "over", func() bool { return len(a.Overrides()) == 0 && outcome(a, "checkout", "search") != enforcer.Drop })
	eventually(t, "a newer document without it", func() bool {
		version, list := a.Enforcer.Overrides()
		return version.Compare(before) > 0 && len(list.List) == 0
	})
}

func TestAllToShadowIsThrownByTheFileAndByTheSwitch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, twoServices(), nil)
	if _, err := a.SetOverride(t.Context(), block(time.Hour), "ana"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "dropped", func() bool { return outcome(a, "checkout", "search") == enforcer.Drop })
	if err := os.WriteFile(filepath.Join(dir, "kill"), []byte("all-to-shadow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing drops", func() bool { return outcome(a, "checkout", "search") != enforcer.Drop })
	eventually(t, "a banner", func() bool {
		for _, b := range a.Banners() {
			if strings.HasPrefix(b.Text, "All to shadow") {
				return true
			}
		}
		return false
	})
	if err := os.Remove(filepath.Join(dir, "kill")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "dropped again", func() bool { return outcome(a, "checkout", "search") == enforcer.Drop })
	if err := a.Throw(t.Context(), rlc.AllToShadow); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing drops", func() bool { return outcome(a, "checkout", "search") != enforcer.Drop })
}

func TestAnOverrideBecomesACapInThePersonsNameAndItsWindowIsLeftOut(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), twoServices(), nil)
	o := block(time.Hour)
	held := rlc.Rate(120)
	o.Action, o.Rate, o.Match = "limit", &held, map[string][]string{"caller": {"web"}}
	o, err := a.SetOverride(t.Context(), o, "ana")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.KeepOverride(t.Context(), o.ID, "ana"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cap is desired", func() bool {
		_, c := a.Desired()
		s := c.Service("checkout")
		b := s.Bucket(o.ID)
		return b != nil && b.Role == rlc.CapRole && b.Limit != nil && b.Limit.Rate == 120 && s.Bucket("callers") != nil
	})
	if _, err := a.KeepOverride(t.Context(), o.ID, "ana"); !errors.Is(err, rlc.ErrConflict) || !strings.Contains(err.Error(), "permanent already") {
		t.Errorf("kept twice: %v", err)
	}
	whole := block(time.Hour) // of every request of the service
	whole.Action, whole.Rate, whole.Match = "limit", &held, nil
	if whole, err = a.SetOverride(t.Context(), whole, "ana"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.KeepOverride(t.Context(), whole.ID, "ana"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cap without a match is desired", func() bool {
		_, c := a.Desired()
		b := c.Service("checkout").Bucket(whole.ID)
		return b != nil && len(b.Match) == 0 && b.Limit.Rate == 120
	})
	for caller, want := range map[string]int{"web": 2, "mobile": 1} {
		got := a.WindowsOf(t.Context(), "checkout", "callers", rlc.Key{"caller": caller})
		if len(got) != want || want == 2 && (!got[0].From.Equal(o.From) || !got[0].Until.Equal(o.Over())) {
			t.Errorf("%s: windows left out %+v, want %d", caller, got, want)
		}
	}
}

// A form that is sent twice, at once or one after the other, sets one override; what
// differs in anything that a person says is another.
func TestAnOverrideThatIsSentTwiceIsOne(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), twoServices(), nil)
	set := func(actor string, change func(*rlc.Override)) string {
		o := block(time.Hour)
		if change != nil {
			change(&o)
		}
		o, err := a.SetOverride(t.Context(), o, actor)
		if err != nil {
			t.Error(err)
		}
		return o.ID
	}
	ids := make([]string, 4)
	var wait sync.WaitGroup
	for i := range ids {
		wait.Go(func() { ids[i] = set("ana", nil) })
	}
	wait.Wait()
	if ids = append(ids, set("ana", nil)); len(slices.Compact(ids)) != 1 || len(a.Overrides()) != 1 {
		t.Errorf("sent five times: %q, %d stand", ids, len(a.Overrides()))
	}
	others := []string{ids[0], set("bob", nil),
		set("ana", func(o *rlc.Override) { o.Reason = "INC-2" }),
		set("ana", func(o *rlc.Override) { o.Until = o.Until.Add(time.Minute) }),
		set("ana", func(o *rlc.Override) { o.Match = nil }),
	}
	slices.Sort(others)
	if len(slices.Compact(others)) != 5 || len(a.Overrides()) != 5 {
		t.Errorf("what differs: %q, %d stand", others, len(a.Overrides()))
	}
	if _, err := a.EndOverride(t.Context(), ids[0], "ana"); err != nil {
		t.Fatal(err)
	}
	if set("ana", nil) == ids[0] {
		t.Error("one that was ended is set again under its old name")
	}
}
