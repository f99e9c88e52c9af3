// Package review says in words what a proposal would change: the title and the
// body of its review, and what of them stands in its commit's message.
//
// Text from outside (names of callers and people, a policy's why) is escaped for
// where it stands; nothing in a name is markup, a mention, a link or a trailer.
package review

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/escape"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
)

// Riskiest is how many changes a review shows, the most dangerous first.
const Riskiest = 20

// Explained is how many of them it explains step by step.
const Explained = 5

// TeamTitle is one line for the proposals of a team's services in one review.
func TeamTitle(team string, services int) string {
	return fmt.Sprintf("rlc(team %s): %s", escape.Clip(escape.Line(team), 80), rlc.Plural(services, "service"))
}

// Title is one line: how many quotas, which way, and what it does to drops.
func Title(service string, changes []rlc.Change) string {
	var up, down, added, gone, other int
	for _, c := range changes {
		switch {
		case c.Remove:
			gone++
		case c.Old == nil:
			added++
		case c.New == nil:
		default:
			switch policies.Direction(&c) {
			case 1:
				up++
			case -1:
				down++
			default:
				other++
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rlc(%s): %s", escape.Clip(escape.Line(service), 80), rlc.Plural(len(changes), "quota"))
	for _, part := range []struct {
		sign string
		n    int
	}{{"↑", up}, {"↓", down}, {"+", added}, {"−", gone}, {"~", other}} {
		if part.n > 0 {
			fmt.Fprintf(&b, " %s%d", part.sign, part.n)
		}
	}
	if len(changes) == 0 {
		return b.String() + " · rendered files follow the numbers in force"
	}
	old, new := dropped(changes)
	fmt.Fprintf(&b, " · est. drops %s → %s", old.share(), new.share())
	return b.String()
}

// loss sums what a set of limits would have dropped.
type loss struct {
	requests, drops float64
	atLeast, known  bool
}

// dropped sums the replays of the quotas in force and of the proposed ones. A
// quota that does not exist yet drops nothing. What caps drop counts, but not their
// requests, which quotas have counted.
func dropped(changes []rlc.Change) (old, new loss) {
	adds := rlc.Summable(changes)
	for i := range changes {
		c := &changes[i]
		if c.Backtest.New == nil {
			continue
		}
		new.add(c.Backtest.New, adds(c))
		if c.Backtest.Old != nil {
			old.add(c.Backtest.Old, adds(c))
		} else if c.Old == nil {
			old.add(&rlc.Backtest{Requests: c.Backtest.New.Requests}, adds(c))
		}
	}
	return old, new
}

func (l *loss) add(b *rlc.Backtest, requests bool) {
	if requests {
		l.requests += b.Requests
	}
	l.drops += b.Drops
	l.atLeast = l.atLeast || b.AtLeast
	l.known = true
}

// share renders dropped / offered, "unknown" where no history was replayed.
func (l loss) share() string {
	if !l.known {
		return "unknown"
	}
	text := percent(l.drops, l.requests)
	if l.atLeast {
		text = "≥ " + text
	}
	return text
}

func percent(part, of float64) string {
	switch p := 100 * part / of; {
	case part <= 0 || of <= 0:
		return "0.00 %"
	case p < 0.01:
		return "< 0.01 %"
	default:
		return fmt.Sprintf("%.2f %%", p)
	}
}

// Verdict is what a reviewer reads first.
func Verdict(changes []rlc.Change) string {
	if len(changes) == 0 {
		return "No quota changes; files rendered for other limiters do not hold the numbers in force."
	}
	var dropping, unknown, shadow, look int
	for _, c := range changes {
		switch b := c.Backtest.New; {
		case b == nil:
			unknown++
		case b.Drops > 0:
			dropping++
		}
		if c.NewMode == rlc.Shadow {
			shadow++
		}
		if c.Look != "" {
			look++
		}
	}
	_, new := dropped(changes)
	var b strings.Builder
	verb := "change"
	if len(changes) == 1 {
		verb = "changes"
	}
	fmt.Fprintf(&b, "%s %s; ", rlc.Plural(len(changes), "quota"), verb)
	switch {
	case unknown == len(changes):
		b.WriteString("no history was replayed against the new numbers.")
	case dropping == 0:
		b.WriteString("none would have dropped anything in the history replayed.")
	default:
		fmt.Fprintf(&b, "%d would have dropped requests: %s of %s (%s).", dropping, number(new.drops), number(new.requests), new.share())
	}
	if unknown > 0 && unknown < len(changes) {
		fmt.Fprintf(&b, " For %d no history was replayed.", unknown)
	}
	if shadow > 0 {
		fmt.Fprintf(&b, " %d in shadow: counted, nothing dropped.", shadow)
	}
	if look > 0 {
		fmt.Fprintf(&b, " Look at %d of them first.", look)
	}
	return b.String()
}

// Risk says in one sentence how closely to look.
func Risk(changes []rlc.Change) string {
	cut, looks, down, short, held := 0, 0, 0, 0, 0
	drops := false
	for _, c := range changes {
		lower := policies.LowersRate(&c)
		some := c.Backtest.New != nil && c.Backtest.New.Drops > 0
		if lower {
			down++
		}
		if lower && some {
			cut++
		}
		drops = drops || some
		if policies.BurstFallsShort(&c) {
			short++
			if c.Old != nil {
				held++
			}
		}
		if c.Look != "" {
			looks++
		}
	}
	switch {
	case cut > 0:
		return "Risk: look closely. " + rlc.Plural(cut, "decrease") + " would have dropped requests."
	case looks == 1:
		return "Risk: moderate. 1 change asks for a look; the column Why says what at."
	case looks > 1:
		return fmt.Sprintf("Risk: moderate. %d changes ask for a look; the column Why says what at.", looks)
	case held > 0:
		return fmt.Sprintf("Risk: moderate. %s would not hold the highest second that was counted, and held more of them before.", rlc.Plural(held, "burst"))
	case short > 0:
		return fmt.Sprintf("Risk: moderate. %s would not hold the highest second that was counted.", rlc.Plural(short, "new burst"))
	case drops:
		return "Risk: low. The proposed limits leave some peaks above them; the quota's page lists the episodes."
	case down > 0:
		return "Risk: low. No decrease would have dropped anything."
	}
	return "Risk: low."
}

// ByRisk sorts changes, the riskiest first.
func ByRisk(changes []rlc.Change) []rlc.Change {
	return slices.SortedStableFunc(slices.Values(changes), func(x, y rlc.Change) int {
		return cmp.Or(cmp.Compare(risk(y), risk(x)), strings.Compare(x.ID(), y.ID()))
	})
}

// Riskier compares proposals by the riskiest change of each: negative where a's is
// the riskier one.
func Riskier(a, b []rlc.Change) int { return cmp.Compare(worst(b), worst(a)) }

func worst(changes []rlc.Change) float64 {
	most := math.Inf(-1)
	for _, c := range changes {
		most = max(most, risk(c))
	}
	return most
}

// risk orders changes: first by what the new number would drop more than the
// old one, then by how far it falls, then by how far it rises.
func risk(c rlc.Change) float64 {
	more, fall := 0.0, 0.0
	if c.Backtest.New != nil {
		more = c.Backtest.New.Drops
		if c.Backtest.Old != nil {
			more -= c.Backtest.Old.Drops
		}
	}
	if c.Old != nil && c.New != nil && c.Old.Rate > 0 {
		fall = 1 - float64(c.New.Rate)/float64(c.Old.Rate)
	}
	if m, ok := policies.MovedHours(&c); ok {
		fall = max(fall, m.Down)
	}
	switch {
	case more > 0:
		return 10 + more
	case fall > 0:
		return 1 + fall
	}
	return min(-fall, 1e6) / 1e6
}

// Steps explains changes from samples to the number, as rlc explain does. Each
// line is indented: code to Markdown, and never a trailer.
func Steps(b *strings.Builder, changes []rlc.Change) {
	b.WriteString("\nStep by step:\n")
	for _, c := range changes {
		fmt.Fprintf(b, "\n    %s\n", escape.Clip(escape.Line(c.ID()), 120))
		for l := range strings.Lines(policies.Explain(c).Text()) {
			fmt.Fprintf(b, "    %s\n", escape.Clip(escape.Line(strings.TrimRight(l, "\n")), 200))
		}
	}
}

// Table writes the first most of the changes, sorted, as Markdown.
func Table(b *strings.Builder, rows []rlc.Change, most int) {
	b.WriteString("| bucket | key | old | new | Δ | peak that counts | headroom | drops | why |\n|---|---|---|---|---|---|---|---|---|\n")
	for i, c := range rows {
		if i == most {
			fmt.Fprintf(b, "\nAnd %d more with less risk.\n", len(rows)-i)
			break
		}
		row(b, c)
	}
}

func row(b *strings.Builder, c rlc.Change) {
	key, old, new, delta, peak, headroom := "", "none", "removed", "", "unknown", "unknown"
	if len(c.Key) > 0 {
		key = escape.Code(c.Key.String())
	}
	if c.Old != nil {
		old = Limit(*c.Old, c.OldMode, c.OldTimed.Hours)
	}
	if c.New != nil && !c.Remove {
		new = Limit(*c.New, c.NewMode, c.NewTimed.Hours)
		switch {
		case c.Old == nil:
			delta = "new"
		case c.Old.Rate > 0:
			delta = stat.ShareText(float64(c.New.Rate)/float64(c.Old.Rate)-1, 0)
		default:
			delta = "0 %"
		}
		delta += policies.HoursDelta(&c)
	}
	if c.Peak.Rate > 0 {
		peak = number(float64(c.Peak.Rate)) + "/s " + c.Peak.At.UTC().Format("2006-01-02 15:04")
		if h, ok := c.NewTimed.Headroom(c.New, c.Peak); ok {
			headroom = strings.TrimPrefix(stat.ShareText(h, 0), "+")
		}
	}
	was, is := dropped([]rlc.Change{c})
	why := escape.Prose(c.Why)
	if c.Look != "" {
		why += "; look: " + escape.Prose(c.Look)
	}
	bucket := rlc.Quota{Bucket: c.Bucket, Region: c.Region}.Place()
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s → %s | %s |\n",
		escape.Code(bucket), key, old, new, delta, peak, headroom, was.share(), is.share(), why)
}

// Limit renders a limit for a line.
func Limit(l rlc.Limit, m rlc.Mode, h *rlc.QuotaHours) string {
	s := number(float64(l.Rate)) + "/s, burst " + rlc.Number(l.Burst)
	if h != nil {
		s += ", " + policies.HoursText(h)
	}
	if m != "" {
		s += ", " + string(m)
	}
	return s
}

// number renders a count or a rate with three digits that matter at least.
func number(x float64) string {
	digits := 0
	for y := math.Abs(x); y > 0 && y < 100 && digits < 3; y *= 10 {
		digits++
	}
	s := strconv.FormatFloat(x, 'f', digits, 64)
	if digits > 0 {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return rlc.Grouped(s)
}
