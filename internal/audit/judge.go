package audit

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
)

// judge replays the history against a limit. What the historical policy leaves
// out is what a limit is there to hold: drops in those hours alone make no limit
// too tight. Hours that enforcement dropped requests in count here, although no
// quota is raised by them: they are how a tight limit shows.
func (s *Subject) judge(row *Row, history rlc.History, h held, est rlc.Estimate) {
	all := h.replay(history)
	row.Drops, row.AtLeast, row.Episodes = all.Drops, all.AtLeast && all.Drops > 0, len(all.Episodes)
	left := slices.DeleteFunc(slices.Clone(est.Flags), func(f rlc.Flag) bool { return f.Rule == "enforced_drops" })
	counted := all
	if all.Drops > 0 && len(left) > 0 {
		counted = h.replay(without(history, left))
		row.LeftOut = max(0, all.Drops-counted.Drops)
	}
	peak := row.Highest
	if row.Peak != nil {
		peak = row.Peak
	}
	rate, times := float64(h.limit.Rate), float64(h.limit.Rate/peak.Rate)
	isCap := false
	if b := s.Service.Bucket(row.Bucket); b != nil {
		isCap = b.Role == rlc.CapRole
	}
	switch {
	case isCap:
		row.Suggested = nil // it does not follow traffic
	case row.Peak != nil && h.quota:
		fits := rlc.Fits(h.limit.Rate, row.Peak.Rate)
		row.Fits = &fits
	}
	dropped := fmt.Sprintf("would have dropped %s%s requests (%.3g %%)", atLeast(row.AtLeast), rlc.Number(math.Round(all.Drops)), 100*float64(all.Share))
	lies := fmt.Sprintf("the limit is %.3g times the peak that counts", times)
	row.Verdict, row.Detail = Fine, lies
	switch {
	case counted.Drops > 0:
		row.Verdict, row.Detail = TooTight, dropped
		if row.LeftOut > 0 {
			row.Detail += fmt.Sprintf(", %s of them in hours that are left out%s", rlc.Number(math.Round(row.LeftOut)), rules(left))
		}
	case all.Drops > 0:
		row.Detail += "; it " + dropped + ", all in hours that are left out" + rules(left)
	case isCap:
		row.Detail = "a cap: it says what the service bears, not what comes; " + lies
	case times > rlc.FitMost:
		row.Verdict = Nothing
	case float64(row.Highest.Rate) > atLimit*rate:
		row.Detail = "the highest step is at the limit: where history holds only what was admitted, it may have been cut"
	}
}

func (h held) replay(history rlc.History) rlc.Backtest {
	if h.window != nil {
		return backtest.FromHistoryCounted(history, *h.window)
	}
	return backtest.FromHistory(history, h.limit)
}

// without is a history that lacks the hours of flags, as after a gap.
func without(h rlc.History, flags []rlc.Flag) rlc.History {
	within := func(x rlc.Hour) bool {
		return slices.ContainsFunc(flags, func(f rlc.Flag) bool { return !x.Start.Before(f.From) && x.Start.Before(f.Until) })
	}
	h.Hours = slices.DeleteFunc(slices.Clone(h.Hours), within)
	h.Tail = slices.DeleteFunc(slices.Clone(h.Tail), func(x rlc.Sample) bool { return within(rlc.Hour{Start: x.Time}) })
	return h
}

// rules names why hours were left out: " (spike, unhealthy)".
func rules(flags []rlc.Flag) string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Rule)
	}
	slices.Sort(names)
	return " (" + strings.Join(slices.Compact(names), ", ") + ")"
}
