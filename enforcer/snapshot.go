package enforcer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/match"
	"github.com/openrlc/rlc/quotafile"
)

// Reasons why a snapshot is refused, as the metric names them.
const (
	refusedInvalid    = "invalid"
	refusedEmpty      = "empty"
	refusedOlder      = "older"
	refusedShrunken   = "shrunken"
	refusedStore      = "store"      // the last good file
	refusedUnreadable = "unreadable" // the source could not be read
	refusedStopped    = "stopped"    // a kill switch
)

// refusal is an error with its reason for the metric.
type refusal struct {
	reason string
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(reason, format string, args ...any) error {
	return &refusal{reason, fmt.Errorf(format, args...)}
}

// Check reports why an enforcer that has prev in force would refuse next; prev
// is nil where nothing is in force. The error wraps rlc.ErrInvalid where the
// files are not valid, else rlc.ErrRefused. Whoever distributes snapshots
// checks them with this first.
func Check(prev *rlc.Snapshot, next rlc.Snapshot) error {
	n, err := compile(next, place{})
	if err != nil || prev == nil {
		return err
	}
	if err := newer(prev.Version, next.Version); err != nil {
		return err
	}
	p, err := compile(*prev, place{})
	if err != nil {
		return nil // what is in force is beyond comparing with
	}
	return shrunken(p, n)
}

// newer holds that (epoch, version) never goes down.
func newer(prev, next rlc.Version) error {
	if c := next.Compare(prev); c <= 0 {
		return refuse(refusedOlder, "%w: snapshot %s is not newer than %s in force", rlc.ErrRefused, next, prev)
	}
	return nil
}

// shrunken holds that absence is not deletion: a snapshot that lacks more than
// a tenth of the buckets or of the quotas in force, and more than ten, is
// refused unless people removed them.
func shrunken(prev, next *compiled) error {
	if next.snapshot.RemovedBy != "" {
		return nil
	}
	for _, set := range []struct {
		what       string
		prev, next map[string]bool
	}{{"buckets", prev.bucketIDs, next.bucketIDs}, {"quotas", prev.quotaIDs, next.quotaIDs}} {
		var gone []string
		for id := range set.prev {
			if !set.next[id] {
				gone = append(gone, id)
			}
		}
		if len(gone) > 10 && len(gone)*10 > len(set.prev) {
			return refuse(refusedShrunken, "%w: snapshot %s lacks %d of the %d %s in force (%s and others) and nobody is named who removed them",
				rlc.ErrRefused, next.snapshot.Version, len(gone), len(set.prev), set.what, slices.Min(gone))
		}
	}
	return nil
}

// place is where an enforcer runs: quotas, rollouts and counters differ by it.
type place struct{ zone, region string }

// compiled is a snapshot ready for decisions. It is immutable.
type compiled struct {
	snapshot  rlc.Snapshot
	digest    string // hash of the files
	services  map[string]*service
	bucketIDs map[string]bool // service/bucket
	quotaIDs  map[string]bool // service/quota ID
	edges     []int64         // seconds since 1970 at which some quota's limit changes, ascending
}

// service is one service ready for decisions.
type service struct {
	*rlc.Service
	matcher   *match.Matcher
	attrs     []string // attributes that decisions or labels depend on
	buckets   []bucket // as in Service.Buckets
	unmatched bucket
	quotas    map[string]*rlc.Quota   // those that hold here, by rlc.QuotaID
	byBucket  map[string][]*rlc.Quota // by bucket, in order of their IDs
	caps      int
	shadow    bool     // some limit is in shadow
	traffic   *traffic // for the identity breaker; set by Enforcer.adopt

	descriptors map[string]string // as Enforcer.Descriptors has them

	panicked atomic.Bool // matching did, and it was logged
}

// bucket is one bucket of a service ready for decisions.
type bucket struct {
	*rlc.Bucket
	mode              rlc.Mode    // here: a rollout to other zones leaves it in shadow
	space, asIf       string      // names of its counters in the two worlds
	caller, procedure bool        // its series carry the label
	counts            *counts     // where it counts; set by Enforcer.adopt
	fixed             *rlc.Limit  // each key's limit by a person's hand; nil for none
	window            *gcra.Limit // the same ready for arithmetic, where it is a window
	refuses           string      // the caller that a limit override on callers by name refuses; else ""
}

// name names the bucket's counters: each zone or region has its own where the
// bucket says so.
func (b *bucket) name(service string, at place) {
	b.space = service + "\x00" + b.Name
	switch b.Scope {
	case rlc.ScopeZone:
		b.space += "\x00zone " + at.zone
	case rlc.ScopeRegion:
		b.space += "\x00region " + at.region
	}
	b.asIf = asIfPrefix + b.space
}

// compile makes a limit of the bucket ready for arithmetic.
func (b *bucket) compile(l rlc.Limit) (gcra.Limit, error) {
	if b.window != nil {
		return *b.window, nil
	}
	if b.Algorithm == rlc.DropRatio {
		return gcra.Compile(l) // until the loop has said anything
	}
	return gcra.CompileAs(b.Algorithm, l)
}

// compile validates a snapshot whole and makes it ready for decisions.
func compile(snap rlc.Snapshot, at place) (*compiled, error) {
	if len(snap.Files) == 0 {
		return nil, refuse(refusedEmpty, "%w: snapshot %s holds no files; an empty configuration is never no limits", rlc.ErrRefused, snap.Version)
	}
	conf := quotafile.Parse(snap.Files, nil)
	if err := conf.Valid(); err != nil {
		if !errors.Is(err, rlc.ErrInvalid) {
			err = fmt.Errorf("%w: %w", rlc.ErrInvalid, err)
		}
		return nil, refuse(refusedInvalid, "snapshot %s: %w", snap.Version, err)
	}
	if len(conf.Services) == 0 {
		return nil, refuse(refusedEmpty, "%w: snapshot %s holds no service; an empty configuration is never no limits", rlc.ErrRefused, snap.Version)
	}
	l := &compiled{
		snapshot:  snap,
		digest:    Digest(snap.Files),
		services:  make(map[string]*service, len(conf.Services)),
		bucketIDs: map[string]bool{},
		quotaIDs:  map[string]bool{},
	}
	for _, s := range conf.Services {
		c, err := compileService(s, conf.Quotas[s.Name], at)
		if err != nil {
			return nil, refuse(refusedInvalid, "snapshot %s: service %q: %w", snap.Version, s.Name, err)
		}
		c.descriptors = descriptors(conf.Profiles[s.Profile])
		l.services[s.Name] = c
		for i := range s.Buckets {
			l.bucketIDs[s.Name+"/"+s.Buckets[i].Name] = true
		}
		for _, q := range conf.Quotas[s.Name] {
			l.quotaIDs[s.Name+"/"+q.ID()] = true
		}
		for _, q := range c.quotas {
			l.edges = append(l.edges, edges(q)...)
		}
	}
	slices.Sort(l.edges)
	l.edges = slices.Compact(l.edges)
	return l, nil
}

func compileService(s *rlc.Service, quotas []rlc.Quota, at place) (*service, error) {
	m, problems := match.Compile(s)
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: %s", rlc.ErrInvalid, problems[0])
	}
	c := &service{Service: s, matcher: m, quotas: make(map[string]*rlc.Quota, len(quotas)), byBucket: map[string][]*rlc.Quota{}, buckets: make([]bucket, len(s.Buckets))}
	for i := range s.Buckets {
		if err := c.bucket(i, at); err != nil {
			return nil, err
		}
	}
	if c.caps >= gcra.MaxCharges {
		return nil, fmt.Errorf("%w: %d cap buckets; at most %d", rlc.ErrInvalid, c.caps, gcra.MaxCharges-1)
	}
	if !slices.Contains(c.attrs, "caller") {
		c.attrs = append(c.attrs, "caller") // who is unmatched is worth knowing
	}
	rlc.SortAttributes(c.attrs)
	c.unmatched = bucket{
		Bucket: &rlc.Bucket{
			Name: Unmatched, Role: rlc.QuotaRole, Mode: s.Unmatched.Mode,
			OnFailure: rlc.FailLocal, Scope: rlc.ScopeGlobal,
		},
		mode: s.Unmatched.Mode, caller: true, procedure: slices.Contains(c.attrs, "procedure"),
		fixed: s.Unmatched.Limit,
	}
	c.unmatched.name(s.Name, at)
	c.shadow = c.shadow || s.Unmatched.Mode == rlc.Shadow && s.Unmatched.Limit != nil
	return c, c.choose(quotas, at)
}

// bucket prepares the service's bucket with index i.
func (s *service) bucket(i int, at place) error {
	b := &s.Buckets[i]
	uses := s.matcher.Uses(i)
	c := bucket{Bucket: b, mode: b.Mode, fixed: b.Limit, caller: slices.Contains(uses, "caller"), procedure: slices.Contains(uses, "procedure")}
	if b.Rollout != nil && !slices.Contains(b.Rollout, at.zone) {
		c.mode = rlc.Shadow
	}
	switch {
	case b.Window != nil:
		w, err := gcra.CompileWindow(b.Algorithm, *b.Window)
		if err != nil {
			return fmt.Errorf("bucket %s: %w", b.Name, err)
		}
		limit := b.Window.Limit()
		c.fixed, c.window = &limit, &w
	case b.InFlight != nil:
		// What it admits at one instant and, if nobody says when requests end,
		// in the long run.
		limit := rlc.Limit{Burst: rlc.Burst(b.InFlight.Max)}
		if t := b.InFlight.Timeout.Seconds(); t > 0 {
			limit.Rate = rlc.Rate(float64(b.InFlight.Max) / t)
		}
		c.fixed = &limit
	}
	c.name(s.Name, at)
	s.buckets[i] = c
	if b.Cost.Procedures != nil && !slices.Contains(uses, "procedure") {
		uses = append(uses, "procedure") // the cost depends on it
	}
	for _, a := range uses {
		if !slices.Contains(s.attrs, a) {
			s.attrs = append(s.attrs, a)
		}
	}
	s.shadow = s.shadow || c.mode == rlc.Shadow
	if b.Role == rlc.CapRole {
		s.caps++
	}
	return nil
}

// choose takes the quotas that hold here: a zone's own before its region's
// before the one for all.
func (s *service) choose(quotas []rlc.Quota, at place) error {
	rank := func(q *rlc.Quota) int {
		switch {
		case q.Zone != "":
			return 2
		case q.Region != "":
			return 1
		}
		return 0
	}
	for i := range quotas {
		q := &quotas[i]
		if q.Zone != "" && q.Zone != at.zone || q.Region != "" && q.Region != at.region {
			continue
		}
		if _, err := gcra.Compile(q.Limit); err != nil {
			return fmt.Errorf("quota %s: %w", q.ID(), err)
		}
		id := rlc.QuotaID(q.Bucket, q.Key)
		if have := s.quotas[id]; have == nil || rank(have) < rank(q) {
			s.quotas[id] = q
		}
	}
	for _, q := range s.quotas {
		s.byBucket[q.Bucket] = append(s.byBucket[q.Bucket], q)
		s.shadow = s.shadow || q.Mode == rlc.Shadow
	}
	for _, qs := range s.byBucket {
		slices.SortFunc(qs, func(a, b *rlc.Quota) int { return cmp.Compare(a.ID(), b.ID()) })
	}
	return nil
}

// Live is one limit in force, as Enforcer.Describe lists them.
type Live struct {
	Service   string     `json:"service"`
	Bucket    string     `json:"bucket"`
	Key       rlc.Key    `json:"key,omitempty"`
	Role      rlc.Role   `json:"role"`
	Mode      rlc.Mode   `json:"mode"`
	Algorithm string     `json:"algorithm,omitempty"`
	Source    string     `json:"source"` // quota, policy, new_key, unmatched; none: admitted and counted
	Limit     *rlc.Limit `json:"limit"`
}

// describe lists every limit of a service, or of all where service is "".
func (l *loaded) describe(service string) []Live {
	var out []Live
	for _, name := range l.names() {
		if service == "" || service == name {
			out = append(out, l.describeService(l.services[name].service)...)
		}
	}
	return out
}

// describeService lists every limit of a service: buckets in file order,
// quotas by ID.
func (l *loaded) describeService(s *service) []Live {
	var out []Live
	for i := range s.buckets {
		out = append(out, l.describeBucket(s, &s.buckets[i])...)
	}
	if s.unmatched.fixed != nil {
		out = append(out, l.describeBucket(s, &s.unmatched)...)
	}
	return out
}

// describeBucket lists the quotas in force of a bucket, then what stands for
// keys without one or for the whole bucket.
func (l *loaded) describeBucket(s *service, b *bucket) []Live {
	var out []Live
	if b.fixed == nil {
		for _, q := range s.byBucket[b.Name] {
			limit, mode, source := l.limit(s, b, rlc.QuotaID(q.Bucket, q.Key))
			out = append(out, Live{s.Name, b.Name, q.Key, b.Role, mode, b.Algorithm, source, limit})
		}
	}
	if len(b.Each) > 0 || len(out) == 0 {
		limit, mode, source := l.limit(s, b, "")
		out = append(out, Live{s.Name, b.Name, nil, b.Role, mode, b.Algorithm, source, limit})
	}
	return out
}

// byRate lists the limits of a bucket that stand for one counter each, the
// highest rates first, at most as many as the service may have series.
func (l *loaded) byRate(s *service, b *bucket) []Live {
	all := slices.DeleteFunc(l.describeBucket(s, b), func(l Live) bool {
		return l.Limit == nil || (l.Key == nil && len(b.Each) > 0)
	})
	slices.SortStableFunc(all, func(a, b Live) int { return cmp.Compare(b.Limit.Rate, a.Limit.Rate) })
	return all[:min(len(all), s.MaxSeries)]
}

// names lists the services in order.
func (l *loaded) names() []string { return slices.Sorted(maps.Keys(l.services)) }

// Digest is a hash of the files' names and contents.
func Digest(files rlc.Files) string {
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, n := range names {
		fmt.Fprintf(h, "%d:%s%d:", len(n), n, len(files[n]))
		h.Write(files[n])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// known lists the label sets that the traffic of a bucket's limit will have,
// as far as the policy fixes them: the key's values, exact values and lists.
func (b *bucket) known(key rlc.Key, most int) []labels {
	values := func(attr string, carried bool) []string {
		if v, ok := key[attr]; ok && carried {
			return []string{v}
		}
		if p, ok := b.Match[attr]; ok && carried && (p.Kind == rlc.Exact || p.Kind == rlc.List) {
			return p.Values
		}
		return []string{""}
	}
	var out []labels
	for _, c := range values("caller", b.caller) {
		for _, p := range values("procedure", b.procedure) {
			if len(out) == most {
				return out
			}
			out = append(out, labels{strings.Clone(c), strings.Clone(p)})
		}
	}
	return out
}

// age is how long ago t was, at least 0.
func age(now, t time.Time) time.Duration { return max(now.Sub(t), 0) }
