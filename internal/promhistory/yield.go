package promhistory

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// judge finds the problems that concern every series, or a bucket.
func (rd *reading) judge() {
	if rd.problem != nil {
		rd.problems = append(rd.problems, *rd.problem)
	}
	if skew := time.Duration(rd.r.http.skew.Load()); skew.Abs() > maxSkew {
		rd.problems = append(rd.problems, rlc.HistoryProblem{Rule: "clock_skew", Detail: fmt.Sprintf("the history source's clock is off by %s", rlc.DurationText(skew.Round(time.Second)))})
	}
	for i := range rd.buckets {
		b := &rd.buckets[i]
		if rd.carried && len(b.lacks) == 0 {
			for _, a := range rd.matcher.Uses(i) {
				if !rd.labels[a] && rd.told(a) {
					b.lacks = append(b.lacks, a)
				}
			}
		}
		if len(b.left) > 0 || b.odd > 0 {
			rd.r.cfg.Log.Warn("keys left out of history", "service", rd.req.Service.Name, "bucket", b.Name, "problem", b.leftOut(rd.req).Detail)
		}
	}
}

// told reports whether some quota bucket tells requests apart by a value of the
// attribute, not only by its absence.
func (rd *reading) told(attribute string) bool {
	return slices.ContainsFunc(rd.ids.rules, func(m map[string]rlc.Pattern) bool {
		p, ok := m[attribute]
		return ok && p.Kind != rlc.Absent
	})
}

func (b *bucketState) leftOut(req rlc.HistoryRequest) rlc.HistoryProblem {
	what := fmt.Sprintf("%d keys of %s beyond the %d of quotas.max were left out, the smallest by traffic (label %s)",
		len(b.left), strings.Join(b.Each, ", "), req.Service.MaxQuotas, labelsOf(req.Profile, b.Each))
	if b.odd > 0 {
		what += fmt.Sprintf("; %d label sets have a value that holds NUL, is not UTF-8 or is longer than %d bytes", b.odd, maxValue)
	}
	return rlc.HistoryProblem{Rule: "budget", Detail: what}
}

// yield hands the computed buckets' series on.
func (rd *reading) yield(ctx context.Context, yield func(rlc.Series) error) error {
	order := make([]int, len(rd.buckets))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(a, b int) bool { return rd.buckets[order[a]].Name < rd.buckets[order[b]].Name })
	yielded := 0
	for _, i := range order {
		b := &rd.buckets[i]
		if b.Policy == nil {
			continue
		}
		all := []*series{b.whole}
		if len(b.Each) > 0 {
			all = all[:0]
			if len(b.left) > 0 || b.odd > 0 || len(b.lacks) > 0 {
				h := rlc.History{Step: rd.step, From: rd.req.Now.Add(-rd.req.Lookback), Until: rd.req.Now, Problems: rd.of(b, nil)}
				if len(b.left) > 0 || b.odd > 0 {
					h.Problems = append(h.Problems, b.leftOut(rd.req))
				}
				if err := yield(rlc.Series{Bucket: b.Name, History: h}); err != nil {
					return err
				}
			}
			for _, s := range b.keys {
				all = append(all, s)
			}
			sort.Slice(all, func(x, y int) bool { return all[x].Key.String() < all[y].Key.String() })
		}
		for some := range slices.Chunk(all, together) {
			if err := rd.join(ctx, some); err != nil {
				return err
			}
			peaks, err := rd.witnesses(ctx, some)
			if err != nil {
				return err
			}
			for i, s := range some {
				h := rd.history(b, s, &rd.joined[i], peaks[s.ID])
				if len(h.Hours) == 0 && len(s.Key) > 0 {
					continue // gone for longer than the window
				}
				yielded++
				if err := yield(rlc.Series{Bucket: b.Name, Key: s.Key, History: h}); err != nil {
					return err
				}
			}
		}
	}
	if yielded == 0 && rd.problem != nil {
		return fmt.Errorf("%s: %s", rd.problem.Rule, rd.problem.Detail)
	}
	return nil
}

// join reads the window's days of series into rd.joined, and remembers their
// running points.
func (rd *reading) join(ctx context.Context, some []*series) error {
	from := rd.req.Now.Add(-rd.req.Lookback)
	at := make(map[*series]*stat.Joined, len(some))
	for len(rd.joined) < len(some) {
		rd.joined = append(rd.joined, stat.Joined{})
	}
	for i, s := range some {
		rd.joined[i].Reset()
		at[s] = &rd.joined[i]
	}
	var of *series
	done := func() {
		if of != nil && of.seeded {
			rd.remember(of, &rd.window)
		}
	}
	err := rd.stored(ctx, some, from, rd.req.Now, func(s *series, d *rlc.SeriesDay) error {
		if s != of {
			done()
			rd.window.Reset()
			of = s
		}
		if s.fresh != nil && d.Day.Equal(s.fresh.Day) {
			d = s.fresh
		}
		at[s].Add(d, from, rd.req.Now)
		if s.point != nil {
			rd.window.Add(*d)
		}
		return nil
	})
	if err == nil {
		done()
	}
	return err
}

// history is what is known of a series whose days were joined, with its
// one-second peaks by hour.
func (rd *reading) history(b *bucketState, s *series, joined *stat.Joined, peaks map[time.Time]rlc.Rate) rlc.History {
	h := joined.History(rd.step, rd.req.Now.Add(-rd.req.Lookback), rd.req.Now)
	if s.newest.After(h.Newest) {
		h.Newest = s.newest
	}
	if len(peaks) > 0 {
		for i := range h.Hours {
			h.Hours[i].Second = peaks[h.Hours[i].Start]
		}
	}
	h.Targets = rd.share != ""
	h.Source = rd.source()
	h.Problems = rd.of(b, s)
	if len(h.Problems) == 0 {
		switch {
		case len(h.Hours) == 0:
			h.Problems = append(h.Problems, rlc.HistoryProblem{Rule: "no_data", Detail: fmt.Sprintf("no samples in %d days", int(rd.req.Lookback/day))})
		case rd.until.Sub(h.Newest) > silentFor:
			h.Problems = append(h.Problems, rlc.HistoryProblem{Rule: "no_data", Detail: "no data since " + h.Newest.UTC().Format("2006-01-02 15:04 UTC")})
		}
	}
	return h
}

// source is the source of the newest hour that this reading saw.
func (rd *reading) source() string {
	if rd.today != nil {
		for n := len(rd.today.source) - 1; n >= 0; n-- {
			if i := rd.today.source[n]; i > 0 {
				return rd.sources[i-1]
			}
		}
	}
	return rd.sources[0]
}

// of lists the problems of a series, the gravest first; s is nil for the bucket
// as a whole.
func (rd *reading) of(b *bucketState, s *series) []rlc.HistoryProblem {
	all := slices.Clone(rd.problems)
	if b.problem != nil {
		all = append(all, *b.problem)
	}
	if len(b.lacks) > 0 {
		all = append(all, rlc.HistoryProblem{Rule: "attribute_not_in_history", Detail: fmt.Sprintf("history does not carry %s (label %s)", strings.Join(b.lacks, ", "), labelsOf(rd.req.Profile, b.lacks))})
	}
	if s != nil {
		if why := rd.changed(s); why != "" {
			all = append(all, rlc.HistoryProblem{Rule: "source_changed", Detail: why})
		}
	}
	slices.SortStableFunc(all, func(x, y rlc.HistoryProblem) int { return slices.Index(grave, x.Rule) - slices.Index(grave, y.Rule) })
	return all
}

// grave orders the rules of problems.
var grave = []string{"failed", "warning", "budget", "duplicate", "attribute_not_in_history", "clock_skew", "source_changed", "no_data"}
