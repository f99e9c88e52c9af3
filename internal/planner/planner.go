// Package planner carries out one run: it reads the policies at one commit and
// each bucket's history, asks the policies, guards and backtests their answers,
// and puts up one proposal per service.
//
// A run is a state machine whose stages are recorded before the next begins, so
// that a run killed at any point is carried to its end by Resume:
//
//	claim the slot → read, compute, guard → store everything with an outbox row
//	per proposal, in one transaction → publish → record → finish
//
// Before it is stored, a killed run is computed again with the same now; after
// it, the run goes on from what was stored and reads no history. Publishing is
// idempotent, so a proposal that was published but not recorded is published
// again without a trace.
//
// How a run ends: ok, every quota decided or held for lack of evidence;
// degraded, one or more (it may be all of them) held by a failed read of
// history or by a policy that does not parse; refused, the fleet breaker, and
// nothing was published; failed, nothing could be computed because the config
// repository could not be read or what was found could not be stored, or nothing
// that it proposed can be published (rlc.ErrUnpublishable; degraded where other
// proposals are). What fails for another reason is tried again. A run whose leader has changed, or whose
// process ends, is not over: it stays for Resume.
package planner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/fault"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// Config says what a planner works with. Repo, History, Records, Policies and
// Publisher are required.
type Config struct {
	Repo      Repo
	History   History
	Records   Records
	Policies  *policies.Registry
	Publisher Publisher

	// Instances answers capacity's queries. Nil: History does, where it can, and
	// where it cannot a capacity per instance is not known.
	Instances Instances
	// Epoch is the leadership epoch that fences what a run writes. Nil: 0, not
	// fenced, as for a command run by hand.
	Epoch func() uint64
	// PageURL is where people review a proposal. Nil: "/proposals/" and its id.
	PageURL func(proposalID string) string
	// Branch is where a proposal for a service is put up. Nil: "rlc/" and its path
	// segment.
	Branch func(*rlc.Service) string
	// Waiting tells which proposals are not to be put up yet, by id, and why. Such a
	// wait is no failure: its run ends, and the proposal is put up once it is not
	// among them. Nil: none waits.
	Waiting func(ctx context.Context) (map[string]string, error)
	// Riskier orders the proposals of a run by their changes, negative where a is to
	// be put up first. Nil: by service.
	Riskier func(a, b []rlc.Change) int
	// Deadline bounds the reading and computing of one run, 10 minutes by
	// default. Services that it leaves unread are held, and the run is degraded.
	Deadline time.Duration
	// Parallel is how many services are read at once, 2 by default.
	Parallel int
	// Clock tells when a run starts and ends; it decides no quota. Nil:
	// time.Now.
	Clock func() time.Time
	// Jitter picks a wait between 0 and most before publishing is tried again.
	// Nil: evenly at random.
	Jitter func(most time.Duration) time.Duration
	// Log takes what nobody waits for. Nil: nothing is logged.
	Log *slog.Logger
}

// Repo is the config repository as runs see it.
type Repo interface {
	// Head is the base branch's newest commit and its files.
	Head(ctx context.Context) (rlc.Commit, rlc.Files, error)
	// Publishable says whether p could be put up as things are, without doing it:
	// rlc.ErrUnpublishable, in the publisher's words, where no later try could.
	Publishable(ctx context.Context, p rlc.Proposal) error
	// At returns the base branch's files as they were at t; rlc.ErrNotFound
	// before the first commit.
	At(ctx context.Context, t time.Time) (rlc.Files, error)
	// Edited returns, by quota ID, who changed a line of the service's
	// quotas.yaml by hand on the base branch.
	Edited(ctx context.Context, service string) (map[string]string, error)
	// Stale is "" where the files rendered for the service's targets hold the
	// numbers of the base branch, else a hash of what they shall hold.
	Stale(ctx context.Context, service string) (string, error)
}

// History is where past traffic comes from.
type History interface {
	// Service reads the series of a service's computed buckets and yields them
	// one at a time; a history's hours and tail are yield's until it returns.
	// What is wrong with one series is in its History.Problems; an error means
	// that the rest of the service could not be read.
	Service(ctx context.Context, req rlc.HistoryRequest, yield func(rlc.Series) error) error
}

// Instances counts what a capacity per instance is multiplied with.
type Instances interface {
	// Number is the value of a query that gives one number at a time; known is
	// false where it gives none.
	Number(ctx context.Context, expr string, at time.Time) (value float64, known bool, err error)
}

// Publisher puts a proposal before its reviewers.
type Publisher interface {
	// Publish is idempotent: it finds out what already stands outside before it
	// does anything. It returns p with what became of it. rlc.ErrUnpublishable
	// ends the proposal as failed; after any other error it is tried again.
	Publish(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error)
}

// Records is where runs are kept.
type Records interface {
	BeginRun(ctx context.Context, run rlc.Run) (stored rlc.Run, created bool, err error)
	StoreRun(ctx context.Context, run rlc.Run, changes []rlc.Change, proposals []rlc.Proposal) error
	FinishRun(ctx context.Context, run rlc.Run) error
	RunByID(ctx context.Context, id string) (rlc.Run, error)
	RunChanges(ctx context.Context, runID string, heldOnly bool, p rlc.Page) ([]rlc.Change, int, error)
	Runs(ctx context.Context, p rlc.Page) ([]rlc.Run, int, error)
	UnfinishedRuns(ctx context.Context) ([]rlc.Run, error)
	Recent(ctx context.Context, service string, since time.Time) (map[string][]rlc.RecentEstimate, error)
	Verdicts(ctx context.Context, service string) ([]rlc.Verdict, error)

	Proposals(ctx context.Context, state rlc.ProposalState, service string, p rlc.Page) ([]rlc.Proposal, int, error)
	ProposalByID(ctx context.Context, id string) (rlc.Proposal, error)
	SetProposal(ctx context.Context, p rlc.Proposal, audit *rlc.AuditEntry) error
	Published(ctx context.Context, epoch uint64, p rlc.Proposal, audit *rlc.AuditEntry) error
	Outbox(ctx context.Context) ([]rlc.OutboxRow, error)
	OutboxFailed(ctx context.Context, proposalID, reason string, notBefore time.Time) error
}

// Ask asks for one run.
type Ask struct {
	Trigger rlc.Trigger
	// Slot tells this firing of the trigger from all others: a run of the same
	// trigger, slot and service happens once. "": the time of Now.
	Slot    string
	Service string    // only this one; "" for all
	Now     time.Time // fixed for every bucket; zero: the clock's time
	Actor   string    // who asked; "" for cron
	// Policy is a draft of Service's policy.yaml, for Plan alone: what the base branch
	// would be with it. Nil: the base branch as it is.
	Policy []byte
	// Epoch is the leadership that a run is claimed for, where it is another's
	// to carry out; 0: the planner's own.
	Epoch uint64
	// Progress is told after each service how many of how many are done. It is
	// called by one goroutine at a time. Nil: nobody is told.
	Progress func(done, total int, service string)
	// Claimed is told the run as soon as its slot is claimed. Nil: nobody is.
	Claimed func(rlc.Run)
}

// Planner carries out runs, one at a time. Its methods may be called
// concurrently: they wait for each other.
type Planner struct {
	cfg  Config
	turn chan struct{}     // holds a token while nobody runs
	told map[string]string // why proposals wait, by id, as noted; of whoever has the turn
}

// New returns a planner, or says which required part is missing.
func New(cfg Config) (*Planner, error) {
	for _, part := range []struct {
		missing bool
		name    string
	}{
		{cfg.Repo == nil, "Repo"}, {cfg.History == nil, "History"}, {cfg.Records == nil, "Records"},
		{cfg.Policies == nil, "Policies"}, {cfg.Publisher == nil, "Publisher"},
	} {
		if part.missing {
			return nil, fmt.Errorf("%w: planner without %s", rlc.ErrInvalid, part.name)
		}
	}
	if cfg.Instances == nil {
		cfg.Instances, _ = cfg.History.(Instances)
	}
	if cfg.Epoch == nil {
		cfg.Epoch = func() uint64 { return 0 }
	}
	if cfg.PageURL == nil {
		cfg.PageURL = func(id string) string { return "/proposals/" + id }
	}
	if cfg.Branch == nil {
		cfg.Branch = func(s *rlc.Service) string { return "rlc/" + quotafile.PathSegment(s.Name) }
	}
	if cfg.Deadline <= 0 {
		cfg.Deadline = 10 * time.Minute
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = 2
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func(most time.Duration) time.Duration { return rand.N(most + 1) }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Planner{cfg: cfg, turn: make(chan struct{}, 1), told: map[string]string{}}
	p.turn <- struct{}{}
	return p, nil
}

// RunID names the run that an ask leads to, by its trigger, its slot and, where
// the slot does not name it, its service. It is safe in a URL and a trailer; a
// slot with other characters than those of a time and a name, or a very long
// one, is told apart by a hash. An ask without a slot needs its Now.
func RunID(ask Ask) string {
	slot := ask.Slot
	if slot == "" {
		slot = ask.Now.UTC().Format("2006-01-02T15:04:05.999999Z")
	}
	id := string(ask.Trigger) + "-" + slot
	if s := ask.Service; s != "" && !strings.HasSuffix(id, "-"+s) && !strings.HasSuffix(id, "-"+quotafile.PathSegment(s)) {
		id += "-" + quotafile.PathSegment(s)
	}
	const longest = 100
	lossy := len(id) > longest
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		case r == ':':
			return '-' // as in a time
		}
		lossy = true
		return '-'
	}, id)
	if !lossy {
		return safe
	}
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%s-%x", safe[:min(len(safe), longest)], sum[:4])
}

// Run carries out the run that ask leads to and returns its record. It happens
// once: where a run of the same id has finished, that one's record is returned;
// where one was begun, it is carried on. A run that would only repeat another
// (see repeats) does not happen at all, and the other's record is returned.
//
// An error says that the run could not be carried to its end now; the record
// returned with it says how far it came, and Resume carries it on. An unknown
// service is rlc.ErrNotFound, and no run.
func (p *Planner) Run(ctx context.Context, ask Ask) (rlc.Run, error) {
	if err := p.wait(ctx); err != nil {
		return rlc.Run{}, err
	}
	defer p.done()

	run := p.newRun(ask)
	claimed := func(r rlc.Run) {
		if ask.Claimed != nil {
			ask.Claimed(r)
		}
	}
	begun, err := p.cfg.Records.RunByID(ctx, run.ID)
	switch {
	case err == nil && begun.Stage == rlc.Finished:
		claimed(begun)
		return begun, nil
	case err != nil && !errors.Is(err, rlc.ErrNotFound):
		return run, fmt.Errorf("look for run %s: %w", run.ID, err)
	}
	head, headErr := p.head(ctx)
	if headErr == nil {
		if !head.has(run.Service) {
			return rlc.Run{}, fmt.Errorf("%w: service %q in the config repository at %.12s", rlc.ErrNotFound, run.Service, head.commit.Hash)
		}
		run.Commit = head.commit.Hash
		switch old, found, err := p.repeated(ctx, run, head); {
		case err != nil:
			return run, err
		case found && begun.Stage == rlc.Claimed:
			return begun, p.finishRepeat(ctx, &begun, old)
		case found:
			claimed(old)
			return old, nil
		}
	}
	stored, _, err := p.cfg.Records.BeginRun(ctx, run)
	if err != nil {
		return run, fmt.Errorf("claim run %s: %w", run.ID, err)
	}
	if stored.Commit == "" {
		stored.Commit = run.Commit
	}
	fault.Hit("after-claim")
	claimed(stored)
	return p.carry(ctx, stored, head, headErr, ask.Progress)
}

// Claim records the run that ask leads to without waiting for those before it,
// so that it outlives this process: Run with the same ask carries it, or Resume
// after a restart. A run of the same id that is recorded already is returned as
// it is.
func (p *Planner) Claim(ctx context.Context, ask Ask) (rlc.Run, error) {
	run, _, err := p.cfg.Records.BeginRun(ctx, p.newRun(ask))
	if err != nil {
		return run, fmt.Errorf("claim run %s: %w", run.ID, err)
	}
	return run, nil
}

// Plan computes what Run would find now and writes nothing, except that reading
// history may keep what it read. The run returned has no record.
func (p *Planner) Plan(ctx context.Context, ask Ask) (rlc.Run, []rlc.Change, error) {
	if err := p.wait(ctx); err != nil {
		return rlc.Run{}, nil, err
	}
	defer p.done()
	run := p.newRun(ask)
	if ask.Policy != nil {
		return p.planDraft(ctx, run, ask)
	}
	head, err := p.head(ctx)
	if err != nil {
		return run, nil, err
	}
	if !head.has(run.Service) {
		return run, nil, fmt.Errorf("%w: service %q in the config repository at %.12s", rlc.ErrNotFound, run.Service, head.commit.Hash)
	}
	found, err := p.compute(ctx, &run, head, ask.Progress)
	if err != nil {
		return run, nil, err
	}
	run.Result = resultOf(run.Detail)
	return run, found.changes, nil
}

// planDraft is Plan with a draft of a policy: what a run would find, and what the
// limits that it writes by hand would have dropped.
func (p *Planner) planDraft(ctx context.Context, run rlc.Run, ask Ask) (rlc.Run, []rlc.Change, error) {
	draft, base, err := p.drafted(ctx, ask.Service, ask.Policy)
	if err != nil {
		return run, nil, err
	}
	found, err := p.compute(ctx, &run, draft, ask.Progress)
	if err != nil {
		return run, nil, err
	}
	written, err := p.written(ctx, &run, draft, base)
	if err != nil {
		return run, nil, err
	}
	run.Result = resultOf(run.Detail)
	changes := append(found.changes, written...)
	slices.SortStableFunc(changes, byQuota)
	return run, changes, nil
}

// Resume carries unfinished runs and unpublished proposals to their end: at
// start, after a change of leader, and from time to time after failures. A
// proposal whose next try is not due yet waits. A claimed run that a newer one
// has overtaken is given up.
func (p *Planner) Resume(ctx context.Context) error {
	if err := p.wait(ctx); err != nil {
		return err
	}
	defer p.done()
	runs, err := p.cfg.Records.UnfinishedRuns(ctx)
	if err != nil {
		return fmt.Errorf("look for unfinished runs: %w", err)
	}
	var failed []error
	unfinished := map[string]bool{}
	for _, run := range runs {
		unfinished[run.ID] = true
		if err := p.resume(ctx, run); err != nil {
			failed = append(failed, fmt.Errorf("run %s: %w", run.ID, err))
		}
		if ctx.Err() != nil {
			return some(failed)
		}
	}
	// What waited for its turn when its run ended.
	if err := p.publish(ctx, func(run string) bool { return !unfinished[run] }); err != nil {
		failed = append(failed, err)
	}
	return some(failed)
}

func (p *Planner) resume(ctx context.Context, run rlc.Run) error {
	if run.Stage == rlc.Stored {
		_, err := p.carry(ctx, run, nil, nil, nil)
		return err
	}
	head, headErr := p.head(ctx)
	if headErr == nil {
		run.Commit = head.commit.Hash
		switch old, found, err := p.repeated(ctx, run, head); {
		case err != nil:
			return err
		case found:
			return p.finishRepeat(ctx, &run, old)
		}
	}
	newer, err := p.overtaken(ctx, run)
	if err != nil {
		return err
	}
	if newer != "" {
		run.Detail = failedBy + "it was interrupted, and " + newer + " has taken its place"
		return p.finish(ctx, &run)
	}
	if headErr == nil && !head.has(run.Service) {
		run.Detail = failedBy + "the service is no longer in the config repository"
		return p.finish(ctx, &run)
	}
	_, err = p.carry(ctx, run, head, headErr, nil)
	return err
}

// carry takes a claimed or stored run to its end.
func (p *Planner) carry(ctx context.Context, run rlc.Run, head *head, headErr error, progress func(int, int, string)) (rlc.Run, error) {
	run.Epoch = p.cfg.Epoch()
	if run.Stage == rlc.Claimed {
		if headErr != nil {
			if ctx.Err() != nil {
				return run, headErr
			}
			run.Detail = failedBy + text(headErr)
			return run, errors.Join(headErr, p.finish(ctx, &run))
		}
		run.Commit = head.commit.Hash
		found, err := p.compute(ctx, &run, head, progress)
		if err != nil {
			if ctx.Err() != nil {
				return run, err
			}
			run.Detail = failedBy + text(err)
			return run, errors.Join(err, p.finish(ctx, &run))
		}
		fault.Hit("after-compute")
		if err := p.cfg.Records.StoreRun(ctx, run, found.changes, found.proposals); err != nil {
			if errors.Is(err, rlc.ErrInvalid) { // what was found cannot be stored: neither can it be next time
				run.Detail = failedBy + text(err)
				err = errors.Join(err, p.finish(ctx, &run))
			}
			return run, err
		}
		run.Stage = rlc.Stored
		fault.Hit("after-store")
	}
	if err := p.publish(ctx, func(id string) bool { return id == run.ID }); err != nil {
		return run, err
	}
	if err := p.unpublished(ctx, &run); err != nil {
		return run, err
	}
	return run, p.finish(ctx, &run)
}

// finish ends run with the result that its detail tells.
func (p *Planner) finish(ctx context.Context, run *rlc.Run) error {
	end := *run
	end.Epoch = p.cfg.Epoch()
	end.Stage, end.Result, end.Finished = rlc.Finished, resultOf(run.Detail), p.now()
	if err := p.cfg.Records.FinishRun(ctx, end); err != nil {
		return err
	}
	*run = end
	return nil
}

// A run's detail begins with its result unless that is ok, so that a stored run
// which is resumed ends as it would have ended.
const (
	degradedBy = "degraded: "
	refusedBy  = "refused: "
	failedBy   = "failed: "
)

func resultOf(detail string) rlc.Result {
	switch {
	case strings.HasPrefix(detail, degradedBy):
		return rlc.ResultDegraded
	case strings.HasPrefix(detail, refusedBy):
		return rlc.ResultRefused
	case strings.HasPrefix(detail, failedBy):
		return rlc.ResultFailed
	}
	return rlc.ResultOK
}

func (p *Planner) newRun(ask Ask) rlc.Run {
	if ask.Now.IsZero() {
		ask.Now = p.cfg.Clock()
	}
	ask.Now = ask.Now.UTC().Truncate(time.Microsecond) // as records keep it
	if ask.Epoch == 0 {
		ask.Epoch = p.cfg.Epoch()
	}
	return rlc.Run{
		ID: RunID(ask), Trigger: ask.Trigger, Service: ask.Service, Now: ask.Now,
		Epoch: ask.Epoch, Stage: rlc.Claimed, Actor: ask.Actor, Started: p.now(),
	}
}

func (p *Planner) now() time.Time { return p.cfg.Clock().UTC().Truncate(time.Microsecond) }

// wait takes the turn to run.
func (p *Planner) wait(ctx context.Context) error {
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the run before: %w", ctx.Err())
	}
}

func (p *Planner) done() { p.turn <- struct{}{} }

// sameMoment is how close the nows of two runs are that fire at once: their
// evidence differs by a step or less.
const sameMoment = time.Minute

// repeated looks for a finished run that run would only repeat: of the same
// commit, over the same services, that ended ok. After a change of the config
// repository any such run will do, because it has read that change; otherwise
// it must be of the same moment. What a person asks for always happens.
func (p *Planner) repeated(ctx context.Context, run rlc.Run, head *head) (old rlc.Run, found bool, err error) {
	if run.Trigger == rlc.ByPerson {
		return rlc.Run{}, false, nil
	}
	runs, _, err := p.cfg.Records.Runs(ctx, rlc.Page{Number: 1, Size: 20})
	if err != nil {
		return rlc.Run{}, false, fmt.Errorf("look for the runs before: %w", err)
	}
	for _, old := range runs {
		if old.Stage != rlc.Finished || old.Result != rlc.ResultOK || old.Commit != run.Commit || !head.covers(old, run) {
			continue
		}
		if run.Trigger == rlc.ByConfig || old.Now.Sub(run.Now).Abs() < sameMoment {
			return old, true, nil
		}
	}
	return rlc.Run{}, false, nil
}

// finishRepeat ends a claimed run that would only repeat old: nothing failed.
func (p *Planner) finishRepeat(ctx context.Context, run *rlc.Run, old rlc.Run) error {
	run.Commit, run.Total, run.Held, run.Detail = old.Commit, old.Total, old.Held, rlc.Repeating(old.ID)
	return p.finish(ctx, run)
}

// overtaken returns the id of a newer run that has computed what run would, or
// "".
func (p *Planner) overtaken(ctx context.Context, run rlc.Run) (string, error) {
	runs, _, err := p.cfg.Records.Runs(ctx, rlc.Page{Number: 1, Size: 20})
	if err != nil {
		return "", fmt.Errorf("look for newer runs: %w", err)
	}
	for _, newer := range runs {
		if newer.Stage != rlc.Claimed && newer.Result != rlc.ResultFailed && newer.Now.After(run.Now) && covers(newer, run) {
			return newer.ID, nil
		}
	}
	return "", nil
}

// covers reports whether a has looked at everything that b would.
func covers(a, b rlc.Run) bool { return a.Service == "" || a.Service == b.Service }
