package app_test

import (
	"maps"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// What /metrics promises, by name, with the labels.
func TestTheMetricsThatArePromised(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), twoServices(), nil)
	ch := make(chan *prometheus.Desc, 1000)
	a.Registry.Describe(ch)
	close(ch)
	desc := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([^}]*)\}`)
	got := map[string]string{}
	for d := range ch {
		if m := desc.FindStringSubmatch(d.String()); m != nil {
			got[m[1]] = m[2]
		}
	}
	want := map[string]string{
		"rlc_runs_total": "result", "rlc_run_duration_seconds": "", "rlc_history_query_failures_total": "reason",
		"rlc_held_total": "reason", "rlc_quota_rate": "service,bucket", "rlc_proposals_open": "", "rlc_overrides_active": "",
	}
	maps.DeleteFunc(got, func(name, _ string) bool { _, ok := want[name]; return !ok })
	if !maps.Equal(got, want) {
		t.Errorf("described %v, want %v", got, want)
	}
}
