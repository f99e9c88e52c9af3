package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web/ui"
)

// truth is what is known of one service: desired, live and proposed together,
// from one reading of each.
type truth struct {
	name        string
	service     *rlc.Service // the desired policy; where that is broken the live one, nil without
	broken      bool         // the desired policy or its quotas cannot be read
	liveService *rlc.Service // the live policy; nil without
	problems    []rlc.Problem
	commit      rlc.Commit
	live        rlc.Version
	hasLive     bool
	open        []rlc.Proposal
	rows        []row
}

// row is one quota of a service, or a bucket that has none.
type row struct {
	bucket   *rlc.Bucket
	name     string // the bucket's; with the region or zone of a quota of its own, "all@eu"
	region   string // whose own quota it is; "" for all regions together
	key      rlc.Key
	mode     rlc.Mode // in force: the bucket's, softened by the quota
	desired  *rlc.Limit
	live     *rlc.Limit
	proposed *rlc.Limit
	timed    rowTimed
	proposal string
	why      string
	change   *rlc.Change // of the last run that looked at it; nil for none
}

func (r *row) id() string { return rlc.QuotaID(r.name, r.key) }

// series names the stored history of what the row limits: a region's own traffic
// is stored under the bucket, with the region in its key.
func (r *row) series() (bucket string, key rlc.Key) {
	if r.region == "" {
		return r.name, r.key
	}
	key = rlc.Key{"region": r.region}
	maps.Copy(key, r.key)
	bucket, _, _ = strings.Cut(r.name, "@")
	return bucket, key
}

// seriesID is series as a quota's ID.
func (r *row) seriesID() string { return rlc.QuotaID(r.series()) }

// plain is the bucket's name alone.
func (r *row) plain() string {
	if r.bucket != nil {
		return r.bucket.Name
	}
	return r.name
}

// is reports whether a change is of this row's quota.
func (r *row) is(c *rlc.Change) bool {
	return rlc.Quota{Bucket: c.Bucket, Region: c.Region}.Place() == r.name && c.Key.Equal(r.key)
}

// force is the limit that pages measure against: live, else desired.
func (r *row) force() *rlc.Limit {
	if r.live != nil {
		return r.live
	}
	return r.desired
}

// held is the rule that holds the quota; "" where it is decided.
func (r *row) held() string {
	if r.change == nil {
		return ""
	}
	return r.change.Held
}

// seen is what is known of the row's traffic: as the last run read it, or where
// that one read nothing the last that did; the zero value where none did.
func (r *row) seen() rlc.Seen {
	if r.change == nil {
		return rlc.Seen{}
	}
	return r.change.LastSeen()
}

// peak is the peak that counts, 0 where unknown.
func (r *row) peak() rlc.Rate { return r.seen().Peak.Rate }

// stale is when what is known of the row's traffic was read, where the last run
// read nothing; zero else.
func (r *row) stale() time.Time {
	if r.change == nil || r.change.Peak.Rate > 0 || r.change.Seen == nil {
		return time.Time{}
	}
	return r.change.Seen.At
}

// known finds out whether a service exists: in the config repository, even
// where its policy is broken, or in force.
func (s *server) known(name string) (*truth, error) {
	t := &truth{name: name}
	commit, desired := s.Truths.Desired()
	t.commit = commit
	version, live := s.Truths.Live()
	t.live, t.hasLive = version, live != nil
	if desired != nil {
		t.service, t.problems = desired.Service(name), desired.Broken[name]
	}
	if t.service == nil && t.problems != nil {
		t.broken = true
		if live != nil {
			t.service = live.Service(name)
		}
	}
	if t.service == nil && t.problems == nil && (live == nil || live.Service(name) == nil) {
		return nil, missing("service", name)
	}
	return t, nil
}

// truth gathers everything of one service in four readings of the store, and
// lays it out as one row per quota, sorted by bucket as in the policy, then by
// key.
func (s *server) truth(ctx context.Context, name string) (*truth, error) {
	t, err := s.known(name)
	if err != nil {
		return nil, err
	}
	changes, err := s.Records.LatestChanges(ctx, name)
	if err != nil && !errors.Is(err, rlc.ErrNotFound) {
		return nil, err
	}
	if t.open, _, err = s.Records.Proposals(ctx, rlc.Open, name, rlc.Page{Number: 1, Size: 10}); err != nil {
		return nil, err
	}
	for i := range t.open {
		t.open[i], _ = s.asItStands(ctx, t.open[i])
	}
	_, desired := s.Truths.Desired()
	_, live := s.Truths.Live()
	t.lay(desired, live, changes)
	return t, nil
}

// configured is what the config repository and the enforcers say of a service; where
// the records are away, without what they hold.
func (s *server) configured(ctx context.Context, name string) (*truth, error) {
	t, err := s.truth(ctx, name)
	if !unavailable(err) {
		return t, err
	}
	if t, err = s.known(name); err != nil {
		return nil, err
	}
	_, desired := s.Truths.Desired()
	_, live := s.Truths.Live()
	t.lay(desired, live, nil)
	return t, nil
}

func (t *truth) lay(desired, live *quotafile.Config, changes []rlc.Change) {
	byID := map[string]*row{}
	of := func(q rlc.Quota) *row {
		id, bucket := q.ID(), q.Bucket
		if r := byID[id]; r != nil {
			return r
		}
		r := &row{name: q.Place(), region: q.Region, key: q.Key}
		if t.service != nil {
			r.bucket = t.service.Bucket(bucket)
		}
		if r.bucket != nil {
			r.mode = r.bucket.Mode
		}
		byID[id] = r
		return r
	}
	at := func(bucket string, key rlc.Key) *row { return of(rlc.Quota{Bucket: bucket, Key: key}) }
	if desired != nil {
		for _, q := range desired.Quotas[t.name] {
			r := of(q)
			limit := q.Limit
			r.desired, r.timed.desired, r.why = &limit, q.Timed(), q.Why
			if q.Mode == rlc.Shadow && !t.broken {
				r.mode = rlc.Shadow
			}
		}
	}
	if live != nil {
		svc := live.Service(t.name)
		t.liveService = svc
		for _, q := range live.Quotas[t.name] {
			r := of(q)
			limit := q.Limit
			r.live, r.timed.live = &limit, q.Timed()
			if r.mode == "" && svc != nil && svc.Bucket(q.Bucket) != nil {
				r.mode = svc.Bucket(q.Bucket).Mode
			}
			if q.Mode == rlc.Shadow && t.broken {
				r.mode = rlc.Shadow
			}
			if t.broken {
				r.why = q.Why
			}
		}
		if svc != nil {
			for i := range svc.Buckets {
				if b := &svc.Buckets[i]; b.Limit != nil && len(b.Each) == 0 {
					r := at(b.Name, nil)
					if r.live == nil {
						r.live = b.Limit
					}
					if r.mode == "" {
						r.mode = b.Mode
					}
				}
			}
		}
	}
	for _, p := range t.open {
		for _, c := range p.Changes {
			r := of(rlc.Quota{Bucket: c.Bucket, Region: c.Region, Key: c.Key})
			r.proposed, r.timed.proposed, r.proposal = c.New, c.NewTimed, p.ID
			if r.why == "" {
				r.why = c.Why
			}
		}
	}
	for i := range changes {
		c := &changes[i]
		r := byID[c.ID()]
		if r == nil {
			if t.service == nil || t.service.Bucket(c.Bucket) == nil {
				continue // the bucket is gone
			}
			r = of(rlc.Quota{Bucket: c.Bucket, Region: c.Region, Key: c.Key})
		}
		r.change = c
		if r.why == "" {
			r.why = c.Why
		}
	}
	t.addBuckets(byID, at)
	t.rows = make([]row, 0, len(byID))
	for _, r := range byID {
		t.rows = append(t.rows, *r)
	}
	slices.SortFunc(t.rows, t.compare)
}

// addBuckets adds the buckets of the policy that have no row yet, and the
// limits that people wrote by hand.
func (t *truth) addBuckets(byID map[string]*row, at func(string, rlc.Key) *row) {
	if t.service == nil {
		return
	}
	has := map[string]bool{}
	for _, r := range byID {
		has[r.name] = true
	}
	for i := range t.service.Buckets {
		b := &t.service.Buckets[i]
		if b.Limit != nil {
			r := at(b.Name, nil)
			if r.desired == nil && !t.broken {
				r.desired = b.Limit
			}
			if r.why == "" {
				r.why = "written by hand"
			}
		} else if !has[b.Name] {
			at(b.Name, nil)
		}
	}
}

func (t *truth) compare(a, b row) int {
	return cmpOr(t.place(&a)-t.place(&b), strings.Compare(a.name, b.name), strings.Compare(a.key.String(), b.key.String()))
}

// place is a bucket's place in the policy; buckets that are gone come last.
func (t *truth) place(r *row) int {
	if t.service != nil {
		for i := range t.service.Buckets {
			if b := &t.service.Buckets[i]; b.Name == r.name || b == r.bucket {
				return i
			}
		}
	}
	return 1 << 30
}

func cmpOr(all ...int) int {
	for _, c := range all {
		if c != 0 {
			return c
		}
	}
	return 0
}

// invalid says which line keeps the desired policy from being read, and what
// stays in force; nothing where it can be read.
func (t *truth) invalid() []ui.Part {
	if !t.broken {
		return nil
	}
	stays := "what is live stays in force."
	if t.service == nil {
		stays = "its buckets and limits are unknown; no snapshot in force holds it."
	}
	return []ui.Part{{Text: placeOf(t.problems), Bold: true}, {Text: " is not valid on the base branch: " + stays + " "}}
}

// placeOf is file:line of the first error.
func placeOf(all []rlc.Problem) string {
	for _, p := range all {
		if !p.Warning && p.File != "" {
			return fmt.Sprintf("%s:%d", p.File, max(p.Line, 1))
		}
	}
	return "The policy"
}

// noBucket says that a service has no such bucket, or that its buckets are not
// known.
func (t *truth) noBucket(name string) error {
	if t.broken && t.service == nil {
		return fault{status: http.StatusNotFound, detail: "The buckets of " + t.name + " are unknown: " + firstProblem(t.problems) + "."}
	}
	return missing("bucket", name)
}

// noQuota says that a bucket has no quota for a key, and which keys it has.
func (t *truth) noQuota(bucket string, key rlc.Key) error {
	const most = 10
	var keys []string
	more, bare := 0, false
	for _, r := range t.rows {
		switch {
		case r.name != bucket:
		case len(r.key) == 0:
			bare = bare || r.bucket == nil || len(r.bucket.Each) == 0
		case len(keys) == most:
			more++
		default:
			keys = append(keys, r.key.String())
		}
	}
	has := "this bucket has no key yet"
	switch {
	case len(keys) > 0:
		has = "this bucket has " + strings.Join(keys, ", ")
		if more > 0 {
			has += fmt.Sprintf(" and %d more", more)
		}
	case bare:
		has = "this bucket counts without a key"
	}
	return fault{status: http.StatusNotFound, detail: "There is no quota " + rlc.QuotaID(bucket, key) + "; " + has + "."}
}

// row finds one row, or nil.
func (t *truth) row(bucket string, key rlc.Key) *row {
	id := rlc.QuotaID(bucket, key)
	for i := range t.rows {
		if t.rows[i].id() == id {
			return &t.rows[i]
		}
	}
	return nil
}

// ofBucket are the rows of one bucket.
func (t *truth) ofBucket(bucket string) []row {
	var out []row
	for _, r := range t.rows {
		if r.name == bucket {
			out = append(out, r)
		}
	}
	return out
}

// inForce picks the backtest of the limit that is in force, from what the last
// run replayed; nil where neither of its two is that limit.
func (r *row) inForce() *rlc.Backtest {
	c := r.change
	if c == nil {
		return nil
	}
	limit, timed := r.force(), r.forceTimed()
	switch {
	case limit != nil && c.Old != nil && *c.Old == *limit && c.OldTimed.Equal(timed):
		return c.Backtest.Old
	case limit != nil && c.New != nil && *c.New == *limit && c.NewTimed.Equal(timed):
		return c.Backtest.New
	}
	return nil
}

// sum adds up what enforcers counted, and finds the count of one quota.
type counts map[string]rlc.Count

func countsOf(all []rlc.Count) counts {
	m := counts{}
	for _, c := range all {
		id := rlc.QuotaID(c.Bucket, c.Key)
		had := m[id]
		c.Offered += had.Offered
		c.Drops += had.Drops
		c.VirtualDrops += had.VirtualDrops
		m[id] = c
	}
	return m
}

func (m counts) total() rlc.Count {
	var t rlc.Count
	for _, c := range m {
		t.Offered += c.Offered
		t.Drops += c.Drops
		t.VirtualDrops += c.VirtualDrops
	}
	return t
}

// complete reads a row's newest change whole, with what made it; a list has the
// change without that.
func (s *server) complete(ctx context.Context, t *truth, r *row) error {
	full, err := s.Records.LatestChange(ctx, t.name, r.name, r.key)
	if err == nil {
		r.change = &full
	}
	if errors.Is(err, rlc.ErrNotFound) {
		return nil
	}
	return err
}
