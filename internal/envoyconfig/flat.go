package envoyconfig

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
)

// Source is what is exported: a service, its quotas in force, and the profile
// that names its descriptors.
type Source struct {
	Service *rlc.Service
	Quotas  []rlc.Quota
	Profile *rlc.Profile // nil: an attribute's name is its descriptor
}

// flat is one limit with what it matches, in matching order.
type flat struct {
	bucket    *rlc.Bucket
	on        []cond
	limit     rlc.Limit
	window    *rlc.WindowLimit
	unlimited bool
	shadow    bool
}

// cond compares one attribute: exact where the value is not empty and does not
// end in a star.
type cond struct{ attribute, value string }

func (c cond) wide() bool { return c.value == "" || strings.HasSuffix(c.value, "*") }

// exporter gathers limits and losses.
type exporter struct {
	src    Source
	flats  []flat
	losses []Loss
}

func (x *exporter) lose(kind, format string, args ...any) {
	l := Loss{Kind: kind, Text: fmt.Sprintf(format, args...)}
	if !slices.Contains(x.losses, l) {
		x.losses = append(x.losses, l)
	}
}

// flatten turns buckets and quotas into limits, and tells what no other limiter
// has.
func (x *exporter) flatten() {
	s := x.src.Service
	for i := range s.Buckets {
		b := &s.Buckets[i]
		if b.InFlight != nil || b.Algorithm == rlc.Concurrency || b.Algorithm == rlc.DropRatio {
			x.lose("algorithm", "bucket %s: %s has no equivalent; left out", b.Name, b.Algorithm)
			continue
		}
		x.asides(b)
		x.bucket(b)
	}
	if s.Unmatched.Limit != nil {
		x.lose("unmatched", "the limit of what no bucket matches has no equivalent; left out")
	}
}

// asides tells of a bucket's traits that are not its limit.
func (x *exporter) asides(b *rlc.Bucket) {
	if b.Rollout != nil {
		x.lose("rollout", "bucket %s: its mode would hold in every zone", b.Name)
	}
	if b.Scope == rlc.ScopeZone || b.Scope == rlc.ScopeRegion {
		x.lose("scope", "bucket %s: one counter for each %s is as many rate limit services or stores", b.Name, b.Scope)
	}
	if len(b.Cost.Procedures) > 0 || b.Cost.Header != "" {
		x.lose("cost", "bucket %s: every request counts 1", b.Name)
	}
}

func (x *exporter) bucket(b *rlc.Bucket) {
	shadow := b.Mode != rlc.Enforce
	add := func(key rlc.Key, f flat) {
		f.bucket, f.shadow = b, f.shadow || shadow
		for _, on := range x.conditions(b, key) {
			f.on = on
			x.flats = append(x.flats, f)
		}
	}
	switch {
	case b.Window != nil:
		add(nil, flat{window: b.Window, limit: b.Window.Limit()})
		return
	case b.Limit != nil:
		add(nil, flat{limit: *b.Limit})
		return
	}
	found := false
	for _, q := range x.src.Quotas {
		if q.Bucket != b.Name {
			continue
		}
		found = true
		if q.Region+q.Zone != "" {
			x.lose("scope", "quota %s holds in one place only; left out", q.ID())
			continue
		}
		if len(q.Windows) > 0 || q.Hours != nil {
			x.lose("time", "quota %s: its limits for a while are left out", q.ID())
		}
		add(q.Key, flat{limit: q.Limit, shadow: q.Mode == rlc.Shadow})
	}
	switch {
	case b.NewKey.Limit != nil:
		add(nil, flat{limit: *b.NewKey.Limit})
	case !found && b.Role != rlc.CapRole:
		add(nil, flat{unlimited: true}) // takes its traffic from less specific buckets
	}
}

// conditions are what requests of a bucket's key have: one set for each value of
// a list; none where that cannot be said.
func (x *exporter) conditions(b *rlc.Bucket, key rlc.Key) [][]cond {
	all := [][]cond{nil}
	for _, a := range attributesOf(b) {
		var values []string
		p, matched := b.Match[a]
		each := slices.Contains(b.Each, a)
		switch {
		case each && key[a] != "":
			values = []string{key[a]}
			if strings.HasSuffix(key[a], "*") {
				x.lose("value", "quota %s: a value that ends in * would be a prefix; left out", rlc.QuotaID(b.Name, key))
				return nil
			}
		case !matched || p.Kind == rlc.Present:
			values = []string{""}
		case p.Kind == rlc.Absent:
			x.lose("absent", "bucket %s: %s absent cannot be said of a descriptor; left out", b.Name, a)
			return nil
		case p.Kind == rlc.Prefix:
			values = []string{p.Values[0] + "*"}
		default:
			values = p.Values
		}
		if !each && (len(values) > 1 || (cond{value: values[0]}).wide()) {
			x.lose("counter", "bucket %s: every value of %s gets the whole limit, where the bucket has one counter for all", b.Name, a)
		}
		var more [][]cond
		for _, on := range all {
			for _, v := range values {
				more = append(more, append(slices.Clip(on), cond{a, v}))
			}
		}
		all = more
	}
	return all
}

// attributesOf are a bucket's attributes in matching order.
func attributesOf(b *rlc.Bucket) []string {
	all := slices.Clone(b.Each)
	for a := range b.Match {
		all = append(all, a)
	}
	rank := func(a string) int { return slices.Index([]string{"procedure", "caller"}, a) } // others: -1
	slices.SortFunc(all, func(a, b string) int {
		if ra, rb := rank(a), rank(b); ra != rb {
			return rb - ra
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(all)
}

// unit is a length in which requests are counted.
type unit struct {
	name    string
	seconds float64
}

// fit picks the shortest unit in which a rate rounds to a whole number with an
// error of at most 1 %, else the one with the least.
func fit(rate float64, all []unit) (n int64, u unit, off float64) {
	off = math.Inf(1)
	for _, each := range all {
		exact := rate * each.seconds
		whole := math.Round(exact)
		if whole > math.MaxUint32 {
			break
		}
		miss := 0.0
		if exact > 0 {
			miss = math.Abs(whole-exact) / exact
		}
		if miss < off {
			n, u, off = int64(whole), each, miss
		}
		if off <= 0.01 {
			return n, u, off
		}
	}
	if n == 0 && rate > 0 { // 0 would admit nothing
		n, u = 1, all[len(all)-1]
		off = 1/(rate*u.seconds) - 1
	}
	return n, u, off
}

// counted is a flat limit as requests in a unit; ok is false where its window is
// none of them.
func (x *exporter) counted(f *flat, all []unit) (n int64, u unit, ok bool) {
	if w := f.window; w != nil {
		for _, u := range all {
			if w.Span().Seconds() == u.seconds && w.Per != rlc.PerMonth {
				if w.Requests > math.MaxUint32 {
					break
				}
				if f.bucket.Algorithm != rlc.FixedWindow || !w.Calendar || w.Reset != 0 || w.Per == rlc.PerWeek || w.Per == rlc.PerDay && w.Location != "" && w.Location != "UTC" {
					x.lose("window", "bucket %s: its window would start at multiples of its length in UTC", f.bucket.Name)
				}
				return w.Requests, u, true
			}
		}
		x.lose("window", "bucket %s: a window of %s has no unit; left out", f.bucket.Name, rlc.DurationText(w.Span()))
		return 0, unit{}, false
	}
	n, u, off := fit(float64(f.limit.Rate), all)
	if off > 0 {
		x.lose("rounding", "bucket %s: %s/s becomes %s per %s (%.2g %% off)", f.bucket.Name, rlc.Number(f.limit.Rate), rlc.Number(n), strings.ToLower(u.name), 100*off)
	}
	x.lose("burst", "bucket %s: a token bucket becomes a fixed window: its burst is not held, and twice the number fits across an edge", f.bucket.Name)
	return n, u, true
}
