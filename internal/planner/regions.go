package planner

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
)

// region is the attribute that tells a metric's region.
const region = "region"

// regions adds the quotas of single regions, where a bucket counts by region, a
// failover is declared and the metrics tell the region: the most that a region
// needs, on its own or when another one is lost. A bucket that counts by region
// otherwise has one quota that each region may use, because nobody said how
// much of the rest a region may have to take; its change says so.
//
// Histories by region are read twice, because none is kept: what each region
// asks for must be known before the first one is decided.
func (j *job) regions(ctx context.Context, changes *[]rlc.Change) error {
	split := *j.service
	split.Buckets = slices.Clone(split.Buckets)
	which := map[string]bool{}
	for i := range split.Buckets {
		b := &split.Buckets[i]
		if j.targets[b.Name] == nil || b.Scope != rlc.ScopeRegion || b.Role == rlc.CapRole || b.Policy.Kind == contractual {
			continue
		}
		switch why := j.undivided(b); why {
		case "":
			which[b.Name] = true
			b.Each = append(slices.Clone(b.Each), region)
			b.Match = maps.Clone(b.Match)
			if b.Match == nil {
				b.Match = map[string]rlc.Pattern{}
			}
			b.Match[region] = rlc.Pattern{Kind: rlc.Present}
		default:
			j.note(*changes, b.Name, why)
		}
	}
	if len(which) == 0 {
		return nil
	}
	req := rlc.HistoryRequest{Service: &split, Profile: j.profile, Lookback: j.lookback(), Now: j.run.Now}
	read := func(yield func(t *target, of rlc.Change, h rlc.History)) error {
		return j.p.cfg.History.Service(ctx, req, func(s rlc.Series) error {
			if t := j.targets[s.Bucket]; which[s.Bucket] && s.Key[region] != "" {
				of := rlc.Change{Bucket: s.Bucket, Region: s.Key[region]}
				if delete(s.Key, region); len(s.Key) > 0 {
					of.Key = s.Key
				}
				yield(t, of, s.History)
			}
			return ctx.Err()
		})
	}
	own := map[string]map[string]rlc.Rate{} // by quota ID over all regions, then region
	err := read(func(t *target, of rlc.Change, h rlc.History) {
		if c := j.decide(ctx, t, of, h, nil); c.Estimate != nil && len(h.Problems) == 0 {
			id := rlc.QuotaID(of.Bucket, of.Key)
			if own[id] == nil {
				own[id] = map[string]rlc.Rate{}
			}
			own[id][of.Region] = c.Estimate.Rate
		}
	})
	if err != nil {
		return err
	}
	whole := make(map[string]*rlc.Change, len(*changes))
	for i := range *changes {
		whole[(*changes)[i].ID()] = &(*changes)[i]
	}
	var found []rlc.Change
	err = read(func(t *target, of rlc.Change, h rlc.History) {
		id := rlc.QuotaID(of.Bucket, of.Key)
		all := whole[id]
		if all == nil || all.New == nil && all.Old == nil {
			return // without a quota over all regions none has its own
		}
		c := j.decide(ctx, t, of, h, func(est *rlc.Estimate) { failOver(est, of.Region, own[id], all, j.service.Failover) })
		atMost(&c, all)
		found = append(found, c)
	})
	*changes = append(*changes, found...)
	slices.SortFunc(*changes, byQuota)
	return err
}

// undivided says why a bucket that counts by region has one quota for each of
// them, "" where it has one of its own for each.
func (j *job) undivided(b *rlc.Bucket) string {
	switch {
	case slices.Contains(b.Each, region):
		return "its keys name the region already"
	case len(j.service.Failover) == 0:
		return "no failover is declared"
	case len(j.profile.Attributes[region].Metric) == 0:
		return "the metrics of profile " + j.profile.Name + " do not tell the region"
	}
	return ""
}

// note says with each of a bucket's quotas that any region may use the whole.
func (j *job) note(changes []rlc.Change, bucket, why string) {
	for i := range changes {
		if c := &changes[i]; c.Bucket == bucket && c.New != nil {
			c.Reasons = append(c.Reasons, rlc.Reason{Rule: "failover", Rate: c.New.Rate, Detail: why + ": each region may use the whole quota"})
		}
	}
}

// failOver amends a region's estimate by what it receives when another one is
// lost. It never receives more than all regions have together: while a region is
// away, the others' own traffic holds its share already.
func failOver(est *rlc.Estimate, name string, own map[string]rlc.Rate, all *rlc.Change, failovers []rlc.Failover) {
	own = maps.Clone(own)
	if own == nil {
		own = map[string]rlc.Rate{}
	}
	own[name] = est.Limit.Rate
	rate, why, unknown := policies.Regional(name, own, failovers)
	if len(unknown) > 0 && est.NoDecrease == "" {
		est.NoDecrease = "what " + strings.Join(unknown, " and ") + " would send on a failover is not known"
	}
	if why == "" {
		return
	}
	if all.New != nil && rate > all.New.Rate {
		rate = max(est.Limit.Rate, all.New.Rate)
		why += ", no more than the quota over all regions"
	}
	if est.Limit.Rate > 0 {
		est.Limit.Burst = rlc.Burst(math.Ceil(min(float64(est.Limit.Burst)*float64(rate/est.Limit.Rate), rlc.MaxRate) - 1e-6))
	}
	if f := est.Forecast; f != nil && f.Rates != nil { // a lost region may come at any hour
		more := *f
		more.Rates = slices.Clone(f.Rates)
		for i := range more.Rates {
			more.Rates[i] += rate - est.Limit.Rate
		}
		est.Forecast = &more
	}
	est.Limit.Rate = rate
	est.Why += " + " + why
	est.Steps = append(est.Steps, rlc.Reason{Rule: "failover", Detail: "+ " + why, Rate: rate, Acted: true})
}

// atMost keeps a region's quota at or below the one over all regions, which a
// guard may have cut further.
func atMost(c, all *rlc.Change) {
	if c.New == nil || c.Held != "" || all.New == nil || c.New.Rate <= all.New.Rate {
		return
	}
	c.New = &rlc.Limit{Rate: all.New.Rate, Burst: min(c.New.Burst, all.New.Burst)}
	detail := "no more than the quota over all regions"
	c.Reasons = append(c.Reasons, rlc.Reason{Rule: "failover", Detail: detail, Rate: c.New.Rate, Acted: true})
	c.Look, c.Why = joined(c.Look, all.Look), joined(c.Why, detail)
}
