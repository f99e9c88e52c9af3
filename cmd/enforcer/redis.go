package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/redis"
)

// redisSource finds out where Redis is: given is the URL of --redis
// or RLC_REDIS, file that of RLC_REDIS_FILE, which holds a whole URL or, beside
// given, the password alone. Its errors never repeat what a file holds.
func redisSource(given, file string) (url, passwordFile string, err error) {
	if file == "" {
		return given, "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", "", fmt.Errorf("%w: RLC_REDIS_FILE: %w", rlc.ErrInvalid, err)
	}
	text := strings.TrimSpace(string(data))
	whole := strings.HasPrefix(text, "redis://") || strings.HasPrefix(text, "rediss://")
	switch {
	case whole && given != "":
		return "", "", fmt.Errorf("%w: RLC_REDIS_FILE: %s holds a whole URL, and --redis gives one too; leave one of them", rlc.ErrInvalid, file)
	case whole:
		return text, "", nil
	case given == "":
		return "", "", fmt.Errorf("%w: RLC_REDIS_FILE: %s holds no redis:// or rediss:// URL; beside --redis URL it may hold the password alone", rlc.ErrInvalid, file)
	}
	return given, file, nil
}

// redisCollector shows what the shared counters do.
type redisCollector struct{ counter *redis.Counter }

var (
	descCalls = prometheus.NewDesc("rlc_enforcer_redis_calls_total",
		"Scripts sent to Redis.", nil, nil)
	descLeased = prometheus.NewDesc("rlc_enforcer_leased_keys",
		"Keys of which tokens are held in this process.", nil, nil)
	descOutstanding = prometheus.NewDesc("rlc_enforcer_leased_tokens",
		"Tokens held in this process: by so many a limit may be exceeded on its account.", nil, nil)
	descBreaker = prometheus.NewDesc("rlc_enforcer_redis_breaker_open",
		"1 while Redis, or a part of it, is not asked because it failed.", nil, nil)
	descRoundTrips = prometheus.NewDesc("rlc_enforcer_redis_seconds",
		"How long Redis took to answer, a batch of decisions at a time.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c redisCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descCalls, descLeased, descOutstanding, descBreaker, descRoundTrips} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c redisCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.counter.Stats()
	open := 0.0
	if s.Open {
		open = 1
	}
	ch <- prometheus.MustNewConstMetric(descCalls, prometheus.CounterValue, float64(s.Calls))
	ch <- prometheus.MustNewConstMetric(descLeased, prometheus.GaugeValue, float64(s.Leased))
	ch <- prometheus.MustNewConstMetric(descOutstanding, prometheus.GaugeValue, float64(s.Outstanding))
	ch <- prometheus.MustNewConstMetric(descBreaker, prometheus.GaugeValue, open)
	ch <- prometheus.MustNewConstHistogram(descRoundTrips, s.RoundTrips.Count, s.RoundTrips.Seconds, s.RoundTrips.UpTo)
}
