package web_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/internal/store"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

// now is the fixture's clock: a Wednesday morning.
var now = time.Date(2026, 12, 2, 6, 4, 0, 0, time.UTC)

// runAt is the last run's now.
var runAt = time.Date(2026, 12, 2, 6, 0, 0, 0, time.UTC)

const token = "correct-horse-battery-staple"

// hostile are names that must stay inert wherever they are shown: reliability.md J1.
var hostile = []string{
	`"><script>alert(1)</script>`,
	`</script><script>alert(2)</script>`,
	`javascript:alert(3)`,
	`'-alert(4)-'`,
	`<img src=x onerror=alert(5)>`,
	`=HYPERLINK("http://evil.example","x")`,
	`+1+cmd|' /C calc'!A0`,
	`-2+3`,
	`@SUM(A1)`,
	"tab\tand,comma=equals\\slash",
	"\u202egnp.exe",
	`{{constructor.constructor('alert(6)')()}}`,
	`../../etc/passwd`,
	`%2e%2e%2f`,
	"é🙂 / ? # &",
}

const hostileService = `"><script>alert(0)</script>`

// fixture is a whole world behind the pages: a real store, real policies over
// made traffic, and acts that change the store.
type fixture struct {
	db        *store.DB
	files     rlc.Files
	commit    rlc.Commit
	desired   *quotafile.Config
	live      *quotafile.Config
	version   rlc.Version
	history   map[string]rlc.History // service + "|" + quota id
	counts    []rlc.Count
	judged    map[string]rlc.OverrideCount
	begun     []string  // services whose first policy waits on a branch
	since     time.Time // when counting began; zero: more than 24 h ago
	banners   []web.Banner
	acks      []rlc.Ack
	notReady  []string
	overrides []rlc.Override
	trouble   string // beside an act of the emergency

	mu      sync.Mutex
	acts    []string             // what was done, in order
	amended map[string]rlc.Limit // people's numbers, by proposal|quota
}

// The made traffic and what policies say of it are the same in every test, so
// they are made once.
var made, computed sync.Map

func once[T any](m *sync.Map, id string, make func() T) T {
	f, _ := m.LoadOrStore(id, sync.OnceValue(make))
	return f.(func() T)()
}

type traffic struct {
	bucket  string
	key     rlc.Key
	peak    float64
	mode    rlc.Mode
	storm   float64 // a storm of 40 minutes, this many times the daily peak, 8 days ago
	grow    float64 // level of the last four days
	force   float64 // rate in force; 0: none
	young   bool    // two days old
	lost    bool    // a fifth of the window is missing
	counted float64 // share of offered counted as drops in 24 h
}

const checkoutPolicy = `apiVersion: rlc/v1
kind: ServicePolicy
service: checkout
owners: [team-payments]
profile: grpc
timezone: Europe/Paris
capacity: {rate: 12000, burst: 15000, reserve: 0.1, evidence: "load test 2026-09-14"}
defaults: {mode: shadow, policy: {kind: historical, headroom: 0.3}}
exclude: [{from: 2026-11-24T09:00:00Z, until: 2026-11-24T11:00:00Z, reason: INC-917}]
buckets:
  - {name: callers, each: [caller]}
  - name: mobile-create
    match: {caller: mobile-gateway, procedure: Create}
    mode: enforce
  - {name: health, match: {procedure: Health}, limit: {rate: 50, burst: 100}}
  - {name: whole-service, role: cap, policy: {kind: capacity}}
`

func newFixture(t testing.TB) *fixture {
	return newFixtureOf(t, hostileService, "team <b>bold</b>", hostile)
}

// newFixtureOf is the world with these names in place of the hostile ones.
func newFixtureOf(t testing.TB, service, owner string, names []string) *fixture {
	t.Helper()
	ctx := context.Background()
	db, err := store.Open(ctx, "sqlite:"+filepath.Join(t.TempDir(), "rlc.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f := &fixture{
		db: db, version: rlc.Version{Epoch: 3, Number: 41}, history: map[string]rlc.History{},
		commit: rlc.Commit{Hash: "9f2c1ab0d3e4f5061728394a5b6c7d8e9f001122", Version: rlc.Version{Epoch: 3, Number: 41}, Time: runAt.Add(-time.Hour)},
		files:  rlc.Files{"services/checkout/policy.yaml": []byte(checkoutPolicy)},
	}
	checkout := []traffic{
		{bucket: "callers", key: rlc.Key{"caller": "search"}, peak: 310, mode: rlc.Shadow, force: 280, counted: .012},
		{bucket: "callers", key: rlc.Key{"caller": "orders"}, peak: 1060, mode: rlc.Shadow, force: 1240},
		{bucket: "callers", key: rlc.Key{"caller": "notify"}, peak: 61, mode: rlc.Shadow, force: 60, counted: .001},
		{bucket: "callers", key: rlc.Key{"caller": "geo"}, peak: 151, mode: rlc.Shadow, force: 320},
		{bucket: "callers", key: rlc.Key{"caller": "batch-reports"}, peak: 184, mode: rlc.Shadow, force: 260, storm: 6},
		{bucket: "callers", key: rlc.Key{"caller": "recommendations"}, peak: 68, mode: rlc.Shadow, young: true},
		{bucket: "callers", key: rlc.Key{"caller": "loyalty"}, peak: 74, mode: rlc.Shadow, force: 90, lost: true},
		{bucket: "mobile-create", peak: 1750, mode: rlc.Enforce, storm: 3.2, grow: 1.35, force: 1900, counted: .004},
	}
	f.service(t, "checkout", checkout)
	var strange []traffic
	for i, name := range names {
		strange = append(strange, traffic{bucket: "callers", key: rlc.Key{"caller": name}, peak: 20 + 10*float64(i), mode: rlc.Shadow, force: 22 + 8*float64(i), counted: .01})
	}
	f.files[quotafile.PolicyPath(service)] = fmt.Appendf(nil, "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: %q\nowners: [%q]\nbuckets:\n  - {name: callers, each: [caller]}\n", service, owner)
	f.service(t, service, strange)
	for _, s := range []struct {
		name, owner string
		peak        float64
	}{{"search", "team-discovery", 4100}, {"geo", "team-maps", 900}, {"notify", "team-messaging", 350}, {"media", "", 2200}} {
		owners := ""
		if s.owner != "" {
			owners = "owners: [" + s.owner + "]\n"
		}
		f.files["services/"+s.name+"/policy.yaml"] = []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: " + s.name + "\n" + owners + "buckets:\n  - {name: callers, each: [caller]}\n")
		f.service(t, s.name, []traffic{
			{bucket: "callers", key: rlc.Key{"caller": "web"}, peak: s.peak, mode: rlc.Shadow, force: s.peak * 1.31},
			{bucket: "callers", key: rlc.Key{"caller": "mobile"}, peak: s.peak / 3, mode: rlc.Shadow, force: s.peak * .5},
		})
	}
	f.files["services/pricing/policy.yaml"] = []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: pricing\nbuckets:\n  - {name: callers, each: [caller], policy: {kind: historical, headrooom: 0.3}}\n")
	f.desired = quotafile.Parse(f.files, policies.Builtin().Check)
	f.live = quotafile.Parse(f.files, nil)
	if f.desired.Service("checkout") == nil || f.desired.Service(service) == nil {
		t.Fatalf("the fixture's policies: %v", f.desired.Problems)
	}
	f.store(t, checkout, service, strange, names)
	return f
}

// values makes 28 days of one-minute rates ending at runAt: a daily curve, a
// quieter weekend, noise from a seed.
func (x traffic) values(seed uint64) (time.Time, []float64) {
	const days = 28
	r := rand.New(rand.NewPCG(seed, 7))
	start := runAt.Add(-days * 24 * time.Hour)
	out := make([]float64, days*24*60)
	for i := range out {
		at := start.Add(time.Duration(i) * time.Minute)
		hour := float64(at.Hour()) + float64(at.Minute())/60
		v := .32 + .5*math.Exp(-math.Pow((hour-12.5)/2.6, 2)) + .35*math.Exp(-math.Pow((hour-19)/2.2, 2))
		if d := at.Weekday(); d == time.Saturday || d == time.Sunday {
			v *= .68
		}
		v *= x.peak * (1 + .07*r.NormFloat64())
		if x.grow > 0 && at.After(runAt.Add(-4*24*time.Hour)) {
			v *= x.grow
		}
		if storm := runAt.Add(-8*24*time.Hour + 14*time.Hour); x.storm > 0 && at.After(storm) && at.Before(storm.Add(40*time.Minute)) {
			v = x.peak * x.storm
		}
		switch {
		case x.young && at.Before(runAt.Add(-50*time.Hour)), x.lost && at.After(runAt.Add(-80*time.Hour)):
			v = math.NaN()
		}
		out[i] = math.Max(v, 0)
		if math.IsNaN(v) {
			out[i] = math.NaN()
		}
	}
	return start, out
}

func (f *fixture) service(t testing.TB, name string, all []traffic) {
	t.Helper()
	var quotas []rlc.Quota
	for i, x := range all {
		h := once(&made, fmt.Sprintf("%s/%d", name, i), func() rlc.History {
			start, values := x.values(uint64(len(name)*100 + i))
			h := stat.Summarise(time.Minute, start, values)
			h.Source = "fixture"
			return h
		})
		id := rlc.QuotaID(x.bucket, x.key)
		f.history[name+"|"+id] = h
		if x.force > 0 {
			quotas = append(quotas, rlc.Quota{Bucket: x.bucket, Key: x.key, Limit: rlc.Limit{Rate: rlc.Rate(x.force), Burst: rlc.Burst(2 * x.force)}, Why: fmt.Sprintf("weekly peak %.0f × 1.30", x.force/1.3)})
		}
		offered := x.peak * .6 * 86400
		c := rlc.Count{Service: name, Bucket: x.bucket, Key: x.key, Offered: offered}
		if x.mode == rlc.Enforce {
			c.Drops = offered * x.counted
		} else {
			c.VirtualDrops = offered * x.counted
		}
		f.counts = append(f.counts, c)
	}
	f.files[quotafile.QuotasPath(name)] = quotafile.MarshalQuotas(name, quotas)
}

// compute is what a run would find for one quota.
func (f *fixture) compute(t testing.TB, service, run string, x traffic) rlc.Change {
	t.Helper()
	return once(&computed, service+"|"+rlc.QuotaID(x.bucket, x.key), func() rlc.Change { return f.computeAnew(t, service, run, x) })
}

func (f *fixture) computeAnew(t testing.TB, service, run string, x traffic) rlc.Change {
	t.Helper()
	spec := rlc.PolicySpec{Kind: "historical", Params: rlc.Params{"headroom": 0.3}}
	policy, err := policies.Builtin().New(spec)
	if err != nil {
		t.Fatal(err)
	}
	h := f.history[service+"|"+rlc.QuotaID(x.bucket, x.key)]
	e := policies.Evidence{Service: service, Bucket: x.bucket, Key: x.key, Now: runAt, Step: time.Minute, History: h}
	in := rlc.Input{Service: service, Bucket: x.bucket, Key: x.key, Now: runAt, History: h}
	if x.force > 0 {
		q := rlc.Quota{Bucket: x.bucket, Key: x.key, Limit: rlc.Limit{Rate: rlc.Rate(x.force), Burst: rlc.Burst(2 * x.force)}}
		e.Current, in.Current = &q, &q.Limit
	}
	est, perr := policy.Propose(context.Background(), in)
	if perr != nil && !errors.Is(perr, rlc.ErrAbstain) {
		t.Fatal(perr)
	}
	c := policies.Guard(e, est, perr)
	c.RunID, c.Policy, c.PolicyID, c.InputID = run, "historical", "5f2a", "c01d"
	for _, side := range []struct {
		limit *rlc.Limit
		into  **rlc.Backtest
	}{{c.Old, &c.Backtest.Old}, {c.New, &c.Backtest.New}} {
		if side.limit != nil {
			b := backtest.FromHistory(h, *side.limit)
			*side.into = &b
			c.Offered = b.Requests
		}
	}
	return c
}

func (f *fixture) store(t testing.TB, checkout []traffic, service string, strange []traffic, names []string) {
	t.Helper()
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	old := rlc.Run{ID: "cron-2026-11-26T060000Z", Trigger: rlc.ByCron, Now: runAt.AddDate(0, 0, -6), Started: runAt.AddDate(0, 0, -6), Finished: runAt.AddDate(0, 0, -6).Add(39 * time.Second), Result: rlc.ResultOK, Total: 22, Changed: 1}
	accepted := rlc.Change{RunID: old.ID, Service: "checkout", Bucket: "mobile-create", At: old.Now, Old: &rlc.Limit{Rate: 1700, Burst: 3400}, New: &rlc.Limit{Rate: 1900, Burst: 3800}, Why: "weekly peak 1,460 × 1.30", Policy: "historical"}
	f.run(t, old, []rlc.Change{accepted}, []rlc.Proposal{{ID: old.ID + "-checkout", RunID: old.ID, Service: "checkout", State: rlc.Pending, Created: old.Now, Content: "aa", Changes: []rlc.Change{accepted}}})
	p, err := f.db.ProposalByID(ctx, old.ID+"-checkout")
	must(err)
	p.State, p.Decided, p.Actor, p.Commit, p.Branch = rlc.Accepted, old.Now.Add(4*time.Hour), "ana", "41c0d2e7", "rlc/checkout"
	must(f.db.SetProposal(ctx, p, nil))

	last := rlc.Run{ID: "cron-2026-12-02T060000Z", Trigger: rlc.ByCron, Now: runAt, Started: runAt.Add(time.Second), Finished: runAt.Add(42 * time.Second), Result: rlc.ResultDegraded, Commit: f.commit.Hash, Detail: `1 service could not be read: pricing`, Epoch: 0}
	var changes []rlc.Change
	var proposals []rlc.Proposal
	for _, s := range []struct {
		name string
		all  []traffic
	}{{"checkout", checkout}, {service, strange}} {
		var moved []rlc.Change
		for _, x := range s.all {
			c := f.compute(t, s.name, last.ID, x)
			changes = append(changes, c)
			if c.Moves() && c.Held == "" {
				moved = append(moved, c)
			}
			if c.Held != "" {
				last.Held++
			}
		}
		last.Changed += len(moved)
		id := last.ID + "-" + quotafile.PathSegment(s.name)
		proposals = append(proposals, rlc.Proposal{ID: id, RunID: last.ID, Service: s.name, State: rlc.Pending, Created: runAt.Add(30 * time.Second), Content: "bb" + id, Branch: "rlc/" + quotafile.PathSegment(s.name), Changes: moved})
	}
	last.Total = len(changes)
	f.run(t, last, changes, proposals)
	for _, p := range proposals {
		got, err := f.db.ProposalByID(ctx, p.ID)
		must(err)
		got.State, got.URL, got.Commit, got.Base = rlc.Open, "http://127.0.0.1:8080/proposals/"+p.ID, "77aa01c9", f.commit.Hash
		must(f.db.SetProposal(ctx, got, nil))
	}
	failed := rlc.Run{ID: "person-2026-12-02T060230Z", Trigger: rlc.ByPerson, Actor: names[0], Now: runAt.Add(150 * time.Second), Started: runAt.Add(150 * time.Second), Finished: runAt.Add(152 * time.Second), Result: rlc.ResultFailed, Service: "geo", Detail: names[1]}
	f.run(t, failed, nil, nil)
	var sums []rlc.ServiceSummary
	for _, s := range f.desired.Services {
		sums = append(sums, f.summary(s.Name, s.Owners, proposals))
	}
	for i := range sums {
		for _, c := range changes {
			if c.Service == sums[i].Name && c.Held != "" {
				sums[i].Held++
			}
		}
	}
	sums = append(sums, rlc.ServiceSummary{Name: "pricing", Problem: "services/pricing/policy.yaml:5:64: unknown key", Updated: runAt})
	must(f.db.SaveSummaries(ctx, sums))
	f.score(t)
	f.acks = []rlc.Ack{{Enforcer: "embedded", Version: f.version, At: now}}
	must(f.db.SetVerdict(ctx, rlc.Verdict{ID: "v1", Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "batch-reports"}, Window: rlc.Window{From: runAt.Add(-8*24*time.Hour + 14*time.Hour), Until: runAt.Add(-8*24*time.Hour + 15*time.Hour), Reason: names[4]}, Actor: names[2], At: runAt},
		rlc.AuditEntry{At: runAt, Actor: "ana", Action: "verdict.set", Object: "checkout"}))
	f.banners = []web.Banner{{Level: "warn", Text: "The last run held quotas: history was missing or in doubt.", Detail: names[0], Since: runAt}}
}

func (f *fixture) run(t testing.TB, r rlc.Run, changes []rlc.Change, proposals []rlc.Proposal) {
	t.Helper()
	ctx := context.Background()
	if _, _, err := f.db.BeginRun(ctx, r); err != nil {
		t.Fatal(err)
	}
	if err := f.db.StoreRun(ctx, r, changes, proposals); err != nil {
		t.Fatal(err)
	}
	if err := f.db.FinishRun(ctx, r); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) summary(name string, owners []string, proposals []rlc.Proposal) rlc.ServiceSummary {
	s := rlc.ServiceSummary{Name: name, Owners: owners, Updated: runAt}
	svc := f.desired.Service(name)
	var parts []stat.Part
	for _, q := range f.desired.Quotas[name] {
		s.Buckets++
		s.Desired++
		if svc.Bucket(q.Bucket).Mode == rlc.Enforce {
			s.Enforcing++
		}
		s.LimitSum += q.Rate
		h := f.history[name+"|"+q.ID()]
		peak := rlc.Rate(0)
		for _, x := range h.Hours {
			if x.Start.Before(runAt.Add(-9*24*time.Hour)) || x.Start.After(runAt.Add(-7*24*time.Hour)) { // the storm is left out
				peak = max(peak, x.Max)
			}
		}
		head := rlc.Ratio((q.Rate - peak) / peak)
		if s.Headroom == nil || head < *s.Headroom {
			s.Headroom, s.HeadroomAt = &head, q.ID()
		}
		part := stat.Part{Hours: h.Hours, Limit: q.Rate, Shadow: runAt}
		if svc.Bucket(q.Bucket).Mode == rlc.Enforce {
			part.Shadow = runAt.AddDate(0, 0, -6)
			part.Hours = slices.Clone(h.Hours)
			for i, x := range part.Hours {
				if !x.Start.Before(part.Shadow) && x.Max > q.Rate {
					part.Hours[i].Drops = rlc.Ratio((x.Max - q.Rate) / x.Max / 2)
				}
			}
		}
		parts = append(parts, part)
		if s.Offered == nil {
			s.Offered = new(rlc.Rate)
		}
		*s.Offered += h.Hours[len(h.Hours)-1].Mean
		s.Requests, s.Limited = s.Requests+1, s.Limited+1 // every one of its quotas has a limit
	}
	s.Week = stat.Trend(parts, runAt.AddDate(0, 0, -7), runAt)
	for _, c := range f.counts {
		if c.Service == name {
			s.Drops += c.Drops
			s.VirtualDrops += c.VirtualDrops
			s.Counted += c.Offered
		}
	}
	for _, p := range proposals {
		if p.Service == name {
			s.OpenReview = p.ID
		}
	}
	return s
}

// The interfaces that pages read.

func (f *fixture) Desired() (rlc.Commit, *quotafile.Config) { return f.commit, f.desired }
func (f *fixture) Live() (rlc.Version, *quotafile.Config)   { return f.version, f.live }
func (f *fixture) Acks() []rlc.Ack                          { return f.acks }
func (f *fixture) Banners() []web.Banner                    { return f.banners }
func (f *fixture) Ready() []string                          { return f.notReady }

func (f *fixture) Stored(_ context.Context, service, bucket string, key rlc.Key, from, until time.Time) (rlc.History, error) {
	h, ok := f.history[service+"|"+rlc.QuotaID(bucket, key)]
	if !ok {
		return rlc.History{}, nil
	}
	h.From, h.Until = from, until
	if bucket == "mobile-create" { // whose enforcers have counted seconds for ten days
		h.Hours = slices.Clone(h.Hours)
		for i := range h.Hours {
			if !h.Hours[i].Start.Before(runAt.AddDate(0, 0, -10)) {
				h.Hours[i].Second = h.Hours[i].Max * 1.25
			}
		}
	}
	h.Hours = slices.DeleteFunc(slices.Clone(h.Hours), func(x rlc.Hour) bool { return x.Start.Before(from) || !x.Start.Before(until) })
	return h, nil
}

func (f *fixture) StoredEach(ctx context.Context, service string, quotas []string, from, until time.Time, use func(string, rlc.History) error) error {
	for _, id := range quotas {
		if h, ok := f.history[service+"|"+id]; ok {
			h.From, h.Until = from, until
			h.Hours = slices.DeleteFunc(slices.Clone(h.Hours), func(x rlc.Hour) bool { return x.Start.Before(from) || !x.Start.Before(until) })
			if err := use(id, h); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (f *fixture) Counts(_ context.Context, service string, _ time.Duration, _ time.Time) ([]rlc.Count, error) {
	var out []rlc.Count
	for _, c := range f.counts {
		if service == "" || c.Service == service {
			out = append(out, c)
		}
	}
	return out, nil
}

func (f *fixture) OverrideCounts(context.Context, time.Duration, time.Time) (map[string]rlc.OverrideCount, error) {
	if f.judged == nil {
		return map[string]rlc.OverrideCount{}, nil
	}
	return f.judged, nil
}

func (f *fixture) CountedSince(_ context.Context, service string, _ time.Duration, _ time.Time) (time.Time, error) {
	counted, _ := f.Counts(context.Background(), service, 0, time.Time{})
	if len(counted) == 0 {
		return time.Time{}, rlc.ErrNotFound
	}
	return f.since, nil
}

func (f *fixture) did(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts = append(f.acts, fmt.Sprintf(format, args...))
}

func (f *fixture) done() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.acts)
}

func (f *fixture) decide(ctx context.Context, id string, state rlc.ProposalState, who, reason string) error {
	p, err := f.db.ProposalByID(ctx, id)
	if err != nil {
		return err
	}
	if p.State != rlc.Open {
		return fmt.Errorf("%w: proposal is %s", rlc.ErrConflict, p.State)
	}
	p.State, p.Actor, p.Reason, p.Decided = state, who, reason, now
	return f.db.SetProposal(ctx, p, nil)
}

func (f *fixture) Accept(ctx context.Context, id, seen, who string) error {
	p, err := f.db.ProposalByID(ctx, id)
	if err != nil {
		return err
	}
	if err := p.StillHolds(seen); err != nil {
		return err
	}
	f.did("accept %s by %s", id, who)
	return f.decide(ctx, id, rlc.Accepted, who, "")
}

func (f *fixture) Reject(ctx context.Context, id, who, reason string) error {
	f.did("reject %s by %s: %s", id, who, reason)
	return f.decide(ctx, id, rlc.Rejected, who, reason)
}

func (f *fixture) Run(_ context.Context, a planner.Ask) (rlc.Run, error) {
	f.did("run %q at %s by %s", a.Service, a.Now.Format(time.RFC3339), a.Actor)
	return rlc.Run{ID: "person-x", Trigger: a.Trigger, Service: a.Service, Now: a.Now, Started: now, Stage: rlc.Claimed, Actor: a.Actor}, nil
}

func (f *fixture) Plan(_ context.Context, a planner.Ask) (rlc.Run, []rlc.Change, error) {
	if strings.Contains(string(a.Policy), "broken") {
		return rlc.Run{}, nil, fmt.Errorf("%w: services/checkout/policy.yaml:1:1: one\nservices/checkout/policy.yaml:2:1: two", rlc.ErrInvalid)
	}
	if a.Policy != nil {
		f.did("plan a draft of %s by %s: %s", a.Service, a.Actor, a.Policy)
	}
	changes, err := f.db.LatestChanges(context.Background(), "checkout")
	return rlc.Run{ID: "plan", Trigger: rlc.ByPerson, Service: a.Service, Now: now, Result: rlc.ResultOK, Total: len(changes)}, changes, err
}

func (f *fixture) FollowRewritten(_ context.Context, actor string) error {
	f.did("follow by %s", actor)
	return nil
}

func (f *fixture) Ask(ctx context.Context, act rlc.AuditEntry, told rlc.Notice) error {
	f.did("ask %s by %s: %s", act.Object, act.Actor, act.Detail)
	return f.db.AddAudit(ctx, act)
}

func (f *fixture) Recount(context.Context, string) error { return nil }

func (f *fixture) SetVerdict(ctx context.Context, v rlc.Verdict) error {
	f.did("verdict %s/%s count=%v by %s", v.Service, rlc.QuotaID(v.Bucket, v.Key), v.Count, v.Actor)
	return f.db.SetVerdict(ctx, v, rlc.AuditEntry{At: v.At, Actor: v.Actor, Action: "verdict.set", Object: v.Service})
}

func (f *fixture) config() web.Config {
	return web.Config{Records: f.db, Truths: f, History: f, Acts: f, Status: f, Identities: f.db, Overrides: f, Rollouts: rollouts{f}, Amendments: f, Onboarding: sightings{f}, Imports: f, Files: f, Settings: setups{}, Token: token, Now: func() time.Time { return now }}
}

func (f *fixture) handler(t testing.TB) http.Handler {
	t.Helper()
	h, err := web.New(f.config())
	if err != nil {
		t.Fatal(err)
	}
	return h
}
