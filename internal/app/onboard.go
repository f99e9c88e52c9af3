package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/web"
)

// spotted are the services that metrics name and no policy is about.
type spotted struct {
	mu      sync.Mutex
	at      time.Time
	profile map[string]string // service to the profile whose metrics name it
	err     error
	waiting []string // of them, those whose first policy waits on gitsync.FirstBranch
}

// spotEvery is how often metrics are asked which services they name; spotAgain
// is after how long, where that failed.
const (
	spotEvery = 5 * time.Minute
	spotAgain = time.Minute
)

// most first limits that are computed for a page.
const mostSuggested = 200

// Unmanaged are the services that metrics name and no policy is about, as of
// the last look; the zero time before the first.
func (a *App) Unmanaged() (names []string, at time.Time, err error) {
	_, c := a.Desired()
	s := &a.spotted
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.profile {
		if c == nil || c.Service(name) == nil && c.Broken[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, s.at, s.err
}

// Begun are the services of Unmanaged whose first policies wait on a branch to be
// merged, and that branch; as of the last look.
func (a *App) Begun() (services []string, branch string) {
	a.spotted.mu.Lock()
	defer a.spotted.mu.Unlock()
	return a.spotted.waiting, gitsync.FirstBranch
}

// begun looks which services have a first policy that waits.
func (a *App) begun(ctx context.Context) error {
	names, _, _ := a.Unmanaged()
	if len(names) > 0 {
		waiting, err := a.Repo.FirstOf(ctx, names)
		if err != nil {
			return err
		}
		names = waiting
	}
	a.spotted.mu.Lock()
	a.spotted.waiting = names
	a.spotted.mu.Unlock()
	return nil
}

// spot asks, where the last look is old, which services the metrics name, by
// the profiles that policies use.
func (a *App) spot(ctx context.Context) {
	s := &a.spotted
	now := time.Now().UTC()
	_, c := a.Desired()
	s.mu.Lock()
	due := now.Sub(s.at) >= spotEvery || s.err != nil && now.Sub(s.at) >= spotAgain
	s.mu.Unlock()
	if c == nil || !due {
		return
	}
	used := map[string]bool{"rlc": true}
	for _, svc := range c.Services {
		used[svc.Profile] = true
	}
	found := map[string]string{}
	var errs []error
	for _, profile := range slices.Sorted(maps.Keys(used)) {
		p := c.Profiles[profile]
		if p == nil {
			continue
		}
		names, err := a.History.Services(ctx, p, now.Add(-24*time.Hour), now)
		if err != nil {
			errs = append(errs, fmt.Errorf("profile %s: %w", profile, err))
		}
		for _, name := range names {
			if found[name] == "" {
				found[name] = profile
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.err = now, errors.Join(errs...)
	if s.err == nil || len(found) > 0 {
		s.profile = found
	}
}

// sight finds a service that has no policy.
func (a *App) sight(ctx context.Context, name string, now time.Time) (Sighted, *rlc.Profile, error) {
	_, c := a.Desired()
	a.spotted.mu.Lock()
	profile := a.spotted.profile[name]
	a.spotted.mu.Unlock()
	if c == nil || profile == "" || c.Profiles[profile] == nil {
		return Sighted{}, nil, fmt.Errorf("%w: metrics name no service %q", rlc.ErrNotFound, name)
	}
	if c.Service(name) != nil || c.Broken[name] != nil {
		return Sighted{}, nil, fmt.Errorf("%w: %q has a policy", rlc.ErrConflict, name)
	}
	one, err := Sight(ctx, a.History, c.Profiles[profile], name, now)
	return one, c.Profiles[profile], err
}

// Look is what a first run would make of a service that has no policy. It
// reads four weeks of history and keeps what it read, as a run does: the first
// run reads only what is new. Where ctx ends first, limits are missing and a
// doubt says so.
func (a *App) Look(ctx context.Context, name string) (web.Sighting, error) {
	now := time.Now().UTC().Truncate(time.Minute)
	one, p, err := a.sight(ctx, name, now)
	if err != nil {
		return web.Sighting{}, err
	}
	out := web.Sighting{Profile: p.Name, Each: one.Each, Why: one.Why, Rate: one.Rate, Doubts: one.Doubts, Policy: string(one.Policy(p.Name, nil))}
	spec := rlc.PolicySpec{Kind: "historical"}
	policy, err := a.policies.New(spec)
	if err != nil {
		return out, err
	}
	err = a.History.Service(ctx, sightRequest(p, name, one.bucket(), now, one.each()...), func(s rlc.Series) error {
		if len(out.Limits) == mostSuggested {
			out.More++
			return nil
		}
		est, perr := policy.Propose(ctx, rlc.Input{Service: name, Bucket: s.Bucket, Key: s.Key, Now: now, History: s.History})
		c := policies.Guard(policies.Evidence{Service: name, Bucket: s.Bucket, Key: s.Key, Now: now, Step: p.Step, History: s.History}, est, perr)
		row := web.FirstLimit{Bucket: s.Bucket, Key: s.Key, Peak: c.Peak.Rate, Coverage: c.Coverage, Limit: c.New, Why: c.Why}
		if c.Held != "" {
			row.Limit, row.Why = nil, c.HeldWhy
		}
		days := map[string]bool{}
		for _, h := range s.History.Hours {
			if h.Present > 0 {
				days[h.Start.Format(time.DateOnly)] = true
			}
		}
		row.Days = len(days)
		out.Limits = append(out.Limits, row)
		return nil
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		out.Doubts = append(out.Doubts, "four weeks of its history take longer to read than a page may: limits are missing here, and the first run, which has minutes, proposes them")
	default:
		out.Doubts = append(out.Doubts, "history cannot be read whole: "+err.Error())
	}
	slices.SortStableFunc(out.Limits, func(x, y web.FirstLimit) int {
		switch {
		case x.Peak > y.Peak:
			return -1
		case x.Peak < y.Peak:
			return 1
		}
		return strings.Compare(x.Key.String(), y.Key.String())
	})
	return out, nil
}

// Onboard commits a first policy of a service, all in shadow, as actor's act.
// The follower runs it, and its numbers are put up for review.
func (a *App) Onboard(ctx context.Context, name string, owners []string, actor string) error {
	if err := a.mayAct(); err != nil {
		return err
	}
	one, p, err := a.sight(ctx, name, time.Now().UTC())
	if err != nil {
		return err
	}
	return a.firstPolicy(ctx, "onboard", name, one.Policy(p.Name, owners), actor)
}

// Ask records that a person asks for a higher limit, and tells the owners of
// the service. The limit stays. An act whose id is recorded is the same ask,
// taken by another replica: neither it nor the notice is doubled.
func (a *App) Ask(ctx context.Context, act rlc.AuditEntry, told rlc.Notice) error {
	if err := a.Records.AddAudit(ctx, act); err != nil && !errors.Is(err, rlc.ErrConflict) {
		return err
	}
	told.URL = a.URL + "/services/" + pathEscape(told.Service) + "#asked"
	return a.tell(ctx, told)
}
