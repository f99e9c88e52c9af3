package web

import (
	"context"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// arrange filters and orders rows. Without an order they stay as in the policy.
func arrange(rows []row, seen counts, text, mode, by string, desc bool) ([]row, error) {
	var out []row
	for _, r := range rows {
		if text != "" && !strings.Contains(strings.ToLower(r.id()), strings.ToLower(text)) {
			continue
		}
		switch mode {
		case "":
		case "held":
			if r.held() == "" {
				continue
			}
		case "shadow", "enforce":
			if string(r.mode) != mode {
				continue
			}
		default:
			return nil, invalid("mode must be shadow, enforce or held")
		}
		out = append(out, r)
	}
	number := map[string]func(*row) float64{
		"live":     func(r *row) float64 { return limitRate(r.live) },
		"desired":  func(r *row) float64 { return limitRate(r.desired) },
		"proposed": func(r *row) float64 { return limitRate(r.proposed) },
		"peak":     func(r *row) float64 { return float64(r.peak()) },
		"headroom": func(r *row) float64 {
			if h, ok := r.headroom(); ok {
				return h
			}
			return 1e300
		},
		"drops": func(r *row) float64 { c := seen[r.id()]; return c.Drops + c.VirtualDrops },
	}
	text0 := map[string]func(*row) string{
		"bucket": func(r *row) string { return r.id() }, "caller": func(r *row) string { return r.key["caller"] },
		"procedure": func(r *row) string { return r.key["procedure"] }, "mode": func(r *row) string { return string(r.mode) },
	}
	var less func(a, b row) int
	switch {
	case by == "":
		return out, nil
	case number[by] != nil:
		of := number[by]
		less = func(a, b row) int { return cmpFloat(of(&a), of(&b)) }
	case text0[by] != nil:
		of := text0[by]
		less = func(a, b row) int { return strings.Compare(of(&a), of(&b)) }
	default:
		return nil, invalid("rows cannot be sorted by %q", by)
	}
	slices.SortStableFunc(out, func(a, b row) int {
		if desc {
			return less(b, a)
		}
		return less(a, b)
	})
	return out, nil
}

func cmpFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func limitRate(l *rlc.Limit) float64 {
	if l == nil {
		return -1
	}
	return float64(l.Rate)
}

// quotaColumns heads a table of quotas; counted says how far back its drops
// reach.
func quotaColumns(v *visit, by string, desc bool, counted string) []ui.Column {
	return v.sorted(by, desc, [3]string{"Bucket", "bucket", ""}, [3]string{"Caller", "caller", ""}, [3]string{"Procedure", "procedure", ""}, [3]string{"Mode", "mode", ""},
		[3]string{"Live", "live", "num"}, [3]string{"Desired", "desired", "num"}, [3]string{"Proposed", "proposed", "num"},
		[3]string{"Peak that counts", "peak", "num"}, [3]string{"Headroom", "headroom", "num"}, [3]string{"Drops " + counted, "drops", "num"}, [3]string{"7 days", "", "trend"})
}

// quotaTable are the lines of a page of a table of quotas, with their last seven
// days; where those cannot be read it is an error, and the lines are without. seen
// is nil where the counters cannot be read.
func (s *server) quotaTable(ctx context.Context, t *truth, rows []row, seen counts) ([]ui.QuotaRow, error) {
	weeks, err := s.quotaSparks(ctx, t, rows)
	var out []ui.QuotaRow
	for i := range rows {
		line := quotaRow(t, &rows[i], seen)
		line.Spark = weeks[rows[i].id()]
		out = append(out, line)
	}
	return out, err
}

// unreadWeek says that no seven days are drawn.
func unreadWeek(err error) string {
	return "The last 7 days of these quotas cannot be read: " + plain(err) + "."
}

// quotaRow is one line of a table of quotas. seen is nil where the counters
// cannot be read.
func quotaRow(t *truth, r *row, seen counts) ui.QuotaRow {
	out := ui.QuotaRow{
		Link: ui.Link{Text: quotaName(r.name, r.key), URL: bucketURL(t.name, r.name, r.key)},
		Live: limitText(r.live), Desired: limitText(r.desired), Peak: "—", Headroom: "—", Drops: "0",
		Caller: callerLink(r), Procedure: matched(r, "procedure"),
		Exact: [3]string{limitExact(r.live), limitExact(r.desired), limitExact(r.proposed)},
	}
	if r.bucket != nil && r.bucket.Role == rlc.CapRole {
		out.Role = "cap"
	}
	if r.force() != nil && r.mode != "" {
		out.Chips = append(out.Chips, modeChip(r.mode))
	}
	if r.proposed != nil {
		out.Proposed, out.Delta = r.proposedText(), delta(r.desired, r.proposed)
		if r.desired == nil {
			out.Chips = append(out.Chips, ui.Chip{Mode: "new", Text: "new"})
			out.Range = r.unsure()
			out.Delta = map[bool]string{true: "low confidence", false: "new"}[out.Range]
		}
	}
	if r.held() != "" {
		out.Chips = append(out.Chips, ui.Chip{Mode: "held", Text: "held"})
		if r.force() == nil {
			out.Note = r.change.HeldWhy
		}
	}
	if r.bucket == nil && !t.broken {
		out.Chips = append(out.Chips, ui.Chip{Mode: "none", Text: "not in the policy"})
	}
	if t.broken && r.desired == nil {
		out.Desired = unknown
	}
	if seen == nil {
		out.Drops = unknown
	}
	if p := r.peak(); p > 0 {
		out.Peak, out.Highest = rate(float64(p)), beyond(r)
	}
	if h, ok := r.headroom(); ok {
		out.Headroom, out.Bad = signed(h), h < 0
		out.Gauge = gauge(float64(r.peak()), float64(r.force().Rate), r.mode == rlc.Enforce)
	} else if out.Note == "" && r.proposed != nil && r.force() == nil {
		out.Note = "first proposal"
	} else if out.Note == "" && r.force() != nil && r.bucket != nil {
		out.Note = "no peak known"
	} else if out.Note == "" && r.force() == nil && r.change == nil {
		out.Note = "not run yet"
		if r.bucket != nil && len(r.bucket.Each) > 0 {
			out.Note = "one quota per key"
		}
	}
	switch c := seen[r.id()]; {
	case c.Drops > 0:
		out.Drops, out.Kind = digits(c.Drops), "real"
	case c.VirtualDrops > 0:
		out.Drops, out.Kind = "would "+digits(c.VirtualDrops), "virtual"
	}
	return out
}

// leastDays is how much history a first limit needs to be shown as a number.
const leastDays = 14

// unsure reports whether the proposed limit is a first one that rests on less
// than two weeks of history, and lies above what was seen.
func (r *row) unsure() bool {
	return r.proposed != nil && r.force() == nil && thinly(r.change, r.proposed)
}

// thinly reports whether a change, nil for none, rests on too little history for a
// limit above all that was seen.
func thinly(c *rlc.Change, limit *rlc.Limit) bool {
	return c != nil && c.ValidDays < leastDays && c.Peak.Rate > 0 && c.Peak.Rate < limit.Rate
}

// rangeText is where the right number of an unsure limit lies.
func rangeText(c *rlc.Change, limit *rlc.Limit) string {
	return rate(float64(c.Peak.Rate)) + "–" + limitText(limit)
}

// proposedText is the proposed rate; of an unsure one the range that the right
// number lies in.
func (r *row) proposedText() string {
	if r.unsure() {
		return rangeText(r.change, r.proposed)
	}
	return limitText(r.proposed)
}

// callerLink is the caller that a row is about, with its page where it is one.
func callerLink(r *row) ui.Link {
	l := ui.Link{Text: matched(r, "caller")}
	if r.key["caller"] != "" || r.bucket != nil && only(r.bucket, l.Text) {
		l.URL = "/callers/" + segment(l.Text)
	}
	return l
}

// matched says which value of an attribute a row is about.
func matched(r *row, attribute string) string {
	if v, ok := r.key[attribute]; ok {
		return v
	}
	if r.bucket == nil {
		return "—"
	}
	if slices.Contains(r.bucket.Each, attribute) {
		return "each"
	}
	p, ok := r.bucket.Match[attribute]
	if !ok {
		return "any"
	}
	return patternText(p)
}

func patternText(p rlc.Pattern) string {
	switch p.Kind {
	case rlc.Absent:
		return "absent"
	case rlc.Present:
		return "*"
	case rlc.Prefix:
		return strings.Join(p.Values, "") + "*"
	}
	return strings.Join(p.Values, ", ")
}

func delta(old, proposed *rlc.Limit) string {
	switch {
	case proposed == nil:
		return ""
	case old == nil:
		return "new"
	case old.Rate == proposed.Rate:
		return "burst only"
	case old.Rate == 0:
		return "from 0"
	}
	return signed(float64((proposed.Rate - old.Rate) / old.Rate))
}
