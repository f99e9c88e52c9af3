package demo

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc/quotafile"
)

// While the storm and the surge are on, the profile calls their services failing
// and no other: what comes in then raises no quota, however long it lasts.
func TestTheStormsServicesFailAndNoOther(t *testing.T) {
	profile := quotafile.Parse(ConfigFiles(), nil).Profiles["rlc"]
	if want := failedShare + `{service="${service}"} < 0.02`; profile == nil || profile.Healthy != want {
		t.Fatalf("the profile takes %+v for health, want %s", profile, want)
	}
	registry := prometheus.NewRegistry()
	h, err := newHealth(registry)
	if err != nil {
		t.Fatal(err)
	}
	unhealthy := func() (names []string) {
		families, err := registry.Gather()
		if err != nil || len(families) != 1 || families[0].GetName() != failedShare || len(families[0].Metric) != len(services) {
			t.Fatalf("%d families for %d services: %v", len(families), len(services), err)
		}
		for _, m := range families[0].Metric {
			if m.GetGauge().GetValue() >= 0.02 {
				names = append(names, m.Label[0].GetValue())
			}
		}
		return names
	}
	if names := unhealthy(); names != nil {
		t.Errorf("before the storm %s fail", strings.Join(names, ", "))
	}
	h.failing(Storm().Service, Surge().Service)
	if names := unhealthy(); !slices.Equal(names, []string{Storm().Service, Surge().Service}) {
		t.Errorf("%s fail", strings.Join(names, ", "))
	}
}
