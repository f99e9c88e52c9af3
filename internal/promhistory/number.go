package promhistory

import (
	"context"
	"fmt"
	"time"
)

// Number is the value of an instant query that gives one number, such as a
// count of instances; known is false where it gives none. A query that gives
// several is an error.
func (r *Reader) Number(ctx context.Context, expr string, at time.Time) (value float64, known bool, err error) {
	v, err := r.instant(ctx, expr, at)
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("ask for a number: %w", err)
	case len(v) == 0:
		return 0, false, nil
	case len(v) > 1:
		return 0, false, fmt.Errorf("ask for a number: the query gives %d", len(v))
	}
	return float64(v[0].Value), true, nil
}
