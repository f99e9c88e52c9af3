// Package web serves the pages and the JSON API. Reads come through small
// interfaces, acts through one; a handler reads, builds a view, renders it.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/quotafile"
)

// Records are what pages read from the store. Nothing here writes.
type Records interface {
	RunByID(ctx context.Context, id string) (rlc.Run, error)
	Runs(ctx context.Context, page rlc.Page) ([]rlc.Run, int, error)
	RunTotals(ctx context.Context, runID string, f rlc.RunFilter) (rlc.RunTotals, error)
	RunServices(ctx context.Context, runID string, f rlc.RunFilter, page rlc.Page) ([]rlc.RunService, error)
	RunQuotas(ctx context.Context, runID string, f rlc.RunFilter, page rlc.Page) ([]rlc.Change, int, error)
	LatestChanges(ctx context.Context, service string) ([]rlc.Change, error)
	LatestChange(ctx context.Context, service, bucket string, key rlc.Key) (rlc.Change, error)
	WithEpisodes(ctx context.Context, changes []rlc.Change) ([]rlc.Change, error) // LatestChanges come without
	ChangeLog(ctx context.Context, service, bucket string, key rlc.Key, page rlc.Page) ([]rlc.Change, int, error)
	Proposals(ctx context.Context, state rlc.ProposalState, service string, page rlc.Page) ([]rlc.Proposal, int, error)
	ProposalsBy(ctx context.Context, f rlc.ProposalFilter, page rlc.Page) ([]rlc.Proposal, int, error)
	ProposalByID(ctx context.Context, id string) (rlc.Proposal, error)
	Verdicts(ctx context.Context, service string) ([]rlc.Verdict, error)
	Summary(ctx context.Context, service string) (rlc.ServiceSummary, error)
	Summaries(ctx context.Context, filter rlc.ServiceFilter, page rlc.Page) ([]rlc.ServiceSummary, int, error)
	OverrideLog(ctx context.Context, page rlc.Page) ([]rlc.Override, int, error)
	Scores(ctx context.Context, from time.Time) ([]rlc.Score, error) // by day, the fleet's first, then by owner
}

// Truths are what is desired and what is live. A nil config means that there
// is none yet. Both are read-only.
type Truths interface {
	Desired() (rlc.Commit, *quotafile.Config)
	Live() (rlc.Version, *quotafile.Config)
	Acks() []rlc.Ack // the last word of each enforcer, by name
}

// History is what pages read of past and present traffic.
type History interface {
	Stored(ctx context.Context, service, bucket string, key rlc.Key, from, until time.Time) (rlc.History, error)
	// StoredEach is Stored of many quotas, given by ID, in a few statements:
	// those that have hours, in no order, without their one-second peaks.
	StoredEach(ctx context.Context, service string, quotas []string, from, until time.Time, use func(quota string, h rlc.History) error) error
	Counts(ctx context.Context, service string, window time.Duration, now time.Time) ([]rlc.Count, error)
	// OverrideCounts is what enforcers counted in a window for each override, by ID.
	OverrideCounts(ctx context.Context, window time.Duration, now time.Time) (map[string]rlc.OverrideCount, error)
	// CountedSince is when enforcers began to count a service ("" for any) within
	// a window; zero where they did before it, ErrNotFound where they counted
	// nothing in it.
	CountedSince(ctx context.Context, service string, window time.Duration, now time.Time) (time.Time, error)
}

// Acts are everything that changes something. Plan changes nothing; it is here
// because it computes what Run would do.
type Acts interface {
	// Accept merges a proposal that still holds what was seen, as Proposal.Holds or
	// its commit; else it is rlc.ErrConflict. "" is whatever it holds.
	Accept(ctx context.Context, proposalID, seen, actor string) error
	Reject(ctx context.Context, proposalID, actor, reason string) error
	Run(ctx context.Context, ask planner.Ask) (rlc.Run, error)
	Plan(ctx context.Context, ask planner.Ask) (rlc.Run, []rlc.Change, error)
	SetVerdict(ctx context.Context, v rlc.Verdict) error
	Recount(ctx context.Context, service string) error // sums a service up anew for the lists
	// Ask records that a person asks for a higher limit, and tells its owners.
	Ask(ctx context.Context, act rlc.AuditEntry, told rlc.Notice) error
	// FollowRewritten lets RLC follow a base branch whose history was rewritten.
	FollowRewritten(ctx context.Context, actor string) error
}

// Merging tells whether an open proposal merges without a person.
type Merging interface {
	Mergeable(ctx context.Context, p rlc.Proposal) (ok bool, because string)
}

// Status is the server's word on itself.
type Status interface {
	Banners() []Banner // standing troubles, worst first
	Ready() []string   // why it is not ready; empty when it is
}

// Banner is a trouble that every page names. Level is good, warn, bad or note.
type Banner struct {
	Level  string
	Text   string
	Detail string
	Since  time.Time // zero: not said
	Follow bool      // answered by following the rewritten history
}

// Config is what a web server needs. Records, Truths, History, Acts and Status
// are required.
type Config struct {
	Records Records
	Truths  Truths
	History History
	Acts    Acts
	Status  Status
	// Overrides are required, too.
	Overrides Overrides
	// Rollouts are required, too.
	Rollouts Rollouts
	// Identities are required, too.
	Identities Identities
	Provider   Provider         // nil: nobody signs in but by token
	Proxy      Proxy            // nil: no header says who asks
	Access     Access           // who may do what, beside the owners of services
	Alone      bool             // no enforcer but the one of this process hears of snapshots, overrides and switches
	Secure     bool             // browsers reach this server by TLS, whatever this process sees
	Loop       Loop             // nil: no controller of a loop to ask
	Hook       Hook             // what the forge may send; the zero value is off
	Token      string           // whoever has it may do everything; "": nobody has
	Onboarding Onboarding       // nil: services without a policy are not known
	Imports    Imports          // nil: nothing is imported
	Files      Files            // nil: pages do not show policies as they are written
	Settings   Settings         // nil: /settings is not found
	Merging    Merging          // nil: pages do not say whether a proposal merges by itself
	Amendments Amendments       // nil: nobody's own number is taken, nor shown, in a proposal
	Metrics    http.Handler     // nil: /metrics is not found
	Log        *slog.Logger     // nil: discarded
	Now        func() time.Time // nil: time.Now
}

// patience is how long one request may take before it is answered with 503.
const patience = 20 * time.Second

type server struct {
	Config
	logins    logins
	assets    assets
	planning  sync.Mutex // held while one plan is computed
	looking   sync.Mutex // held while one service without a policy is looked at
	importing sync.Mutex // held while one pasted file is translated for a preview
	fleets    fleets
	sinces    sinces
}

// New builds the handler of all pages and of the JSON API.
func New(c Config) (http.Handler, error) {
	if c.Records == nil || c.Truths == nil || c.History == nil || c.Acts == nil || c.Status == nil || c.Overrides == nil || c.Rollouts == nil || c.Identities == nil {
		return nil, errors.New("web: Records, Truths, History, Acts, Status, Overrides and Identities are required")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	a, err := readAssets()
	if err != nil {
		return nil, err
	}
	s := &server{Config: c, assets: a, logins: logins{now: c.Now}}
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.Handle(r.method+" "+r.path, s.serve(r))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.unrouted(mux, w, r) })
	return s.secure(compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(w, unsecret(r)) }))), nil
}

// Server returns an http.Server for h with every limit set: slow, large or
// idle clients are cut off.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
}

// visit is one request on its way through a handler.
type visit struct {
	w     http.ResponseWriter
	r     *http.Request
	who   identity
	zone  *time.Location
	theme string
	gone  error // the page of a list that was asked for, where the list is shorter
	// refused is why a form was not carried out that its page has to bring back.
	refused *fault
	lately  *overrideLog // see server.lately; nil before it is asked
}

// overrideLog is a reading of the overrides that were.
type overrideLog struct {
	list []rlc.Override
	err  error
}

func (v *visit) ctx() context.Context { return v.r.Context() }

// page reads ?page and ?per_page.
func (v *visit) page() (rlc.Page, error) {
	p := rlc.Page{Number: 1}
	q := v.r.URL.Query()
	for name, into := range map[string]*int{"page": &p.Number, "per_page": &p.Size} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		n, ok := positive(text)
		if !ok || (name == "per_page" && n > 1000) || n > 1_000_000 {
			return p, invalid("%s must be a whole number from 1 to %d", name, map[string]int{"page": 1_000_000, "per_page": 1000}[name])
		}
		*into = n
	}
	return p, nil
}

func positive(s string) (int, bool) {
	if len(s) == 0 || len(s) > 8 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n > 0
}

// cut is the part of all that p asks for.
func cut[T any](all []T, p rlc.Page) []T {
	from := min(p.Offset(), len(all))
	return all[from:min(from+p.Limit(), len(all))]
}
