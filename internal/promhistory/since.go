package promhistory

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/openrlc/rlc"
)

// CountedSince is when enforcers began to count requests of a service (of any,
// where it is empty), to the step of a sixtieth of the window; zero where they
// did before the window (now − window, now], and ErrNotFound where they counted
// none in it. Counts of the window are of that time on.
func (r *Reader) CountedSince(ctx context.Context, service string, window time.Duration, now time.Time) (time.Time, error) {
	m := requestsTotal
	if service != "" {
		m += fmt.Sprintf("{service=%s}", strconv.QuoteToASCII(service))
	}
	seconds := int(max(window, time.Minute).Seconds())
	before, err := r.instant(ctx, fmt.Sprintf(`count(%s offset %ds)`, m, seconds), now)
	if err != nil {
		return time.Time{}, fmt.Errorf("find what was counted before: %w", err)
	}
	if len(before) > 0 {
		return time.Time{}, nil
	}
	first, err := r.instant(ctx, fmt.Sprintf(`min_over_time((count(%s) * 0 + time())[%ds:%ds])`, m, seconds, seconds/60), now)
	if err != nil {
		return time.Time{}, fmt.Errorf("find the first count: %w", err)
	}
	if len(first) == 0 || !valid(float64(first[0].Value)) {
		return time.Time{}, fmt.Errorf("%w: no enforcer has counted a request", rlc.ErrNotFound)
	}
	return time.Unix(int64(first[0].Value), 0).UTC(), nil
}
