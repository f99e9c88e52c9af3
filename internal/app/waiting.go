package app

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

// mostJudged are the quotas whose episodes one service's row counts, those with the
// most would-be drops first, as its page Shadow does.
const mostJudged = 50

// candidate is a bucket in shadow with what records say of it, and the share of its
// requests that the replay drops.
type candidate struct {
	facts rollout.Facts
	share rlc.Ratio
}

// addWaiting adds to a service's row the episodes of its quotas in shadow that
// nobody judged or put off, and returns its buckets in shadow that may be ready to
// enforce.
func (a *App) addWaiting(ctx context.Context, row *rlc.ServiceSummary, c *quotafile.Config, changes []rlc.Change) (map[string]candidate, error) {
	svc := c.Service(row.Name)
	if svc == nil {
		return nil, nil
	}
	var shadow []rlc.Change
	for _, ch := range changes {
		b, q := svc.Bucket(ch.Bucket), c.QuotaByID(row.Name, ch.ID())
		if b != nil && q != nil && (b.Mode == rlc.Shadow || q.Mode == rlc.Shadow) && inForce(ch, q.Limit) != nil {
			shadow = append(shadow, ch)
		}
	}
	if len(shadow) == 0 {
		return nil, nil
	}
	drops := func(ch rlc.Change) float64 { return inForce(ch, c.QuotaByID(row.Name, ch.ID()).Limit).Drops }
	slices.SortStableFunc(shadow, func(x, y rlc.Change) int { return int(min(max(drops(y)-drops(x), -1), 1)) })
	sure := len(shadow) <= mostJudged || drops(shadow[mostJudged]) == 0 // no episode is left unread
	shadow = slices.DeleteFunc(shadow[:min(len(shadow), mostJudged)], func(ch rlc.Change) bool { return drops(ch) == 0 })
	whole, err := a.Records.WithEpisodes(ctx, shadow)
	if err != nil {
		return nil, err
	}
	verdicts, err := a.Records.Verdicts(ctx, row.Name)
	if err != nil {
		return nil, err
	}
	asleep, err := web.Snoozed(ctx, a.Records, row.Name, row.Updated)
	if err != nil {
		return nil, err
	}
	for _, ch := range whole {
		for _, e := range inForce(ch, c.QuotaByID(row.Name, ch.ID()).Limit).Episodes {
			e.Bucket, e.Key = rlc.Quota{Bucket: ch.Bucket, Region: ch.Region}.Place(), ch.Key
			if _, off := asleep[web.EpisodeID(e.Bucket, e.Key, e.From)]; !off && unjudged([]rlc.Episode{e}, ch, verdicts) > 0 {
				row.Unjudged++
				row.UnjudgedDrops += e.Drops
			}
		}
	}
	if !sure {
		return nil, nil
	}
	changes = slices.Clone(changes)
	for i := range changes {
		if at := slices.IndexFunc(whole, func(ch rlc.Change) bool { return ch.ID() == changes[i].ID() }); at >= 0 {
			changes[i] = whole[at]
		}
	}
	out := map[string]candidate{}
	for _, b := range svc.Buckets {
		if b.Mode != rlc.Shadow {
			continue
		}
		f, share := factsOf(c, row.Name, b.Name, changes, verdicts)
		if f.Quotas > 0 && f.Unjudged == 0 && f.Coverage != nil {
			out[b.Name] = candidate{f, share}
		}
	}
	return out, nil
}

// A service is looked at again for what is ready after readyEvery, the one that was
// looked at longest ago first, and readyAtOnce of them at a time: each costs a query
// of its counters, and the first time the history of its policy.
const (
	readyEvery  = 30 * time.Second
	readyAtOnce = 5
)

// readied is what was ready of a service, and when it was looked at.
type readied struct {
	at    time.Time
	ready []rlc.ReadyBucket
}

// ready are the buckets of a service, of those in all, whose checklist lacks only
// somebody's word.
func (a *App) ready(ctx context.Context, c *quotafile.Config, service string, all map[string]candidate, now time.Time) (out []rlc.ReadyBucket, err error) {
	s := &a.summaries
	counts, err := a.History.Counts(ctx, service, 24*time.Hour, now)
	if err != nil {
		return nil, err
	}
	for _, b := range c.Service(service).Buckets {
		id := rlc.QuotaID(service, rlc.Key{"bucket": b.Name})
		if b.Mode != rlc.Shadow {
			s.since.Delete(id)
			continue
		}
		one, ok := all[b.Name]
		if !ok {
			continue
		}
		f := one.facts
		f.Now, f.Word, f.Entitled = now, "an owner", true
		f.Offered, f.Joined = joined(c, service, b.Name, counts)
		f.Since = now.AddDate(-100, 0, 0) // that costs most to find out: last
		if !rollout.Open(rollout.Gate(f, a.rules())) {
			continue
		}
		if at, known := s.since.Load(id); known {
			f.Since = at.(time.Time)
		} else if f.Since, err = a.inShadowSince(ctx, service, b.Name); err != nil {
			return nil, err
		} else {
			s.since.Store(id, f.Since)
		}
		if rollout.Open(rollout.Gate(f, a.rules())) {
			out = append(out, rlc.ReadyBucket{Bucket: b.Name, Since: f.Since, Share: one.share})
		}
	}
	return out, nil
}

// readyNow is what is ready of each service that has candidates, as it was last
// looked at. Of one that cannot be looked at it is what was known, and the others
// have their turn.
func (a *App) readyNow(ctx context.Context) map[string][]rlc.ReadyBucket {
	s := &a.summaries
	s.mu.Lock()
	all := maps.Clone(s.candidates)
	s.mu.Unlock()
	_, c := a.Desired()
	maps.DeleteFunc(all, func(name string, some map[string]candidate) bool {
		return len(some) == 0 || c == nil || c.Service(name) == nil
	})
	known := map[string]readied{} // of them alone
	for name := range all {
		known[name] = s.readied[name]
	}
	s.readied = known
	now := time.Now().UTC()
	names := slices.SortedFunc(maps.Keys(all), func(x, y string) int {
		return cmp.Or(known[x].at.Compare(known[y].at), strings.Compare(x, y))
	})
	for _, name := range names[:min(len(names), readyAtOnce)] {
		if now.Sub(known[name].at) < readyEvery {
			break
		}
		ready, err := a.ready(ctx, c, name, all[name], now)
		if err != nil {
			a.log.Warn("look for buckets that may enforce", "service", name, "err", err)
			ready = known[name].ready
		}
		known[name] = readied{now, ready}
	}
	out := map[string][]rlc.ReadyBucket{}
	for name, x := range known {
		for _, b := range x.ready {
			if _, still := all[name][b.Bucket]; still {
				out[name] = append(out[name], b)
			}
		}
	}
	return out
}

// Recount sums a service up anew for the lists, where this replica leads.
func (a *App) Recount(ctx context.Context, service string) error {
	return a.summaries.rebuild(ctx, a, []string{service})
}
