package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/loopstate"
	"github.com/openrlc/rlc/quotafile"
)

// peakFleet is enforcers on the loop, in virtual time from a full minute on.
type peakFleet struct {
	now       time.Time
	registry  []*prometheus.Registry
	enforcers []*enforcer.Enforcer
	clients   []*loop.Client
	agg       *loop.Aggregator
	control   *loop.Controller
	limits    *enforcer.Enforcer // the controller's
}

var peakStart = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func newPeakFleet(t *testing.T, n int, policy string) *peakFleet {
	t.Helper()
	f := &peakFleet{now: peakStart}
	files := rlc.Files{"services/s/policy.yaml": []byte(policy)}
	enforcerOf := func(c enforcer.Config) *enforcer.Enforcer {
		c.Now = func() time.Time { return f.now }
		e, err := enforcer.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		if err := e.Load(rlc.Snapshot{Version: rlc.Version{Number: 1}, Commit: "c", Files: files}); err != nil {
			t.Fatal(err)
		}
		return e
	}
	for i := range n {
		c := loop.NewClient(loop.ClientConfig{Node: fmt.Sprint(i)})
		c.Connect(1)
		registry := prometheus.NewRegistry()
		f.clients, f.registry = append(f.clients, c), append(f.registry, registry)
		f.enforcers = append(f.enforcers, enforcerOf(enforcer.Config{Name: fmt.Sprint(i), Loop: c, Registerer: registry}))
	}
	f.limits = enforcerOf(enforcer.Config{Name: "controller"})
	f.agg = loop.NewAggregator(loop.AggregatorConfig{Source: loop.Source{Place: loop.Place{Zone: "z"}}, Epoch: 1})
	f.control = loop.NewController(loop.ControllerConfig{Epoch: 1, Limits: f.limits.LoopLimit})
	return f
}

// run offers a request each 10 ms, in turn over the enforcers.
func (f *peakFleet) run(until time.Duration, attributes rlc.Attributes) {
	for step := 0; ; step++ {
		at := time.Duration(step) * 10 * time.Millisecond
		if at >= until {
			return
		}
		f.now = peakStart.Add(at)
		f.enforcers[step%len(f.enforcers)].Decide(enforcer.Request{Service: "s", Attributes: attributes})
		for i, c := range f.clients {
			if step%10 == i {
				if r, send := c.Tick(at); send {
					c.Apply(f.agg.Report(r, at), at)
				}
			}
		}
		if step%5 != 0 {
			continue
		}
		sum, up, d, down := f.agg.Tick(at)
		if up {
			f.control.Sum(sum, at)
		}
		for _, o := range f.control.Tick(at) {
			if passed := f.agg.Apply(o.Directives, at); passed.Seq > 0 {
				d, down = passed, true
			}
		}
		for _, c := range f.clients {
			if down {
				c.Apply(d, at)
			}
		}
	}
}

// scraped are the peaks that the whole fleet shows, as promtool reads them.
func (f *peakFleet) scraped(t *testing.T) (series []string) {
	t.Helper()
	show := func(name string, labels map[string]string, v float64) {
		var list []string
		for k, l := range labels {
			list = append(list, fmt.Sprintf("%s=%q", k, l))
		}
		series = append(series, fmt.Sprintf("      - {series: '%s{%s}', values: '%gx3'}", name, strings.Join(list, ","), v))
	}
	for i, r := range f.registry {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if family.GetName() != "rlc_enforcer_peak_rate" {
					continue
				}
				labels := map[string]string{"instance": fmt.Sprint(i)}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				show(family.GetName(), labels, m.GetGauge().GetValue())
			}
		}
	}
	buckets, zones := f.control.State(f.now.Sub(peakStart))
	for l, v := range loopPeaks(loopstate.Of(buckets, zones).Buckets, f.limits.LoopSeries) {
		show("rlc_loop_peak_rate", map[string]string{"service": l[0], "bucket": l[1], "caller": l[2], "procedure": l[3]}, v)
	}
	return series
}

// What the profile of rlc reads is what the fleet was offered in its highest
// second: not that once more for the controller, nor once more for each cap.
func TestTheProfileReadsEachRequestOnceInPeaks(t *testing.T) {
	const head = "apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\ndefaults: {mode: %s}\nbuckets:\n" +
		"  - {name: all, role: cap, algorithm: drop_ratio, limit: {rate: 5000, burst: 5000}}\n"
	for _, c := range []struct{ name, mode, bucket string }{
		{"a key for each caller", "enforce", "  - {name: callers, each: [caller], algorithm: drop_ratio, limit: {rate: 1000, burst: 1000}}\n"},
		{"in shadow", "shadow", "  - {name: callers, each: [caller], algorithm: drop_ratio, limit: {rate: 1000, burst: 1000}}\n"},
		{"one key for callers that the series tell apart", "enforce", "  - {name: callers, match: {caller: [web, app]}, algorithm: drop_ratio, limit: {rate: 1000, burst: 1000}}\n"},
		{"a token bucket", "enforce", "  - {name: callers, each: [caller], limit: {rate: 1000, burst: 1000}}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newPeakFleet(t, 4, fmt.Sprintf(head, c.mode)+c.bucket)
			f.run(130*time.Second, rlc.Attributes{"caller": "web"})
			query := strings.ReplaceAll(quotafile.BuiltinProfiles()["rlc"].Peaks, "${service}", "s")
			// 100 requests/s; reports come up to 50 ms late.
			rule := "rule_files: []\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n" + strings.Join(f.scraped(t), "\n") +
				"\n    promql_expr_test:\n      - expr: round(" + query + ", 10) > 0\n        eval_time: 2m\n        exp_samples: [{labels: '{caller=\"web\"}', value: 100}]\n"
			file := filepath.Join(t.TempDir(), "test.yaml")
			if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\n%s", err, out, rule)
			}
		})
	}
}
