package rlc

import (
	"slices"
	"strings"
	"time"
)

// Params are a policy's parameters as written, without "kind". Values are
// strings, float64, bool, []any and map[string]any.
type Params map[string]any

// CheckPolicy checks a policy's kind and parameters; nil problems mean valid.
// Problems carry messages and hints, no place.
type CheckPolicy func(kind string, params Params) []Problem

// Service is one service's policy.yaml with every default resolved: what
// matcher, planner and enforcer need.
type Service struct {
	Name      string
	Owners    []string            // groups; empty means unowned
	Profile   string              // the profile's name
	Timezone  string              // IANA name, "UTC" by default
	Capacity  *Capacity           // nil where none was declared
	Mode      Mode                // the service's default mode, never empty
	Buckets   []Bucket            // in file order
	Unmatched Unmatched           // requests that no quota bucket matches
	MaxQuotas int                 // generated lines per bucket, 2000 by default
	Counters  Counters            // live counters per bucket
	MaxSeries int                 // label values per bucket in /metrics, 200 by default
	Exclude   []Window            // incidents that never count as history
	Events    []Event             // planned traffic, the organisation's first
	Aliases   []Alias             // callers that had another name
	Failover  []Failover          // where a lost region's traffic goes
	Freeze    []Freeze            // times without changes, the organisation's first
	Sensitive []string            // attributes whose values leave the enforcer only as a keyed hash
	AutoMerge *AutoMerge          // nil: a person merges everything
	Targets   []Target            // other limiters that the same numbers are written for
	Unknown   map[string][]string // attribute values that mean "no identity", from the profile
}

// Bucket finds a bucket by name, or nil.
func (s *Service) Bucket(name string) *Bucket {
	for i := range s.Buckets {
		if s.Buckets[i].Name == name {
			return &s.Buckets[i]
		}
	}
	return nil
}

// Bucket is the unit that is limited: a match, a role, a mode, and either a
// policy or a hand-written limit: of Policy, Limit, Window and InFlight exactly
// one is not nil.
type Bucket struct {
	Name      string
	Role      Role
	Each      []string           // count per value of these attributes; implies Match "*" for each
	Match     map[string]Pattern // attribute name to pattern; an attribute not mentioned matches anything
	NewKey    NewKey             // for buckets with Each
	Mode      Mode               // resolved, never empty
	Algorithm string             // one of Algorithms, never empty
	Scope     string             // ScopeZone, ScopeRegion or ScopeGlobal, never empty
	OnFailure string             // FailOpen, FailClosed or FailLocal, never empty
	Rollout   []string           // zones where Mode holds; elsewhere the bucket is in shadow. Nil: Mode holds everywhere
	Cost      Cost
	Tier      Tier
	Policy    *PolicySpec
	Guards    Guards
	Limit     *Limit       // a person's own numbers; beside Each it is each key's limit
	Window    *WindowLimit // the same as requests in a window, for the algorithms that have one
	InFlight  *InFlight    // the same for Concurrency, and never nil for it
	Line      int          // where the bucket starts in policy.yaml
}

// ByHand reports whether a person wrote the bucket's limit, so that no quota is
// computed for it.
func (b *Bucket) ByHand() bool { return b.Policy == nil }

// PolicySpec names a policy and its parameters.
type PolicySpec struct {
	Kind   string
	Params Params
}

// Pattern is what an attribute is compared with.
type Pattern struct {
	Kind   PatternKind
	Values []string // Exact: one; List: several, each exact; Prefix: one, without the star
}

// PatternKind orders patterns by specificity: a smaller kind is more specific.
type PatternKind int

// The kinds of pattern, most specific first.
const (
	Exact   PatternKind = iota // the value itself
	Absent                     // the attribute is not there (written: absent)
	List                       // one of several values
	Prefix                     // a value that starts so; a longer prefix is more specific
	Present                    // any value ("*")
)

// NewKey says what becomes of a value without a quota yet.
type NewKey struct {
	Limit *Limit // nil: admitted and counted
}

// Unmatched says what becomes of requests that no quota bucket matches.
type Unmatched struct {
	Mode  Mode
	Limit *Limit // nil: admitted and counted
}

// Counters bounds the live counters of a bucket.
type Counters struct {
	Max    int    // 100,000 by default
	OnFull string // "admit" (counted, the default) or "share" (one counter for all the rest)
}

// Capacity is what a service can carry, declared by a person: Rate, or
// PerInstance beside Instances; the other is 0.
type Capacity struct {
	Rate        Rate
	Burst       Burst  // 0 where none was declared
	PerInstance Rate   // what one instance can carry
	Instances   string // PromQL: how many there are
	Reserve     Ratio  // kept free
	Evidence    string
}

// Guards are the guard rails around a policy's estimate. The zero value of a
// field means its default (DefaultGuards); see policies.md for what each does.
type Guards struct {
	Floor        Rate    // lowest automatic rate, at least 1
	Deadband     float64 // smallest relative change worth a review, 0.10
	StepUp       float64 // +100 % against 24 h ago
	StepDown     float64 // −10 % against 24 h ago
	WeekUp       float64 // +150 % against 7 days ago
	WeekDown     float64 // −30 % against 7 days ago
	MinCoverage  Ratio   // 0.95 for a decrease
	MinValidDays int     // 14 for a decrease
}

// DefaultGuards are the values that stand where a file is silent.
func DefaultGuards() Guards {
	return Guards{Floor: 1, Deadband: 0.10, StepUp: 1, StepDown: 0.10, WeekUp: 1.5, WeekDown: 0.30, MinCoverage: 0.95, MinValidDays: 14}
}

// Contract is a rate promised to a caller.
type Contract struct {
	Name      string
	Caller    string
	Limit     Limit
	From      time.Time // zero: always was
	Until     time.Time // zero: no end
	Reference string
}

// Profile says how an organisation's metrics and requests name things.
type Profile struct {
	Name       string
	Attributes map[string]AttributeSource // attribute name to where it is found
	Unknown    map[string][]string        // values that mean "no identity"
	Step       time.Duration              // distance of two samples
	Sources    []string                   // PromQL, ${service} replaced; per hour the first with data wins
	Refused    string                     // PromQL: what another limiter dropped; "" for none
	Healthy    string                     // PromQL: has a sample where the service is healthy; "" for unknown
	Complete   string                     // PromQL: share of targets that report; "" for unknown
	Peaks      string                     // PromQL: highest one-second rate since the step before; "" where nobody counts by the second
}

// CountsRefused reports whether what a limiter refused is among the requests that the
// profile reads: it adds them, or reads nothing but the enforcers' own counters,
// whatever their outcome. Else a quota in enforce learns from its own drops.
func (p *Profile) CountsRefused() bool {
	return p.Refused != "" || !slices.ContainsFunc(p.Sources, func(q string) bool {
		ours := strings.Contains(q, "rlc_enforcer_requests_total") || strings.Contains(q, "rlc:enforcer_requests:")
		return !ours || strings.Contains(q, "outcome")
	})
}

// AttributeSource says which metric labels and which descriptor carry an
// attribute.
type AttributeSource struct {
	Metric     []string // labels, joined by Join
	Join       string
	Descriptor string
}

// Quota is one line of quotas.yaml: a limit for a bucket or key, with why.
type Quota struct {
	Bucket string `json:"bucket"`
	Key    Key    `json:"key,omitempty"`
	Region string `json:"region,omitempty"` // the region whose own limit it is; "" for all
	Zone   string `json:"zone,omitempty"`   // the zone whose own limit it is; "" for all. Not beside Region
	Limit
	Mode    Mode          `json:"mode,omitempty"`    // "" or Shadow: it softens, never hardens
	Windows []QuotaWindow `json:"windows,omitempty"` // other limits for a while, ascending, apart from each other
	Hours   *QuotaHours   `json:"hours,omitempty"`   // rates hour by hour; nil where Limit holds for all
	Why     string        `json:"why"`               // every factor that is not 1
}

// ID identifies a quota within its service: QuotaID, and for a region's or
// zone's own its name between: "bucket@eu-west-1/caller=search".
func (q Quota) ID() string { return QuotaID(q.Place(), q.Key) }

// Place is the quota's bucket with its region or zone: "bucket@eu-west-1".
func (q Quota) Place() string {
	if place := q.Region + q.Zone; place != "" {
		return q.Bucket + "@" + place
	}
	return q.Bucket
}

// QuotaID identifies a bucket's key within its service: "bucket" or
// "bucket/caller=search".
func QuotaID(bucket string, key Key) string {
	if len(key) == 0 {
		return bucket
	}
	return bucket + "/" + key.String()
}

// Files are the bytes of a config repository by slash-separated path: the
// files that config.md names and no others.
type Files map[string][]byte

// Snapshot is all approved quotas at one commit: what is distributed.
type Snapshot struct {
	Version Version `json:"version"`
	Commit  string  `json:"commit"` // hash of the base branch's commit, or a content hash for a folder
	Files   Files   `json:"files"`
	// RemovedBy names the people whose commits removed buckets or quotas since
	// the version before. Empty means nobody did: an enforcer then refuses a
	// snapshot that lacks much of what is in force.
	RemovedBy string `json:"removed_by,omitempty"`
}

// Commit is a point of the base branch.
type Commit struct {
	Hash    string
	Version Version
	Time    time.Time // committer's time
}
