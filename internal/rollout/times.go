package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// times says what limits a quota has beside its rate: those of its hours, and of the
// windows that a person gave it; "" where it has none.
func times(t rlc.Timed) string {
	var out []string
	if t.Hours != nil && len(t.Hours.Rates) > 0 {
		out = append(out, strings.TrimSuffix(stat.RateText(slices.Min(t.Hours.Rates)), "/s")+" to "+stat.RateText(slices.Max(t.Hours.Rates))+" by the hour")
	}
	for _, w := range t.Windows {
		out = append(out, fmt.Sprintf("%s, burst %s, from %s to %s", stat.RateText(w.Rate), rlc.Number(w.Burst), stat.TimeText(w.From), stat.TimeText(w.Until)))
	}
	return strings.Join(out, "; ")
}

// hoursApart says how a plan of hours differs from the one before, where its range
// does not tell.
func hoursApart(a, b *rlc.QuotaHours) string {
	if a == nil || b == nil {
		return ""
	}
	if !a.From.Equal(b.From) || len(a.Rates) != len(b.Rates) {
		return ", from " + stat.TimeText(b.From)
	}
	n := 0
	for i := range a.Rates {
		if a.Rates[i] != b.Rates[i] {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of %d hours are other ones", n, len(b.Rates))
}
