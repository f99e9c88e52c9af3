package planner

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/quotafile"
)

// drafted is head with a service's policy.yaml as somebody has drafted it. A draft
// that is not valid is rlc.ErrInvalid, with every error of it.
func (p *Planner) drafted(ctx context.Context, service string, policy []byte) (draft *head, base *quotafile.Config, err error) {
	commit, files, err := p.cfg.Repo.Head(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the config repository: %w", err)
	}
	base = quotafile.Parse(files, p.cfg.Policies.Check)
	files = maps.Clone(files)
	if files == nil {
		files = rlc.Files{}
	}
	files[quotafile.PolicyPath(service)] = policy
	draft = &head{commit: commit, config: quotafile.Parse(files, p.cfg.Policies.Check)}
	if draft.config.Service(service) == nil {
		text := fmt.Sprintf("the draft is no policy of service %q", service)
		for i, problem := range draft.config.Broken[service] {
			if i == 0 {
				text = problem.String()
			} else {
				text += "\n" + problem.String()
			}
		}
		return nil, nil, fmt.Errorf("%w: %s", rlc.ErrInvalid, text)
	}
	draft.index()
	return draft, base, nil
}

// written are the limits that a draft writes by hand and that are new in it, have
// another number, another match or another mode: no run computes them, so what they
// would have dropped is told here. The history is that of the buckets of the draft.
func (p *Planner) written(ctx context.Context, run *rlc.Run, draft *head, base *quotafile.Config) (out []rlc.Change, err error) {
	service := draft.config.Service(run.Service)
	was := base.Service(run.Service)
	own := *service
	own.Buckets = slices.Clone(service.Buckets)
	wanted := map[string]*rlc.Bucket{}
	for i := range service.Buckets {
		b := &service.Buckets[i]
		if !b.ByHand() || b.Limit == nil || was != nil && sameByHand(was.Bucket(b.Name), b) {
			continue
		}
		wanted[b.Name] = b
		own.Buckets[i].Limit, own.Buckets[i].NewKey = nil, rlc.NewKey{}
		own.Buckets[i].Policy, own.Buckets[i].Guards = &rlc.PolicySpec{Kind: "historical"}, rlc.DefaultGuards()
	}
	profile := draft.config.Profiles[service.Profile]
	if len(wanted) == 0 || profile == nil {
		return nil, nil
	}
	counted := map[string]bool{}
	err = p.cfg.History.Service(ctx, rlc.HistoryRequest{Service: &own, Profile: profile, Lookback: 28 * day, Now: run.Now}, func(s rlc.Series) error {
		b := wanted[s.Bucket]
		if b == nil || len(s.History.Problems) > 0 || len(s.History.Hours) == 0 {
			return ctx.Err()
		}
		counted[b.Name] = true
		c := writtenChange(run, was, b, s.Key)
		replay := backtest.FromHistory(s.History, *b.Limit)
		c.Backtest.New = &replay
		if c.Old != nil {
			old := backtest.FromHistory(s.History, *c.Old)
			c.Backtest.Old = &old
		}
		out = append(out, c)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	for name, b := range wanted {
		if !counted[name] {
			out = append(out, writtenChange(run, was, b, nil))
		}
	}
	return out, nil
}

func writtenChange(run *rlc.Run, was *rlc.Service, b *rlc.Bucket, key rlc.Key) rlc.Change {
	limit := *b.Limit
	c := rlc.Change{
		RunID: run.ID, Service: run.Service, Bucket: b.Name, Key: key, At: run.Now, New: &limit, NewMode: b.Mode, Flags: []rlc.Flag{},
		Why: fmt.Sprintf("written by hand in line %d, %s", b.Line, b.Mode),
	}
	if was != nil {
		if old := was.Bucket(b.Name); old != nil {
			c.OldMode = old.Mode
			if old.Limit != nil {
				limit := *old.Limit
				c.Old = &limit
			}
		}
	}
	return c
}

// sameByHand reports whether a limit written by hand counts the same requests, with
// the same number, as strictly.
func sameByHand(a, b *rlc.Bucket) bool {
	return a != nil && a.ByHand() && a.Limit != nil && *a.Limit == *b.Limit && a.Mode == b.Mode && a.Role == b.Role &&
		reflect.DeepEqual(a.Match, b.Match) && slices.Equal(a.Each, b.Each)
}
