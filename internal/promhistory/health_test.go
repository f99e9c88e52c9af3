package promhistory

import (
	"testing"
	"time"

	"github.com/openrlc/rlc/quotafile"
)

func TestAQuotientComparedWithANumberIsRecognised(t *testing.T) {
	for query, want := range map[string]string{
		`sum(rate(a{s="x",c=~"5.."}[5m])) / sum(rate(a{s="x"}[5m])) < 0.02`: `sum(rate(a{s="x",c=~"5.."}[5m])) / sum(rate(a{s="x"}[5m]))`,
		`a / on(job) b>=99e-2`:           `a / on(job) b`,
		`fine{service="x"} == 1`:         "",
		`fine{path="/a"} < 1`:            "",
		`a / b < 0.02 and c > 0`:         "",
		`(a or b) / c < 0.1`:             "",
		`a / b`:                          "",
		`a / b < bool 0.1`:               "",
		`a / b < c`:                      "",
		`sum(a{x="}"}) / sum(b) < 0.1.2`: "",
	} {
		expr, holds := ratio(query)
		if expr != want || (holds != nil) != (want != "") {
			t.Errorf("%s: %q", query, expr)
		}
	}
	for name, p := range quotafile.BuiltinProfiles() {
		if _, holds := ratio(p.Healthy); p.Healthy != "" && holds == nil {
			t.Errorf("profile %s takes a service for failing that never failed: %s", name, p.Healthy)
		}
	}
}

// A service that never failed has no series of failures, and one that is idle
// has no ratio: neither is unhealthy. Where the ratio is too high, it is.
func TestAServiceThatNeverFailedIsHealthy(t *testing.T) {
	from := now.Add(-2 * day).Truncate(day)
	hour := now.Add(-10 * time.Hour).Truncate(time.Hour)
	count := func(perSecond func(t time.Time) float64) func(t time.Time) float64 {
		sum := 0.0
		return func(t time.Time) float64 { sum += 60 * perSecond(t); return sum }
	}
	idle := func(t time.Time) float64 { // for an hour nobody is answered
		if !t.Before(hour.Add(-3*time.Hour)) && t.Before(hour.Add(-2*time.Hour)) {
			return 0
		}
		return 10
	}
	failing := func(t time.Time) float64 {
		if !t.Before(hour) && t.Before(hour.Add(time.Hour)) {
			return 5
		}
		return 0
	}
	p := profile()
	p.Healthy = `sum(rate(answers{service="${service}",code=~"5.."}[5m])) / sum(rate(answers{service="${service}"}[5m])) < 0.02`
	for name, c := range map[string]struct{ failed, unhealthy bool }{"never failed": {false, false}, "failed for an hour": {true, true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.fill(rates(from, now, always(10), "client", "a"), metric("answers", from, now, count(idle), "service", "geo", "code", "200"))
			if c.failed {
				w.fill(metric("answers", from, now, count(failing), "service", "geo", "code", "503"))
			}
			h := w.read(service(callers()), p, now)["callers/caller=a"]
			if len(h.Hours) < 24 {
				t.Fatalf("%d hours", len(h.Hours))
			}
			for _, x := range h.Hours {
				after := x.Start.Sub(hour)
				if want := c.unhealthy && after >= 0 && after <= time.Hour; x.Unhealthy != want { // rates of five minutes reach beyond the hour
					t.Errorf("%s: unhealthy %v", x.Start.Format(time.RFC3339), x.Unhealthy)
				}
			}
		})
	}
}
