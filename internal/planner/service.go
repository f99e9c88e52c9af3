package planner

import (
	"cmp"
	"container/heap"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/policies"
)

const (
	// evidence is the least history that is read: what a change's backtest
	// covers, whatever its policy needs.
	evidence = 28 * day
	// mostEpisodes is how many episodes of one backtest a change keeps; those
	// with the fewest drops are left out first, and counted.
	mostEpisodes = 100
	// contractual is the kind whose quotas keep their floors when a service is
	// made to fit its capacity.
	contractual = "contractual"
)

// job computes one service. It holds one series at a time, and of the rest only
// what becomes a change.
type job struct {
	p        *Planner
	run      *rlc.Run
	head     *head
	service  *rlc.Service
	profile  *rlc.Profile
	location *time.Location
	targets  map[string]*target // by bucket name; buckets with a hand-written limit are not among them
	current  map[string]rlc.Quota
	regional map[string]rlc.Quota // a region's own, where the bucket has them
	was      *earlier
	past     *past
	edited   map[string]string
	recent   map[string][]rlc.RecentEstimate
	verdicts []rlc.Verdict
	exclude  []rlc.Window      // declared incidents, and events: they are no history
	answers  map[string]string // of models outside, by input hash, where this run was made before

	seen    map[string]bool // quota IDs that have a change
	keyed   map[string]bool // buckets of which a key has a change
	changes []rlc.Change    // of quotas in force, and of buckets without each
	fleet   []policies.FleetSeries
	// together is how far the quota buckets' series peak together.
	together policies.Coincidence
	lives    []policies.Life // of the keys, to find renamed ones
	retired  map[string]bool // quotas whose caller goes on under another name
}

// target is a bucket that is computed.
type target struct {
	bucket   *rlc.Bucket
	policy   rlc.Policy
	err      error // why there is no policy
	hash     string
	contract *rlc.Contract
	lacks    []string // attributes it depends on that history does not carry
	fresh    newest   // changes of keys without a quota, the largest of them
	left     int      // keys without a quota beyond that
}

func (p *Planner) newJob(ctx context.Context, run *rlc.Run, h *head, was *earlier, service *rlc.Service) (*job, error) {
	quotas := h.config.Quotas[service.Name]
	j := &job{
		p: p, run: run, head: h, service: service, was: was,
		profile: h.config.Profiles[service.Profile],
		targets: map[string]*target{},
		current: make(map[string]rlc.Quota, len(quotas)),
		seen:    map[string]bool{},
		keyed:   map[string]bool{},
		retired: map[string]bool{},

		regional: map[string]rlc.Quota{},
	}
	if j.profile == nil {
		return nil, fmt.Errorf("%w: profile %q", rlc.ErrNotFound, service.Profile)
	}
	var err error
	if j.location, err = time.LoadLocation(service.Timezone); err != nil {
		return nil, fmt.Errorf("time zone of the service: %w", err)
	}
	for _, q := range quotas {
		switch {
		case q.Place() == q.Bucket:
			j.current[q.ID()] = q
		case q.Region != "":
			j.regional[q.ID()] = q
		}
	}
	j.exclude = slices.Clone(service.Exclude)
	for _, e := range service.Events {
		j.exclude = append(j.exclude, rlc.Window{From: e.From, Until: e.Until, Reason: "event " + e.Name})
	}
	if j.service, err = p.sized(ctx, service, run.Now); err != nil {
		return nil, err
	}
	if j.past, err = p.past(ctx, run.Now, was, service.Name); err != nil {
		return nil, err
	}
	if j.edited, err = p.cfg.Repo.Edited(ctx, service.Name); err != nil {
		return nil, fmt.Errorf("look for people's edits: %w", err)
	}
	if j.recent, err = p.cfg.Records.Recent(ctx, service.Name, run.Now.Add(-7*day)); err != nil {
		return nil, err
	}
	if j.verdicts, err = p.cfg.Records.Verdicts(ctx, service.Name); err != nil {
		return nil, err
	}
	return j, j.find(ctx, h)
}

// find makes a target of every bucket that is computed.
func (j *job) find(ctx context.Context, h *head) error {
	matcher, _ := match.Compile(j.service) // its problems made the policy invalid
	for i := range j.service.Buckets {
		b := &j.service.Buckets[i]
		if b.Policy == nil {
			continue
		}
		t := &target{bucket: b, hash: policies.PolicyHash(*b.Policy, b.Guards)}
		t.policy, t.err = j.p.cfg.Policies.New(*b.Policy)
		if c, ok := h.config.Contracts[policies.ContractName(*b.Policy)]; ok {
			t.contract = &c
		}
		if t.policy != nil && t.policy.Needs().Outside && j.answers == nil {
			var err error
			if j.answers, err = j.p.answers(ctx, j.run); err != nil {
				return err
			}
		}
		for _, a := range matcher.Uses(i) {
			if len(j.profile.Attributes[a].Metric) == 0 {
				t.lacks = append(t.lacks, a)
			}
		}
		j.targets[b.Name] = t
	}
	return nil
}

// compute reads the service's history and turns it into changes.
func (j *job) compute(ctx context.Context) found {
	var failure error
	if len(j.targets) > 0 {
		failure = j.read(ctx, func(s rlc.Series) { j.series(ctx, s) })
	}
	problem := rlc.HistoryProblem{Rule: "no_data", Detail: fmt.Sprintf("no samples in %d days", int(j.lookback()/day))}
	if failure != nil {
		problem = rlc.HistoryProblem{Rule: "failed", Detail: cause(ctx, failure)}
	}
	j.silent(ctx, problem)

	f := found{changes: j.changes, fleet: j.fleet}
	for _, t := range j.targets {
		f.changes = append(f.changes, t.bounded(j.service.MaxQuotas, j.quotasOf(t.bucket.Name))...)
	}
	if failure == nil {
		j.renamed(ctx, &f.changes)
	}
	slices.SortFunc(f.changes, byQuota)
	j.fit(ctx, f.changes)
	if failure == nil {
		failure = j.regions(ctx, &f.changes)
	}
	for i := range f.changes {
		j.timed(&f.changes[i])
	}
	j.fitWindows(f.changes)
	if failure == nil {
		j.vanished(f.changes)
	}
	if failure != nil {
		f.trouble = j.service.Name + ": history could not be read: " + cause(ctx, failure)
	} else if i := slices.IndexFunc(f.changes, func(c rlc.Change) bool { return c.Failed }); i >= 0 {
		f.trouble = fmt.Sprintf("%s: %s is held: %s", j.service.Name, f.changes[i].ID(), f.changes[i].HeldWhy)
	}
	return f
}

// read goes over the service's series.
func (j *job) read(ctx context.Context, yield func(rlc.Series)) error {
	req := rlc.HistoryRequest{Service: j.service, Profile: j.profile, Lookback: j.lookback(), Now: j.run.Now}
	return j.p.cfg.History.Service(ctx, req, func(s rlc.Series) error {
		yield(s)
		return ctx.Err()
	})
}

// fit makes the service's quotas fit its capacity. Those that it cut are
// replayed again; their histories are read a second time, because none is kept.
func (j *job) fit(ctx context.Context, changes []rlc.Change) {
	f := policies.Fit{Coincidence: j.together.Ratio(), Contracts: map[string]rlc.Limit{}, Retired: j.retired}
	at := make(map[string]*rlc.Change, len(changes))
	for i := range changes {
		c := &changes[i]
		at[c.ID()] = c
		if c.New == nil {
			continue
		}
		if c.Policy == contractual && c.Held == "" {
			f.Contracts[c.ID()] = *c.New
		} else if k := j.promised(j.targets[c.Bucket], c.Key, j.now()); lasts(k, j.now()) {
			f.Contracts[c.ID()] = k.Limit
		}
	}
	losses := policies.FitCapacity(j.service, changes, f)
	if len(losses) == 0 {
		return
	}
	cut := map[string]*rlc.Change{}
	for _, l := range losses {
		cut[l.ID] = at[l.ID]
		cut[l.ID].Backtest.New = nil // unknown, should the second read fail
	}
	err := j.read(ctx, func(s rlc.Series) {
		if c := cut[rlc.QuotaID(s.Bucket, s.Key)]; c != nil && len(s.History.Hours) > 0 {
			timed := c.NewTimed
			if timed.Hours != nil {
				timed.Hours = within(*timed.Hours, c.New.Rate)
			}
			c.Backtest.New = replay(s.History, c.New, timed)
		}
	})
	if err != nil {
		j.p.cfg.Log.Warn("cut quotas without a backtest", "service", j.service.Name, "run", j.run.ID, "error", err)
	}
}

// lookback is how much history the service's policies need.
func (j *job) lookback() time.Duration {
	longest := evidence
	for _, t := range j.targets {
		if t.policy != nil {
			longest = max(longest, t.policy.Needs().Lookback)
		}
	}
	return longest
}

// series turns one series into a change. A series of no computed bucket, or a
// second one of the same key, is nothing to us.
func (j *job) series(ctx context.Context, s rlc.Series) {
	t := j.targets[s.Bucket]
	id := rlc.QuotaID(s.Bucket, s.Key)
	if t == nil || j.seen[id] || (len(s.Key) > 0) != (len(t.bucket.Each) > 0) {
		return
	}
	c := j.change(ctx, t, s.Key, s.History)
	j.add(t, c)
	j.fleet = append(j.fleet, policies.SeriesOf(s.History, j.was.run, j.run.Now))
	if t.bucket.Role != rlc.CapRole && j.service.Capacity != nil {
		j.together.Add(s.History, j.left(ctx, t, &c, s.History))
	}
	if len(s.Key) > 0 && len(s.History.Problems) == 0 {
		j.lives = append(j.lives, policies.LifeOf(id, s.Bucket, s.History))
	}
}

// left are the windows of a series that say nothing of how callers peak together:
// those that its policy left out, where it looked at all weeks.
func (j *job) left(ctx context.Context, t *target, c *rlc.Change, h rlc.History) []rlc.Window {
	looks := t.policy != nil && t.policy.Needs().Lookback >= evidence && !slices.Contains([]string{contractual, "recent"}, t.bucket.Policy.Kind)
	if looks && c.Estimate != nil {
		return policies.WindowsOf(c.Flags)
	}
	in := rlc.Input{Service: j.service.Name, Bucket: c.Bucket, Key: c.Key, Now: j.run.Now, Location: j.location, History: h}
	in.Count, in.Exclude = j.judged(c.Bucket, c.Key)
	return policies.Incidents(ctx, in)
}

// silent adds the changes of what had no series: the quotas in force without
// traffic, buckets without each, and buckets with each of which no key came: a
// service that is named otherwise in the metrics must not look like a quiet one.
func (j *job) silent(ctx context.Context, problem rlc.HistoryProblem) {
	for _, id := range sortedKeys(j.current) {
		q := j.current[id]
		if t := j.targets[q.Bucket]; t != nil && !j.seen[id] {
			j.add(t, j.change(ctx, t, q.Key, j.nothing(problem)))
		}
	}
	for _, name := range sortedKeys(j.targets) {
		t := j.targets[name]
		if j.seen[name] || j.keyed[name] && len(t.lacks) == 0 {
			continue
		}
		why := problem
		if len(t.bucket.Each) > 0 && why.Rule == "no_data" {
			why.Detail = fmt.Sprintf("no series of %s in profile %s has %s: no traffic in %d days, or another name in the metrics",
				j.service.Name, j.profile.Name, strings.Join(t.bucket.Each, " and "), int(j.lookback()/day))
		}
		j.add(t, j.change(ctx, t, nil, j.nothing(why)))
	}
}

func (j *job) nothing(problem rlc.HistoryProblem) rlc.History {
	return rlc.History{
		Step: j.profile.Step, From: j.run.Now.Add(-j.lookback()), Until: j.run.Now,
		Problems: []rlc.HistoryProblem{problem},
	}
}

// add keeps a change. Of keys without a quota only as many are kept as may get
// one.
func (j *job) add(t *target, c rlc.Change) {
	j.seen[c.ID()] = true
	if len(c.Key) > 0 {
		j.keyed[c.Bucket] = true
	}
	if c.Old != nil || len(c.Key) == 0 {
		j.changes = append(j.changes, c)
		return
	}
	heap.Push(&t.fresh, c)
	if len(t.fresh) > j.service.MaxQuotas+1 { // the one too many says so
		heap.Pop(&t.fresh)
		t.left++
	}
}

// change decides about a bucket's key over all regions.
func (j *job) change(ctx context.Context, t *target, key rlc.Key, h rlc.History) rlc.Change {
	c := rlc.Change{Bucket: t.bucket.Name, Key: key}
	return j.decide(ctx, t, c, h, nil)
}

// decide asks the policy, guards its answer and replays the history against the
// quota in force and the proposed one. of says which quota it is about; amend,
// if not nil, has a word on what the policy estimates.
func (j *job) decide(ctx context.Context, t *target, of rlc.Change, h rlc.History, amend func(*rlc.Estimate)) rlc.Change {
	id, key := of.ID(), of.Key
	if len(t.lacks) > 0 {
		h.Problems = []rlc.HistoryProblem{{Rule: "attribute_not_in_history",
			Detail: fmt.Sprintf("the metrics of profile %s do not carry %s", j.profile.Name, strings.Join(t.lacks, ", "))}}
	}
	promised := j.promised(t, key, j.now())
	in := rlc.Input{
		Service: j.service.Name, Bucket: t.bucket.Name, Key: key, Now: j.run.Now, Location: j.location, History: h,
		Capacity: j.service.Capacity, Contract: promised, Events: j.service.Events,
	}
	e := policies.Evidence{
		Service: in.Service, Bucket: in.Bucket, Key: key, Now: in.Now, Step: h.Step, Zone: j.location, History: h,
		Guards: t.bucket.Guards, Contract: promised, Capacity: j.service.Capacity, HumanEdit: j.edited[id],
		Lowered: j.past.lowered[id],
	}
	if t.policy != nil {
		e.Lookback = t.policy.Needs().Lookback
	}
	q, inForce := j.inForce(of.Region, id)
	if inForce {
		in.Current, e.Current = &q.Limit, &q
	}
	e.DayAgo, e.DayAgoHours = j.past.at(j.past.day, id)
	e.WeekAgo, e.WeekAgoHours = j.past.at(j.past.week, id)
	for _, r := range j.recent[id] {
		if r.PolicyID == t.hash && r.At.Before(j.run.Now) {
			e.Recent = append(e.Recent, r.Limit)
			if r.Hours != nil {
				e.RecentHours = append(e.RecentHours, *r.Hours)
			}
		}
	}
	in.Count, in.Exclude = j.judged(t.bucket.Name, key)
	e.Exclude = in.Exclude
	input := fingerprint(in, e)
	in.Answer = j.answers[input]
	est, err := rlc.Estimate{}, t.err
	if err == nil {
		est, err = t.policy.Propose(ctx, in)
	}
	if err == nil {
		witness(&est, in)
	}
	if err == nil && amend != nil {
		amend(&est)
	}
	c := policies.Guard(e, est, err)
	c.Region, c.Cap = of.Region, t.bucket.Role == rlc.CapRole
	c.RunID, c.Service, c.Bucket, c.Key, c.At = j.run.ID, j.service.Name, t.bucket.Name, key, j.run.Now
	c.Policy, c.PolicyID, c.InputID = t.bucket.Policy.Kind, t.hash, input
	for _, hour := range h.Hours {
		c.Offered += float64(hour.Mean) * float64(hour.Present) * h.Step.Seconds()
	}
	c.LastHour = lastHour(h)
	if len(h.Hours) > 0 {
		c.Backtest.Old = replay(h, c.Old, c.OldTimed)
		c.Backtest.New = c.Backtest.Old
		if c.New != nil && (c.Old == nil || *c.New != *c.Old || c.NewTimed.Hours != c.OldTimed.Hours) {
			c.Backtest.New = replay(h, c.New, c.NewTimed)
		}
	}
	return c
}

// inForce is the quota in force with this ID, of one region or of all.
func (j *job) inForce(region, id string) (rlc.Quota, bool) {
	if region != "" {
		q, ok := j.regional[id]
		return q, ok
	}
	q, ok := j.current[id]
	return q, ok
}

// judged are the windows of a quota's history that count by a person's word, and
// those that are left out: declared incidents, events, and what a person said.
func (j *job) judged(bucket string, key rlc.Key) (count, exclude []rlc.Window) {
	exclude = slices.Clone(j.exclude)
	for _, v := range j.verdicts {
		if v.Bucket == bucket && v.Key.Equal(key) {
			count, exclude = judge(count, exclude, v)
		}
	}
	return count, exclude
}

// judge files a person's verdict. The last word on a window wins.
func judge(count, exclude []rlc.Window, v rlc.Verdict) (_, _ []rlc.Window) {
	same := func(w rlc.Window) bool { return w.From.Equal(v.From) && w.Until.Equal(v.Until) }
	count, exclude = slices.DeleteFunc(count, same), slices.DeleteFunc(exclude, same)
	if v.Count {
		return append(count, v.Window), exclude
	}
	return count, append(exclude, v.Window)
}

// replay is nil where there is no limit. timed is what the quota has beside it.
func replay(h rlc.History, limit *rlc.Limit, timed rlc.Timed) *rlc.Backtest {
	if limit == nil {
		return nil
	}
	b := backtest.FromTimed(h, *limit, timed)
	if n := len(b.Episodes) - mostEpisodes; n > 0 {
		byDrops := slices.SortedStableFunc(slices.Values(b.Episodes), func(a, b rlc.Episode) int { return cmp.Compare(b.Drops, a.Drops) })
		b.Episodes = byDrops[:mostEpisodes]
		slices.SortFunc(b.Episodes, func(a, b rlc.Episode) int { return a.From.Compare(b.From) })
		b.Omitted = n
	}
	return &b
}

// lastHour is the mean of the last clock hour that has ended, nil where it has
// no sample.
func lastHour(h rlc.History) *rlc.Rate {
	last := h.Until.Truncate(time.Hour).Add(-time.Hour)
	for _, hour := range slices.Backward(h.Hours) {
		if hour.Start.Equal(last) && hour.Present > 0 {
			return &hour.Mean
		}
	}
	return nil
}

// fingerprint identifies what the policy and the guards saw: equal inputs have
// equal ones.
func fingerprint(in rlc.Input, e policies.Evidence) string {
	h := in.History
	in.History.Hours, in.History.Tail = nil, nil
	e.History = rlc.History{}
	sum := sha256.New()
	// Marshalling fails on no input: there is no NaN in what we parsed.
	text, err := json.Marshal(struct {
		Input    rlc.Input
		Zone     string
		Evidence policies.Evidence
	}{in, in.Location.String(), e})
	if err != nil {
		text = fmt.Appendf(nil, "%+v %+v", in, e)
	}
	sum.Write(text)
	hashHistory(sum, h)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
