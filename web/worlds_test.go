package web_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

// worlds are the states in which pages are looked at, by name.
var worlds = map[string]func(*testing.T) http.Handler{
	"calm":    func(t *testing.T) http.Handler { return newFixture(t).handler(t) },
	"trouble": newTrouble,
	"deaf": func(t *testing.T) http.Handler {
		return without(t, func(c *web.Config) { c.History = deaf{c.History} })
	},
	"blind": func(t *testing.T) http.Handler { return without(t, func(c *web.Config) { c.History = blind{} }) },
	"lost": func(t *testing.T) http.Handler {
		return without(t, func(c *web.Config) { c.Records, c.History = unread{}, unstored{c.History} })
	},
	"fresh": func(t *testing.T) http.Handler { return newFresh(t, nil) },
	"first": func(t *testing.T) http.Handler { return newFresh(t, firstPolicy) },
}

func without(t *testing.T, take func(*web.Config)) http.Handler {
	t.Helper()
	config := newFixture(t).config()
	take(&config)
	h, err := web.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// blind is history that cannot be read at all.
type blind struct{}

var errAway = fmt.Errorf("%w: connect: connection refused", rlc.ErrUnavailable)

func (blind) Stored(context.Context, string, string, rlc.Key, time.Time, time.Time) (rlc.History, error) {
	return rlc.History{}, errAway
}

func (blind) StoredEach(context.Context, string, []string, time.Time, time.Time, func(string, rlc.History) error) error {
	return errAway
}

func (blind) Counts(context.Context, string, time.Duration, time.Time) ([]rlc.Count, error) {
	return nil, errAway
}

func (blind) OverrideCounts(context.Context, time.Duration, time.Time) (map[string]rlc.OverrideCount, error) {
	return nil, errAway
}

func (blind) CountedSince(context.Context, string, time.Duration, time.Time) (time.Time, error) {
	return time.Time{}, errAway
}

// firstPolicy is a service that no run has looked at.
var firstPolicy = rlc.Files{"services/checkout/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: checkout\nbuckets:\n  - {name: callers, each: [caller]}\n  - {name: health, match: {procedure: Health}, limit: {rate: 50, burst: 100}}\n")}

// newFresh is a server that has just started on a config repository that holds
// these files: no run, no record, no enforcer.
func newFresh(t *testing.T, files rlc.Files) http.Handler {
	t.Helper()
	db, err := store.Open(context.Background(), "sqlite:"+filepath.Join(t.TempDir(), "rlc.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f := &fixture{db: db, history: map[string]rlc.History{}, files: files, commit: rlc.Commit{Hash: "9f2c1ab0d3e4f5061728394a5b6c7d8e9f001122", Version: rlc.Version{Number: 1}, Time: now}}
	f.desired = quotafile.Parse(files, policies.Builtin().Check)
	return f.handler(t)
}

// unread are records that cannot be reached.
type unread struct{}

func (unread) RunByID(context.Context, string) (_ rlc.Run, err error) {
	err = errLost
	return
}
func (unread) Runs(context.Context, rlc.Page) (_ []rlc.Run, _ int, err error) {
	err = errLost
	return
}
func (unread) RunTotals(context.Context, string, rlc.RunFilter) (_ rlc.RunTotals, err error) {
	err = errLost
	return
}
func (unread) RunServices(context.Context, string, rlc.RunFilter, rlc.Page) (_ []rlc.RunService, err error) {
	err = errLost
	return
}
func (unread) RunQuotas(context.Context, string, rlc.RunFilter, rlc.Page) (_ []rlc.Change, _ int, err error) {
	err = errLost
	return
}
func (unread) LatestChanges(context.Context, string) (_ []rlc.Change, err error) {
	err = errLost
	return
}
func (unread) LatestChange(context.Context, string, string, rlc.Key) (_ rlc.Change, err error) {
	err = errLost
	return
}
func (unread) WithEpisodes(context.Context, []rlc.Change) (_ []rlc.Change, err error) {
	err = errLost
	return
}
func (unread) ChangeLog(context.Context, string, string, rlc.Key, rlc.Page) (_ []rlc.Change, _ int, err error) {
	err = errLost
	return
}
func (unread) Proposals(context.Context, rlc.ProposalState, string, rlc.Page) (_ []rlc.Proposal, _ int, err error) {
	err = errLost
	return
}
func (unread) ProposalsBy(context.Context, rlc.ProposalFilter, rlc.Page) (_ []rlc.Proposal, _ int, err error) {
	err = errLost
	return
}
func (unread) ProposalByID(context.Context, string) (_ rlc.Proposal, err error) {
	err = errLost
	return
}
func (unread) Verdicts(context.Context, string) (_ []rlc.Verdict, err error) {
	err = errLost
	return
}
func (unread) Summary(context.Context, string) (_ rlc.ServiceSummary, err error) {
	err = errLost
	return
}
func (unread) Summaries(context.Context, rlc.ServiceFilter, rlc.Page) (_ []rlc.ServiceSummary, _ int, err error) {
	err = errLost
	return
}
func (unread) OverrideLog(context.Context, rlc.Page) (_ []rlc.Override, _ int, err error) {
	err = errLost
	return
}
func (unread) Scores(context.Context, time.Time) (_ []rlc.Score, err error) {
	err = errLost
	return
}

var errLost = fmt.Errorf("%w: connect: connection refused", rlc.ErrUnavailable)

// unstored is history whose stored part is away with the records.
type unstored struct{ web.History }

func (unstored) Stored(context.Context, string, string, rlc.Key, time.Time, time.Time) (rlc.History, error) {
	return rlc.History{}, errLost
}

func (unstored) StoredEach(context.Context, string, []string, time.Time, time.Time, func(string, rlc.History) error) error {
	return errLost
}

// With the records away those pages are there that read none of them, and say that the
// records are away; the others say what goes on all the same, and offer to try again.
func TestWithTheRecordsAwayPagesThatReadNoneOfThemAreThere(t *testing.T) {
	h := worlds["lost"](t)
	for _, path := range []string{"/emergency", "/settings", "/services/checkout/policy", "/services/checkout/export", "/import", "/loop", "/services/ledger/onboard", "/find?q=check"} {
		holds(t, h, path, "The records cannot be reached.", "Limits in force stay as they are")
	}
	holds(t, h, "/emergency", "what is over is not listed")
	for _, path := range []string{"/", "/services", "/services/checkout", "/proposals", "/runs"} {
		w := get(h, path)
		page := w.Body.String()
		if w.Code != 503 || !strings.Contains(page, "Limits in force stay as they are, and overrides work.") || !strings.Contains(page, `<a class="btn" href="`+path+`">Try again</a>`) || !strings.Contains(page, `href="/emergency"`) {
			t.Errorf("%s: %d %s", path, w.Code, page)
		}
	}
}

// A list that is still empty denies no service that the config repository has.
func TestAListThatIsNotSummedUpDeniesNoService(t *testing.T) {
	holds(t, worlds["first"](t), "/services", "No service is listed yet.", "Not summed up yet", "The config repository has 1 service;")
	holds(t, worlds["first"](t), "/", "No run has looked at a service yet.")
	holds(t, worlds["fresh"](t), "/services", "The first step: a policy for one service")
	holds(t, worlds["fresh"](t), "/", "There is no service yet.")
}
