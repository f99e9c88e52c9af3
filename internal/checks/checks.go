// Package checks says what an edit of the config repository would do: which
// quotas move, which begin to drop, what else of a policy is another, and, once
// replayed, what the new numbers would have dropped.
package checks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/review"
	"github.com/openrlc/rlc/quotafile"
)

// Edit is what a branch changes of the config repository.
type Edit struct {
	Base       string        `json:"base"` // commits
	Head       string        `json:"head"`
	Problems   []rlc.Problem `json:"problems"`   // of the head, errors and warnings
	Services   []Service     `json:"services"`   // those that the edit touches, by name
	Backtested int           `json:"backtested"` // changes whose new limit was replayed
	// Note says why nothing, or not all, was replayed; "" where all was.
	Note string `json:"note,omitempty"`
}

// Service is what an edit changes of one service.
type Service struct {
	Name    string       `json:"service"`
	Changes []rlc.Change `json:"changes"` // quotas and hand-written limits, the riskiest first; modes are those in effect
	Starts  []string     `json:"starts"`  // what begins to drop requests, e.g. "callers: shadow → enforce"
	Notes   []string     `json:"notes"`   // what else is another, e.g. "bucket callers: policy"

	// same are the buckets that take the same traffic as before: only for these
	// does the history of before tell anything.
	same map[string]bool
}

// Of compares two valid states of a repository. What is broken in either is left
// out: the problems say so.
func Of(base, head *quotafile.Config) Edit {
	e := Edit{Problems: slices.Clone(head.Problems), Services: []Service{}}
	if e.Problems == nil {
		e.Problems = []rlc.Problem{}
	}
	names := map[string]bool{}
	for _, c := range []*quotafile.Config{base, head} {
		for _, s := range c.Services {
			names[s.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if len(base.Broken[name])+len(head.Broken[name]) > 0 {
			continue
		}
		was, is := state{base.Service(name), base.Quotas[name]}, state{head.Service(name), head.Quotas[name]}
		if s := compare(name, was, is); len(s.Changes)+len(s.Starts)+len(s.Notes) > 0 {
			e.Services = append(e.Services, s)
		}
	}
	return e
}

// Tell adds a note on a service; one that the edit left alone until now is touched
// by it from then on.
func (e *Edit) Tell(service, note string) {
	i, found := slices.BinarySearchFunc(e.Services, service, func(s Service, name string) int { return strings.Compare(s.Name, name) })
	if !found {
		e.Services = slices.Insert(e.Services, i, Service{Name: service, Changes: []rlc.Change{}, Starts: []string{}, Notes: []string{}, same: map[string]bool{}})
	}
	e.Services[i].Notes = append(e.Services[i].Notes, note)
}

// Errors counts the problems that are no warnings.
func (e *Edit) Errors() (n int) {
	for _, p := range e.Problems {
		if !p.Warning {
			n++
		}
	}
	return n
}

// Changes counts the quotas that move.
func (e *Edit) Changes() (n int) {
	for _, s := range e.Services {
		n += len(s.Changes)
	}
	return n
}

// state is one service at one commit; a nil policy where it is not there.
type state struct {
	policy *rlc.Service
	quotas []rlc.Quota
}

// limits are a state's limits by ID, in the mode in effect: those of quotas.yaml,
// and those that people wrote into a bucket that is one counter.
func (s state) limits() map[string]rlc.Quota {
	out := map[string]rlc.Quota{}
	if s.policy == nil {
		return out
	}
	for _, q := range s.quotas {
		b := s.policy.Bucket(q.Bucket)
		if b == nil {
			continue // nothing uses it; the validator warns
		}
		if q.Mode == "" {
			q.Mode = b.Mode
		}
		out[q.ID()] = q
	}
	for _, b := range s.policy.Buckets {
		if b.Limit != nil && len(b.Each) == 0 {
			q := rlc.Quota{Bucket: b.Name, Limit: *b.Limit, Mode: b.Mode, Why: "written by hand"}
			out[q.ID()] = q
		}
	}
	return out
}

func compare(name string, was, is state) Service {
	s := Service{Name: name, Changes: []rlc.Change{}, Starts: []string{}, Notes: []string{}, same: map[string]bool{}}
	s.policy(was.policy, is.policy)
	before, after := was.limits(), is.limits()
	ids := maps.Clone(before)
	maps.Copy(ids, after)
	hardened := map[string]int{} // quotas that begin to drop, by bucket
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		old, had := before[id]
		now, has := after[id]
		if had && has && old.Same(now) {
			continue
		}
		c := rlc.Change{Service: name, Bucket: ids[id].Bucket, Key: ids[id].Key, Region: cmp.Or(ids[id].Region, ids[id].Zone), Remove: !has, Why: now.Why}
		if had {
			c.Old, c.OldMode, c.OldTimed = &old.Limit, old.Mode, old.Timed()
		}
		if has {
			c.New, c.NewMode, c.NewTimed = &now.Limit, now.Mode, now.Timed()
		} else {
			c.New, c.NewMode, c.NewTimed, c.Why = c.Old, c.OldMode, c.OldTimed, "the line is gone"
		}
		s.Changes = append(s.Changes, c)
		if has && now.Mode == rlc.Enforce && old.Mode != rlc.Enforce {
			hardened[now.Bucket]++
		}
	}
	s.begins(was.policy, is.policy, hardened)
	s.Changes = review.ByRisk(s.Changes)
	return s
}

// begins lists what starts to drop: whole buckets by their mode, single quotas
// by their own. What has no limit drops nothing in enforce either.
func (s *Service) begins(was, is *rlc.Service, hardened map[string]int) {
	if is == nil {
		return
	}
	for i := range is.Buckets {
		b := &is.Buckets[i]
		old := (*rlc.Bucket)(nil)
		if was != nil {
			old = was.Bucket(b.Name)
		}
		n, fresh := hardened[b.Name], enforced(b) && !enforced(old)
		switch {
		case b.Mode == rlc.Enforce && old == nil && (n > 0 || fresh):
			s.Starts = append(s.Starts, fmt.Sprintf("%s: new, in enforce", b.Name))
		case b.Mode == rlc.Enforce && old != nil && old.Mode == rlc.Shadow && (n > 0 || fresh):
			s.Starts = append(s.Starts, fmt.Sprintf("%s: shadow → enforce, with %s", b.Name, with(n, fresh)))
		case b.Mode == rlc.Enforce && old != nil && len(old.Rollout) > 0 && !reflect.DeepEqual(old.Rollout, b.Rollout):
			s.Starts = append(s.Starts, fmt.Sprintf("%s: enforce in other zones", b.Name))
		case n > 0:
			s.Starts = append(s.Starts, fmt.Sprintf("%s: %s shadow → enforce", b.Name, rlc.Plural(n, "quota")))
		case fresh:
			s.Starts = append(s.Starts, fmt.Sprintf("%s: a limit in its policy is new, in enforce", b.Name))
		}
	}
	if is.Unmatched.Mode != rlc.Enforce || is.Unmatched.Limit == nil {
		return
	}
	switch {
	case was == nil || was.Unmatched.Limit == nil:
		s.Starts = append(s.Starts, "unmatched: its limit is new, in enforce")
	case was.Unmatched.Mode != rlc.Enforce:
		s.Starts = append(s.Starts, "unmatched: shadow → enforce")
	}
}

// enforced reports whether a bucket refuses requests by a limit that is no quota of
// limits: what each key gets, what a new one gets, a window, requests in flight.
func enforced(b *rlc.Bucket) bool {
	return b != nil && b.Mode == rlc.Enforce &&
		(b.Limit != nil && len(b.Each) > 0 || b.NewKey.Limit != nil || b.Window != nil || b.InFlight != nil)
}

// with names what a bucket enforces: n limits, and what new keys get.
func with(n int, fresh bool) string {
	switch {
	case !fresh:
		return rlc.Plural(n, "limit")
	case n == 0:
		return "a limit in its policy"
	}
	return rlc.Plural(n, "limit") + " and one in its policy"
}

// policy notes what else of a policy is another, and which buckets take the same
// traffic as before.
func (s *Service) policy(was, is *rlc.Service) {
	switch {
	case is == nil:
		s.Notes = append(s.Notes, "the service is removed: nothing limits it any more")
		return
	case was == nil:
		s.Notes = append(s.Notes, "the service is new, with "+rlc.Plural(len(is.Buckets), "bucket"))
		return
	}
	s.differ("", fields(was), fields(is))
	for i := range is.Buckets {
		b := &is.Buckets[i]
		old := was.Bucket(b.Name)
		if old == nil {
			s.Notes = append(s.Notes, "bucket "+b.Name+": added")
			continue
		}
		s.same[b.Name] = reflect.DeepEqual(old.Match, b.Match) && reflect.DeepEqual(old.Each, b.Each) && was.Profile == is.Profile
		s.differ("bucket "+b.Name+": ", bucketFields(old), bucketFields(b))
	}
	for i := range was.Buckets {
		if is.Bucket(was.Buckets[i].Name) == nil {
			s.Notes = append(s.Notes, "bucket "+was.Buckets[i].Name+": removed")
		}
	}
}

// field is a key of a policy with what it says.
type field struct {
	name  string
	value any
}

func fields(s *rlc.Service) []field {
	return []field{
		{"owners", s.Owners}, {"profile", s.Profile}, {"timezone", s.Timezone}, {"capacity", s.Capacity}, {"unmatched", s.Unmatched},
		{"quotas.max", s.MaxQuotas}, {"counters", s.Counters}, {"series.max", s.MaxSeries}, {"exclude", s.Exclude}, {"events", s.Events},
		{"aliases", s.Aliases}, {"failover", s.Failover}, {"freeze", s.Freeze}, {"sensitive", s.Sensitive}, {"auto_merge", s.AutoMerge}, {"targets", s.Targets},
	}
}

func bucketFields(b *rlc.Bucket) []field {
	return []field{
		{"role", b.Role}, {"each", b.Each}, {"match", b.Match}, {"new_key", b.NewKey}, {"mode", b.Mode}, {"algorithm", b.Algorithm}, {"scope", b.Scope},
		{"on_failure", b.OnFailure}, {"rollout", b.Rollout}, {"cost", b.Cost}, {"tier", b.Tier}, {"policy", b.Policy}, {"guards", b.Guards},
		{"limit", []any{b.Limit, b.Window, b.InFlight}},
	}
}

// differ adds a note with the names of the fields that are others.
func (s *Service) differ(prefix string, was, is []field) {
	var names []string
	for i := range is {
		if !reflect.DeepEqual(was[i].value, is[i].value) {
			names = append(names, is[i].name)
		}
	}
	if len(names) > 0 {
		s.Notes = append(s.Notes, prefix+strings.Join(names, ", ")+" changed")
	}
}

// Replay is what a quota, in its hours and windows, would have dropped of its
// recorded traffic; rlc.ErrNotFound where none is recorded.
type Replay func(ctx context.Context, service string, q rlc.Quota) (rlc.Backtest, error)

// Backtest replays the changes, the riskiest of each service first and at most
// most of them all, with the old limit and the new. What cannot be replayed is
// left unknown and counted in Note. An error is replay's first other than
// rlc.ErrNotFound; what was replayed until then stands, and Note says so too.
func (e *Edit) Backtest(ctx context.Context, most int, replay Replay) error {
	missing, asked := 0, 0
	var failed error
	for i := range e.Services {
		s := &e.Services[i]
		for j := range s.Changes {
			c := &s.Changes[j]
			if c.Remove || failed != nil {
				continue
			}
			if !s.same[c.Bucket] || c.Region != "" || asked >= most {
				missing++
				continue
			}
			asked++
			switch err := s.replay(ctx, c, replay); {
			case errors.Is(err, rlc.ErrNotFound):
				missing++
			case err != nil:
				failed = err
			default:
				e.Backtested++
			}
		}
		s.Changes = review.ByRisk(s.Changes)
	}
	switch {
	case failed != nil && e.Backtested == 0:
		e.Note = "nothing was backtested: " + failed.Error()
	case failed != nil:
		e.Note = fmt.Sprintf("only %s backtested: %s", rlc.Plural(e.Backtested, "change"), failed)
	case missing > 0:
		e.Note = fmt.Sprintf("%s not backtested: new, of a region or zone, without recorded traffic, of a bucket that takes other traffic than before, or beyond %d", rlc.Plural(missing, "change"), most)
	}
	return failed
}

func (s *Service) replay(ctx context.Context, c *rlc.Change, replay Replay) error {
	b, err := replay(ctx, c.Service, *c.Quota())
	if err != nil {
		return err
	}
	c.Backtest.New = &b
	if c.Old == nil {
		return nil
	}
	if *c.Old == *c.New && c.OldTimed.Equal(c.NewTimed) {
		c.Backtest.Old = &b
		return nil
	}
	old, err := replay(ctx, c.Service, *c.Was())
	if err == nil {
		c.Backtest.Old = &old
	}
	return err
}

// Drops are the changes that would drop more than share of their requests: in
// enforce, and more than the limit in force would have.
func (e *Edit) Drops(share float64) (out []rlc.Change) {
	for _, s := range e.Services {
		for _, c := range s.Changes {
			b := c.Backtest
			if b.New == nil || c.NewMode != rlc.Enforce || float64(b.New.Share) <= share {
				continue
			}
			if b.Old != nil && c.OldMode == rlc.Enforce && b.Old.Drops >= b.New.Drops {
				continue
			}
			out = append(out, c)
		}
	}
	return out
}
