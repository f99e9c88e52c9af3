// Package storetest is the behaviour that every engine of package store must
// show. A new engine adds an opener and nothing else.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

// Run runs the suite. open returns empty records with the newest schema and
// closes them when its test ends.
func Run(t *testing.T, open func(t *testing.T) *store.DB) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, db *store.DB)
	}{
		{"a run is claimed once", claimedOnce},
		{"a person's run leaves an audit row", askedRunIsAudited},
		{"storing a run keeps changes, proposals and outbox together", storedTogether},
		{"a region's own quota stands beside the one for all", regionsApart},
		{"a refused run leaves nothing behind", refusedLeavesNothing},
		{"a run is stored once", storedOnce},
		{"a run finishes from any stage", finishes},
		{"a stale leader's writes are fenced", fenced},
		{"a run that a higher epoch took over is fenced", takenOver},
		{"runs are listed newest first and by page", runsByPage},
		{"unfinished runs are found oldest first", unfinished},
		{"a run's changes are paged and filtered", runChanges},
		{"a run is summed up by service", runServices},
		{"the newest change of each quota is found", latestChanges},
		{"a late run with an older now does not become the newest", olderNow},
		{"the change log leaves out what did not change", changeLog},
		{"recent estimates are found by quota", recent},
		{"pruning keeps what explains the present", pruneRuns},
		{"a newer proposal supersedes the older of its service", supersedes},
		{"proposals are listed by state and service", proposalLists},
		{"proposals are listed by owner and by kind of policy", proposalsFiltered},
		{"a decision and its audit row are one", decisionIsAudited},
		{"a decided proposal stays decided", decidedStays},
		{"what was seen is older than what was written", seenOlder},
		{"an outbox row counts its failures and goes when done", outbox},
		{"publishing is fenced", published},
		{"days come back as they were saved", daysRoundTrip},
		{"packed days are the days that were packed", packedDays},
		{"days are replaced and selected by window", dayWindows},
		{"a day that breaks the rules refuses the batch", badDays},
		{"the end of what is sealed is known by series", sealed},
		{"pruned days take their series with them", pruneDays},
		{"verdicts are replaced by id and audited", verdicts},
		{"summaries come back, filtered and sorted", summaries},
		{"summaries that are not kept are dropped", dropSummaries},
		{"one holder leads, and the next gets a higher epoch", leads},
		{"a holder that renews keeps its epoch", renews},
		{"an epoch never falls below what git has seen", minEpoch},
		{"the audit log is paged, newest first", auditPages},
		{"small values are kept by name", meta},
		{"names that an engine would change are refused", hostileNames},
		{"hostile text comes back as it was", hostileText},
		{"a name that cannot be stored finds nothing", unstorable},
		{"text is ordered byte by byte", byteOrder},
		{"large numbers keep their size", largeNumbers},
		{"an id that is taken is a conflict", takenIDs},
		{"a slot claimed at once is created once", claimedAtOnce},
		{"runs stored at once leave one pending proposal", storedAtOnce},
		{"of two decisions at once one stands", decidedAtOnce},
		{"every write of a fenced view is fenced", fencedView},
		{"pages read what is written", pagesView},
		{"an override and its audit row are one, and what was ended stays ended", overrides},
		{"a session is opened, refreshed, and closed once", sessions},
		{"a token is found by its hash, and revoked once", tokens},
		{"the audit log is filtered", auditFilters},
		{"one promotion of a bucket is on its way at a time", promotions},
		{"a pin stands until it is lifted", pins},
		{"a notice is told once to each target", notices},
		{"a day's scores replace those of that day", scores},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// now is a time with all of the microseconds that an engine keeps.
var now = time.Date(2026, 11, 29, 12, 34, 56, 789012000, time.UTC)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func fails(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want one that is %q", err, want)
	}
}

// filled fails where a field of v is zero: a fixture that leaves a field out
// cannot show that the field is stored.
func filled(t *testing.T, v any, except ...string) {
	t.Helper()
	r := reflect.ValueOf(v)
fields:
	for i := range r.NumField() {
		name := r.Type().Field(i).Name
		for _, e := range except {
			if e == name {
				continue fields
			}
		}
		if r.Field(i).IsZero() {
			t.Errorf("the fixture leaves %T.%s zero", v, name)
		}
	}
}

func ctx(t *testing.T) context.Context { return t.Context() }

// run is a run of slot n with every field set that BeginRun keeps.
func run(n int) rlc.Run {
	started := now.Add(time.Duration(n) * time.Hour)
	return rlc.Run{
		ID: fmt.Sprintf("cron-%03d", n), Trigger: rlc.ByCron, Service: "checkout", Now: started.Truncate(time.Minute),
		Epoch: 3, Commit: "c0ffee", Stage: rlc.Claimed, Result: rlc.ResultDegraded, Detail: "two quotas held", Actor: "ada",
		Started: started, Finished: started.Add(time.Minute), Held: 2, Changed: 3, Total: 5, Reused: "cron-000",
	}
}

func key(caller string) rlc.Key { return rlc.Key{"caller": caller} }

func limit(rate float64) *rlc.Limit {
	return &rlc.Limit{Rate: rlc.Rate(rate), Burst: rlc.Burst(2 * rate)}
}

// change is a quota that moved from 100 to 130, with every field set.
func change(r rlc.Run, service, bucket, caller string) rlc.Change {
	hour := rlc.Rate(87.5)
	episode := rlc.Episode{Bucket: bucket, Key: key(caller), From: now, Until: now.Add(time.Minute), Peak: 150, Limit: 100, Drops: 3000, Share: 0.25}
	return rlc.Change{
		RunID: r.ID, Service: service, Bucket: bucket, Key: key(caller), At: r.Now, Cap: true,
		Old: limit(100), New: limit(130), OldMode: rlc.Shadow, NewMode: rlc.Shadow,
		Forecast: &rlc.Forecast{From: now, Q50: []rlc.Rate{80}, Q99: []rlc.Rate{95}, Coverage: ratio(0.98)},
		OldTimed: rlc.Timed{Hours: &rlc.QuotaHours{From: now, Rates: []rlc.Rate{100, 120}}},
		NewTimed: rlc.Timed{Windows: []rlc.QuotaWindow{{From: now, Until: now.Add(time.Hour), Limit: *limit(300)}}},
		Answer:   `{"rate":131.25}`,
		Held:     "", HeldWhy: "nothing", Failed: true, Estimate: limit(131.25), Look: "level shift",
		Reasons: []rlc.Reason{{Rule: "weekly_peak", Detail: "peak 101/s", Rate: 101, Acted: true}},
		Why:     "weekly peak 101/s × 1.30 headroom", Policy: "historical", PolicyID: "p1", InputID: "i1",
		Peak: rlc.Peak{Rate: 101, At: now}, ValidDays: 27.5, Coverage: 0.98,
		Flags:   []rlc.Flag{{Window: rlc.Window{From: now, Until: now.Add(time.Hour), Reason: "INC-917"}, Rule: "spike", Peak: 900, With: 1170}},
		Offered: 1e8, LastHour: &hour, Seen: &rlc.Seen{At: now, Peak: rlc.Peak{Rate: 99, At: now}, Offered: 5, LastHour: &hour},
		Backtest: rlc.ChangeBacktest{
			Old: &rlc.Backtest{Requests: 1e8, Drops: 3000, Share: 3e-5, Step: 60, AtLeast: true, Episodes: []rlc.Episode{episode}, Worst: &rlc.Peak{Rate: 150, At: now}},
			New: &rlc.Backtest{Requests: 1e8, Step: 60, Episodes: []rlc.Episode{}},
		},
	}
}

// heldChange is a quota that stays at 100 for the reason why; "" is a quota
// that was decided and does not move.
func heldChange(r rlc.Run, service, bucket, caller, why string) rlc.Change {
	return rlc.Change{RunID: r.ID, Service: service, Bucket: bucket, Key: key(caller), At: r.Now, Old: limit(100), New: limit(100), Held: why, PolicyID: "p1"}
}

func proposal(r rlc.Run, service string, changes ...rlc.Change) rlc.Proposal {
	return rlc.Proposal{
		ID: r.ID + "-" + service, RunID: r.ID, Service: service, State: rlc.Pending, URL: "http://rlc/p", Branch: "rlc/" + service,
		Commit: "beef", Base: "c0ffee", Content: "hash", Human: true, Created: r.Started, Decided: r.Started.Add(time.Second),
		Actor: "ada", Reason: "too high", Error: "remote refused", Changes: changes,
	}
}

// stored begins and stores run n with changes and proposals.
func stored(t *testing.T, db *store.DB, r rlc.Run, changes []rlc.Change, proposals ...rlc.Proposal) {
	t.Helper()
	_, created, err := db.BeginRun(ctx(t), r)
	must(t, err)
	if !created {
		t.Fatalf("run %s existed", r.ID)
	}
	must(t, db.StoreRun(ctx(t), r, changes, proposals))
}

func ids[T any](all []T, id func(T) string) []string {
	out := []string{}
	for _, v := range all {
		out = append(out, id(v))
	}
	return out
}

func runID(r rlc.Run) string           { return r.ID }
func proposalID(p rlc.Proposal) string { return p.ID }
func changeID(c rlc.Change) string     { return c.Service + " " + c.ID() }
