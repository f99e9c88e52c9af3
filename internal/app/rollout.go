package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/quotafile"
)

// revisions is how far back a service's history is read.
const revisions = 200

func (a *App) rules() rollout.Rules {
	c := a.Config.Rollout
	return rollout.Rules{MinShadow: c.MinShadow, Soak: c.Soak, Factor: float64(c.Factor), MinDrops: float64(c.MinDrops)}
}

// Checklist is what stands between a bucket and enforce. word is the name of
// who would promote it, "" where that person may not speak for the service.
func (a *App) Checklist(ctx context.Context, service, bucket, word string) ([]rollout.Check, error) {
	f, _, err := a.facts(ctx, service, bucket)
	if err != nil {
		return nil, err
	}
	f.Word, f.Entitled = word, word != ""
	return rollout.Gate(f, a.rules()), nil
}

// facts reads what is known of a bucket, and the share of requests that the
// backtest of its quotas in force drops.
func (a *App) facts(ctx context.Context, service, bucket string) (f rollout.Facts, expected rlc.Ratio, err error) {
	_, c := a.Desired()
	if c == nil || c.Service(service) == nil {
		return f, 0, fmt.Errorf("%w: no service %q whose policy is valid", rlc.ErrNotFound, service)
	}
	b := c.Service(service).Bucket(bucket)
	if b == nil {
		return f, 0, fmt.Errorf("%w: no bucket %q in %q", rlc.ErrNotFound, bucket, service)
	}
	f.Now = time.Now().UTC()
	if f.Since, err = a.inShadowSince(ctx, service, bucket); err != nil {
		return f, 0, err
	}
	changes, err := a.Records.LatestChanges(ctx, service)
	if err != nil {
		return f, 0, err
	}
	changes = slices.DeleteFunc(changes, func(ch rlc.Change) bool { return ch.Bucket != bucket || c.Quota(service, bucket, ch.Key) == nil })
	if changes, err = a.Records.WithEpisodes(ctx, changes); err != nil {
		return f, 0, err
	}
	verdicts, err := a.Records.Verdicts(ctx, service)
	if err != nil {
		return f, 0, err
	}
	since := f.Since
	f, expected = factsOf(c, service, bucket, changes, verdicts)
	f.Now, f.Since = time.Now().UTC(), since
	counts, err := a.History.Counts(ctx, service, 24*time.Hour, f.Now)
	if err != nil {
		return f, expected, nil // what is not known is not ok
	}
	f.Offered, f.Joined = joined(c, service, bucket, counts)
	return f, expected, nil
}

// factsOf is what the newest changes of a service, with their episodes, and its
// verdicts say of one of its buckets, and the share of requests that the replay of
// its quotas in force drops.
func factsOf(c *quotafile.Config, service, bucket string, changes []rlc.Change, verdicts []rlc.Verdict) (f rollout.Facts, expected rlc.Ratio) {
	requests, drops := 0.0, 0.0
	for _, ch := range changes {
		q := c.Quota(service, bucket, ch.Key)
		if ch.Bucket != bucket || q == nil {
			continue
		}
		if f.Coverage == nil || ch.Coverage < *f.Coverage {
			f.Coverage = &ch.Coverage
		}
		if in := inForce(ch, q.Limit); in != nil {
			requests, drops = requests+in.Requests, drops+in.Drops
			f.Unjudged += unjudged(in.Episodes, ch, verdicts)
		}
	}
	if requests > 0 {
		expected = rlc.Ratio(drops / requests)
	}
	for _, q := range c.Quotas[service] {
		if q.Bucket == bucket {
			f.Quotas++
		}
	}
	if c.Service(service).Bucket(bucket).ByHand() {
		f.Quotas = 1
	}
	return f, expected
}

// joined is what enforcers counted of a bucket, of a service's counts, and the share of it that has a
// quota; nil where they counted nothing.
func joined(c *quotafile.Config, service, bucket string, counts []rlc.Count) (offered float64, share *rlc.Ratio) {
	with, byHand := 0.0, c.Service(service).Bucket(bucket).ByHand()
	for _, n := range counts {
		if n.Bucket != bucket {
			continue
		}
		offered += n.Offered
		if byHand || c.Quota(service, bucket, n.Key) != nil {
			with += n.Offered
		}
	}
	if offered > 0 {
		r := rlc.Ratio(with / offered)
		share = &r
	}
	return offered, share
}

// inForce is the replay of the limit in force, nil where the last run replayed
// another.
func inForce(ch rlc.Change, l rlc.Limit) *rlc.Backtest {
	switch {
	case ch.New != nil && *ch.New == l && ch.Backtest.New != nil:
		return ch.Backtest.New
	case ch.Old != nil && *ch.Old == l:
		return ch.Backtest.Old
	}
	return nil
}

func unjudged(episodes []rlc.Episode, ch rlc.Change, verdicts []rlc.Verdict) (n int) {
	for _, e := range episodes {
		if !slices.ContainsFunc(verdicts, func(v rlc.Verdict) bool {
			return v.Bucket == ch.Bucket && v.Key.Equal(ch.Key) && v.Overlaps(e.From, e.Until)
		}) {
			n++
		}
	}
	return n
}

// inShadowSince is when the base branch last began to have the bucket in
// shadow, or enforced in named zones only; zero where it is neither.
func (a *App) inShadowSince(ctx context.Context, service, bucket string) (since time.Time, err error) {
	log, err := a.Repo.Log(ctx, service, revisions)
	if err != nil {
		return since, err
	}
	_, files, err := a.Repo.Head(ctx)
	if err != nil {
		return since, err
	}
	for _, e := range log {
		content, err := a.contentOf(ctx, files, service, e.Hash)
		if err != nil {
			return since, err
		}
		if content.Service == nil || content.Service.Bucket(bucket) == nil {
			return since, nil
		}
		if b := content.Service.Bucket(bucket); b.Mode == rlc.Enforce && b.Rollout == nil {
			return since, nil
		}
		since = e.Time.UTC()
	}
	return since, nil
}

// content is a service as it was at a commit. Profiles and defaults are those
// of today: what is compared are modes and numbers.
func (a *App) content(ctx context.Context, service, hash string) (c rollout.Content, err error) {
	_, files, err := a.Repo.Head(ctx)
	if err != nil {
		return c, err
	}
	return a.contentOf(ctx, files, service, hash)
}

// contentOf is content beside these files of today.
func (a *App) contentOf(ctx context.Context, files rlc.Files, service, hash string) (c rollout.Content, err error) {
	then := rlc.Files{}
	for path, text := range files {
		if !strings.HasPrefix(path, "services/") {
			then[path] = text
		}
	}
	for _, path := range []string{quotafile.PolicyPath(service), quotafile.QuotasPath(service)} {
		switch text, err := a.Repo.Show(ctx, hash, path); {
		case err == nil:
			then[path] = text
		case !errors.Is(err, rlc.ErrNotFound):
			return c, err
		}
	}
	parsed := quotafile.Parse(then, a.policies.Check)
	return rollout.Content{Service: parsed.Service(service), Quotas: parsed.Quotas[service], Policy: string(then[quotafile.PolicyPath(service)])}, nil
}

// Promote takes a bucket from shadow to enforce, as actor's act: at once in the
// first of the zones, then in one after the other, and where all is set
// everywhere in the end. Without zones it is everywhere at once. The gate must
// be open, else it is rlc.ErrRefused and names what is missing.
func (a *App) Promote(ctx context.Context, service, bucket string, zones []string, all bool, actor string) (p rollout.Promotion, err error) {
	if err := a.mayAct(); err != nil {
		return p, err
	}
	f, expected, err := a.facts(ctx, service, bucket)
	if err != nil {
		return p, err
	}
	f.Word, f.Entitled = actor, actor != ""
	if missing := missing(rollout.Gate(f, a.rules())); missing != "" {
		return p, fmt.Errorf("%w: %s", rlc.ErrRefused, missing)
	}
	_, c := a.Desired()
	b := c.Service(service).Bucket(bucket)
	if b.Mode == rlc.Enforce && b.Rollout == nil {
		return p, fmt.Errorf("%w: bucket %q is enforced everywhere already", rlc.ErrConflict, bucket)
	}
	id, err := randomHex(8)
	if err != nil {
		return p, err
	}
	p = rollout.Promotion{ID: id, Service: service, Bucket: bucket, Actor: actor, Plan: zones, All: all, Expected: expected, Fleet: a.zones()}
	if b.Mode == rlc.Enforce && len(zones) > 0 {
		more := slices.DeleteFunc(slices.Clone(zones), func(z string) bool { return slices.Contains(b.Rollout, z) })
		p.Plan, p.Reached = append(slices.Clone(b.Rollout), more...), len(b.Rollout)
	}
	if p, err = rollout.Begin(p, f.Now); err != nil {
		return p, err
	}
	if err := a.savePromotion(ctx, p, actor, "promotion.begin"); err != nil {
		return p, err
	}
	return a.stage(ctx, p, fmt.Sprintf("Enforce %s%s\n\nApproved by %s with every check passed; the backtest drops %.3g %% of its requests.", bucket, inZones(p.Zones()), actor, 100*float64(expected)))
}

func missing(checks []rollout.Check) string {
	var out []string
	for _, c := range checks {
		if !c.OK {
			out = append(out, fmt.Sprintf("✖ %s (found: %s; %s)", c.Text, c.Found, c.Fix))
		}
	}
	return strings.Join(out, "; ")
}

func inZones(zones []string) string {
	if zones == nil {
		return " everywhere"
	}
	return " in " + strings.Join(zones, ", ")
}

// zones are those that enforcers report.
func (a *App) zones() (all []string) {
	for _, ack := range a.Acks() {
		if ack.Zone != "" && !slices.Contains(all, ack.Zone) {
			all = append(all, ack.Zone)
		}
	}
	slices.Sort(all)
	return all
}

// stage commits a promotion's zones. Where that cannot be, it is halted.
func (a *App) stage(ctx context.Context, p rollout.Promotion, message string) (rollout.Promotion, error) {
	commit, err := a.setMode(ctx, p.Service, p.Bucket, rlc.Enforce, p.Zones(), p.Actor, message)
	if err != nil {
		p = rollout.Advance(p, rollout.Halt, "the stage could not be committed: "+err.Error(), time.Now().UTC())
		return p, errors.Join(err, a.savePromotion(ctx, p, p.Actor, "promotion.halt"))
	}
	p.Commit = commit.Hash
	return p, a.savePromotion(ctx, p, p.Actor, "promotion.stage")
}

// setMode commits a bucket's mode and zones to policy.yaml in a person's name.
func (a *App) setMode(ctx context.Context, service, bucket string, mode rlc.Mode, zones []string, actor, message string) (rlc.Commit, error) {
	head, files, err := a.Repo.Head(ctx)
	if err != nil {
		return head, err
	}
	a.summaries.since.Delete(rlc.QuotaID(service, rlc.Key{"bucket": bucket}))
	path := quotafile.PolicyPath(service)
	text, err := quotafile.SetRollout(files[path], bucket, mode, zones)
	if err != nil {
		return head, err
	}
	commit, err := a.Repo.EditFrom(ctx, head.Hash, gitsync.Person{Name: actor, Email: "actor@rlc.invalid"}, message, rlc.Files{path: text})
	if err == nil {
		a.Nudge()
	}
	return commit, err
}

func (a *App) savePromotion(ctx context.Context, p rollout.Promotion, actor, action string) error {
	return a.Records.SavePromotion(ctx, p, rlc.AuditEntry{At: time.Now().UTC(), Actor: actor, Action: action, Object: p.Service + "/" + p.Bucket, Detail: p.Why + inZones(p.Zones())})
}

// Promotions are a service's, the newest first.
func (a *App) Promotions(ctx context.Context, service string) ([]rollout.Promotion, error) {
	return a.Records.Promotions(ctx, service)
}

// Demote takes a bucket back to shadow everywhere, as actor's act. There is no
// gate: shadow drops nothing.
func (a *App) Demote(ctx context.Context, service, bucket, actor, reason string) error {
	if err := a.mayAct(); err != nil {
		return err
	}
	if _, err := a.setMode(ctx, service, bucket, rlc.Shadow, nil, actor, "Back to shadow: "+bucket+"\n\n"+reason); err != nil {
		return err
	}
	all, err := a.Records.Promotions(ctx, service)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Bucket == bucket && p.State == rollout.Growing {
			return a.savePromotion(ctx, rollout.Advance(p, rollout.Back, "by "+actor+": "+reason, time.Now().UTC()), actor, "promotion.back")
		}
	}
	return a.Records.SetAudited(ctx, "demoted."+service, bucket, rlc.AuditEntry{At: time.Now().UTC(), Actor: actor, Action: "promotion.back", Object: service + "/" + bucket, Detail: reason})
}

// mindRollouts looks after promotions, after what was merged lately and after
// whom to tell of it, on the replica that leads, until ctx ends.
func (a *App) mindRollouts(ctx context.Context) error {
	every := min(max(a.rules().Complete().Soak/20, 100*time.Millisecond), 10*time.Second)
	for wait(ctx, every) {
		if !a.leads.Load() {
			continue
		}
		if err := a.announce(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("tell callers of what is proposed", "err", err)
		}
		if a.stopped() {
			continue
		}
		growing, err := a.Records.GrowingPromotions(ctx)
		for _, p := range growing {
			err = errors.Join(err, a.mindPromotion(ctx, p))
		}
		if err = errors.Join(err, a.mindMerged(ctx)); err != nil && ctx.Err() == nil {
			a.log.Warn("look after promotions", "err", err)
		}
	}
	return nil
}

// mindPromotion takes the next step of one promotion.
func (a *App) mindPromotion(ctx context.Context, p rollout.Promotion) error {
	now := time.Now().UTC()
	_, c := a.Desired()
	if c == nil {
		return nil
	}
	seen := rollout.Seen{}
	counts, err := a.History.Counts(ctx, p.Service, now.Sub(p.Stage), now)
	if err == nil {
		seen.Known = true
		for _, n := range counts {
			if n.Bucket == p.Bucket {
				seen.Offered, seen.Drops = seen.Offered+n.Offered, seen.Drops+n.Drops
			}
		}
	}
	act, why := rollout.Judge(p, seen, now, a.rules())
	if act == rollout.Wait {
		return nil
	}
	if edited := a.editedMeanwhile(p, c); edited != "" && act != rollout.Back {
		act, why = rollout.Halt, edited
	}
	next := rollout.Advance(p, act, why, now)
	subject := p.Service + " / " + p.Bucket
	switch act {
	case rollout.Grow:
		_, err := a.stage(ctx, next, fmt.Sprintf("Enforce %s%s\n\nThe stage before soaked: %s. Approved by %s.", p.Bucket, inZones(next.Zones()), why, p.Actor))
		return err
	case rollout.Back:
		commit, err := a.setMode(ctx, p.Service, p.Bucket, rlc.Shadow, nil, p.Actor, fmt.Sprintf("Back to shadow: %s\n\nHalted by itself: %s. The promotion was approved by %s.", p.Bucket, why, p.Actor))
		if err != nil {
			return err
		}
		next.Commit = commit.Hash
		if err := a.savePromotion(ctx, next, p.Actor, "promotion.back"); err != nil {
			return err
		}
		return a.tell(ctx, rlc.Notice{ID: p.ID + "-back", Kind: "rollback", Service: p.Service, Urgent: true, Text: subject + " is back in shadow: " + why, URL: a.historyURL(p.Service)})
	case rollout.Halt:
		if err := a.savePromotion(ctx, next, p.Actor, "promotion.halt"); err != nil {
			return err
		}
		return a.tell(ctx, rlc.Notice{ID: p.ID + "-halt", Kind: "halt", Service: p.Service, Urgent: true, Text: "The promotion of " + subject + " stopped: " + why, URL: a.historyURL(p.Service)})
	}
	if err := a.savePromotion(ctx, next, p.Actor, "promotion.done"); err != nil {
		return err
	}
	return a.tell(ctx, rlc.Notice{ID: p.ID + "-done", Kind: "promotion", Service: p.Service, Text: subject + " enforces" + inZones(next.Zones()) + ": " + why, URL: a.historyURL(p.Service)})
}

// editedMeanwhile says that people changed what a promotion is about.
func (a *App) editedMeanwhile(p rollout.Promotion, c *quotafile.Config) string {
	s := c.Service(p.Service)
	if s == nil || s.Bucket(p.Bucket) == nil {
		return "the bucket is gone, or its policy is not valid"
	}
	b := s.Bucket(p.Bucket)
	if b.Mode != rlc.Enforce || !slices.Equal(b.Rollout, p.Zones()) {
		return "somebody changed the bucket's mode or zones in policy.yaml"
	}
	return ""
}

func (a *App) historyURL(service string) string {
	return a.URL + "/services/" + pathEscape(service) + "/history"
}
