package promhistory

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/openrlc/rlc"
)

// CountedSince is when enforcers began to count requests of a service (of any,
// where it is empty), to 15 s in a window of a day; zero where they
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
	// In coarse steps over the window, then in fine ones over the step before the
	// first that was counted in, or before now: counting may have begun in it.
	step := seconds / sinceSteps
	first, found, err := r.firstCount(ctx, m, seconds, step, now)
	if err != nil {
		return time.Time{}, err
	}
	until := now
	if found {
		until = first
	}
	finer, closer, err := r.firstCount(ctx, m, step, max(1, step/sinceFiner), until)
	switch {
	case err != nil:
		return time.Time{}, err
	case closer:
		return finer, nil
	case found:
		return first, nil
	}
	return time.Time{}, fmt.Errorf("%w: no enforcer has counted a request", rlc.ErrNotFound)
}

// A window is looked at in so many steps, and one of them in so many.
const (
	sinceSteps = 60
	sinceFiner = 96
)

// firstCount is the first of some steps, in the seconds until a time, in which
// something was counted.
func (r *Reader) firstCount(ctx context.Context, m string, seconds, step int, until time.Time) (first time.Time, found bool, err error) {
	got, err := r.instant(ctx, fmt.Sprintf(`min_over_time((count(%s) * 0 + time())[%ds:%ds])`, m, seconds, step), until)
	if err != nil {
		return first, false, fmt.Errorf("find the first count: %w", err)
	}
	if len(got) == 0 || !valid(float64(got[0].Value)) {
		return first, false, nil
	}
	return time.Unix(int64(got[0].Value), 0).UTC(), true, nil
}
