// Package audit holds the limits that stand today against the traffic that came.
//
// It divides a service's traffic by the enforcers' own matcher into what each
// limit counts and what none does, replays it, and says of every limit: too
// tight, protects nothing, fine; and of traffic without one: none.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/match"
	"github.com/openrlc/rlc/policies"
)

// Verdict is what a limit did to the traffic that came.
type Verdict string

// The verdicts, gravest first.
const (
	TooTight Verdict = "too tight"        // it would have dropped requests that count
	None     Verdict = "none"             // traffic that no limit counts
	Nothing  Verdict = "protects nothing" // the rate is more than rlc.FitMost times the peak that counts
	Fine     Verdict = "fine"             //
	Unknown  Verdict = "unknown"          // no traffic was seen, or history cannot be believed
)

// Verdicts lists them, gravest first.
func Verdicts() []Verdict { return []Verdict{TooTight, None, Nothing, Fine, Unknown} }

const (
	// atLimit is the share of a rate from which a peak may have been cut by the
	// limit itself, where history holds admitted traffic only.
	atLimit = 0.95
	// MaxRows bounds a table. What lies beyond is counted, not listed.
	MaxRows = 10_000
	// unlimited is the bucket of traffic without a limit.
	unlimited = "(no limit)"
)

// Row is one limit, or one caller without.
type Row struct {
	Service   string     `json:"service"`
	Bucket    string     `json:"bucket"`
	Key       rlc.Key    `json:"key,omitempty"`
	Verdict   Verdict    `json:"verdict"`
	Limit     *rlc.Limit `json:"limit"` // today's; nil for none
	Window    string     `json:"window,omitempty"`
	Highest   *rlc.Peak  `json:"highest_step"` // nothing left out; nil where no traffic was seen
	Peak      *rlc.Peak  `json:"peak"`         // the peak that counts: without what the historical policy leaves out; nil where unknown
	Requests  float64    `json:"requests"`
	Drops     float64    `json:"drops"`
	LeftOut   float64    `json:"drops_left_out"`     // of Drops, in hours that the policy leaves out
	AtLeast   bool       `json:"at_least,omitempty"` // drops is a lower bound
	Episodes  int        `json:"episodes"`
	Days      float64    `json:"days"`      // with data
	Suggested *rlc.Limit `json:"suggested"` // by the historical policy; nil where it abstains
	Fits      *bool      `json:"fits"`      // rlc.Fits of a quota's rate and Peak; nil for a cap, and where one is unknown
	Detail    string     `json:"detail"`
}

// held is what stands for one key.
type held struct {
	bucket string
	key    rlc.Key
	limit  rlc.Limit
	window *gcra.Limit // where it is counted in another way than a bucket
	text   string      // the window in words; ""
	quota  bool        // a quota's own number, not one that stands in a policy
}

// Subject is a service with the limits that it has today.
type Subject struct {
	Service *rlc.Service    // to read history with: every bucket is computed
	Notes   []string        // what of the service cannot be audited
	limits  map[string]held // by quota ID
	every   map[string]held // by bucket: each key's that has none of its own
	seen    map[string]bool // quota IDs with a row
	cap     string          // a cap with a limit that counts everything; ""
	policy  rlc.Policy
}

// New prepares a service: its buckets, its quotas as they are in force, and how
// traffic without a limit is told apart (each, attributes; empty for as one).
// The service is not changed.
func New(svc *rlc.Service, quotas []rlc.Quota, each []string) (*Subject, error) {
	policy, err := policies.Builtin().New(rlc.PolicySpec{Kind: "historical"})
	if err != nil {
		return nil, err
	}
	s := &Subject{limits: map[string]held{}, every: map[string]held{}, seen: map[string]bool{}, policy: policy}
	own := *svc
	own.Buckets, own.MaxQuotas = nil, MaxRows
	for _, b := range svc.Buckets {
		if b.InFlight != nil {
			s.Notes = append(s.Notes, fmt.Sprintf("bucket %s limits requests in flight: request rates do not tell what it does", b.Name))
			continue
		}
		if h, ok, err := byHand(&b); err != nil {
			return nil, fmt.Errorf("bucket %s: %w", b.Name, err)
		} else if ok && len(b.Each) > 0 {
			s.every[b.Name] = h
		} else if ok {
			h.bucket = b.Name
			s.limits[b.Name] = h
		} else if b.NewKey.Limit != nil {
			s.every[b.Name] = held{limit: *b.NewKey.Limit}
		}
		own.Buckets = append(own.Buckets, computed(b))
	}
	for _, q := range quotas {
		if q.Region+q.Zone != "" {
			s.Notes = append(s.Notes, fmt.Sprintf("quota %s is of one place: history is not told apart by place here", q.ID()))
			continue
		}
		s.limits[q.ID()] = held{bucket: q.Bucket, key: q.Key, limit: q.Limit, quota: true}
	}
	s.Service = &own
	for _, b := range own.Buckets {
		if _, limited := s.limits[b.Name]; limited && b.Role == rlc.CapRole && len(b.Match)+len(b.Each) == 0 {
			s.cap = b.Name
		}
	}
	s.rest(svc, each)
	if _, problems := match.Compile(s.Service); len(problems) > 0 {
		return nil, fmt.Errorf("%w: %s", rlc.ErrInvalid, problems[0])
	}
	return s, nil
}

// byHand is a person's own limit of a bucket; ok is false where there is none.
func byHand(b *rlc.Bucket) (h held, ok bool, err error) {
	switch {
	case b.Window != nil:
		w, err := gcra.CompileWindow(b.Algorithm, *b.Window)
		return held{limit: b.Window.Limit(), window: &w, text: rlc.Number(b.Window.Requests) + " a " + cmp.Or(b.Window.Per, rlc.DurationText(b.Window.Length))}, true, err
	case b.Limit != nil:
		return held{limit: *b.Limit}, true, nil
	}
	return held{}, false, nil
}

// computed is the bucket as one whose history is read.
func computed(b rlc.Bucket) rlc.Bucket {
	b.Limit, b.Window, b.NewKey = nil, nil, rlc.NewKey{}
	b.Policy, b.Guards = &rlc.PolicySpec{Kind: "historical"}, rlc.DefaultGuards()
	return b
}

// rest adds the bucket of what no quota bucket counts, where there may be any:
// told apart by each, unless that would take traffic from a bucket.
func (s *Subject) rest(svc *rlc.Service, each []string) {
	if l := svc.Unmatched.Limit; l != nil {
		s.limits[unlimited], each = held{limit: *l}, nil
	}
	for _, b := range s.Service.Buckets {
		if b.Role == rlc.CapRole {
			continue
		}
		named := slices.Concat(slices.Collect(maps.Keys(b.Match)), b.Each)
		if len(named) == 0 {
			return // it takes everything
		}
		if !slices.ContainsFunc(each, func(a string) bool { return slices.Contains(named, a) }) {
			each = nil // a bucket of other attributes would lose traffic to ours
		}
	}
	b := computed(rlc.Bucket{Name: unlimited, Role: rlc.QuotaRole, Each: each, Mode: rlc.Shadow, Algorithm: rlc.TokenBucket, Scope: rlc.ScopeGlobal})
	with := *s.Service
	with.Buckets = append(slices.Clip(s.Service.Buckets), b)
	if _, problems := match.Compile(&with); len(problems) > 0 { // as when a bucket with the same each is there
		b.Each = nil
		with.Buckets[len(with.Buckets)-1] = b
	}
	s.Service = &with
}

// Row judges one series; ok is false where there is nothing to say: no traffic
// and no limit.
func (s *Subject) Row(ctx context.Context, x rlc.Series, now time.Time) (row Row, ok bool, err error) {
	id := rlc.QuotaID(x.Bucket, x.Key)
	s.seen[id] = true
	row = Row{Service: s.Service.Name, Bucket: x.Bucket, Key: x.Key}
	h, limited := s.limits[id]
	if b := s.Service.Bucket(x.Bucket); !limited && b != nil && (len(b.Each) == 0 || len(x.Key) > 0) {
		h, limited = s.every[x.Bucket]
	}
	if limited {
		limit := h.limit
		row.Limit, row.Window = &limit, h.text
	}
	present := 0
	for _, hour := range x.History.Hours {
		present += hour.Present
		row.Requests += float64(hour.Mean) * float64(hour.Present) * x.History.Step.Seconds()
		if row.Highest == nil || hour.Max > row.Highest.Rate {
			row.Highest = &rlc.Peak{Rate: hour.Max, At: hour.Start}
		}
	}
	row.Days = float64(present) * x.History.Step.Hours() / 24
	if p := slices.IndexFunc(x.History.Problems, func(p rlc.HistoryProblem) bool { return p.Rule != "no_data" }); p >= 0 {
		row.Verdict, row.Detail = Unknown, x.History.Problems[p].Rule+": "+x.History.Problems[p].Detail
		return row, true, nil
	}
	if row.Highest == nil || row.Requests == 0 {
		row.Verdict, row.Detail = Unknown, "no traffic was seen"
		return row, limited, nil
	}
	est, err := s.estimate(ctx, &row, x, now)
	if err != nil {
		return Row{}, false, err
	}
	if !limited {
		row.Verdict, row.Detail = None, "no limit counts this traffic"
		if s.cap != "" {
			row.Detail = "no limit of its own; the cap " + s.cap + " counts it"
		}
		return row, true, nil
	}
	s.judge(&row, x.History, h, est)
	return row, true, nil
}

// estimate fills in what the historical policy makes of a series with its usual
// guards: the peak that counts and, unless it abstains, a limit.
func (s *Subject) estimate(ctx context.Context, row *Row, x rlc.Series, now time.Time) (rlc.Estimate, error) {
	in := rlc.Input{Service: s.Service.Name, Bucket: x.Bucket, Key: x.Key, Now: now, History: x.History, Exclude: s.Service.Exclude}
	est, err := s.policy.Propose(ctx, in)
	if err != nil && !errors.Is(err, rlc.ErrAbstain) {
		return est, fmt.Errorf("estimate %s: %w", rlc.QuotaID(x.Bucket, x.Key), err)
	}
	c := policies.Guard(policies.Evidence{
		Service: s.Service.Name, Bucket: x.Bucket, Key: x.Key, Now: now, History: x.History, Exclude: s.Service.Exclude, Guards: rlc.DefaultGuards(),
	}, est, err)
	row.Suggested = c.New
	if est.Peak.Rate > 0 {
		peak := est.Peak
		row.Peak = &peak
	}
	return est, nil
}

// Unseen are the limits that no series was there for, sorted: call it after the
// last Row.
func (s *Subject) Unseen() []Row {
	var rows []Row
	for id, h := range s.limits {
		if s.seen[id] || id == unlimited {
			continue
		}
		limit := h.limit
		rows = append(rows, Row{Service: s.Service.Name, Bucket: h.bucket, Key: h.key, Limit: &limit, Window: h.text, Verdict: Unknown, Detail: "no traffic was seen"})
	}
	slices.SortFunc(rows, order)
	return rows
}

// order puts the gravest first, and of equals those that lost most, then those with
// the highest step: columns that a reader sees.
func order(a, b Row) int {
	return cmp.Or(
		cmp.Compare(slices.Index(Verdicts(), a.Verdict), slices.Index(Verdicts(), b.Verdict)),
		cmp.Compare(b.Drops, a.Drops), cmp.Compare(b.highest(), a.highest()), cmp.Compare(b.Requests, a.Requests),
		cmp.Compare(a.Service, b.Service), cmp.Compare(rlc.QuotaID(a.Bucket, a.Key), rlc.QuotaID(b.Bucket, b.Key)),
	)
}

// highest is the row's highest step, 0 where no traffic was seen.
func (r *Row) highest() rlc.Rate {
	if r.Highest == nil {
		return 0
	}
	return r.Highest.Rate
}
