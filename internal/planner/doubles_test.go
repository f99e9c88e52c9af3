package planner_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/internal/store"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// now is a Wednesday, 10:00 UTC, in most tests.
var now = time.Date(2026, 3, 18, 10, 0, 0, 0, time.UTC)

const (
	minute = time.Minute
	day    = 24 * time.Hour
)

// repo is a config repository in memory: a line of commits.
type repo struct {
	mu      sync.Mutex
	commits []commit
	edited  map[string]map[string]string // service → quota ID → who
	stale   map[string]string            // service → what its targets shall hold
	refuses map[string]error             // service → why nothing of it can be published
	err     error
}

type commit struct {
	at    time.Time
	files rlc.Files
}

func (r *repo) commit(at time.Time, files rlc.Files) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := rlc.Files{}
	if n := len(r.commits); n > 0 {
		maps.Copy(next, r.commits[n-1].files)
	}
	maps.Copy(next, files)
	r.commits = append(r.commits, commit{at, next})
}

func (r *repo) Head(context.Context) (rlc.Commit, rlc.Files, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return rlc.Commit{}, nil, r.err
	}
	n := len(r.commits)
	return rlc.Commit{Hash: fmt.Sprintf("c%039d", n), Version: rlc.Version{Number: uint64(n)}, Time: r.commits[n-1].at}, r.commits[n-1].files, nil
}

func (r *repo) At(_ context.Context, t time.Time) (rlc.Files, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range slices.Backward(r.commits) {
		if !c.at.After(t) {
			return c.files, nil
		}
	}
	return nil, rlc.ErrNotFound
}

func (r *repo) Edited(_ context.Context, service string) (map[string]string, error) {
	return r.edited[service], nil
}

func (r *repo) Publishable(_ context.Context, p rlc.Proposal) error { return r.refuses[p.Service] }

func (r *repo) Stale(_ context.Context, service string) (string, error) {
	return r.stale[service], nil
}

// history holds a rate for each series: what its traffic was at a time, NaN
// where there is no sample.
type history struct {
	mu      sync.Mutex
	series  map[string]func(time.Time) float64  // "service bucket" or "service bucket key"
	problem map[string]rlc.HistoryProblem       // by the same names
	seconds map[string]func(time.Time) rlc.Rate // the highest second of the hour that starts then
	err     map[string]error                    // by service
	reads   int                                 // services read
	block   bool                                // reads hang until they are cancelled
}

func (h *history) Service(ctx context.Context, req rlc.HistoryRequest, yield func(rlc.Series) error) error {
	h.mu.Lock()
	h.reads++
	h.mu.Unlock()
	if h.block {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := h.err[req.Service.Name]; err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(h.series)) {
		part := strings.SplitN(name, " ", 3)
		if part[0] != req.Service.Name {
			continue
		}
		s := rlc.Series{Bucket: part[1]}
		if len(part) == 3 {
			s.Key, _ = rlc.ParseKey(part[2])
		}
		start := req.Now.Add(-req.Lookback)
		values := make([]float64, req.Lookback/minute)
		for i := range values {
			values[i] = h.series[name](start.Add(time.Duration(i) * minute))
		}
		s.History = stat.Summarise(minute, start, values)
		if second := h.seconds[name]; second != nil {
			for i := range s.History.Hours {
				s.History.Hours[i].Second = second(s.History.Hours[i].Start)
			}
		}
		if p, ok := h.problem[name]; ok {
			s.History.Problems = append(s.History.Problems, p)
		}
		if err := yield(s); err != nil {
			return err
		}
	}
	return nil
}

// publisher is a forge in memory. A proposal of a run is one commit, however
// often it is published.
type publisher struct {
	mu      sync.Mutex
	commits []string // "run service", one per commit made
	open    map[string]rlc.Proposal
	empty   rlc.ProposalState // of a proposal without changes; "": superseded
	err     error
}

func (p *publisher) Publish(_ context.Context, pr rlc.Proposal) (rlc.Proposal, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return pr, p.err
	}
	name := pr.RunID + " " + pr.Service
	if !slices.Contains(p.commits, name) {
		p.commits = append(p.commits, name)
	}
	pr.State, pr.Commit = rlc.Open, "branch of "+pr.RunID
	if len(pr.Changes) == 0 && p.empty == "" {
		pr.State, pr.Commit = rlc.Superseded, ""
	}
	p.open[pr.Service] = pr
	return pr, nil
}

// world is a planner and everything around it.
type world struct {
	t       testing.TB
	repo    *repo
	history *history
	pub     *publisher
	db      *store.DB
	clock   time.Time
	records planner.Records
	planner *planner.Planner
	epoch   uint64
}

func newWorld(t testing.TB, files rlc.Files) *world {
	t.Helper()
	db, err := store.Open(t.Context(), "sqlite:"+t.TempDir()+"/rlc.db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{
		t: t, db: db, clock: now, records: db,
		repo:    &repo{edited: map[string]map[string]string{}},
		history: &history{series: map[string]func(time.Time) float64{}, problem: map[string]rlc.HistoryProblem{}, err: map[string]error{}},
		pub:     &publisher{open: map[string]rlc.Proposal{}},
	}
	w.repo.commit(now.Add(-60*day), files)
	w.restart()
	return w
}

func (w *world) config(change func(*planner.Config)) planner.Config {
	c := planner.Config{
		Repo: w.repo, History: w.history, Records: w.records, Policies: policies.Builtin(), Publisher: w.pub,
		Clock: func() time.Time { return w.clock }, Epoch: func() uint64 { return w.epoch },
		Jitter: func(most time.Duration) time.Duration { return most },
	}
	if change != nil {
		change(&c)
	}
	return c
}

// restart makes a new planner on what is stored, as a new process would.
func (w *world) restart() {
	w.t.Helper()
	p, err := planner.New(w.config(nil))
	if err != nil {
		w.t.Fatal(err)
	}
	w.planner = p
}

// cron runs the slot at the world's time.
func (w *world) cron() rlc.Run {
	w.t.Helper()
	run, err := w.planner.Run(w.t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "recompute " + w.clock.Format(time.RFC3339), Now: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// change is the newest one of a quota.
func (w *world) change(service, bucket string, key rlc.Key) rlc.Change {
	w.t.Helper()
	c, err := w.db.LatestChange(w.t.Context(), service, bucket, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// accept merges the open proposal of a service at the world's time.
func (w *world) accept(service string) {
	w.t.Helper()
	p := w.openProposal(service)
	if p == nil {
		w.t.Fatalf("no open proposal of %s", service)
	}
	_, files, _ := w.repo.Head(w.t.Context())
	quotas := map[string]rlc.Quota{}
	for _, q := range quotafile.Parse(files, nil).Quotas[service] {
		quotas[q.ID()] = q
	}
	for _, c := range p.Changes {
		delete(quotas, c.ID())
		if q := c.Quota(); q != nil {
			quotas[c.ID()] = *q
		}
	}
	all := slices.Collect(maps.Values(quotas))
	slices.SortFunc(all, func(a, b rlc.Quota) int { return strings.Compare(a.ID(), b.ID()) })
	w.repo.commit(w.clock, rlc.Files{quotafile.QuotasPath(service): quotafile.MarshalQuotas(service, all)})
	p.State, p.Decided = rlc.Accepted, w.clock
	if err := w.db.SetProposal(w.t.Context(), *p, nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) reject(service, reason string) {
	w.t.Helper()
	p := w.openProposal(service)
	if p == nil {
		w.t.Fatalf("no open proposal of %s", service)
	}
	p.State, p.Decided, p.Actor, p.Reason = rlc.Rejected, w.clock, "ada", reason
	if err := w.db.SetProposal(w.t.Context(), *p, nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) openProposal(service string) *rlc.Proposal {
	w.t.Helper()
	open, _, err := w.db.Proposals(w.t.Context(), rlc.Open, service, rlc.Page{})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(open) == 0 {
		return nil
	}
	if len(open) > 1 {
		w.t.Errorf("%d open proposals of %s", len(open), service)
	}
	return &open[0]
}

// policy is a policy.yaml.
func policy(service, buckets string) rlc.Files {
	return rlc.Files{quotafile.PolicyPath(service): []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: " + service + "\nbuckets:\n" + buckets)}
}

// quotas is a quotas.yaml.
func quotas(service string, q ...rlc.Quota) rlc.Files {
	return rlc.Files{quotafile.QuotasPath(service): quotafile.MarshalQuotas(service, q)}
}

func files(all ...rlc.Files) rlc.Files {
	out := rlc.Files{}
	for _, f := range all {
		maps.Copy(out, f)
	}
	return out
}

// wave is traffic with a daily rhythm: from a fifth of peak at night to peak at
// noon UTC.
func wave(peak float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		hour := float64(t.Hour()) + float64(t.Minute())/60
		return peak * (0.6 - 0.4*math.Cos(hour/24*2*math.Pi))
	}
}

// times multiplies traffic between two times.
func times(rate func(time.Time) float64, factor float64, from, until time.Time) func(time.Time) float64 {
	return func(t time.Time) float64 {
		if t.Before(from) || !t.Before(until) {
			return rate(t)
		}
		return factor * rate(t)
	}
}
