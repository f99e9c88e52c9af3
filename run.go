package rlc

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Trigger says what fired a run.
type Trigger string

// The triggers.
const (
	ByCron   Trigger = "cron"
	ByConfig Trigger = "config" // a person changed the config repository
	ByPerson Trigger = "person" // somebody asked
)

// Stage is how far a run has come. Each stage is recorded before the next
// begins; a run that was killed goes on from its stage.
type Stage string

// The stages, in order.
const (
	Claimed  Stage = "claimed"  // the slot is ours
	Stored   Stage = "stored"   // changes, proposals and outbox rows are recorded
	Finished Stage = "finished" // everything in the outbox is published
)

// Result is how a run ended.
type Result string

// The results. The empty result means that the run is not over.
const (
	ResultOK       Result = "ok"       // every bucket decided, or held for lack of evidence
	ResultDegraded Result = "degraded" // one held by a failed or partial read
	ResultFailed   Result = "failed"
	ResultRefused  Result = "refused" // the fleet breaker: nothing was published
)

// Run is one pass over the services.
type Run struct {
	ID       string    // trigger + slot, safe in a URL and a trailer
	Trigger  Trigger   //
	Service  string    // only this one; "" for all
	Now      time.Time // fixed for every bucket
	Epoch    uint64    // the leader's
	Commit   string    // the base branch's commit that policies were read from
	Stage    Stage
	Result   Result
	Detail   string // one sentence for people: why it failed or was refused
	Actor    string // who asked; "" for cron
	Started  time.Time
	Finished time.Time // zero until it is over
	Held     int       // quotas held
	Changed  int       // quotas in its proposals
	Total    int       // quotas looked at
	Reused   string    // id of the run whose stored result this one resumed; ""
}

// The detail of a run that would only have repeated another one.
const repeatBegin, repeatEnd = "run ", " had read this commit already"

// Repeating is the detail of a run that computed nothing, since the run with this id
// had read the same commit.
func Repeating(id string) string { return repeatBegin + id + repeatEnd }

// Repeats is the id of the run whose results stand for this one, which computed
// nothing; "" for none.
func (r Run) Repeats() string {
	rest, begins := strings.CutPrefix(r.Detail, repeatBegin)
	id, ends := strings.CutSuffix(rest, repeatEnd)
	if !begins || !ends || strings.ContainsAny(id, " /") {
		return ""
	}
	return id
}

// RunFilter narrows what a run found. The zero value is all of it.
type RunFilter struct {
	Query   string // part of the service's name, in any case; "" for all
	Service string // exactly this one; "" for all
	Only    string // "changed", "held", or "" for all
}

// RunService is what a run found for one service.
type RunService struct {
	Service  string
	Quotas   int // looked at
	Changed  int // of them, those that would alter quotas.yaml
	Held     int // of them
	Because  []HeldFor
	Proposal string // the one that the run made of it; "" where it made none
	State    ProposalState
}

// HeldFor is one reason for which quotas of a service are held.
type HeldFor struct {
	Rule   string
	Why    string // of one of them, for people
	Failed bool   // that one was held by a failed or partial read
	Quotas int
}

// RunTotals counts the services of a run.
type RunTotals struct {
	Services int
	Changed  int // with a quota that changed
	Held     int // with one that is held
}

// Change is what a run found for one bucket's key: before, after, and why. New
// equals Old where nothing moves.
type Change struct {
	RunID     string         `json:"run"`
	Service   string         `json:"service"`
	Bucket    string         `json:"bucket"`
	Key       Key            `json:"key,omitempty"`
	At        time.Time      `json:"at"` // the run's now
	Old       *Limit         `json:"old"`
	New       *Limit         `json:"new"`
	OldMode   Mode           `json:"old_mode,omitempty"` // the quota's own mode line
	NewMode   Mode           `json:"new_mode,omitempty"`
	Region    string         `json:"region,omitempty"`   // the region whose own quota it is; "" for all
	Cap       bool           `json:"cap,omitempty"`      // it is a cap's: its requests are also those of quotas
	Remove    bool           `json:"remove,omitempty"`   // the quota's line is to go; New equals Old
	OldTimed  Timed          `json:"old_timed,omitzero"` // what the quota carries beside its rate
	NewTimed  Timed          `json:"new_timed,omitzero"`
	Held      string         `json:"held,omitempty"`     // rule that held the quota; "" where decided
	HeldWhy   string         `json:"held_why,omitempty"` // for people
	Failed    bool           `json:"failed,omitempty"`   // held by a failed or partial read
	Estimate  *Limit         `json:"estimate"`           // before the guards, unclamped; nil where abstained
	Forecast  *Forecast      `json:"forecast,omitempty"` // what the estimate expects of the hours to come, before the guards; nil where its policy forecasts none
	Look      string         `json:"look,omitempty"`     // why a person should look
	Reasons   []Reason       `json:"reasons"`
	Why       string         `json:"why"`
	Policy    string         `json:"policy"`      // kind
	PolicyID  string         `json:"policy_hash"` // hash of kind and parameters
	InputID   string         `json:"input_hash"`
	Answer    string         `json:"answer,omitempty"` // of an outside model, as received
	Peak      Peak           `json:"peak"`
	ValidDays float64        `json:"valid_days"`
	Coverage  Ratio          `json:"coverage"`
	Flags     []Flag         `json:"flags"`
	Offered   float64        `json:"offered"`   // requests in the window
	LastHour  *Rate          `json:"last_hour"` // mean of the last closed hour, nil where unknown
	Backtest  ChangeBacktest `json:"backtest"`
	Seen      *Seen          `json:"seen,omitempty"` // what is known of a held quota whose run read no traffic; nil where none is needed, or none known
}

// Summable tells of which changes the rates and requests add up: a cap's are those of
// the quotas around which it stands once more. Of caps alone it is each.
func Summable(changes []Change) func(*Change) bool {
	caps := 0
	for i := range changes {
		if changes[i].Cap {
			caps++
		}
	}
	return func(c *Change) bool { return !c.Cap || caps == len(changes) }
}

// Seen is what a run that read a quota's traffic saw of it.
type Seen struct {
	At       time.Time `json:"at"`                  // that run's now
	Peak     Peak      `json:"peak"`                // the peak that counts
	Flags    []Flag    `json:"flags,omitempty"`     // what was left out
	Offered  float64   `json:"offered"`             // requests in the window
	LastHour *Rate     `json:"last_hour,omitempty"` // mean of the last closed hour then; nil where unknown
}

// LastSeen is what the change's run saw of the traffic or, where it saw none,
// what the last one saw; the zero value where nobody has seen any.
func (c *Change) LastSeen() Seen {
	if c.Seen != nil && c.Peak.Rate <= 0 {
		return *c.Seen
	}
	return Seen{At: c.At, Peak: c.Peak, Flags: c.Flags, Offered: c.Offered, LastHour: c.LastHour}
}

// Highest is the highest step of the window with what was left out; 0 where
// unknown. What a policy leaves out without a band, as a contract does, is not in it.
func (s Seen) Highest() Rate {
	highest := s.Peak.Rate
	for _, f := range s.Flags {
		highest = max(highest, f.Peak)
	}
	return highest
}

// ChangeBacktest holds the replay of the quota in force and of the proposed
// one; nil where that quota does not exist or history is unknown.
type ChangeBacktest struct {
	Old *Backtest `json:"old"`
	New *Backtest `json:"new"`
}

// Timed is what a quota carries beside its rate: other limits for a while, and
// rates hour by hour.
type Timed struct {
	Windows []QuotaWindow `json:"windows,omitempty"` // ascending, apart from each other
	Hours   *QuotaHours   `json:"hours,omitempty"`
}

// Equal reports whether the two are the same limits at the same times.
func (t Timed) Equal(o Timed) bool {
	if (t.Hours == nil) != (o.Hours == nil) || t.Hours != nil && !(t.Hours.From.Equal(o.Hours.From) && slices.Equal(t.Hours.Rates, o.Hours.Rates)) {
		return false
	}
	return slices.EqualFunc(t.Windows, o.Windows, func(a, b QuotaWindow) bool {
		return a.From.Equal(b.From) && a.Until.Equal(b.Until) && a.Limit == b.Limit
	})
}

// Timed is what q carries beside its rate.
func (q Quota) Timed() Timed { return Timed{q.Windows, q.Hours} }

// Same reports whether two lines of one quota say the same to an enforcer.
func (q Quota) Same(o Quota) bool {
	return q.Limit == o.Limit && q.Mode == o.Mode && q.Timed().Equal(o.Timed())
}

// Was is the line that the change found in quotas.yaml, without its why; nil
// where there was none.
func (c *Change) Was() *Quota {
	if c.Old == nil {
		return nil
	}
	return &Quota{
		Bucket: c.Bucket, Key: c.Key, Region: c.Region, Limit: *c.Old, Mode: c.OldMode,
		Windows: c.OldTimed.Windows, Hours: c.OldTimed.Hours,
	}
}

// ID identifies the quota within its service, as Quota.ID does.
func (c *Change) ID() string {
	return Quota{Bucket: c.Bucket, Key: c.Key, Region: c.Region}.ID()
}

// Moves reports whether the change would alter quotas.yaml.
func (c *Change) Moves() bool {
	if c.Remove {
		return c.Old != nil
	}
	if c.New == nil {
		return false
	}
	return c.Old == nil || *c.Old != *c.New || c.OldMode != c.NewMode || !c.OldTimed.Equal(c.NewTimed)
}

// Quota is the line that the change leaves in quotas.yaml; nil where it leaves
// none.
func (c *Change) Quota() *Quota {
	if c.New == nil || c.Remove {
		return nil
	}
	return &Quota{
		Bucket: c.Bucket, Key: c.Key, Region: c.Region, Limit: *c.New, Mode: c.NewMode,
		Windows: c.NewTimed.Windows, Hours: c.NewTimed.Hours, Why: c.Why,
	}
}

// ProposalState is where a proposal stands.
type ProposalState string

// The states. A proposal starts pending and ends accepted, rejected,
// superseded or failed.
const (
	Pending    ProposalState = "pending"    // stored, its outbox row not yet carried out
	Open       ProposalState = "open"       // published for review
	Accepted   ProposalState = "accepted"   // found on the base branch
	Rejected   ProposalState = "rejected"   // by a person, with a reason
	Superseded ProposalState = "superseded" // a newer one took its place
	Failed     ProposalState = "failed"     // cannot be published; Error says why
)

// SupersededBy begins the reason of a proposal that a newer one of its service
// took the place of, before the newer one's ID. Others are superseded because the
// base branch moved away from them.
const SupersededBy = "superseded by "

// Proposal is the changes put up for one service by one run.
type Proposal struct {
	ID      string // RunID + service, safe in a URL
	RunID   string
	Service string
	State   ProposalState
	URL     string // the page where it is reviewed
	Branch  string // rlc/<service>
	Commit  string // the branch's commit once published
	Base    string // the base branch's commit it was made on
	Content string // hash of the quotas it would put in force
	Human   bool   // a person has committed to the branch: hands off
	Created time.Time
	Decided time.Time // zero until decided
	Actor   string    // who decided
	Reason  string    // why it was rejected
	Error   string    // why publishing failed last; "" when fine
	Changes []Change  // those that move
}

// RunsNumbers is what Holds says of a proposal that nobody has committed to.
const RunsNumbers = "run"

// Holds names what would be accepted: RunsNumbers, which stay the same however often
// the branch is rebuilt, or the newest commit of a person.
func (p *Proposal) Holds() string {
	if p.Human {
		return p.Commit
	}
	return RunsNumbers
}

// StillHolds is nil where p holds what somebody was shown of it: seen is as Holds said,
// or its commit, or "", which is whatever it holds. Else it is ErrConflict.
func (p *Proposal) StillHolds(seen string) error {
	if seen == "" || seen == p.Holds() || seen == p.Commit {
		return nil
	}
	return fmt.Errorf("%w: somebody changed what proposal %s holds after it was shown", ErrConflict, p.ID)
}

// ProposalFilter narrows a list of proposals. The zero value is all of them.
type ProposalFilter struct {
	State   ProposalState // Open includes Pending; "" for all
	Service string        // exactly this one; "" for all
	Owner   string        // exactly this owner of the service; "" for all
	Kind    string        // of the policy that computed one of the changes; "" for all
}

// OutboxRow is a proposal that waits to be published.
type OutboxRow struct {
	ProposalID string
	Attempts   int       // how many failed
	NotBefore  time.Time // when to try again; zero: at once
	LastError  string    // "" before the first failure
}

// RecentEstimate is what a policy estimated for a quota in a run, before the
// guards.
type RecentEstimate struct {
	At       time.Time // the run's now
	PolicyID string
	Limit    Limit
	Hours    *QuotaHours // its limits hour by hour; nil where Limit stood for all
}

// Verdict is a person's word on a flagged window of a series.
type Verdict struct {
	ID      string    `json:"id"`
	Service string    `json:"service"`
	Bucket  string    `json:"bucket"`
	Key     Key       `json:"key,omitempty"`
	Window            // its Reason is the person's
	Count   bool      `json:"count"` // true: it is traffic; false: leave it out
	Actor   string    `json:"actor"`
	At      time.Time `json:"at"`
}

// Ack is an enforcer's word on the newest snapshot it was sent.
type Ack struct {
	Enforcer string    `json:"enforcer"` // its name
	Zone     string    `json:"zone,omitempty"`
	Version  Version   `json:"version"` // in force there
	At       time.Time `json:"at"`
	Refused  string    `json:"refused,omitempty"` // why it refused what came last; "" when in force
	// Overrides is the version of the overrides in force there; zero for none.
	Overrides        Version `json:"overrides"`
	OverridesRefused string  `json:"overrides_refused,omitempty"` // why it refused the newest; "" when in force
}

// AuditEntry is one act. It is written in the act's own transaction and never
// changed.
type AuditEntry struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"` // proposal.accept, proposal.reject, run.ask, verdict.set, …
	Object string    `json:"object"`
	Detail string    `json:"detail"`
}

// Page asks for a part of a list. Number starts at 1; Size 0 means 50.
type Page struct {
	Number int
	Size   int
}

// Offset is how many rows come before the page, and Limit how many it holds.
func (p Page) Offset() int { return (max(p.Number, 1) - 1) * p.Limit() }

// Limit is the page's size, 50 by default, at most 1000.
func (p Page) Limit() int {
	if p.Size <= 0 {
		return 50
	}
	return min(p.Size, 1000)
}

// ServiceSummary is a service as the lists show it, kept up to date as heads,
// runs and counts come in, so that no page computes over all services.
type ServiceSummary struct {
	Name         string
	Owners       []string
	Buckets      int       // quotas and caps with a limit in force or a policy
	Enforcing    int       // of them
	Desired      int       // quotas in force
	Held         int       // quotas held by the last run
	Offered      *Rate     // mean of the last closed hour over quota buckets; nil where unknown
	SeenAt       time.Time // when the oldest of what is known of their traffic was read; zero where the last run read all of it
	LimitSum     Rate      // Σ of quota rates
	Capacity     Rate      // declared; 0 for none
	Headroom     *Ratio    // the least (limit − peak that counts) / peak of its quotas; nil where unknown
	HeadroomAt   string    // that quota's ID
	Week         Trend     // its last 7 days; the zero value where none of them is known
	VirtualDrops float64   // last 24 h
	Drops        float64   // last 24 h
	Counted      float64   // requests that enforcers counted in the last 24 h; 0 where unknown
	OpenReview   string    // id of the open proposal; ""
	ReviewSince  time.Time // when that proposal was made; zero for none
	Known        int       // limits whose peak that counts is known
	Fitting      int       // of them, those that fit: see Fits
	Spread       []int     // of them, by Multiple; nil for none
	// Episodes of would-be drops, in the replay of quotas in shadow, that nobody has
	// judged or put off, and the requests in them.
	Unjudged      int
	UnjudgedDrops float64
	Ready         []ReadyBucket // in the order of the policy; nil for none
	Requests      float64       // of quota buckets in the last run's window
	Limited       float64       // of them, those that a limit is in force for
	Problem       string        // why its policy is not read; ""
	Updated       time.Time
}

// ReadyBucket is a bucket in shadow whose checklist lacks only the word of somebody
// who may speak for the service.
type ReadyBucket struct {
	Bucket string
	Since  time.Time // in shadow
	Share  Ratio     // of its requests, that its limits in force drop in the replay
}

// Trend is a service by the clock hour (UTC), summed over its quota buckets.
type Trend struct {
	Until   time.Time // end of the last hour; zero where nothing is known
	Mean    []*Rate   // offered; nil where less than 95 % of the hour's traffic is known
	Most    []*Rate   // the highest step, at most: each quota's highest, added up; nil as Mean is
	Dropped []Rate    // of Mean, what enforcement dropped; nil where nothing was
	Virtual []Rate    // of Most, what lay above the limit of a quota in shadow; nil where nothing did
}

// ServiceFilter narrows and orders a list of service summaries. The zero value
// is every service by name.
type ServiceFilter struct {
	Query     string // part of the name or of an owner; "" for all
	Owner     string // exactly this owner; "" for all
	Unowned   bool   // only services without an owner
	Sort      string // "name" (also ""), "headroom" (unknown ones last), "virtual_drops" or "drops"
	Desc      bool
	Some      bool // only services with more than none of what Sort names, a number
	Uncounted bool // nobody asks how many there are in all: it is then 0
}

// Count is what enforcers counted for one quota over a window of time.
type Count struct {
	Service      string  `json:"service"`
	Bucket       string  `json:"bucket"`
	Key          Key     `json:"key,omitempty"`
	Offered      float64 `json:"offered"`
	Drops        float64 `json:"drops"`
	VirtualDrops float64 `json:"virtual_drops"`
}

// OverrideCount is what enforcers counted for one override over a window of time:
// the requests that it judged, and those of them that it dropped. A lift drops
// nothing; of one, Drops are those that something else dropped.
type OverrideCount struct {
	Judged float64 `json:"judged"`
	Drops  float64 `json:"drops"`
}
