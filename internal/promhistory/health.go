package promhistory

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// health reads, for the steps of [from, to), whether the service was healthy: it
// was where the profile's query has a sample. A ratio that is compared with a
// number, failed / all < 0.02, says more: without any failure so far its
// numerator has no series, and without a request it is no number. There the
// service is not known to fail, so that only a ratio beyond the number does.
func (rd *reading) health(ctx context.Context, from, to time.Time) error {
	d := rd.today
	expr, holds := ratio(rd.healthy)
	if holds == nil {
		return rd.each(ctx, rd.healthy, from, to, rd.step, 0, func(m model.Matrix) error {
			rd.points(m, func(at int, v float64) { d.healthy[at] = d.healthy[at] || !math.IsNaN(v) })
			return nil
		})
	}
	first, last := int(from.Sub(d.start)/rd.step), min(int(to.Sub(d.start)/rd.step), len(d.healthy))
	failing := make([]bool, len(d.healthy))
	err := rd.each(ctx, expr, from, to, rd.step, 0, func(m model.Matrix) error {
		rd.points(m, func(at int, v float64) {
			switch {
			case holds(v):
				d.healthy[at] = true // of several answers one is enough
			case !math.IsNaN(v):
				failing[at] = true
			}
		})
		return nil
	})
	for i := first; i < last; i++ {
		d.healthy[i] = d.healthy[i] || !failing[i]
	}
	return err
}

var (
	compared = regexp.MustCompile(`^(?s)(.*\S)\s*(<=|<|>=|>)\s*([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*$`)
	matchers = regexp.MustCompile(`\{[^}]*\}`)
	combines = regexp.MustCompile(`[<>=!]|\b(?i:and|or|unless|bool)\b`)
)

// ratio splits a query that compares one quotient with a number into the
// quotient and the comparison; holds is nil for any other query.
func ratio(query string) (expr string, holds func(v float64) bool) {
	m := compared.FindStringSubmatch(query)
	if m == nil {
		return "", nil
	}
	bare := matchers.ReplaceAllString(quoted.ReplaceAllString(m[1], ""), "")
	bound, err := strconv.ParseFloat(m[3], 64)
	if err != nil || !strings.Contains(bare, "/") || combines.MatchString(bare) {
		return "", nil
	}
	switch m[2] {
	case "<":
		return m[1], func(v float64) bool { return v < bound }
	case "<=":
		return m[1], func(v float64) bool { return v <= bound }
	case ">":
		return m[1], func(v float64) bool { return v > bound }
	}
	return m[1], func(v float64) bool { return v >= bound }
}
