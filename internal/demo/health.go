package demo

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// failedShare is the share of each service's answers that failed, as its own
// metrics would say it. The demo's profile takes more than 2 % for a failing
// service, whose hours teach no quota: what comes in then is retries.
const (
	failedShare = "demo_failed_answers_share"
	healthy     = 0.001
	struggling  = 0.2
)

// health is what the demo's services say of themselves.
type health struct{ share *prometheus.GaugeVec }

// newHealth registers the metric with every service healthy.
func newHealth(r prometheus.Registerer) (health, error) {
	h := health{prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: failedShare, Help: "Share of a service's answers that failed (made up by the demo)."}, []string{"service"})}
	for _, s := range services {
		h.share.WithLabelValues(s.name).Set(healthy)
	}
	if err := r.Register(h.share); err != nil {
		return h, fmt.Errorf("register the services' health: %w", err)
	}
	return h, nil
}

// failing says that the services named fail from now on.
func (h health) failing(names ...string) {
	for _, name := range names {
		h.share.WithLabelValues(name).Set(struggling)
	}
}
