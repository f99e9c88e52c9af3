package web

import (
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
)

// rowHours are the rates by hour of a row's limits; nil where a limit holds for
// all hours.
type rowHours struct{ desired, live, proposed *rlc.QuotaHours }

// counter is the limit that pages measure against, with its hours; nil for none.
func (r *row) counter() *backtest.Counter {
	switch {
	case r.live != nil:
		return &backtest.Counter{Limit: *r.live, Hours: r.hours.live}
	case r.desired != nil:
		return &backtest.Counter{Limit: *r.desired, Hours: r.hours.desired}
	}
	return nil
}

// validHours refuses hours that quotas.yaml cannot hold.
func validHours(h *rlc.QuotaHours) error {
	if h == nil {
		return nil
	}
	if len(h.Rates) == 0 || len(h.Rates) > 14*24 || !h.From.Equal(h.From.Truncate(time.Hour)) {
		return invalid("hours begin at a full hour and are 1 to 336 rates")
	}
	for _, r := range h.Rates {
		if !(r > 0 && r <= rlc.MaxRate) {
			return invalid("a rate of hours is above 0")
		}
	}
	return nil
}
