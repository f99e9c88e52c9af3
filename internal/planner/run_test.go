package planner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/quotafile"
)

const callers = "  - {name: callers, each: [caller]}\n"

func caller(name string) rlc.Key { return rlc.Key{"caller": name} }

// shop is one service with two callers and no quotas yet.
func shop(t *testing.T) *world {
	w := newWorld(t, policy("shop", callers))
	w.history.series["shop callers caller=search"] = wave(100)
	w.history.series["shop callers caller=web"] = wave(300)
	return w
}

func TestARunPutsUpOneProposalPerService(t *testing.T) {
	w := shop(t)
	w.repo.commit(now.Add(-50*day), policy("geo", "  - {name: all}\n"))
	w.history.series["geo all"] = wave(50)
	run := w.cron()
	if run.Result != rlc.ResultOK || run.Stage != rlc.Finished || run.Total != 3 || run.Changed != 3 || run.Held != 0 || run.Detail != "" {
		t.Errorf("run %+v, want ok, finished, 3 of 3 changed", run)
	}
	if stored, err := w.db.RunByID(t.Context(), run.ID); err != nil || stored != run {
		t.Errorf("stored %+v (%v), returned %+v", stored, err, run)
	}
	p := w.openProposal("shop")
	if p == nil {
		t.Fatal("no proposal")
	}
	if p.RunID != run.ID || p.Branch != "rlc/shop" || p.Base != run.Commit || p.URL != "/proposals/"+p.ID || p.State != rlc.Open || p.Commit == "" || len(p.Changes) != 2 {
		t.Errorf("proposal %+v", p)
	}
	var wants []rlc.Quota
	for _, c := range p.Changes {
		wants = append(wants, rlc.Quota{Bucket: c.Bucket, Key: c.Key, Limit: *c.New, Mode: c.NewMode, Why: c.Why})
		if c.Backtest.New == nil || c.Backtest.Old != nil || c.Backtest.New.Requests != c.Offered || c.Backtest.New.Drops != 0 || c.LastHour == nil || c.PolicyID == "" || c.InputID == "" {
			t.Errorf("change without its evidence: %+v", c)
		}
	}
	if want := quotafile.Hash(wants); p.Content != want {
		t.Errorf("content %s, want the hash of the quotas to come, %s", p.Content, want)
	}
	if len(w.pub.commits) != 2 {
		t.Errorf("published %v, want one each of shop and geo", w.pub.commits)
	}
}

func TestTheSameSlotRunsOnce(t *testing.T) {
	w := shop(t)
	first := w.cron()
	w.clock = now.Add(time.Second) // a retry of the same slot, a moment later
	again, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "recompute " + now.Format(time.RFC3339), Now: w.clock})
	if err != nil || again != first {
		t.Errorf("got %+v (%v), want the first run's record", again, err)
	}
	if w.history.reads != 1 || len(w.pub.commits) != 1 {
		t.Errorf("history read %d times, %d commits; want 1, 1", w.history.reads, len(w.pub.commits))
	}
}

// Scenario 22, at once on one replica, whichever comes first.
func TestCronAndAConfigChangeAtOnceAreOneRun(t *testing.T) {
	w := shop(t)
	type answer struct {
		run rlc.Run
		err error
	}
	answers := make(chan answer, 2)
	for _, ask := range cronAndConfig() {
		go func() {
			run, err := w.planner.Run(context.Background(), ask)
			answers <- answer{run, err}
		}()
	}
	a, b := <-answers, <-answers
	if a.err != nil || b.err != nil || a.run.ID != b.run.ID {
		t.Errorf("two runs: %s (%v) and %s (%v)", a.run.ID, a.err, b.run.ID, b.err)
	}
	if w.history.reads != 1 || len(w.pub.commits) != 1 {
		t.Errorf("history read %d times, commits %v; want one of each", w.history.reads, w.pub.commits)
	}
}

func cronAndConfig() []planner.Ask {
	return []planner.Ask{
		{Trigger: rlc.ByCron, Slot: "recompute " + now.Format(time.RFC3339), Now: now},
		{Trigger: rlc.ByConfig, Slot: "c1", Service: "shop", Now: now.Add(20 * time.Second)},
	}
}

// Scenario 22, as the lead goes from one replica to the other in between: what one
// has done the other does not do again.
func TestTwoReplicasRunCronAndAConfigChangeOnce(t *testing.T) {
	for _, first := range []int{0, 1} {
		w := shop(t)
		other, err := planner.New(w.config(nil))
		if err != nil {
			t.Fatal(err)
		}
		asks, ids := cronAndConfig(), map[string]bool{}
		for i, p := range []*planner.Planner{w.planner, other, w.planner, other} {
			run, err := p.Run(t.Context(), asks[(first+i+i/2)%2])
			if err != nil {
				t.Fatal(err)
			}
			ids[run.ID] = true
		}
		if len(ids) != 1 || w.history.reads != 1 || len(w.pub.commits) != 1 {
			t.Errorf("%s first: runs %v, history read %d times, commits %v; want one of each", asks[first].Trigger, slices.Sorted(maps.Keys(ids)), w.history.reads, w.pub.commits)
		}
	}
}

func TestAConfigChangeThatARunHasReadFiresNoOther(t *testing.T) {
	w := shop(t)
	first := w.cron()
	again, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByConfig, Slot: "c1-shop", Service: "shop", Now: now.Add(3 * time.Minute)})
	if err != nil || again.ID != first.ID {
		t.Errorf("got %s (%v), want %s", again.ID, err, first.ID)
	}
	w.repo.commit(now.Add(4*time.Minute), policy("shop", callers+"  - {name: all, match: {caller: absent}}\n"))
	again, err = w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByConfig, Slot: "c2-shop", Service: "shop", Now: now.Add(5 * time.Minute)})
	if err != nil || again.ID != "config-c2-shop" {
		t.Errorf("after another change got %s (%v), want a run of its own", again.ID, err)
	}
	asked, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByPerson, Now: now.Add(5 * time.Minute), Actor: "ada"})
	if err != nil || asked.Actor != "ada" || !strings.HasPrefix(asked.ID, "person-") {
		t.Errorf("a person asked and got %+v (%v), want a run of their own", asked, err)
	}
}

// What every way of running with the same now must agree on.
func TestTheSameNowGivesTheSameBytes(t *testing.T) {
	var bytesOf [][]byte
	for range 2 {
		w := shop(t)
		w.repo.commit(now.Add(-50*day), policy("geo", "  - {name: all}\n"))
		w.history.series["geo all"] = wave(50)
		run, changes, err := w.planner.Plan(t.Context(), planner.Ask{Trigger: rlc.ByPerson, Slot: "s", Now: now})
		if err != nil || len(changes) != 3 {
			t.Fatalf("%d changes, %v", len(changes), err)
		}
		b, err := json.Marshal(changes)
		if err != nil {
			t.Fatal(err)
		}
		bytesOf = append(bytesOf, b)
		if run.Stage == rlc.Finished || run.Result != rlc.ResultOK {
			t.Errorf("plan returned %+v", run)
		}
	}
	if !bytes.Equal(bytesOf[0], bytesOf[1]) {
		t.Errorf("two plans of one now differ:\n%s\n%s", bytesOf[0], bytesOf[1])
	}
}

func TestPlanWritesNothing(t *testing.T) {
	w := shop(t)
	if _, _, err := w.planner.Plan(t.Context(), planner.Ask{Trigger: rlc.ByPerson, Now: now}); err != nil {
		t.Fatal(err)
	}
	_, runs, err1 := w.db.Runs(t.Context(), rlc.Page{})
	changes, err2 := w.db.LatestChanges(t.Context(), "shop")
	_, proposals, err3 := w.db.Proposals(t.Context(), "", "", rlc.Page{})
	if runs+len(changes)+proposals+len(w.pub.commits) != 0 || errors.Join(err1, err2, err3) != nil {
		t.Errorf("%d runs, %d changes, %d proposals, %d commits", runs, len(changes), proposals, len(w.pub.commits))
	}
}

func TestASecondRunOverTheSameDataPublishesNothing(t *testing.T) {
	w := shop(t)
	w.cron()
	first := w.openProposal("shop")
	w.clock = now.Add(5 * time.Minute) // nothing accepted: the open proposal stands
	if run := w.cron(); run.Changed != 2 || w.openProposal("shop").ID != first.ID || len(w.pub.commits) != 1 {
		t.Errorf("run %+v, commits %v: an equal proposal was put up again", run, w.pub.commits)
	}
	w.accept("shop")
	w.clock = now.Add(10 * time.Minute)
	if run := w.cron(); run.Changed != 0 || w.openProposal("shop") != nil || len(w.pub.commits) != 1 {
		t.Errorf("run %+v, commits %v: nothing moves once it is accepted", run, w.pub.commits)
	}
}

func TestAnUnknownServiceIsNotFound(t *testing.T) {
	w := shop(t)
	_, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByPerson, Service: "nowhere", Now: now})
	if !errors.Is(err, rlc.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, n, _ := w.db.Runs(t.Context(), rlc.Page{}); n != 0 {
		t.Errorf("%d runs were begun", n)
	}
}

func TestAnUnreadableRepositoryFailsTheRun(t *testing.T) {
	w := shop(t)
	w.repo.err = errors.New("disk on fire")
	run, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now})
	if err == nil || run.Result != rlc.ResultFailed || run.Stage != rlc.Finished || !strings.Contains(run.Detail, "disk on fire") {
		t.Errorf("got %+v (%v), want failed with the reason", run, err)
	}
}

// dying wraps the records so that the process "dies" at a chosen write: by
// panic, which keeps whatever comes after from happening.
type dying struct {
	planner.Records
	at string
}

type death struct{}

func (d *dying) die(at string) {
	if d.at == at {
		d.at = ""
		panic(death{})
	}
}

func (d *dying) BeginRun(ctx context.Context, run rlc.Run) (rlc.Run, bool, error) {
	d.die("before claim")
	defer d.die("after claim")
	return d.Records.BeginRun(ctx, run)
}

func (d *dying) StoreRun(ctx context.Context, run rlc.Run, changes []rlc.Change, proposals []rlc.Proposal) error {
	d.die("before store")
	defer d.die("after store")
	return d.Records.StoreRun(ctx, run, changes, proposals)
}

func (d *dying) Published(ctx context.Context, epoch uint64, p rlc.Proposal, audit *rlc.AuditEntry) error {
	d.die("after publish")
	defer d.die("after record")
	return d.Records.Published(ctx, epoch, p, audit)
}

func (d *dying) FinishRun(ctx context.Context, run rlc.Run) error {
	d.die("before finish")
	defer d.die("after finish")
	return d.Records.FinishRun(ctx, run)
}

func TestARunKilledAfterAnyStepEndsInExactlyOneCommit(t *testing.T) {
	reference := shop(t)
	want := reference.cron()
	wantContent := reference.openProposal("shop").Content
	for at, reads := range map[string]int{ // how often history is read in all
		"after claim": 1, "before store": 2, "after store": 1, "after publish": 1, "after record": 1, "before finish": 1, "after finish": 1,
	} {
		t.Run(at, func(t *testing.T) {
			w := shop(t)
			d := &dying{Records: w.records, at: at}
			w.records = d
			w.restart()
			ask := planner.Ask{Trigger: rlc.ByCron, Slot: "recompute " + now.Format(time.RFC3339), Now: now}
			func() {
				defer func() {
					if r := recover(); r != (death{}) {
						t.Fatalf("did not die: %v", r)
					}
				}()
				_, err := w.planner.Run(t.Context(), ask)
				t.Errorf("survived: %v", err)
			}()
			w.clock = now.Add(time.Hour) // the restart is late; the run's now is not
			w.restart()
			if err := w.planner.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := w.planner.Run(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			want := want
			want.Finished, got.Finished = time.Time{}, time.Time{}
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if len(w.pub.commits) != 1 || w.history.reads != reads {
				t.Errorf("%d commits, history read %d times; want 1, %d", len(w.pub.commits), w.history.reads, reads)
			}
			if p := w.openProposal("shop"); p == nil || p.Content != wantContent {
				t.Errorf("proposal %+v, want content %s", p, wantContent)
			}
			if rows, err := w.db.Outbox(t.Context()); err != nil || len(rows) != 0 {
				t.Errorf("outbox %v, %v", rows, err)
			}
		})
	}
}

func TestAnInterruptedRunThatANewerOneOvertookIsGivenUp(t *testing.T) {
	w := shop(t)
	w.records = &dying{Records: w.records, at: "after claim"}
	w.restart()
	func() {
		defer func() { _ = recover() }()
		w.cron()
	}()
	w.restart()
	w.clock = now.Add(time.Hour)
	newer := w.cron()
	if err := w.planner.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	runs, _, err := w.db.Runs(t.Context(), rlc.Page{})
	if err != nil || len(runs) != 2 {
		t.Fatalf("%v, %v", runs, err)
	}
	if old := runs[1]; old.Result != rlc.ResultFailed || !strings.Contains(old.Detail, newer.ID) {
		t.Errorf("the older run is %+v, want given up for %s", old, newer.ID)
	}
	if w.history.reads != 1 {
		t.Errorf("history read %d times, want 1", w.history.reads)
	}
}

func TestAStaleLeaderWritesNothingAndTheNextOneGoesOn(t *testing.T) {
	w := shop(t)
	w.epoch = 1
	if _, _, err := w.db.Lead(t.Context(), "scheduler", "other", time.Hour, 4); err != nil { // epoch 5
		t.Fatal(err)
	}
	if _, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now}); !errors.Is(err, rlc.ErrFenced) {
		t.Errorf("got %v, want fenced", err)
	}
	if len(w.pub.commits) != 0 {
		t.Errorf("published %v", w.pub.commits)
	}
	w.epoch = 5
	if run, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now}); err != nil || run.Epoch != 5 || run.Result != rlc.ResultOK {
		t.Errorf("the leader's run: %+v, %v", run, err)
	}
}

// Waits: 5 s, 10 s, 20 s, … up to 15 min, times the jitter, here 1.
func TestAFailedPublicationIsTriedAgainWithBackoff(t *testing.T) {
	w := shop(t)
	w.pub.err = errors.New("pre-receive hook refused: <script>")
	run, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now})
	if err == nil || run.Stage != rlc.Stored || run.Result != "" {
		t.Fatalf("got %+v (%v), want stored and not over", run, err)
	}
	p := w.openProposal("shop")
	if p.State != rlc.Pending || !strings.Contains(p.Error, "pre-receive hook refused") {
		t.Errorf("proposal %+v, want pending with the error", p)
	}
	wait := 5 * time.Second
	for attempt := 1; attempt <= 12; attempt++ {
		rows, err := w.db.Outbox(t.Context())
		if err != nil || len(rows) != 1 || rows[0].Attempts != attempt || !rows[0].NotBefore.Equal(w.clock.Add(wait)) {
			t.Fatalf("after %d attempts: %+v (%v), want the next at %s", attempt, rows, err, w.clock.Add(wait))
		}
		w.clock = w.clock.Add(wait - time.Microsecond)
		if err := w.planner.Resume(t.Context()); err == nil {
			t.Fatal("not published, and no error")
		}
		if rows, _ := w.db.Outbox(t.Context()); rows[0].Attempts != attempt {
			t.Fatal("tried before it was due")
		}
		w.clock = w.clock.Add(time.Microsecond)
		if err := w.planner.Resume(t.Context()); err == nil {
			t.Fatal("not published, and no error")
		}
		wait = min(2*wait, 15*time.Minute)
	}
	w.pub.err = nil
	w.clock = w.clock.Add(wait)
	if err := w.planner.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	run, err = w.db.RunByID(t.Context(), run.ID)
	if err != nil || run.Result != rlc.ResultOK || len(w.pub.commits) != 1 || w.history.reads != 1 {
		t.Errorf("run %+v (%v), %d commits, %d reads; want ok, 1, 1", run, err, len(w.pub.commits), w.history.reads)
	}
	if p := w.openProposal("shop"); p.State != rlc.Open || p.Error != "" {
		t.Errorf("proposal %+v, want open without an error", p)
	}
}

func TestAnotherRunTakesOverWhatCouldNotBePublished(t *testing.T) {
	w := shop(t)
	w.pub.err = errors.New("no route to host")
	stuck, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now})
	if err == nil {
		t.Fatal("no error")
	}
	w.pub.err = nil
	w.history.series["shop callers caller=search"] = wave(180)
	w.clock = now.Add(time.Hour)
	w.cron()
	if err := w.planner.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if run, err := w.db.RunByID(t.Context(), stuck.ID); err != nil || run.Stage != rlc.Finished {
		t.Errorf("the stuck run is %+v (%v), want finished", run, err)
	}
	if len(w.pub.commits) != 1 {
		t.Errorf("commits %v, want the newer proposal only", w.pub.commits)
	}
}

// A run for a commit that was claimed and not begun, and whose commit another run
// has read meanwhile, failed nothing: it ends well, without a second reading.
func TestAClaimedRunWhoseCommitAnotherReadEndsWell(t *testing.T) {
	for _, replace := range []struct {
		name string
		by   func(*world, planner.Ask) (rlc.Run, error)
	}{
		{"after a restart", func(w *world, ask planner.Ask) (rlc.Run, error) {
			if err := w.planner.Resume(t.Context()); err != nil {
				return rlc.Run{}, err
			}
			return w.db.RunByID(t.Context(), planner.RunID(ask))
		}},
		{"when its turn comes", func(w *world, ask planner.Ask) (rlc.Run, error) { return w.planner.Run(t.Context(), ask) }},
	} {
		t.Run(replace.name, func(t *testing.T) {
			w := shop(t)
			ask := planner.Ask{Trigger: rlc.ByConfig, Slot: "abc", Service: "shop", Now: now.Add(-2 * time.Second)}
			if _, err := w.planner.Claim(t.Context(), ask); err != nil {
				t.Fatal(err)
			}
			later := w.cron()
			got, err := replace.by(w, ask)
			if err != nil {
				t.Fatal(err)
			}
			if got.Stage != rlc.Finished || got.Result != rlc.ResultOK || got.Detail != "run "+later.ID+" had read this commit already" || w.history.reads != 1 || got.Commit != later.Commit {
				t.Errorf("replaced: %+v", got)
			}
		})
	}
}

func TestProgressAndClaimAreTold(t *testing.T) {
	w := shop(t)
	w.repo.commit(now.Add(-50*day), policy("geo", "  - {name: all}\n"))
	var told []string
	_, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now,
		Claimed:  func(r rlc.Run) { told = append(told, r.ID) },
		Progress: func(done, total int, _ string) { told = append(told, fmt.Sprintf("%d/%d", done, total)) },
	})
	if err != nil || strings.Join(told, " ") != "cron-s 1/2 2/2" {
		t.Errorf("told %v (%v)", told, err)
	}
}

func TestRunIDsAreSafeAndApart(t *testing.T) {
	at := time.Date(2026, 3, 18, 10, 0, 0, 0, time.UTC)
	for want, ask := range map[string]planner.Ask{
		"cron-2026-03-18T10-00-00Z":        {Trigger: rlc.ByCron, Now: at},
		"config-abc123-shop":               {Trigger: rlc.ByConfig, Slot: "abc123", Service: "shop"},
		"config-def456-shop":               {Trigger: rlc.ByConfig, Slot: "def456-shop", Service: "shop"},
		"person-2026-03-18T10-00-00Z-shop": {Trigger: rlc.ByPerson, Slot: "2026-03-18T10:00:00Z", Service: "shop"},
	} {
		if got := planner.RunID(ask); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	seen := map[string]bool{}
	for _, slot := range []string{"a b", "a-b", "a/b", "a\nb", "ä", strings.Repeat("x", 300), strings.Repeat("x", 301)} {
		id := planner.RunID(planner.Ask{Trigger: rlc.ByCron, Slot: slot})
		if seen[id] || len(id) > 120 || strings.ContainsFunc(id, func(r rune) bool { return r > 'z' || r < '-' || r == '/' }) {
			t.Errorf("slot %q has id %q", slot, id)
		}
		seen[id] = true
	}
}

func TestANewPlannerNeedsItsParts(t *testing.T) {
	if _, err := planner.New(planner.Config{}); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// A service that is named otherwise in the metrics must not look like one
// where all is well.
func TestABucketOfWhichNoKeyCameSaysSo(t *testing.T) {
	w := newWorld(t, policy("shop", callers))
	run := w.cron()
	if run.Result != rlc.ResultOK || run.Held != 1 || run.Changed != 0 {
		t.Errorf("run %+v, want ok with one held", run)
	}
	if c := w.change("shop", "callers", nil); c.Held != "no_data" || !strings.Contains(c.HeldWhy, "no series of shop in profile rlc has caller") {
		t.Errorf("held %q: %q", c.Held, c.HeldWhy)
	}
}
