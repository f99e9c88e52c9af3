package main

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/loopwire"
)

const aggregatorHelp = `Usage: enforcer aggregator --controller ADDR --zone Z [flags]

Sums what the enforcers of one zone are offered, for drop_ratio buckets, and
passes on what the controller says. While the controller is silent it holds the
zone to its last share of each limit. A zone may have several, each with a
--name of its own: enforcers that are given all of them spread over them.
SIGTERM leaves: its share is free at once. Each flag may be given in the environment:
--controller is RLC_CONTROLLER.

`

// aggregate is "enforcer aggregator": it runs until ctx ends.
func aggregate(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	t := &tier{name: "aggregator"}
	var controller, name, trusted string
	f := t.flags()
	f.StringVar(&t.grpc, "grpc", "127.0.0.1:8083", "`address` that enforcers join")
	f.StringVar(&t.http, "http", "127.0.0.1:8084", "`address` of /metrics and /healthz, or off")
	f.StringVar(&controller, "controller", "", "`address` of the controller, host:port")
	f.StringVar(&t.zone, "zone", "", "`zone` it serves")
	f.StringVar(&name, "name", "", "`name` that tells it from others in its zone, the same after a restart; none where it is the only one")
	f.StringVar(&trusted, "trusted", "", "`names` of enforcers or of their certificates, split by commas, whose claims are believed however far above the others' they are")
	if err := t.read(f, aggregatorHelp, args, env, stdout); err != nil {
		return err
	}
	switch {
	case controller == "":
		return t.invalid("give --controller ADDR")
	case t.zone == "":
		return t.invalid("give --zone Z")
	}
	if err := checkPlace(t.name, t.zone, t.region, name); err != nil {
		return err
	}
	if err := checkAddress(t.name, "--controller", controller); err != nil {
		return err
	}
	t.begin(ctx, stderr)
	server, err := t.tls.server(t.log)
	if err != nil {
		return err
	}
	client, err := t.tls.client()
	if err != nil {
		return err
	}
	c := loopwire.AggregatorConfig{Place: loop.Place{Zone: t.zone, Region: t.region}, Name: name, Controller: controller, TLS: server, DialTLS: client, Log: t.log}
	if trusted != "" {
		c.Trusted = strings.Split(trusted, ",")
	}
	a, err := loopwire.NewAggregator(c)
	if err != nil {
		return err
	}
	t.registry.MustRegister(aggregatorCollector{a})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", showReady(a.Ready))
	t.group.Go(func() error { keepToOne(t.ctx, env); return nil })
	return t.serve(stdout, a.Serve, mux)
}

// aggregatorCollector shows what an aggregator does.
type aggregatorCollector struct{ agg *loopwire.Aggregator }

var (
	descNodes = prometheus.NewDesc("rlc_loop_nodes",
		"Enforcers that reported within the last 2.5 s.", nil, nil)
	descReports = prometheus.NewDesc("rlc_loop_reports_total",
		"Reports that came.", nil, nil)
	descReportsIgnored = prometheus.NewDesc("rlc_loop_reports_ignored_total",
		"Reports, or parts of them, that did not count: late or doubled, damaged, beyond the bound on paths.", []string{"reason"}, nil)
	descClipped = prometheus.NewDesc("rlc_loop_claims_clipped_total",
		"Claims of one enforcer, on a controller of one zone, so far above the others' that they were not believed whole.", nil, nil)
	descClosed = prometheus.NewDesc("rlc_loop_closed",
		"1 while the controller is silent and the zone is held to its last share.", nil, nil)
	descDoubles = prometheus.NewDesc("rlc_loop_doubles_refused_total",
		"Streams refused because another process of the same name is heard.", nil, nil)
	descForeigners = prometheus.NewDesc("rlc_loop_foreign_refused_total",
		"Streams, and acknowledgements, refused because what a process says, or its certificate, is of another zone or region.", nil, nil)
	descUp = prometheus.NewDesc("rlc_loop_controller_connected",
		"1 while the stream to the controller is open.", nil, nil)
	descDropped = prometheus.NewDesc("rlc_loop_messages_dropped_total",
		"Messages that a newer one replaced because the other side was slow.", []string{"direction"}, nil)
)

// Describe implements prometheus.Collector.
func (c aggregatorCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descNodes, descReports, descReportsIgnored, descClipped, descClosed, descUp, descDropped, descDoubles, descForeigners} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c aggregatorCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.agg.Stats()
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(descNodes, float64(s.Nodes))
	gauge(descClosed, oneIf(s.Closed))
	gauge(descUp, oneIf(s.Connected))
	counter(descReports, s.Reports)
	counter(descReportsIgnored, s.Late, "late")
	counter(descReportsIgnored, s.Invalid, "invalid")
	counter(descReportsIgnored, s.Refused, "full")
	counter(descClipped, s.Clipped)
	counter(descDoubles, s.Doubles)
	counter(descForeigners, s.Foreigners)
	counter(descDropped, s.UpDropped, "up")
	counter(descDropped, s.DownDropped, "down")
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
