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
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/scheduler"
	"github.com/openrlc/rlc/quotafile"
)

// leadership is the name of the row that decides which replica fires jobs.
const leadership = "scheduler"

// committer signs RLC's own commits.
const committer = "rlc"

// headKey names the last followed commit in the records.
const headKey = "head"

// truths are what is desired (the base branch) and what is live (acknowledged
// by every enforcer). The zero value knows neither.
type truths struct {
	mu      sync.Mutex
	head    rlc.Commit
	desired *quotafile.Config
	sent    map[rlc.Version]*quotafile.Config // distributed, not yet live
	version rlc.Version
	live    *quotafile.Config
	acks    []rlc.Ack // by name; as last heard
}

func (t *truths) hear(acks []rlc.Ack) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acks = acks
}

func (t *truths) desire() (rlc.Commit, *quotafile.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head, t.desired
}

func (t *truths) alive() (rlc.Version, *quotafile.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version, t.live
}

// Desired is the base branch as last read; the config is nil before that.
func (a *App) Desired() (rlc.Commit, *quotafile.Config) { return a.truths.desire() }

// Live is the newest snapshot that every enforcer has acknowledged; the config
// is nil before the first.
func (a *App) Live() (rlc.Version, *quotafile.Config) { return a.truths.alive() }

func (t *truths) read(head rlc.Commit, c *quotafile.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.head, t.desired = head, c
}

func (t *truths) distributing(v rlc.Version, c *quotafile.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sent == nil {
		t.sent = map[rlc.Version]*quotafile.Config{}
	}
	t.sent[v] = c
}

// acknowledged takes it that every enforcer has v, or something newer; false
// where v's content is not known.
func (t *truths) acknowledged(v rlc.Version) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live != nil && v == t.version {
		return true
	}
	c, ok := t.sent[v]
	if !ok {
		return false
	}
	t.version, t.live = v, c
	maps.DeleteFunc(t.sent, func(o rlc.Version, _ *quotafile.Config) bool { return o.Compare(v) <= 0 })
	return true
}

// each is what a bucket counts by: as the base branch has it, else, where its
// service does not validate, as enforcers do.
func (a *App) each(service, bucket string) ([]string, bool) {
	_, desired := a.Desired()
	_, live := a.Live()
	for _, c := range []*quotafile.Config{desired, live} {
		if c == nil || c.Service(service) == nil {
			continue
		}
		if b := c.Service(service).Bucket(bucket); b != nil {
			return b.Each, true
		}
	}
	return nil, false
}

// leaseTime is how long a claim to leadership holds without being renewed.
const leaseTime = 6 * time.Second

// lead keeps this replica's claim to leadership alive until ctx ends.
func (a *App) lead(ctx context.Context) error {
	for {
		if err := a.claim(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("leadership", "err", err)
		}
		if !wait(ctx, leaseTime/3) {
			return nil
		}
	}
}

// claim asks for leadership, or keeps it. A new leader's epoch is above every
// one that the base branch or the enforcers have seen.
func (a *App) claim(ctx context.Context) error {
	a.leading.Lock()
	defer a.leading.Unlock()
	least := a.Enforcer.Version().Epoch
	if head, _, err := a.Repo.Head(ctx); err == nil {
		least = max(least, head.Version.Epoch)
	}
	epoch, leads, err := a.Records.Lead(ctx, leadership, a.holder, leaseTime, least)
	if err != nil {
		a.leads.Store(false)
		a.leader.Store(0)
		return err
	}
	a.leader.Store(epoch)
	before := a.leads.Load()
	if leads {
		a.epoch.Store(epoch)
	}
	a.leads.Store(leads)
	if leads != before {
		a.log.Info("leadership", "leads", leads, "epoch", epoch)
		a.Nudge()
	}
	return nil
}

// raise gives up leadership and takes it again under a new name, which raises
// the epoch.
func (a *App) raise(ctx context.Context) error {
	holder, err := randomHex(8)
	if err != nil {
		return err
	}
	a.leading.Lock()
	err = a.Records.Resign(ctx, leadership, a.holder)
	a.holder = holder
	a.leading.Unlock()
	if err != nil {
		return err
	}
	if err := a.claim(ctx); err != nil {
		return err
	}
	if !a.leads.Load() {
		return fmt.Errorf("%w: another replica leads now", rlc.ErrFenced)
	}
	return nil
}

// lease is the leadership that jobs are fired under.
func (a *App) lease(context.Context) (uint64, bool) { return a.epoch.Load(), a.leads.Load() }

// schedule is the scheduler's table: the recomputation of all services.
func (a *App) schedule() scheduler.Config {
	return scheduler.Config{
		Log: a.log, Lead: a.lease,
		Jobs: []scheduler.Job{{
			Name: "recompute", Schedule: a.Config.Schedule,
			Run: func(ctx context.Context, slot scheduler.Slot) error {
				if err := a.mayAct(); err != nil {
					return err
				}
				_, err := a.carry(ctx, planner.Ask{Trigger: rlc.ByCron, Slot: slot.Key(), Now: slot.Time})
				return err
			},
		}, {
			Name: "often", Schedule: "@every 1m", Run: a.often,
		}, {
			Name: "housekeeping", Schedule: "41 3 * * *",
			Run: func(ctx context.Context, slot scheduler.Slot) error {
				records := a.Records.Fenced(a.epoch.Load())
				err := records.PruneRuns(ctx, slot.Time.AddDate(0, 0, -90))
				return errors.Join(err, records.PruneDays(ctx, slot.Time.AddDate(0, 0, -62)))
			},
		}},
	}
}

// often runs the services that want it more often than the schedule: each once
// in its own interval.
func (a *App) often(ctx context.Context, slot scheduler.Slot) error {
	if a.mayAct() != nil {
		return nil // said on every page
	}
	services, err := a.Planner.Often(ctx)
	if err != nil || len(services) == 0 {
		return err
	}
	schedule, err := scheduler.ParseSchedule(a.Config.Schedule)
	if err != nil {
		return err
	}
	next := schedule.Next(slot.Time)
	usual := schedule.Next(next).Sub(next)
	for _, s := range slices.Sorted(maps.Keys(services)) {
		every := services[s]
		if every >= usual {
			continue
		}
		at := slot.Time.Truncate(every)
		ask := planner.Ask{Trigger: rlc.ByCron, Slot: "often-" + at.Format("20060102T150405Z") + "-" + s, Service: s, Now: slot.Time}
		if _, e := a.carry(ctx, ask); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// follow watches the base branch: what is merged is distributed, a person's
// edit fires a run of its service, and open proposals are settled by what
// happened outside.
func (a *App) follow(ctx context.Context) error {
	for {
		err := a.look(ctx)
		if err == nil {
			err = a.Repo.Trouble() // what was fetched earlier still answers
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			a.status.set("repository", "bad", "The config repository cannot be read: quotas stay as they are.", err.Error())
			a.log.Warn("follow", "err", err)
		default:
			a.status.clear("repository")
		}
		if !a.waitFor(ctx, a.nudge) {
			return nil
		}
	}
}

// waitFor waits for a signal, at most as long as polling does; false when ctx
// ended.
func (a *App) waitFor(ctx context.Context, signal <-chan struct{}) bool {
	t := time.NewTimer(a.Config.Poll)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-signal:
	}
	return true
}

// Nudge makes the follower look at once.
func (a *App) Nudge() {
	select {
	case a.nudge <- struct{}{}:
	default:
	}
}

func (a *App) look(ctx context.Context) error {
	head, files, err := a.Repo.Head(ctx)
	if err != nil {
		return err
	}
	seen, err := a.Records.Get(ctx, headKey)
	if err != nil {
		return fmt.Errorf("last followed commit: %w", err)
	}
	known, _ := a.Desired()
	// A new leader goes through the head once, whatever it did as a standby.
	at := followed{head: head.Hash, epoch: a.mine()}
	leads := at.epoch != 0
	if known.Hash == head.Hash && (!leads || seen == head.Hash && a.followed == at) {
		return a.settle(ctx)
	}
	if seen != "" && seen != head.Hash {
		rewritten, err := a.Repo.Rewritten(ctx, seen)
		if err != nil {
			return err
		}
		a.rewritten.Store(rewritten)
		if rewritten {
			a.status.set("rewritten", "bad", "History of the base branch was rewritten: nothing is computed or distributed until a person says so.",
				fmt.Sprintf("%s is no longer on the first-parent line of %s; look at the branch, then let RLC follow it: rlc follow, or POST /api/v1/follow", short(seen), short(head.Hash)))
			return nil
		}
	}
	a.rewritten.Store(false)
	a.status.clear("rewritten")
	parsed := quotafile.Parse(files, a.policies.Check)
	a.truths.read(head, parsed)
	if a.stopped() {
		return nil // what was merged is distributed when automation goes on
	}
	if err := a.distribute(ctx, head, files, parsed); err != nil {
		return err
	}
	// How far the branch was followed is the leader's to say: a standby must
	// not swallow an edit that no run has answered.
	if !leads {
		return nil
	}
	if err := a.settle(ctx); err != nil {
		return err
	}
	if err := a.summaries.rebuild(ctx, a, nil); err != nil {
		return err
	}
	if seen != "" && seen != head.Hash {
		if err := a.react(ctx, seen, head); err != nil {
			return err
		}
	}
	if err := a.Records.Fenced(at.epoch).Set(ctx, headKey, head.Hash); err != nil {
		return err
	}
	a.followed = at
	return nil
}

// followed is how far the follower went, and as whom.
type followed struct {
	head  string
	epoch uint64
}

// distribute sends head to the enforcers. A service whose own files do not
// validate keeps those of the snapshot in force, so that one team's mistake
// stops nobody else; what concerns all services (defaults, profiles, contracts)
// must be valid, else the last good snapshot stays whole. The exact bytes that
// go out are validated.
func (a *App) distribute(ctx context.Context, head rlc.Commit, files rlc.Files, parsed *quotafile.Config) error {
	if parsed.Valid() == nil {
		a.status.clear("invalid")
	} else {
		kept, services := a.keepGood(files, parsed)
		mended := quotafile.Parse(kept, a.policies.Check)
		if err := mended.Valid(); err != nil {
			a.status.set("invalid", "bad", "The base branch does not validate: enforcers keep the last good quotas of every service.", parsed.Valid().Error())
			return nil
		}
		a.status.set("invalid", "bad", fmt.Sprintf("Files on the base branch do not validate: %s keeps the last good quotas, the others go on.", strings.Join(services, ", ")), parsed.Valid().Error())
		files, parsed = kept, mended
	}
	if a.unused(parsed) {
		a.status.clear("undistributed")
		return nil
	}
	removers, err := a.removers(ctx, parsed)
	if err != nil {
		return err
	}
	a.truths.distributing(head.Version, parsed)
	return a.send(ctx, rlc.Snapshot{Version: head.Version, Commit: head.Hash, Files: files, RemovedBy: removers})
}

// keepGood is head's files with the folders of its invalid services as the
// snapshot in force has them, or without them where it has none; and whose they
// are.
func (a *App) keepGood(files rlc.Files, parsed *quotafile.Config) (rlc.Files, []string) {
	folders := map[string]bool{}
	for _, p := range parsed.Problems {
		if folder, ok := serviceFolder(p.File); ok && !p.Warning {
			folders[folder] = true
		}
	}
	kept := rlc.Files{}
	for path, data := range files {
		if folder, ok := serviceFolder(path); !ok || !folders[folder] {
			kept[path] = data
		}
	}
	if good := a.Enforcer.Snapshot(); good != nil {
		for path, data := range good.Files {
			if folder, ok := serviceFolder(path); ok && folders[folder] {
				kept[path] = data
			}
		}
	}
	names := make([]string, 0, len(folders))
	for folder := range folders {
		names = append(names, strings.TrimPrefix(folder, "services/"))
	}
	slices.Sort(names)
	return kept, names
}

// serviceFolder is services/<segment> of a path in it.
func serviceFolder(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, "services/")
	segment, _, inside := strings.Cut(rest, "/")
	return "services/" + segment, ok && inside
}

// removers names the people whose commits since the snapshot in force touched
// every service that lost a bucket or a quota; "" where nothing went, or where
// nobody answers for one of them.
func (a *App) removers(ctx context.Context, next *quotafile.Config) (string, error) {
	before := a.Enforcer.Snapshot()
	if before == nil {
		return "", nil
	}
	live := quotafile.Parse(before.Files, nil)
	var lost []string
	for service, quotas := range live.Quotas {
		if slices.ContainsFunc(quotas, func(q rlc.Quota) bool { return next.QuotaByID(service, q.ID()) == nil }) {
			lost = append(lost, service)
		}
	}
	for _, s := range live.Services {
		if n := next.Service(s.Name); n == nil || slices.ContainsFunc(s.Buckets, func(b rlc.Bucket) bool { return n.Bucket(b.Name) == nil }) {
			lost = append(lost, s.Name)
		}
	}
	if len(lost) == 0 {
		return "", nil
	}
	slices.Sort(lost)
	lost = slices.Compact(lost)
	touched, err := a.Repo.Touched(ctx, before.Commit, lost)
	if err != nil {
		return "", err
	}
	people := map[string]bool{}
	for _, s := range lost {
		if len(touched[s]) == 0 {
			return "", nil
		}
		for _, who := range touched[s] {
			people[who] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(people)), ", "), nil
}

// settle asks the repository what became of each open proposal.
func (a *App) settle(ctx context.Context) error {
	if !a.leads.Load() {
		return nil
	}
	open, err := a.openProposals(ctx)
	if err != nil {
		return err
	}
	var stand []rlc.Proposal
	for _, p := range open {
		now, err := a.reviews.Settle(ctx, p)
		if err != nil {
			return fmt.Errorf("proposal %s: %w", p.ID, err)
		}
		stand = append(stand, now)
		if now.State == p.State && now.Human == p.Human && now.Commit == p.Commit && now.Content == p.Content {
			continue
		}
		if now.State != p.State {
			if err := a.found(ctx, now); err != nil {
				return err
			}
			continue
		}
		err = a.Records.Fenced(a.epoch.Load()).SeenProposal(ctx, p, now)
		if errors.Is(err, rlc.ErrConflict) {
			stand = stand[:len(stand)-1] // a person moved it since; the next look sees that
			continue
		}
		if err != nil {
			return err
		}
		if err := a.summaries.rebuild(ctx, a, []string{p.Service}); err != nil {
			return err
		}
	}
	a.mergeOpen(ctx, stand)
	return nil
}

// react fires a run of each service whose policy a person changed between two
// heads. RLC's own commits change numbers only and fire nothing.
func (a *App) react(ctx context.Context, from string, head rlc.Commit) error {
	services, all, err := a.Repo.Changed(ctx, from, head.Hash)
	if err != nil {
		return err
	}
	if all {
		services = []string{""}
	}
	slices.Sort(services)
	for _, s := range services {
		slot := short(head.Hash)
		if s != "" {
			slot += "-" + quotafile.PathSegment(s)
		}
		// Claimed before the head is noted: a run that was claimed is carried
		// out, and the same slot is not claimed twice.
		if _, err := a.ask(ctx, planner.Ask{Trigger: rlc.ByConfig, Slot: slot, Service: s, Now: time.Now().UTC().Truncate(time.Second)}); err != nil {
			return err
		}
	}
	return nil
}

// resume carries on what an earlier process left, what another replica was
// asked for, and what failed before.
func (a *App) resume(ctx context.Context) error {
	for {
		pause := max(a.Config.Poll, time.Second)
		switch {
		case !a.leads.Load():
			pause = min(a.Config.Poll, 200*time.Millisecond)
		case a.resumeLeft(ctx) != nil:
			pause = 10 * time.Second
		}
		if !wait(ctx, pause) {
			return nil
		}
	}
}

func (a *App) resumeLeft(ctx context.Context) error {
	if a.stopped() {
		return nil
	}
	left, err := a.Records.UnfinishedRuns(ctx)
	if err == nil {
		err = a.refreshing(ctx, a.Planner.Resume)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		a.log.Warn("resume", "err", err)
		a.status.set("publish", "warn", "A proposal could not be published; it is tried again.", err.Error())
	} else {
		a.status.clear("publish")
	}
	for _, run := range left {
		if now, e := a.Records.RunByID(ctx, run.ID); e == nil && now.Stage == rlc.Finished {
			err = errors.Join(err, a.conclude(ctx, now))
		}
	}
	return err
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func short(hash string) string { return hash[:min(len(hash), 12)] }

func orUnknown(actor string) string {
	if actor == "" {
		return "somebody with access to the repository"
	}
	return actor
}
