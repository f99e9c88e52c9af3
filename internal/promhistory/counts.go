package promhistory

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/openrlc/rlc"
)

// The enforcers' counters: of requests, and of those that an override judged.
const (
	requestsTotal  = "rlc_enforcer_requests_total"
	overridesTotal = "rlc_enforcer_override_requests_total"
)

// increased is by how much counters rose in (now − window, now], summed by labels.
//
// A counter's increase is its last value less the value it had when the window
// began, or less nothing where it is younger than the window: unlike PromQL's
// increase, that loses neither a counter's first sample nor extrapolates. Where
// an enforcer restarted within the window it is PromQL's increase, which
// extrapolates by at most one scrape interval at either end and leaves out what
// was counted before a new counter's first scrape.
func (r *Reader) increased(ctx context.Context, m, by string, window time.Duration, now time.Time) (model.Vector, error) {
	w := fmt.Sprintf("%ds", int(max(window, time.Second).Seconds()))
	counted := r.once(fmt.Sprintf(`
		(increase(%[1]s[%[2]s]) and (resets(%[1]s[%[2]s]) > 0))
		or ((last_over_time(%[1]s[%[2]s]) - (%[1]s offset %[2]s)) >= 0)
		or last_over_time(%[1]s[%[2]s])
	`, m, w))
	return r.instant(ctx, fmt.Sprintf(`sum by (%s) (%s)`, by, counted), now)
}

// OverrideCounts is what enforcers counted in (now − window, now] for each override
// that judged requests or could have, by its ID. One that is missing has not been
// counted for yet, or is over since before the window.
func (r *Reader) OverrideCounts(ctx context.Context, window time.Duration, now time.Time) (map[string]rlc.OverrideCount, error) {
	v, err := r.increased(ctx, overridesTotal, "override, outcome", window, now)
	if err != nil {
		return nil, fmt.Errorf("count requests of overrides: %w", err)
	}
	counts := map[string]rlc.OverrideCount{}
	for _, s := range v {
		if !valid(float64(s.Value)) {
			continue
		}
		id := string(s.Metric["override"])
		c := counts[id]
		c.Judged += float64(s.Value)
		if s.Metric["outcome"] == "drop" {
			c.Drops += float64(s.Value)
		}
		counts[id] = c
	}
	return counts, nil
}

// Counts is what enforcers counted in (now − window, now], per quota; of one
// service, or of all where service is empty (then per bucket, keys are nil).
// Requests that no bucket matched stand under "__unmatched__".
func (r *Reader) Counts(ctx context.Context, service string, window time.Duration, now time.Time) ([]rlc.Count, error) {
	m, by := requestsTotal, "service, bucket, outcome"
	if service != "" {
		m += fmt.Sprintf("{service=%s}", strconv.QuoteToASCII(service))
		by += ", caller, procedure"
	}
	v, err := r.increased(ctx, m, by, window, now)
	if err != nil {
		return nil, fmt.Errorf("count requests: %w", err)
	}
	each := map[string]func(bucket string) ([]string, bool){}
	counts := map[string]*rlc.Count{}
	for _, s := range v {
		if !valid(float64(s.Value)) {
			continue
		}
		c := rlc.Count{Service: string(s.Metric["service"]), Bucket: string(s.Metric["bucket"])}
		if service != "" {
			if each[service] == nil {
				if each[service], err = r.each(ctx, service); err != nil {
					return nil, err
				}
			}
			c.Key = key(s.Metric, c.Bucket, each[service])
		}
		id := strconv.Quote(c.Service) + rlc.QuotaID(c.Bucket, c.Key)
		if counts[id] == nil {
			counts[id] = &c
		}
		n := float64(s.Value)
		counts[id].Offered += n
		switch s.Metric["outcome"] {
		case "drop":
			counts[id].Drops += n
		case "virtual_drop":
			counts[id].VirtualDrops += n
		}
	}
	var all []rlc.Count
	for _, c := range counts {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b rlc.Count) int {
		if c := strings.Compare(a.Service, b.Service); c != 0 {
			return c
		}
		return strings.Compare(rlc.QuotaID(a.Bucket, a.Key), rlc.QuotaID(b.Bucket, b.Key))
	})
	return all, nil
}

// key is the key that a counter's labels are of: the values of the attributes
// that the bucket counts by.
func key(m model.Metric, bucket string, each func(string) ([]string, bool)) rlc.Key {
	names, ok := each(bucket)
	if !ok {
		return nil
	}
	k := rlc.Key{}
	for _, name := range names {
		if v := string(m[model.LabelName(name)]); v != "" {
			k[name] = v
		}
	}
	if len(k) == 0 {
		return nil
	}
	return k
}

// each tells by which attributes the buckets of a service count.
func (r *Reader) each(ctx context.Context, service string) (func(bucket string) ([]string, bool), error) {
	if r.cfg.Each != nil {
		return func(bucket string) ([]string, bool) { return r.cfg.Each(service, bucket) }, nil
	}
	stored, err := r.cfg.Store.SeriesOf(ctx, service)
	if err != nil {
		return nil, err
	}
	known := map[string][]string{}
	for _, s := range stored {
		var names []string
		for a := range s.Key {
			names = append(names, a)
		}
		known[s.Bucket] = names
	}
	return func(bucket string) ([]string, bool) { names, ok := known[bucket]; return names, ok }, nil
}
