package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/quotafile"
)

func pathEscape(s string) string { return url.PathEscape(s) }

// Revisions are the newest commits that touched a service.
func (a *App) Revisions(ctx context.Context, service string) ([]rollout.Revision, error) {
	if err := a.known(service); err != nil {
		return nil, err
	}
	log, err := a.Repo.Log(ctx, service, revisions)
	if err != nil {
		return nil, err
	}
	out := make([]rollout.Revision, len(log))
	for i, e := range log {
		out[i] = rollout.Revision{Hash: e.Hash, At: e.Time.UTC(), Author: e.Author, Actor: e.Actor, Subject: e.Subject, Run: e.Run}
	}
	return out, nil
}

// Compare says what two revisions of a service differ in. Both may be short
// hashes; "" for to is the newest, and for from the one before to.
func (a *App) Compare(ctx context.Context, service, from, to string) (c rollout.Comparison, err error) {
	all, err := a.Revisions(ctx, service)
	if err != nil {
		return c, err
	}
	i, err := find(all, to, 0)
	if err != nil {
		return c, err
	}
	j, err := find(all, from, i+1)
	if err != nil {
		return c, err
	}
	was, err := a.content(ctx, service, all[j].Hash)
	if err != nil {
		return c, err
	}
	is, err := a.content(ctx, service, all[i].Hash)
	if err != nil {
		return c, err
	}
	return rollout.Comparison{Before: all[j], After: all[i], Differences: rollout.Diff(was, is), Policy: rollout.Text(was.Policy, is.Policy)}, nil
}

// find is where a revision stands, or the one at a place where hash is "".
func find(all []rollout.Revision, hash string, otherwise int) (int, error) {
	if hash == "" {
		if otherwise >= len(all) {
			return 0, fmt.Errorf("%w: there is no revision before that one", rlc.ErrNotFound)
		}
		return otherwise, nil
	}
	at := -1
	for i := range all {
		if len(hash) >= 6 && strings.HasPrefix(all[i].Hash, hash) {
			if at >= 0 {
				return 0, fmt.Errorf("%w: more than one revision begins with %s", rlc.ErrInvalid, hash)
			}
			at = i
		}
	}
	if at < 0 {
		return 0, fmt.Errorf("%w: no revision %q of the service; name one by at least six characters of its hash", rlc.ErrNotFound, hash)
	}
	return at, nil
}

// Rollback takes a service back to what an earlier revision said ("": the one
// before the newest), as a new version and actor's act. Numbers that go are
// pinned. It never enforces more than what stands: that is a promotion, and
// rlc.ErrRefused.
func (a *App) Rollback(ctx context.Context, service, to, actor, reason string) (rlc.Commit, error) {
	if err := a.mayAct(); err != nil {
		return rlc.Commit{}, err
	}
	c, err := a.Compare(ctx, service, to, "")
	if err != nil {
		return rlc.Commit{}, err
	}
	was, is := c.Before, c.After
	if was.Hash == is.Hash {
		return rlc.Commit{}, fmt.Errorf("%w: %s is the newest revision", rlc.ErrConflict, short(was.Hash))
	}
	before, err := a.content(ctx, service, is.Hash)
	if err != nil {
		return rlc.Commit{}, err
	}
	after, err := a.content(ctx, service, was.Hash)
	if err != nil {
		return rlc.Commit{}, err
	}
	if after.Service == nil {
		return rlc.Commit{}, fmt.Errorf("%w: the policy was not valid, or not there, at %s", rlc.ErrRefused, short(was.Hash))
	}
	if names := rollout.Hardens(before, after); len(names) > 0 {
		return rlc.Commit{}, fmt.Errorf("%w: at %s %s was enforced where it is in shadow now; a rollback never enforces: rlc promote %s %s", rlc.ErrRefused, short(was.Hash), strings.Join(names, ", "), service, names[0])
	}
	title := fmt.Sprintf("Roll back %s to %s\n\n%s", service, short(was.Hash), reason)
	commit, err := a.restorePolicy(ctx, service, was.Hash, actor, title)
	if err != nil {
		return commit, err
	}
	if c, err := a.restoreQuotas(ctx, service, rollout.Diff(before, after), before, after, actor, reason); err != nil || c.Hash != "" {
		return c, err
	}
	if commit.Hash == "" {
		return commit, fmt.Errorf("%w: %s says the same as the newest revision", rlc.ErrConflict, short(was.Hash))
	}
	return commit, a.Records.SetPins(ctx, nil, rlc.AuditEntry{At: time.Now().UTC(), Actor: actor, Action: "rollback", Object: service, Detail: "to " + short(was.Hash) + ": " + reason})
}

// restorePolicy commits policy.yaml as it was; the commit is empty where it is
// the same.
func (a *App) restorePolicy(ctx context.Context, service, hash, actor, message string) (rlc.Commit, error) {
	path := quotafile.PolicyPath(service)
	then, err := a.Repo.Show(ctx, hash, path)
	if err != nil {
		return rlc.Commit{}, err
	}
	head, files, err := a.Repo.Head(ctx)
	if err != nil || bytes.Equal(files[path], then) {
		return rlc.Commit{}, err
	}
	commit, err := a.Repo.EditFrom(ctx, head.Hash, gitsync.Person{Name: actor, Email: "actor@rlc.invalid"}, message, rlc.Files{path: then})
	a.Nudge()
	return commit, err
}

// restoreQuotas gives quotas the numbers that they had, and pins those that
// they have. Lines that RLC wrote go through a proposal that is accepted at
// once, so that they stay RLC's; where a person wrote one, the person's commit
// takes its place.
func (a *App) restoreQuotas(ctx context.Context, service string, diff []rollout.Difference, before, after rollout.Content, actor, reason string) (commit rlc.Commit, err error) {
	now := time.Now().UTC()
	changes, pins := back(service, diff, before, after, now)
	if len(changes) == 0 {
		return commit, nil
	}
	edited, err := a.Repo.Edited(ctx, service)
	if err != nil {
		return commit, err
	}
	if slices.ContainsFunc(changes, func(c rlc.Change) bool { return edited[c.ID()] != "" }) {
		head, files, err := a.Repo.Head(ctx)
		if err != nil {
			return commit, err
		}
		path := quotafile.QuotasPath(service)
		quotas := quotafile.MarshalQuotas(service, merged(quotafile.Parse(files, a.policies.Check).Quotas[service], changes))
		commit, err = a.Repo.EditFrom(ctx, head.Hash, gitsync.Person{Name: actor, Email: "actor@rlc.invalid"}, "Roll back quotas of "+service+"\n\n"+reason, rlc.Files{path: quotas})
		if err != nil {
			return commit, err
		}
	} else {
		run := "rollback-" + now.Format("20060102T150405.000000Z")
		p, err := a.Repo.Publish(ctx, rlc.Proposal{ID: run + "-" + quotafile.PathSegment(service), RunID: run, Service: service, Created: now, Changes: changes})
		if err != nil {
			return commit, fmt.Errorf("roll back quotas: %w", err)
		}
		if p.State != rlc.Open || p.Human {
			return commit, fmt.Errorf("%w: a person works on the branch of %s; decide on that proposal first", rlc.ErrConflict, service)
		}
		if commit, err = a.Repo.Accept(ctx, p, actor); err != nil {
			return commit, fmt.Errorf("roll back quotas: %w", err)
		}
	}
	for i := range pins {
		pins[i].Actor, pins[i].Reason, pins[i].At = actor, reason, now
		if pins[i].ID, err = randomHex(8); err != nil {
			return commit, err
		}
	}
	err = a.Records.SetPins(ctx, pins, rlc.AuditEntry{At: now, Actor: actor, Action: "rollback", Object: service, Detail: fmt.Sprintf("%s: %s", rlc.Plural(len(changes), "quota"), reason)})
	a.Nudge()
	return commit, err
}

// back turns differences, from what stands to what stood, into changes, and
// pins what goes.
func back(service string, diff []rollout.Difference, before, after rollout.Content, now time.Time) (changes []rlc.Change, pins []rollout.Pin) {
	quota := func(c rollout.Content, id string) *rlc.Quota {
		for i := range c.Quotas {
			if c.Quotas[i].ID() == id {
				return &c.Quotas[i]
			}
		}
		return nil
	}
	for _, d := range diff {
		if d.What != "limit" {
			continue
		}
		is, was := quota(before, d.Quota), quota(after, d.Quota)
		c := rlc.Change{Service: service, At: now, Old: d.Old, New: d.New}
		if is != nil {
			c.Bucket, c.Key, c.Region, c.OldMode, c.OldTimed = is.Bucket, is.Key, is.Region, is.Mode, rlc.Timed{Windows: is.Windows, Hours: is.Hours}
			c.Why = is.Why
			band := rlc.DefaultGuards().Deadband
			if before.Service != nil && before.Service.Bucket(is.Bucket) != nil && before.Service.Bucket(is.Bucket).Guards.Deadband > 0 {
				band = before.Service.Bucket(is.Bucket).Guards.Deadband
			}
			if was == nil || was.Limit != is.Limit { // else the number stays, and only its hours go
				pins = append(pins, rollout.Pin{Service: service, Quota: d.Quota, Limit: is.Limit, Band: 2 * band})
			}
		}
		if was != nil {
			c.Bucket, c.Key, c.Region, c.NewMode, c.NewTimed = was.Bucket, was.Key, was.Region, was.Mode, rlc.Timed{Windows: was.Windows, Hours: was.Hours}
			c.Why = was.Why
		} else {
			c.New, c.Remove = c.Old, true
		}
		c.Reasons = []rlc.Reason{{Rule: "rollback", Detail: "as it was before", Rate: c.New.Rate, Acted: true}}
		changes = append(changes, c)
	}
	return changes, pins
}

// merged are quotas with changes applied.
func merged(quotas []rlc.Quota, changes []rlc.Change) []rlc.Quota {
	out := slices.Clone(quotas)
	for i := range changes {
		id := changes[i].ID()
		out = slices.DeleteFunc(out, func(q rlc.Quota) bool { return q.ID() == id })
		if q := changes[i].Quota(); q != nil {
			out = append(out, *q)
		}
	}
	return out
}

// Pins are a service's that stand.
func (a *App) Pins(ctx context.Context, service string) ([]rollout.Pin, error) {
	return a.Records.Pins(ctx, service)
}

// LiftPin lets runs propose a pinned number again, as actor's act.
func (a *App) LiftPin(ctx context.Context, service, id, actor string) error {
	return a.Records.LiftPin(ctx, service, id, rlc.AuditEntry{At: time.Now().UTC(), Actor: actor, Action: "pin.lift", Object: service + "/" + id})
}

// pinned holds what a pin keeps away out of what is put up.
type pinned struct {
	planner.Publisher
	app *App
}

func (p pinned) Publish(ctx context.Context, proposal rlc.Proposal) (rlc.Proposal, error) {
	pins, err := p.app.Records.Pins(ctx, proposal.Service)
	if err != nil {
		return proposal, err
	}
	changes := slices.Clone(proposal.Changes)
	for i := range changes {
		c := &changes[i]
		for _, pin := range pins {
			if c.Moves() && !c.Remove && pin.Quota == c.ID() && pin.Holds(*c.New) {
				c.New, c.NewMode, c.NewTimed, c.Held = c.Old, c.OldMode, c.OldTimed, "pinned"
				c.HeldWhy = fmt.Sprintf("%s rolled back from %s/s on %s (%s); lift the pin, or wait until the estimate is more than %g %% away", pin.Actor, rlc.Number(pin.Limit.Rate), pin.At.Format(time.DateOnly), pin.Reason, 100*pin.Band)
			}
		}
	}
	proposal.Changes = changes
	return p.Publisher.Publish(ctx, proposal)
}

// mindMerged rolls back, by itself, quotas that were merged within the soak and
// drop more than their backtest said by the factor.
func (a *App) mindMerged(ctx context.Context) error {
	now, rules := time.Now().UTC(), a.rules().Complete()
	merged, _, err := a.Records.Proposals(ctx, rlc.Accepted, "", rlc.Page{Size: 50})
	if err != nil {
		return err
	}
	for _, p := range merged {
		if now.Sub(p.Decided) < rules.Soak {
			err = errors.Join(err, a.mindProposal(ctx, p, now, rules))
		}
	}
	return err
}

func (a *App) mindProposal(ctx context.Context, p rlc.Proposal, now time.Time, rules rollout.Rules) error {
	_, c := a.Desired()
	if c == nil || c.Service(p.Service) == nil {
		return nil
	}
	counts, err := a.History.Counts(ctx, p.Service, now.Sub(p.Decided), now)
	if err != nil {
		return nil // nothing grows here that would have to stop
	}
	before := rollout.Content{Service: c.Service(p.Service), Quotas: c.Quotas[p.Service]}
	after := rollout.Content{Service: before.Service}
	var diff []rollout.Difference
	var said []string
	for i := range p.Changes {
		ch := &p.Changes[i]
		q := c.Quota(p.Service, ch.Bucket, ch.Key)
		b := before.Service.Bucket(ch.Bucket)
		if q == nil || b == nil || b.Mode != rlc.Enforce || ch.Remove || ch.New == nil || ch.Old == nil || q.Limit != *ch.New || ch.Backtest.New == nil {
			continue
		}
		for _, n := range counts {
			expected := float64(ch.Backtest.New.Share) * n.Offered
			if n.Bucket == ch.Bucket && n.Key.Equal(ch.Key) && rollout.TooMany(n.Drops, expected, rules) {
				old := *q
				old.Limit, old.Windows, old.Hours = *ch.Old, ch.OldTimed.Windows, ch.OldTimed.Hours
				after.Quotas = append(after.Quotas, old)
				diff = append(diff, rollout.Difference{Quota: q.ID(), What: "limit", Old: ch.New, New: ch.Old})
				said = append(said, fmt.Sprintf("%s: %.0f drops, the backtest says %.0f", q.ID(), n.Drops, expected))
			}
		}
	}
	if len(diff) == 0 {
		return nil
	}
	why := strings.Join(said, "; ")
	if _, err := a.restoreQuotas(ctx, p.Service, diff, before, after, p.Actor, "Rolled back by itself: "+why+". Accepted by "+p.Actor+"."); err != nil {
		return err
	}
	return a.tell(ctx, rlc.Notice{ID: p.ID + "-drops", Kind: "drops", Service: p.Service, Urgent: true, Text: p.Service + " was rolled back by itself: " + why, URL: a.historyURL(p.Service)})
}
