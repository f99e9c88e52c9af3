package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

const day = 24 * time.Hour

// head is the config repository at the run's commit.
type head struct {
	commit rlc.Commit
	config *quotafile.Config

	promises map[string][]string        // caller to the names of its contracts, sorted
	namedBy  map[string]map[string]bool // contract to the services whose policies name it
}

func (p *Planner) head(ctx context.Context) (*head, error) {
	commit, files, err := p.cfg.Repo.Head(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the config repository: %w", err)
	}
	h := &head{commit: commit, config: quotafile.Parse(files, p.cfg.Policies.Check)}
	h.index()
	return h, nil
}

// services names every service that has a policy or quotas, also broken ones,
// sorted.
func (h *head) services() []string {
	names := map[string]bool{}
	for _, s := range h.config.Services {
		names[s.Name] = true
	}
	for name := range h.config.Broken {
		names[name] = true
	}
	return sortedKeys(names)
}

// has reports whether a run over this service ("" for all) has anything to look
// at.
func (h *head) has(service string) bool {
	return service == "" || slices.Contains(h.services(), service)
}

// covers is covers where a run over the only service there is looks at all.
func (h *head) covers(a, b rlc.Run) bool {
	return covers(a, b) || b.Service == "" && slices.Equal(h.services(), []string{a.Service})
}

// findings is what a run found.
type findings struct {
	changes   []rlc.Change // by service, bucket, key
	proposals []rlc.Proposal
}

// found is what a run found for one service.
type found struct {
	service string
	changes []rlc.Change // sorted
	trouble string       // why the run is degraded; "" for no reason
	fleet   []policies.FleetSeries
}

// compute looks at every service of the run and fills in run's counts and
// detail. An error means that nothing was computed.
func (p *Planner) compute(ctx context.Context, run *rlc.Run, h *head, progress func(int, int, string)) (*findings, error) {
	limited, cancel := context.WithTimeoutCause(ctx, p.cfg.Deadline, fmt.Errorf("the run's deadline of %s has passed", rlc.DurationText(p.cfg.Deadline)))
	defer cancel()
	was, err := p.earlier(limited, run)
	if err != nil {
		return nil, err
	}
	names := h.services()
	if run.Service != "" {
		names = []string{run.Service}
	}
	all := make([]found, len(names))
	var mu sync.Mutex // guards what progress is told
	done := 0
	var group errgroup.Group
	group.SetLimit(p.cfg.Parallel)
	for i, name := range names {
		group.Go(func() error {
			all[i] = p.service(limited, run, h, was, name)
			all[i].service = name
			mu.Lock()
			defer mu.Unlock()
			done++
			if progress != nil {
				progress(done, len(names), name)
			}
			return nil
		})
	}
	_ = group.Wait() // a service's failure is among its findings
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return p.conclude(ctx, run, h, all)
}

// conclude applies what looks at more than one service, makes the proposals and
// sums up.
func (p *Planner) conclude(ctx context.Context, run *rlc.Run, h *head, all []found) (*findings, error) {
	out := &findings{}
	var fleet []policies.FleetSeries
	var trouble []string
	for _, f := range all {
		out.changes = append(out.changes, f.changes...)
		fleet = append(fleet, f.fleet...)
		if f.trouble != "" {
			trouble = append(trouble, f.trouble)
		}
	}
	if why := policies.FleetBreaker(fleet); why != "" {
		run.Detail = refusedBy + why
		for i := range out.changes {
			if out.changes[i].Moves() {
				hold(&out.changes[i], "fleet_breaker", why)
			}
		}
	} else {
		var gate policies.BlastGate
		for _, c := range out.changes {
			gate.Add(c)
		}
		gate.Mark(out.changes)
		first := 0
		for _, f := range all {
			changes := out.changes[first : first+len(f.changes)]
			first += len(f.changes)
			proposal, err := p.propose(ctx, run, h, f.service, changes)
			if err != nil {
				return nil, err
			}
			if i := slices.IndexFunc(changes, func(c rlc.Change) bool { return c.Held == unmendedRule }); i >= 0 {
				trouble = append(trouble, notPublished(f.service, changes[i].HeldWhy))
			}
			if proposal != nil {
				out.proposals = append(out.proposals, *proposal)
			}
		}
		p.order(out.proposals)
		if len(trouble) > 0 {
			run.Detail = degradedBy + sentence(trouble)
		}
	}
	run.Total, run.Held, run.Changed = len(out.changes), 0, 0
	for i := range out.changes {
		if out.changes[i].Held != "" {
			run.Held++
		}
		if out.changes[i].Moves() {
			run.Changed++
		}
	}
	return out, nil
}

// order puts the proposals of a run into the order in which they are put up, which
// is that of their making.
func (p *Planner) order(all []rlc.Proposal) {
	if p.cfg.Riskier != nil {
		slices.SortStableFunc(all, func(a, b rlc.Proposal) int { return p.cfg.Riskier(a.Changes, b.Changes) })
	}
	now := p.now()
	for i := range all {
		all[i].Created = now.Add(time.Duration(i) * time.Microsecond)
	}
}

// mostTrouble is how many of several troubles a text names.
const mostTrouble = 5

// sentence joins what went wrong, the first few in full.
func sentence(trouble []string) string {
	if n := len(trouble) - mostTrouble; n > 0 {
		trouble = append(slices.Clone(trouble[:mostTrouble]), fmt.Sprintf("and %d more services", n))
	}
	return strings.Join(trouble, "; ")
}

// hold keeps the quota as it is, whatever was decided.
func hold(c *rlc.Change, rule, why string) {
	c.Held, c.HeldWhy = rule, why
	c.New, c.NewMode, c.NewTimed, c.Remove = c.Old, c.OldMode, c.OldTimed, false
	reason := rlc.Reason{Rule: rule, Detail: why, Acted: true}
	if c.Old != nil {
		reason.Rate = c.Old.Rate
	}
	c.Reasons = append(c.Reasons, reason)
	c.Backtest.New = c.Backtest.Old
}

// service looks at one service. Whatever goes wrong stays within it.
func (p *Planner) service(ctx context.Context, run *rlc.Run, h *head, was *earlier, name string) (f found) {
	defer func() {
		if r := recover(); r != nil {
			p.cfg.Log.Error("service not computed", "service", name, "run", run.ID, "panic", r, "stack", string(debug.Stack()))
			f = p.failed(run, h, name, "failed", fmt.Sprintf("internal error: %v", r))
		}
	}()
	if problems := h.config.Broken[name]; len(problems) > 0 {
		return p.failed(run, h, name, "policy_invalid", problems[0].String())
	}
	j, err := p.newJob(ctx, run, h, was, h.config.Service(name))
	if err != nil {
		return p.failed(run, h, name, "failed", cause(ctx, err))
	}
	return j.compute(ctx)
}

// failed holds every quota that a service has in force.
func (p *Planner) failed(run *rlc.Run, h *head, name, rule, why string) found {
	f := found{trouble: name + ": " + why}
	for _, q := range h.config.Quotas[name] {
		if q.Place() != q.Bucket {
			continue // a person's
		}
		c := rlc.Change{
			RunID: run.ID, Service: name, Bucket: q.Bucket, Key: q.Key, At: run.Now,
			Old: &q.Limit, OldMode: q.Mode, OldTimed: rlc.Timed{Windows: q.Windows, Hours: q.Hours}, Why: q.Why, Failed: true, Flags: []rlc.Flag{},
		}
		hold(&c, rule, why)
		f.changes = append(f.changes, c)
	}
	slices.SortFunc(f.changes, byQuota)
	return f
}

// cause is err's text, or why the run's own deadline cut it short.
func cause(ctx context.Context, err error) string {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return context.Cause(ctx).Error()
	}
	return err.Error()
}

func byQuota(a, b rlc.Change) int {
	return cmp.Or(strings.Compare(a.Bucket, b.Bucket), strings.Compare(a.Key.String(), b.Key.String()), strings.Compare(a.Region, b.Region))
}
