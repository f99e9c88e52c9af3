package contractual

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

var now = time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)

// flat is four weeks at one rate.
func flat(rate float64) rlc.History {
	values := make([]float64, 28*24*60)
	for i := range values {
		values[i] = rate
	}
	return stat.Summarise(time.Minute, now.Add(-28*24*time.Hour), values)
}

func TestTheContractIsTheLimitWhateverTheTraffic(t *testing.T) {
	acme := &rlc.Contract{Name: "acme-2026", Limit: rlc.Limit{Rate: 500, Burst: 1500}, Reference: "MSA 4.2"}
	cases := map[float64]struct{ rule, look string }{
		100: {rule: "utilisation"},
		410: {rule: "utilisation"},                           // 82 %
		480: {rule: "utilisation", look: "is 96 %"},          // above 95 %
		600: {rule: "contract_below_peak", look: "is 120 %"}, // the contract wins
	}
	for rate, want := range cases {
		est, err := New(nil).Propose(context.Background(), rlc.Input{Now: now, History: flat(rate), Contract: acme})
		if err != nil {
			t.Fatal(err)
		}
		if est.Limit != acme.Limit || !est.Fixed || est.Why != "contract acme-2026 500/s (MSA 4.2)" {
			t.Errorf("at %v: limit %v, fixed %v, why %q", rate, est.Limit, est.Fixed, est.Why)
		}
		if r := est.Steps[1]; r.Rule != want.rule || (est.Look == "") != (want.look == "") || !strings.Contains(est.Look, want.look) {
			t.Errorf("at %v: %+v, look %q; want %q, %q", rate, r, est.Look, want.rule, want.look)
		}
	}
}

func TestAContractOutsideItsTimeAbstains(t *testing.T) {
	c := rlc.Contract{Limit: rlc.Limit{Rate: 10}, From: now.Add(-time.Hour), Until: now.Add(10 * 24 * time.Hour)}
	est, err := New(&c).Propose(context.Background(), rlc.Input{Now: now})
	if err != nil || est.Limit != (rlc.Limit{Rate: 10, Burst: 20}) || !strings.Contains(est.Look, "in 10 days") {
		t.Errorf("ten days before its end: %v, look %q, %v", est.Limit, est.Look, err)
	}
	for _, at := range []time.Time{now.Add(-2 * time.Hour), c.Until} {
		if _, err := New(&c).Propose(context.Background(), rlc.Input{Now: at}); !errors.Is(err, rlc.ErrAbstain) {
			t.Errorf("at %v: %v, want an abstention", at, err)
		}
	}
	if _, err := New(nil).Propose(context.Background(), rlc.Input{Now: now}); !errors.Is(err, rlc.ErrAbstain) {
		t.Errorf("without a contract: %v", err)
	}
}
