package enforcer

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc"
)

// collector shows what an enforcer has counted. It reads the counters where
// the decisions write them: no metric object stands on the hot path.
type collector struct{ *Enforcer }

var (
	descRequests = prometheus.NewDesc("rlc_enforcer_requests_total",
		"Requests, each counted once under its quota bucket, by final outcome.", []string{"service", "bucket", "caller", "procedure", "outcome"}, nil)
	descCaps = prometheus.NewDesc("rlc_enforcer_cap_requests_total",
		"Requests that a cap bucket judged, by the cap's own verdict.", []string{"service", "bucket", "outcome"}, nil)
	descNoQuota = prometheus.NewDesc("rlc_enforcer_no_quota_total",
		"Requests of a bucket or key that has no quota yet.", []string{"service", "bucket"}, nil)
	descFallbacks = prometheus.NewDesc("rlc_enforcer_fallbacks_total",
		"Requests decided without a bucket's counter, by reason.", []string{"service", "bucket", "reason"}, nil)
	descLimit = prometheus.NewDesc("rlc_enforcer_limit",
		"Rate in force, in requests per second.", []string{"service", "bucket", "caller", "procedure", "key", "mode"}, nil)
	descPeak = prometheus.NewDesc("rlc_enforcer_peak_rate",
		"Highest one-second request rate of the last closed clock minute.", []string{"service", "bucket", "caller", "procedure"}, nil)
	descOff = prometheus.NewDesc("rlc_enforcer_bucket_off",
		"1 for a bucket that a panic turned off.", []string{"service", "bucket"}, nil)
	descTop = prometheus.NewDesc("rlc_enforcer_top_refused_total",
		"Requests that a bucket refused of the keys that it refused most, really or virtually; a lower bound.", []string{"service", "bucket", "key", "outcome"}, nil)
	descOverrides = prometheus.NewDesc("rlc_enforcer_override_requests_total",
		"Requests that an override judged, by its own verdict; of a lift, by the final outcome.", []string{"service", "override", "outcome"}, nil)
	descOverridesVersion = prometheus.NewDesc("rlc_enforcer_overrides_version",
		"Number of the overrides in force; 0 for none.", nil, nil)
	descOverridesActive = prometheus.NewDesc("rlc_enforcer_overrides_active",
		"Overrides that stand now.", nil, nil)
	descOverridesRefused = prometheus.NewDesc("rlc_enforcer_overrides_refused_total",
		"Documents of overrides refused, by reason.", []string{"reason"}, nil)
	descSwitch = prometheus.NewDesc("rlc_enforcer_kill_switch",
		"1 while a kill switch is on.", []string{"switch"}, nil)
	descStrange = prometheus.NewDesc("rlc_enforcer_unidentified_total",
		"Requests without a quota bucket, a caller or a quota: what the identity breaker watches.", []string{"service"}, nil)
	descIdentity = prometheus.NewDesc("rlc_enforcer_identity_total",
		"Requests by where their caller was taken from.", []string{"source"}, nil)
	descBreaker = prometheus.NewDesc("rlc_enforcer_identity_breaker",
		"1 while the identity breaker of a service acts.", []string{"service"}, nil)
	descInFlight = prometheus.NewDesc("rlc_enforcer_in_flight",
		"Places taken under caps on what is in flight, in both worlds.", nil, nil)
	descExpired = prometheus.NewDesc("rlc_enforcer_in_flight_expired_total",
		"Places that a timeout freed because nobody said that the request was over.", nil, nil)
	descVersion = prometheus.NewDesc("rlc_enforcer_snapshot_version",
		"Number of the snapshot in force; 0 for none.", nil, nil)
	descEpoch = prometheus.NewDesc("rlc_enforcer_snapshot_epoch",
		"Epoch of the snapshot in force.", nil, nil)
	descAge = prometheus.NewDesc("rlc_enforcer_snapshot_age_seconds",
		"Time since the snapshot in force was last known to be the newest.", nil, nil)
	descRefused = prometheus.NewDesc("rlc_enforcer_snapshots_refused_total",
		"Snapshots refused, by reason.", []string{"reason"}, nil)
	descCounters = prometheus.NewDesc("rlc_enforcer_counters",
		"Live counters in this process.", nil, nil)
	descEvictions = prometheus.NewDesc("rlc_enforcer_evictions_total",
		"Idle counters taken away.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRequests, descCaps, descNoQuota, descFallbacks, descLimit, descPeak, descOff,
		descVersion, descEpoch, descAge, descRefused, descCounters, descEvictions, descTop, descOverrides, descOverridesVersion,
		descOverridesActive, descOverridesRefused, descSwitch, descStrange, descIdentity, descBreaker, descInFlight, descExpired} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}

	l := c.loaded.Load()
	now := c.now()
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.counts))
	confirmed := c.confirmed
	refusals := maps.Clone(c.refusals)
	c.mu.Unlock()

	for _, b := range all {
		b.collect(now.Unix(), counter, gauge)
	}
	counter(descRequests, c.noSnapshot.Load()+c.noService.Load(), Other, Unmatched, "", "", string(Admit))
	for _, reason := range []string{refusedInvalid, refusedEmpty, refusedOlder, refusedShrunken, refusedStore, refusedStopped, refusedUnreadable} {
		counter(descRefused, refusals[reason], reason)
	}
	counter(descEvictions, c.memory.Evicted())
	gauge(descCounters, float64(c.memory.Live()))
	for s := range callerSources {
		counter(descIdentity, c.callers[s].Load(), s.String())
	}
	gauge(descInFlight, float64(c.flight.live.Load()))
	counter(descExpired, c.flight.expired.Load())
	version := c.Version()
	gauge(descVersion, float64(version.Number))
	gauge(descEpoch, float64(version.Epoch))
	c.collectPeople(now.Unix(), counter, gauge)
	if l == nil {
		return
	}
	gauge(descAge, age(now, confirmed).Seconds())
	for _, s := range l.services {
		l.collectLimits(s.service, gauge)
		counter(descStrange, s.traffic.strange.Load(), s.Name)
		gauge(descBreaker, number(s.virtual), s.Name)
	}
}

// collectPeople shows what people have set: overrides and kill switches.
func (c collector) collectPeople(second int64, counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, float64, ...string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	active := 0
	for _, o := range c.overlay.list.List {
		if o.From.Unix() <= second && second < ceilSecond(o.Until) {
			active++
		}
		if n := c.overrideCounts[o.ID]; n != nil {
			for i, outcome := range outcomeNames {
				counter(descOverrides, n.outcomes[i].Load(), label(o.Service), label(o.ID), string(outcome))
			}
		}
	}
	gauge(descOverridesActive, float64(active))
	gauge(descOverridesVersion, float64(c.overlay.version.Number))
	for _, reason := range []string{refusedInvalid, refusedOlder, refusedStore} {
		counter(descOverridesRefused, c.overrideRefusals[reason], reason)
	}
	for _, s := range Switches() {
		gauge(descSwitch, number(c.switches[s].on()), string(s))
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (b *counts) collect(second int64, counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, float64, ...string)) {
	if b.role == rlc.CapRole {
		for i, o := range outcomeNames {
			counter(descCaps, b.outcomes[i].Load(), b.service, b.bucket, string(o))
		}
	} else {
		for _, s := range b.table.all() {
			totals := s.totals()
			for i, o := range outcomeNames {
				counter(descRequests, totals[i], b.service, b.bucket, s.caller, s.procedure, string(o))
			}
			gauge(descPeak, float64(s.closed(second)), b.service, b.bucket, s.caller, s.procedure)
		}
	}
	if b.bucket != Unmatched {
		counter(descNoQuota, b.noQuota.Load(), b.service, b.bucket)
	}
	for f := range fallbacks {
		if n := b.fallbacks[f].Load(); n > 0 {
			counter(descFallbacks, n, b.service, b.bucket, f.String())
		}
	}
	for _, t := range b.top.list(topShown) {
		key := label(t.Key.String())
		counter(descTop, t.Drops, b.service, b.bucket, key, string(Drop))
		counter(descTop, t.VirtualDrops, b.service, b.bucket, key, string(VirtualDrop))
	}
	if b.off.Load() {
		gauge(descOff, 1, b.service, b.bucket)
	}
}

// collectLimits shows the rates in force, of each bucket the highest ones.
func (l *loaded) collectLimits(s *service, gauge func(*prometheus.Desc, float64, ...string)) {
	show := func(b *bucket) {
		seen := map[[3]string]bool{}
		for _, live := range l.byRate(s, b) {
			rest := maps.Clone(live.Key)
			delete(rest, "caller")
			delete(rest, "procedure")
			at := [3]string{label(live.Key["caller"]), label(live.Key["procedure"]), label(rest.String())}
			if seen[at] {
				continue // two values that only differ in bytes that no label can hold
			}
			seen[at] = true
			gauge(descLimit, float64(live.Limit.Rate), s.Name, b.Name, at[0], at[1], at[2], string(live.Mode))
		}
	}
	for i := range s.buckets {
		show(&s.buckets[i])
	}
	if s.unmatched.fixed != nil {
		show(&s.unmatched)
	}
}
