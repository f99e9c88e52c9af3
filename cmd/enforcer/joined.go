package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/loopwire"
)

// joinedCollector shows an enforcer's end of the loop.
type joinedCollector struct {
	wire  *loopwire.Client
	state *loop.Client
}

var (
	descJoined = prometheus.NewDesc("rlc_loop_aggregator_connected",
		"1 while the stream to an aggregator is open.", nil, nil)
	descJoins = prometheus.NewDesc("rlc_loop_aggregator_connects_total",
		"Streams opened to an aggregator.", nil, nil)
	descSilent = prometheus.NewDesc("rlc_loop_silent_seconds",
		"Time since anything was heard of the loop.", nil, nil)
	descLocal = prometheus.NewDesc("rlc_loop_local_buckets",
		"Buckets held to this enforcer's own share of the limit because the loop is silent.", nil, nil)
	descUntracked = prometheus.NewDesc("rlc_loop_untracked_total",
		"Paths beyond the bound on what is counted; they are admitted.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c joinedCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descJoined, descJoins, descSilent, descLocal, descUntracked, descDropped} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Before anything was heard there is no
// silence.
func (c joinedCollector) Collect(ch chan<- prometheus.Metric) {
	s, heard := c.wire.Stats(), c.state.State()
	show := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	show(descJoined, prometheus.GaugeValue, oneIf(s.Connected))
	show(descJoins, prometheus.CounterValue, float64(s.Connects))
	if heard.Talking {
		show(descSilent, prometheus.GaugeValue, heard.Silent.Seconds())
	}
	show(descLocal, prometheus.GaugeValue, float64(heard.Local))
	show(descUntracked, prometheus.CounterValue, float64(s.Untracked))
	show(descDropped, prometheus.CounterValue, float64(s.Dropped), "up")
}
