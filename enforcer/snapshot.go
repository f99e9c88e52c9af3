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
	n, err := compile(next)
	if err != nil || prev == nil {
		return err
	}
	if err := newer(prev.Version, next.Version); err != nil {
		return err
	}
	p, err := compile(*prev)
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
func shrunken(prev, next *loaded) error {
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

// loaded is a snapshot ready for decisions. It is immutable but for its cache
// of routes.
type loaded struct {
	snapshot  rlc.Snapshot
	digest    string // hash of the files
	services  map[string]*service
	bucketIDs map[string]bool // service/bucket
	quotaIDs  map[string]bool // service/quota ID
	routes    routes
}

// service is one service ready for decisions.
type service struct {
	*rlc.Service
	matcher   *match.Matcher
	attrs     []string // attributes that decisions or labels depend on
	buckets   []bucket // as in Service.Buckets
	unmatched bucket
	quotas    map[string]*rlc.Quota   // by ID
	byBucket  map[string][]*rlc.Quota // by bucket, in order of their IDs
	joint     bool                    // verdicts of shadow and enforcing buckets depend on each other

	descriptors map[string]string // as Enforcer.Descriptors has them

	panicked atomic.Bool // matching did, and it was logged
}

// bucket is one bucket of a service ready for decisions.
type bucket struct {
	*rlc.Bucket                  // of unmatched: only Name, Role and Mode are set
	caller, procedure bool       // its series carry the label
	counts            *counts    // where it counts; set by Enforcer.adopt
	fixed             *rlc.Limit // each key's limit by a person's hand; nil for none
}

// compile validates a snapshot whole and makes it ready for decisions.
func compile(snap rlc.Snapshot) (*loaded, error) {
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
	l := &loaded{
		snapshot:  snap,
		digest:    Digest(snap.Files),
		services:  make(map[string]*service, len(conf.Services)),
		bucketIDs: map[string]bool{},
		quotaIDs:  map[string]bool{},
	}
	for _, s := range conf.Services {
		c, err := compileService(s, conf.Quotas[s.Name])
		if err != nil {
			return nil, refuse(refusedInvalid, "snapshot %s: service %q: %w", snap.Version, s.Name, err)
		}
		c.descriptors = descriptors(conf.Profiles[s.Profile])
		l.services[s.Name] = c
		for i := range s.Buckets {
			l.bucketIDs[s.Name+"/"+s.Buckets[i].Name] = true
		}
		for id := range c.quotas {
			l.quotaIDs[s.Name+"/"+id] = true
		}
	}
	return l, nil
}

func compileService(s *rlc.Service, quotas []rlc.Quota) (*service, error) {
	m, problems := match.Compile(s)
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: %s", rlc.ErrInvalid, problems[0])
	}
	c := &service{Service: s, matcher: m, quotas: make(map[string]*rlc.Quota, len(quotas)), byBucket: map[string][]*rlc.Quota{}, buckets: make([]bucket, len(s.Buckets))}
	caps, shadow := 0, false
	for i := range s.Buckets {
		b := &s.Buckets[i]
		c.buckets[i] = bucket{Bucket: b, fixed: b.Limit}
		uses := m.Uses(i)
		c.buckets[i].caller = slices.Contains(uses, "caller")
		c.buckets[i].procedure = slices.Contains(uses, "procedure")
		for _, a := range uses {
			if !slices.Contains(c.attrs, a) {
				c.attrs = append(c.attrs, a)
			}
		}
		shadow = shadow || b.Mode == rlc.Shadow
		if b.Role == rlc.CapRole {
			caps++
		}
	}
	if caps >= gcra.MaxCharges {
		return nil, fmt.Errorf("%w: %d cap buckets; at most %d", rlc.ErrInvalid, caps, gcra.MaxCharges-1)
	}
	if !slices.Contains(c.attrs, "caller") {
		c.attrs = append(c.attrs, "caller") // who is unmatched is worth knowing
	}
	rlc.SortAttributes(c.attrs)
	c.unmatched = bucket{
		Bucket: &rlc.Bucket{Name: Unmatched, Role: rlc.QuotaRole, Mode: s.Unmatched.Mode},
		caller: true, procedure: slices.Contains(c.attrs, "procedure"),
		fixed: s.Unmatched.Limit,
	}
	shadow = shadow || s.Unmatched.Mode == rlc.Shadow && s.Unmatched.Limit != nil
	for i := range quotas {
		q := &quotas[i]
		if _, err := gcra.Compile(q.Limit); err != nil {
			return nil, fmt.Errorf("quota %s: %w", q.ID(), err)
		}
		c.quotas[q.ID()] = q
		c.byBucket[q.Bucket] = append(c.byBucket[q.Bucket], q)
		shadow = shadow || q.Mode == rlc.Shadow
	}
	for _, qs := range c.byBucket {
		slices.SortFunc(qs, func(a, b *rlc.Quota) int { return cmp.Compare(a.ID(), b.ID()) })
	}
	c.joint = shadow && caps > 0
	return c, nil
}

// limit finds what limits a bucket's key and how; a nil limit means that the
// request is admitted and counted. Source says where the limit stands.
func (s *service) limit(b *bucket, id string) (limit *rlc.Limit, mode rlc.Mode, source string) {
	if b.fixed != nil {
		source = "policy"
		if b.Name == Unmatched {
			source = "unmatched"
		}
		return b.fixed, b.Mode, source
	}
	if q := s.quotas[id]; q != nil {
		mode = b.Mode
		if q.Mode == rlc.Shadow {
			mode = rlc.Shadow // it softens, never hardens
		}
		return &q.Limit, mode, "quota"
	}
	if len(b.Each) > 0 && b.NewKey.Limit != nil {
		return b.NewKey.Limit, b.Mode, "new_key"
	}
	return nil, b.Mode, "none"
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
			out = append(out, l.services[name].describe()...)
		}
	}
	return out
}

// describe lists every limit of a service: buckets in file order, quotas by ID.
func (s *service) describe() []Live {
	var out []Live
	for i := range s.buckets {
		out = append(out, s.describeBucket(&s.buckets[i])...)
	}
	if s.unmatched.fixed != nil {
		out = append(out, s.describeBucket(&s.unmatched)...)
	}
	return out
}

// describeBucket lists the quotas in force of a bucket, then what stands for
// keys without one or for the whole bucket.
func (s *service) describeBucket(b *bucket) []Live {
	var out []Live
	if b.fixed == nil {
		for _, q := range s.byBucket[b.Name] {
			limit, mode, source := s.limit(b, q.ID())
			out = append(out, Live{s.Name, b.Name, q.Key, b.Role, mode, b.Algorithm, source, limit})
		}
	}
	if len(b.Each) > 0 || len(out) == 0 {
		limit, mode, source := s.limit(b, "")
		out = append(out, Live{s.Name, b.Name, nil, b.Role, mode, b.Algorithm, source, limit})
	}
	return out
}

// byRate lists the limits of a bucket that stand for one counter each, the
// highest rates first, at most as many as the service may have series.
func (s *service) byRate(b *bucket) []Live {
	all := slices.DeleteFunc(s.describeBucket(b), func(l Live) bool {
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
