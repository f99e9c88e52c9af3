package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/follow"
	"github.com/openrlc/rlc/enforcer/loopstate"
	"github.com/openrlc/rlc/enforcer/loopwire"
)

const controllerHelp = `Usage: enforcer controller [flags] (--config-dir DIR, --redis URL or --parent ADDR)

Compares what the zones are offered with the limits of drop_ratio buckets and
tells each what share to keep. It follows the approved quotas as "enforcer serve"
does, and sends them and the overrides down the same streams, so that enforcers
with --aggregator need no other source. One controller for every zone that
shares a global limit. With --region it serves that region alone: below a
--parent it decides what is the region's and passes on what the parent decides
for all regions; without one a global limit is the region's own. Each flag may
be given in the environment: --config-dir is RLC_CONFIG_DIR.

`

// control is "enforcer controller": it runs until ctx ends.
func control(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	t := &tier{name: "controller"}
	var source follow.Config
	var state, zones, parent string
	var release time.Duration
	f := t.flags()
	f.StringVar(&t.grpc, "grpc", "127.0.0.1:8085", "`address` that aggregators attend")
	f.StringVar(&t.http, "http", "127.0.0.1:8086", "`address` of /v1/loop, /metrics and /healthz, or off")
	f.StringVar(&source.Dir, "config-dir", "", "`folder` with a checkout of the config repository, read again each second")
	f.StringVar(&source.Redis, "redis", "", "`URL` of the Redis that carries snapshots; RLC_REDIS_FILE as for serve")
	f.StringVar(&source.Prefix, "redis-prefix", "", "`text` that all keys in Redis begin with: the redis.prefix of rlc (default rlc:)")
	f.StringVar(&source.CAFile, "redis-ca", "", "PEM `file` of the authorities of a rediss:// server (default the system's)")
	f.StringVar(&state, "state", "", "`folder` for the last good snapshot and overrides; with --config-dir it also keeps the\nnumber of the snapshot, which must not fall: give one")
	f.StringVar(&zones, "zones", "", "`names` of the zones, split by commas, that a new controller waits for, at most 10 s (default those heard within 1.5 s)")
	f.StringVar(&parent, "parent", "", "`address` of the global controller, for that of a --region; without --config-dir and --redis it also\nbrings snapshots and overrides")
	f.DurationVar(&release, "release-after", 0, "`duration` after which a silent zone's share is given to the others; 0 never: a zone that is\ncut off goes on using it")
	if err := t.read(f, controllerHelp, args, env, stdout); err != nil {
		return err
	}
	var err error
	if source.Redis, source.PasswordFile, err = redisSource(source.Redis, env("RLC_REDIS_FILE")); err != nil {
		return err
	}
	switch {
	case source.Dir == "" && source.Redis == "" && parent == "":
		return t.invalid("nowhere to take the limits from: give --config-dir DIR, --redis URL or --parent ADDR")
	case parent != "" && t.region == "":
		return t.invalid("--parent is for the controller of a --region")
	case source.Dir != "" && source.Redis != "":
		return t.invalid("--config-dir and --redis exclude each other")
	case release < 0:
		return t.invalid("--release-after %s is negative", rlc.DurationText(release))
	}
	if err := checkPlace(t.name, "", t.region, ""); err != nil {
		return err
	}
	if parent != "" {
		if err := checkParent(parent, t.grpc); err != nil {
			return err
		}
	}
	t.begin(ctx, stderr)
	source.Log = t.log
	e, err := enforcer.New(enforcer.Config{Name: "controller", Region: t.region, StateDir: state, Log: t.log})
	if err != nil {
		return err
	}
	defer e.Close()
	acks := newAckTable()
	c := loopwire.ControllerConfig{Region: t.region, Parent: parent, Limits: e.LoopLimit, ReleaseAfter: release, OnAck: acks.hear, Log: t.log}
	if source.Dir != "" || source.Redis != "" {
		follower, err := follow.New(source, e)
		if err != nil {
			return err
		}
		t.group.Go(func() error { return follower.Run(t.ctx) })
		if source.Redis != "" {
			t.group.Go(func() error { return acks.pass(t.ctx, follower.Pass, t.log) })
		}
	} else {
		c.OnDocument = func(d loopwire.Document) { _ = d.Load(e) } // the enforcer logs a refusal
	}
	if zones != "" {
		c.Zones = strings.Split(zones, ",")
	}
	if c.TLS, err = t.tls.server(t.log); err != nil {
		return err
	}
	if c.DialTLS, err = t.tls.client(); err != nil {
		return err
	}
	wire, err := loopwire.NewController(c)
	if err != nil {
		return err
	}
	metrics := controllerCollector{wire: wire, acks: acks}
	if parent == "" {
		metrics.peaksOf = e.LoopSeries
	}
	t.registry.MustRegister(metrics)
	t.group.Go(func() error { return e.Run(t.ctx) })
	t.group.Go(func() error { return publish(t.ctx, e, wire) })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/loop", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(loopstate.Of(wire.State()))
	})
	mux.HandleFunc("GET /readyz", showReady(wire.Ready))
	return t.serve(stdout, wire.Serve, mux)
}

// publishEvery is how often the controller looks for newer documents.
const publishEvery = 200 * time.Millisecond

// publish sends what comes into force down the streams.
func publish(ctx context.Context, e *enforcer.Enforcer, c *loopwire.Controller) error {
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	var sent, sentOverrides rlc.Version
	for {
		if s := e.Snapshot(); s != nil && s.Version != sent {
			data, err := json.Marshal(s)
			if err != nil {
				return err
			}
			c.Publish(loopwire.Document{Kind: loopwire.Snapshot, Version: s.Version, Content: data})
			sent = s.Version
		}
		if v, o := e.Overrides(); v != sentOverrides {
			data, err := json.Marshal(o)
			if err != nil {
				return err
			}
			c.Publish(loopwire.Document{Kind: loopwire.Overrides, Version: v, Content: data})
			sentOverrides = v
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// controllerCollector shows what a controller does.
type controllerCollector struct {
	wire *loopwire.Controller
	acks *ackTable
	// peaksOf is enforcer.LoopSeries, or nil to show no peaks: those above do.
	peaksOf func(enforcer.LoopName) (caller, procedure string, ok bool)
}

var (
	descLoopBucket = prometheus.NewDesc("rlc_loop_offered",
		"Requests per second offered to a drop_ratio bucket in its scope.", []string{"service", "bucket", "key", "zone", "region", "world"}, nil)
	descLoopRatio = prometheus.NewDesc("rlc_loop_drop_ratio",
		"Share of a bucket's normal requests that is dropped.", []string{"service", "bucket", "key", "zone", "region", "world"}, nil)
	descLoopPeak = prometheus.NewDesc("rlc_loop_peak_rate",
		"Highest one-second request rate of the last closed clock minute, of all enforcers together: in place of the sum of their rlc_enforcer_peak_rate.", []string{"service", "bucket", "caller", "procedure"}, nil)
	descZoneAge = prometheus.NewDesc("rlc_loop_zone_age_seconds",
		"Time since a zone's last sum.", []string{"zone", "region"}, nil)
	descAcknowledged = prometheus.NewDesc("rlc_loop_enforcers",
		"Enforcers that acknowledged over the loop, by snapshot.", []string{"version"}, nil)
	descSumsIgnored = prometheus.NewDesc("rlc_loop_sums_ignored_total",
		"Sums that came late, twice or damaged.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c controllerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLoopBucket, descLoopRatio, descLoopPeak, descZoneAge, descAcknowledged, descSumsIgnored, descDropped, descDoubles, descForeigners, descClipped} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Beyond maxLoopSeries buckets it
// shows the first ones.
func (c controllerCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := loopstate.Of(c.wire.State())
	for i, b := range s.Buckets {
		if i == maxLoopSeries {
			break
		}
		world := "live"
		if b.AsIf {
			world = "as_if"
		}
		gauge(descLoopBucket, b.Offered, b.Service, b.Bucket, b.Key, b.Zone, b.Region, world)
		gauge(descLoopRatio, b.Ratio, b.Service, b.Bucket, b.Key, b.Zone, b.Region, world)
	}
	for labels, peak := range loopPeaks(s.Buckets[:min(len(s.Buckets), maxLoopSeries)], c.peaksOf) {
		gauge(descLoopPeak, peak, labels[:]...)
	}
	for _, z := range s.Zones {
		gauge(descZoneAge, z.Age, z.Zone, z.Region)
	}
	for version, n := range c.acks.versions(time.Now()) {
		gauge(descAcknowledged, float64(n), version)
	}
	stats := c.wire.Stats()
	ch <- prometheus.MustNewConstMetric(descSumsIgnored, prometheus.CounterValue, float64(stats.Late))
	ch <- prometheus.MustNewConstMetric(descDoubles, prometheus.CounterValue, float64(stats.Doubles))
	ch <- prometheus.MustNewConstMetric(descForeigners, prometheus.CounterValue, float64(stats.Foreigners))
	ch <- prometheus.MustNewConstMetric(descClipped, prometheus.CounterValue, float64(stats.Clipped))
	ch <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(stats.DownDropped), "down")
}

// maxLoopSeries bounds the buckets in /metrics.
const maxLoopSeries = 10_000
