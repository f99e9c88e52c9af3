package app

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/internal/scheduler"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/quotafile"
)

// summaries keeps one row per service for the lists, so that no page computes
// over all services. Structure changes with heads and runs; counts follow the
// enforcers' counters.
type summaries struct {
	mu   sync.Mutex
	rows map[string]*rlc.ServiceSummary
	// By service: buckets in shadow that may be ready to enforce.
	candidates map[string]map[string]candidate
	readied    map[string]readied // of counts alone, which one goroutine calls
	since      sync.Map           // a bucket of a service to when it went to shadow, while it stays there
}

// countEvery is how often the enforcers' counts are read.
const countEvery = 10 * time.Second

// rebuild recomputes the rows of services (nil: all) and saves them, where this
// replica leads.
func (s *summaries) rebuild(ctx context.Context, a *App, services []string) error {
	_, c := a.Desired()
	if c == nil || !a.leads.Load() {
		return nil
	}
	all := services == nil
	if all {
		for _, svc := range c.Services {
			services = append(services, svc.Name)
		}
		for name := range c.Broken {
			services = append(services, name)
		}
		slices.Sort(services)
		services = slices.Compact(services)
	}
	var rows []rlc.ServiceSummary
	for _, name := range services {
		row, candidates, err := a.summarise(ctx, name)
		if err != nil {
			return fmt.Errorf("summary of %s: %w", name, err)
		}
		s.mu.Lock()
		if old := s.rows[name]; old != nil {
			row.VirtualDrops, row.Drops, row.Counted = old.VirtualDrops, old.Drops, old.Counted
			row.Ready = slices.DeleteFunc(slices.Clone(old.Ready), func(b rlc.ReadyBucket) bool { _, still := candidates[b.Bucket]; return !still })
		}
		if s.rows == nil {
			s.rows, s.candidates = map[string]*rlc.ServiceSummary{}, map[string]map[string]candidate{}
		}
		s.candidates[name] = candidates
		s.rows[name] = &row
		s.mu.Unlock()
		rows = append(rows, row)
	}
	records := a.Records.Fenced(a.epoch.Load())
	if err := records.SaveSummaries(ctx, rows); err != nil {
		return err
	}
	if !all {
		return nil
	}
	return records.DropSummaries(ctx, services)
}

// summarise computes one service's row from the base branch, the last run and
// the stored sketches, and which buckets may be ready to enforce.
func (a *App) summarise(ctx context.Context, name string) (rlc.ServiceSummary, map[string]candidate, error) {
	_, c := a.Desired()
	row := rlc.ServiceSummary{Name: name, Updated: time.Now().UTC()}
	for _, p := range c.Broken[name] {
		if !p.Warning {
			row.Problem = p.String()
			break
		}
	}
	quotas := c.Quotas[name]
	row.Desired = len(quotas)
	buckets := map[string]float64{}
	svc := c.Service(name)
	if svc != nil {
		row.Owners = svc.Owners
		if svc.Capacity != nil {
			row.Capacity = svc.Capacity.Rate
		}
		row.Buckets = len(svc.Buckets)
		for _, b := range svc.Buckets {
			if b.Mode == rlc.Enforce {
				row.Enforcing++
			}
		}
	}
	whole := overallOf(quotas)
	for _, q := range quotas {
		buckets[q.Bucket] += float64(q.Rate)
		if svc != nil {
			if b := svc.Bucket(q.Bucket); b != nil && b.Role == rlc.CapRole {
				continue
			}
		}
		if !whole.part(q) {
			row.LimitSum += q.Rate
		}
	}
	for b, sum := range buckets {
		a.metrics.quota.WithLabelValues(name, b).Set(sum)
	}
	changes, err := a.Records.LatestChanges(ctx, name)
	if err != nil {
		return row, nil, err
	}
	addTraffic(&row, c, changes)
	candidates, err := a.addWaiting(ctx, &row, c, changes)
	if err != nil {
		return row, nil, err
	}
	open, _, err := a.Records.Proposals(ctx, rlc.Open, name, rlc.Page{Size: 1})
	if err != nil {
		return row, nil, err
	}
	if len(open) > 0 {
		row.OpenReview, row.ReviewSince = open[0].ID, open[0].Created
	}
	row.Week, err = a.week(ctx, name, row.Updated.Truncate(time.Hour))
	return row, candidates, err
}

// addTraffic adds what the newest changes of a service say of its traffic, held
// against the limits of c. Caps count what quotas count already.
func addTraffic(row *rlc.ServiceSummary, c *quotafile.Config, changes []rlc.Change) {
	svc, whole := c.Service(row.Name), overallOf(c.Quotas[row.Name])
	for _, ch := range changes {
		if ch.Held != "" {
			row.Held++
		}
		cap := svc != nil && svc.Bucket(ch.Bucket) != nil && svc.Bucket(ch.Bucket).Role == rlc.CapRole
		if cap {
			continue
		}
		seen, hour, offered := ch.LastSeen(), ch.LastHour, ch.Offered
		if ch.Failed { // else nothing came, which is known
			hour, offered = seen.LastHour, seen.Offered
			if ch.Seen != nil && (row.SeenAt.IsZero() || seen.At.Before(row.SeenAt)) {
				row.SeenAt = seen.At
			}
		}
		q := c.QuotaByID(row.Name, ch.ID())
		if !whole.part(rlc.Quota{Bucket: ch.Bucket, Key: ch.Key, Region: ch.Region}) {
			row.Requests += offered
			if hour != nil {
				if row.Offered == nil {
					row.Offered = new(rlc.Rate)
				}
				*row.Offered += *hour
			}
			if q != nil {
				row.Limited += offered
			}
		}
		if q == nil || q.Rate <= 0 || seen.Peak.Rate <= 0 {
			continue
		}
		limit := q.At(seen.Peak.At).Rate // that of the peak's hour
		if row.Known++; rlc.Fits(limit, seen.Peak.Rate) {
			row.Fitting++
		}
		if row.Spread == nil {
			row.Spread = make([]int, len(rlc.Multiples())+1)
		}
		row.Spread[rlc.Multiple(limit, seen.Peak.Rate)]++
		share, _ := q.Timed().Headroom(&q.Limit, seen.Peak)
		headroom := rlc.Ratio(share)
		if row.Headroom == nil || headroom < *row.Headroom {
			row.Headroom, row.HeadroomAt = &headroom, ch.ID()
		}
	}
}

// week is a service's seven days before until: the sum over its quota series,
// held against the limits of today.
func (a *App) week(ctx context.Context, service string, until time.Time) (rlc.Trend, error) {
	_, c := a.Desired()
	svc := c.Service(service)
	from := until.Add(-7 * 24 * time.Hour)
	series, err := a.newest(ctx, service, svc)
	if err != nil {
		return rlc.Trend{}, err
	}
	promotions, err := a.Records.Promotions(ctx, service)
	if err != nil {
		return rlc.Trend{}, err
	}
	var parts []stat.Part
	for id, k := range series {
		days, err := a.Records.Days(ctx, k.ID, from, until)
		if err != nil {
			return rlc.Trend{}, err
		}
		bucket := svc.Bucket(k.Bucket)
		part := stat.Part{Shadow: until}
		if bucket.Mode == rlc.Enforce {
			part.Shadow = rollout.EnforcedSince(promotions, bucket.Name)
		}
		for _, d := range days {
			part.Hours = append(part.Hours, d.Hours...)
		}
		if q := c.QuotaByID(service, id); q != nil {
			part.Limit = q.Rate
		} else if bucket.Limit != nil {
			part.Limit = bucket.Limit.Rate
		}
		parts = append(parts, part)
	}
	return stat.Trend(parts, from, until), nil
}

// newest are the series of a service's quotas by the quota's ID. A policy edit
// gives a quota a new series; the old one is no longer read.
func (a *App) newest(ctx context.Context, service string, svc *rlc.Service) (map[string]rlc.SeriesKey, error) {
	series, err := a.Records.SeriesOf(ctx, service)
	if err != nil {
		return nil, err
	}
	sealed, err := a.Records.SealedUntil(ctx, service)
	if err != nil {
		return nil, err
	}
	newest := map[string]rlc.SeriesKey{}
	for _, k := range series {
		if svc == nil || svc.Bucket(k.Bucket) == nil || svc.Bucket(k.Bucket).Role == rlc.CapRole || len(k.Key) > len(svc.Bucket(k.Bucket).Each) {
			continue // the last one is a region's own, and part of another
		}
		id := rlc.QuotaID(k.Bucket, k.Key)
		if old, ok := newest[id]; !ok || sealed[k.ID].After(sealed[old.ID]) {
			newest[id] = k
		}
	}
	return newest, nil
}

// count follows the enforcers' counters and the history source until ctx ends.
func (a *App) count(ctx context.Context) error {
	schedule, err := scheduler.ParseSchedule(a.Config.Schedule)
	if err != nil {
		return err
	}
	for {
		a.probe(ctx)
		a.room()
		a.spot(ctx)
		if err := a.begun(ctx); err != nil && ctx.Err() == nil {
			a.log.Debug("first policies that wait", "err", err)
		}
		if since := a.status.silence(time.Now(), schedule); a.leads.Load() && !since.IsZero() {
			a.status.set("silence", "warn", "No run has ended well for more than two of the schedule's intervals.", "the last one did at "+since.UTC().Format(time.RFC3339)+", or the server started then")
		} else {
			a.status.clear("silence")
		}
		if err := a.share(ctx); err != nil && ctx.Err() == nil {
			a.log.Debug("share troubles", "err", err)
		}
		if err := a.counts(ctx); err != nil && ctx.Err() == nil {
			a.log.Debug("counts", "err", err)
		}
		if err := a.score(ctx, time.Now()); err != nil && ctx.Err() == nil {
			a.log.Debug("scores", "err", err)
		}
		if _, n, err := a.Records.Proposals(ctx, rlc.Open, "", rlc.Page{Size: 1}); err == nil {
			a.metrics.proposals.Set(float64(n))
		}
		if !wait(ctx, countEvery) {
			return nil
		}
	}
}

func (a *App) counts(ctx context.Context) error {
	if !a.leads.Load() {
		return nil
	}
	counts, err := a.History.Counts(ctx, "", 24*time.Hour, time.Now())
	if err != nil {
		return err
	}
	type sums struct{ offered, drops, virtual float64 }
	by := map[string]sums{}
	for _, c := range counts {
		s := by[c.Service]
		s.offered += c.Offered
		s.drops += c.Drops
		s.virtual += c.VirtualDrops
		by[c.Service] = s
	}
	var changed []rlc.ServiceSummary
	s := &a.summaries
	ready := a.readyNow(ctx)
	s.mu.Lock()
	for name, row := range s.rows {
		n := by[name]
		if row.Drops == n.drops && row.VirtualDrops == n.virtual && row.Counted == n.offered && slices.Equal(row.Ready, ready[name]) {
			continue
		}
		row.Ready = ready[name]
		row.Drops, row.VirtualDrops, row.Counted = n.drops, n.virtual, n.offered
		changed = append(changed, *row)
	}
	s.mu.Unlock()
	if len(changed) == 0 {
		return nil
	}
	return a.Records.Fenced(a.epoch.Load()).SaveSummaries(ctx, changed)
}
