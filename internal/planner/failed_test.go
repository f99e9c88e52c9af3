package planner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
)

// faulty is a publisher that fails for some services.
type faulty struct {
	planner.Publisher
	why map[string]error // by service
}

func (f faulty) Publish(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	if err := f.why[p.Service]; err != nil {
		return p, err
	}
	return f.Publisher.Publish(ctx, p)
}

// forgetful is records that fail to end the first run.
type forgetful struct {
	planner.Records
	failed bool
}

func (f *forgetful) FinishRun(ctx context.Context, r rlc.Run) error {
	if !f.failed {
		f.failed = true
		return rlc.ErrUnavailable
	}
	return f.Records.FinishRun(ctx, r)
}

// twoShops is a world of two services with traffic, geo and shop, whose
// publisher fails as why says.
func twoShops(t *testing.T, why map[string]error) *world {
	t.Helper()
	w := newWorld(t, files(policy("geo", "  - {name: all}\n"), policy("shop", "  - {name: all}\n")))
	w.history.series["geo all"], w.history.series["shop all"] = wave(50), wave(50)
	p, err := planner.New(w.config(func(c *planner.Config) { c.Publisher = faulty{w.pub, why} }))
	if err != nil {
		t.Fatal(err)
	}
	w.planner = p
	return w
}

var errTarget = fmt.Errorf("publish shop: %w: %w: target x.yaml is a file that a person wrote", rlc.ErrUnpublishable, rlc.ErrInvalid)

// What no later try could publish ends: the proposal failed with its reason and
// an audit row, the run degraded while others went out and failed where none did,
// and the next run puts it up once it is mended.
func TestAProposalThatCannotBePublishedEndsTheRun(t *testing.T) {
	why := map[string]error{"shop": errTarget}
	w := twoShops(t, why)
	run := w.cron()
	detail := "degraded: the proposal for shop is not published: publish shop: cannot be published: invalid: target x.yaml is a file that a person wrote"
	if run.Stage != rlc.Finished || run.Result != rlc.ResultDegraded || run.Detail != detail {
		t.Errorf("run %+v\nwant finished, %q", run, detail)
	}
	failed, _, err := w.db.Proposals(t.Context(), rlc.Failed, "", rlc.Page{})
	if err != nil || len(failed) != 1 || failed[0].Service != "shop" || "degraded: the proposal for shop is not published: "+failed[0].Error != detail || failed[0].Decided.IsZero() {
		t.Fatalf("failed proposals %+v, %v", failed, err)
	}
	if p := w.openProposal("geo"); p == nil || p.State != rlc.Open {
		t.Errorf("geo's proposal is %+v, want it open", p)
	}
	audit, _, err := w.db.Audit(t.Context(), rlc.Page{})
	if err != nil || len(audit) != 1 || audit[0].Action != "proposal.failed" || audit[0].Object != failed[0].ID || audit[0].Detail != failed[0].Error {
		t.Errorf("audit %+v, %v", audit, err)
	}
	if rows, err := w.db.Outbox(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("outbox %+v, %v", rows, err)
	}
	if left, err := w.db.UnfinishedRuns(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("unfinished %+v, %v", left, err)
	}

	alone, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByPerson, Slot: "alone", Service: "shop", Now: w.clock, Actor: "ada"})
	if err != nil || alone.Result != rlc.ResultFailed || alone.Detail != "failed: "+strings.TrimPrefix(detail, "degraded: ") {
		t.Errorf("run of shop alone %+v, %v", alone, err)
	}
	delete(why, "shop")
	w.clock = w.clock.Add(day)
	if run := w.cron(); run.Result != rlc.ResultOK {
		t.Errorf("the next run is %s: %s", run.Result, run.Detail)
	}
	if p := w.openProposal("shop"); p == nil || p.State != rlc.Open {
		t.Errorf("shop's proposal is %+v, want it open", p)
	}
}

// While the same fault keeps the same numbers from being published, the proposal that
// failed stands: no other one and no other audit row comes of the next run, which
// says what is wrong all the same. Another fault, or other numbers, is another one.
func TestAFaultThatStaysMakesOneFailedProposal(t *testing.T) {
	why := map[string]error{"shop": errTarget}
	w := twoShops(t, why)
	w.repo.refuses = map[string]error{"shop": errTarget}
	first := w.cron()
	for i, want := range []int{1, 1, 2, 2} {
		if i == 2 {
			other := fmt.Errorf("%w: another fault", rlc.ErrUnpublishable)
			why["shop"], w.repo.refuses["shop"] = other, other
		}
		w.clock = w.clock.Add(time.Hour)
		run := w.cron()
		failed, _, err := w.db.Proposals(t.Context(), rlc.Failed, "", rlc.Page{})
		audit, rows, err2 := w.db.Audit(t.Context(), rlc.Page{})
		if err != nil || err2 != nil || len(failed) != want || rows != want {
			t.Fatalf("run %d: %d failed proposals, %d audit rows %+v, %v, %v; want %d of each", i, len(failed), rows, audit, err, err2, want)
		}
		if !strings.Contains(run.Detail, "the proposal for shop is not published: ") || run.Result == rlc.ResultOK {
			t.Errorf("run %d is %s: %s", i, run.Result, run.Detail)
		}
		if i < 2 && run.Detail != first.Detail {
			t.Errorf("run %d says %q, the first %q", i, run.Detail, first.Detail)
		}
	}
	delete(why, "shop")
	delete(w.repo.refuses, "shop")
	w.clock = w.clock.Add(time.Hour)
	if run := w.cron(); run.Result != rlc.ResultOK || w.openProposal("shop") == nil {
		t.Errorf("once mended the run is %s: %s", run.Result, run.Detail)
	}
}

// A proposal whose turn has not come is no failure: its run ends ok, and it is put up
// as soon as its turn comes, the riskiest of a run first.
func TestAProposalThatWaitsForItsTurnIsNoFailure(t *testing.T) {
	w := twoShops(t, nil)
	waits := map[string]string{}
	p, err := planner.New(w.config(func(c *planner.Config) {
		c.Waiting = func(context.Context) (map[string]string, error) { return waits, nil }
		c.Riskier = func(a, b []rlc.Change) int { return strings.Compare(b[0].Service, a[0].Service) }
	}))
	if err != nil {
		t.Fatal(err)
	}
	id := func(service string) string { return "cron-s-" + service }
	waits[id("geo")] = "waits for its turn"
	run, err := p.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: w.clock})
	if err != nil || run.Stage != rlc.Finished || run.Result != rlc.ResultOK {
		t.Fatalf("run %+v, %v", run, err)
	}
	queue, err := w.db.Queue(t.Context())
	if err != nil || len(queue) != 2 || queue[0].ID != id("shop") || queue[0].State != rlc.Open || queue[1].ID != id("geo") || queue[1].State != rlc.Pending {
		t.Errorf("queue %+v, %v; want shop up before geo", queue, err)
	}
	for range 3 {
		if err := p.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := w.db.Outbox(t.Context())
	if geo := w.openProposal("geo"); err != nil || len(rows) != 1 || rows[0].Attempts != 0 || geo.Reason != "waits for its turn" || geo.Error != "" {
		t.Errorf("outbox %+v, %v, proposal %+v", rows, err, geo)
	}
	clear(waits)
	if err := p.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if geo := w.openProposal("geo"); geo.State != rlc.Open || geo.Reason != "" {
		t.Errorf("its turn has come: %+v", geo)
	}
}

// A run that was interrupted after a proposal had failed ends as it would have
// ended.
func TestAResumedRunKnowsWhatCouldNotBePublished(t *testing.T) {
	w := twoShops(t, nil)
	p, err := planner.New(w.config(func(c *planner.Config) {
		c.Publisher, c.Records = faulty{w.pub, map[string]error{"shop": errTarget}}, &forgetful{Records: w.db}
	}))
	if err != nil {
		t.Fatal(err)
	}
	run, err := p.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: w.clock})
	if !errors.Is(err, rlc.ErrUnavailable) || run.Result != "" {
		t.Fatalf("the run ended: %+v, %v", run, err)
	}
	w.restart()
	if err := w.planner.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if run, err := w.db.RunByID(t.Context(), run.ID); err != nil || run.Result != rlc.ResultDegraded || !strings.HasPrefix(run.Detail, "degraded: the proposal for shop is not published: ") {
		t.Errorf("resumed run %+v, %v", run, err)
	}
	if len(w.pub.commits) != 1 {
		t.Errorf("commits %v, want geo's alone", w.pub.commits)
	}
}

// What may succeed later is tried again, ever more rarely, and the text that
// people read stays the same however often it failed.
func TestATransientFailureKeepsItsText(t *testing.T) {
	why := map[string]error{"shop": errors.New("the server is away: " + strings.Repeat("x", 5000))}
	w := twoShops(t, why)
	run, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: w.clock})
	if err == nil || run.Stage != rlc.Stored {
		t.Fatalf("run %+v, %v", run, err)
	}
	var texts []string
	for range 20 {
		rows, err := w.db.Outbox(t.Context())
		if err != nil || len(rows) != 1 {
			t.Fatalf("outbox %+v, %v", rows, err)
		}
		early := w.planner.Resume(t.Context())
		if early == nil {
			t.Fatal("it is tried before its time")
		}
		texts = append(texts, rows[0].LastError, strings.ReplaceAll(early.Error(), rows[0].NotBefore.Format(time.RFC3339), "TIME"))
		w.clock = rows[0].NotBefore
		if err := w.planner.Resume(t.Context()); err == nil {
			t.Fatal("it is published")
		}
	}
	for i := range texts {
		if texts[i] != texts[i%2] || len(texts[i]) > 1200 {
			t.Fatalf("the text changes or grows:\n%.300s\n%.300s (%d bytes)", texts[i%2], texts[i], len(texts[i]))
		}
	}
	if want := "run " + run.ID + ": publish shop: the server is away: xxx"; !strings.HasPrefix(texts[1], want) {
		t.Errorf("got %.200s\nwant %s", texts[1], want)
	}
	delete(why, "shop")
	w.clock = w.clock.Add(15 * minute)
	if err := w.planner.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if run, err := w.db.RunByID(t.Context(), run.ID); err != nil || run.Result != rlc.ResultOK {
		t.Errorf("run %+v, %v", run, err)
	}
}

// What was found and cannot be stored is not computed again and again.
func TestARunWhoseFindingsCannotBeStoredFails(t *testing.T) {
	w := twoShops(t, nil)
	w.records = unfit{w.db}
	w.restart()
	if _, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: w.clock}); !errors.Is(err, rlc.ErrInvalid) {
		t.Fatalf("run: %v", err)
	}
	run, err := w.db.RunByID(t.Context(), "cron-s")
	if err != nil || run.Result != rlc.ResultFailed || run.Detail != "failed: invalid: a name holds NUL" {
		t.Errorf("run %+v, %v", run, err)
	}
	if err := w.planner.Resume(t.Context()); err != nil || w.history.reads != 2 {
		t.Errorf("resumed: %v, history read %d times, want 2: each service once", err, w.history.reads)
	}
}

// unfit is records that take nothing of what was found.
type unfit struct{ planner.Records }

func (unfit) StoreRun(context.Context, rlc.Run, []rlc.Change, []rlc.Proposal) error {
	return fmt.Errorf("%w: a name holds NUL", rlc.ErrInvalid)
}
