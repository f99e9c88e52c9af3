package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// earlier is what stood before a run.
type earlier struct {
	day, week rlc.Files // the config repository a day and a week ago; nil where it did not exist
	month     rlc.Files // and 28 days ago
	run       time.Time // now of the last run over the same services; zero where there was none
}

func (p *Planner) earlier(ctx context.Context, run *rlc.Run) (*earlier, error) {
	at := func(t time.Time) (rlc.Files, error) {
		files, err := p.cfg.Repo.At(ctx, t)
		if errors.Is(err, rlc.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the config repository of %s: %w", t.Format(time.RFC3339), err)
		}
		return files, nil
	}
	var was earlier
	var err error
	if was.day, err = at(run.Now.Add(-day)); err != nil {
		return nil, err
	}
	if was.week, err = at(run.Now.Add(-7 * day)); err != nil {
		return nil, err
	}
	if was.month, err = at(run.Now.Add(-keptVanished)); err != nil {
		return nil, err
	}
	runs, _, err := p.cfg.Records.Runs(ctx, rlc.Page{Number: 1, Size: 20})
	if err != nil {
		return nil, fmt.Errorf("look for the run before: %w", err)
	}
	for _, r := range runs {
		if r.Stage != rlc.Claimed && r.Result != rlc.ResultFailed && covers(r, *run) && r.Now.Before(run.Now) && r.Now.After(was.run) {
			was.run = r.Now
		}
	}
	return &was, nil
}

// past is what the step guards measure a service's quotas against, by quota ID.
type past struct {
	day, week map[string]stood // in force a day and a week ago
	month     map[string]stood // in force when a caller must have been there to count as gone
	first     map[string]stood // the first limit of quotas that are younger than a week
	lowered   map[string]bool  // lowered within the last day
}

// stood is what was in force at an earlier time.
type stood struct {
	limit rlc.Limit
	hours *rlc.QuotaHours
}

func (p *Planner) past(ctx context.Context, now time.Time, was *earlier, service string) (*past, error) {
	x := &past{
		day: limits(was.day, service), week: limits(was.week, service), month: limits(was.month, service),
		first: map[string]stood{}, lowered: map[string]bool{},
	}
	// What was merged within the week, the newest first.
	const size = 5
	for number := 1; ; number++ {
		merged, _, err := p.cfg.Records.Proposals(ctx, rlc.Accepted, service, rlc.Page{Number: number, Size: size})
		if err != nil {
			return nil, fmt.Errorf("look for accepted proposals of %s: %w", service, err)
		}
		for _, m := range merged {
			for _, c := range m.Changes {
				switch {
				case c.New == nil:
				case c.Old == nil:
					x.first[c.ID()] = stood{*c.New, c.NewTimed.Hours}
				case now.Sub(m.Decided) < day && policies.LowersRate(&c):
					x.lowered[c.ID()] = true
				}
			}
		}
		if len(merged) < size || now.Sub(merged[size-1].Decided) > 7*day {
			return x, nil
		}
	}
}

// at is the limit that a quota had then, or its first one where it is younger,
// with its hours; nil where neither is known.
func (x *past) at(then map[string]stood, id string) (*rlc.Limit, *rlc.QuotaHours) {
	for _, of := range []map[string]stood{then, x.first} {
		if s, ok := of[id]; ok {
			return &s.limit, s.hours
		}
	}
	return nil, nil
}

// limits are the limits that a service had in these files, by quota ID.
func limits(files rlc.Files, service string) map[string]stood {
	quotas := quotasOf(files, service)
	byID := make(map[string]stood, len(quotas))
	for _, q := range quotas {
		byID[q.ID()] = stood{q.Limit, q.Hours}
	}
	return byID
}

// quotasOf are the quotas of a service in these files. Of an invalid quotas.yaml
// nothing is known.
func quotasOf(files rlc.Files, service string) []rlc.Quota {
	name := quotafile.QuotasPath(service)
	_, quotas, problems := quotafile.ParseQuotas(name, files[name])
	if slices.ContainsFunc(problems, func(p rlc.Problem) bool { return !p.Warning }) {
		return nil
	}
	return quotas
}
