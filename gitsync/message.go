package gitsync

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// riskiest is how many changes a review's text shows, the most dangerous first.
const riskiest = 20

// explained is how many of them it explains step by step.
const explained = 5

// trailer is one line of a message's last paragraph.
type trailer struct{ name, value string }

// withTrailers ends a message with its trailers. Values are made one line, so
// none can forge another.
func withTrailers(body string, all []trailer, edited map[string]string) string {
	var b strings.Builder
	b.WriteString(strings.TrimRight(body, "\n"))
	b.WriteString("\n\n")
	for _, t := range all {
		fmt.Fprintf(&b, "%s: %s\n", t.name, inert(t.value))
	}
	for _, id := range slices.Sorted(maps.Keys(edited)) {
		fmt.Fprintf(&b, "%s: %s by %s\n", editedTrailer, strconv.QuoteToASCII(id), strconv.QuoteToASCII(edited[id]))
	}
	return b.String()
}

// cutTrailers splits a message that RLC wrote at its last paragraph.
func cutTrailers(msg string) (body, last string, found bool) {
	msg = strings.TrimRight(msg, "\n")
	i := strings.LastIndex(msg, "\n\n")
	if i < 0 {
		return msg, "", false
	}
	return msg[:i], msg[i+2:], true
}

// person is a name fit for a trailer.
func person(name string) string {
	return cmp.Or(strings.TrimSpace(clip(inert(name), 100)), "unknown")
}

// personal makes a person's own words a message body: its lines stay, and one
// that looks like a trailer of RLC no longer does.
func personal(text string) string {
	var lines []string
	for l := range strings.SplitSeq(clip(strings.ReplaceAll(text, "\r\n", "\n"), 16<<10), "\n") {
		l = inert(strings.ReplaceAll(l, "\t", "    "))
		if len(l) >= 4 && strings.EqualFold(l[:4], "RLC-") {
			l = "> " + l
		}
		lines = append(lines, strings.TrimRight(l, " "))
	}
	return cmp.Or(strings.Trim(strings.Join(lines, "\n"), "\n"), "edit")
}

// message is the commit message of a proposal, and the text of its review.
func message(p rlc.Proposal, n *next, epoch uint64, segment string) string {
	var b strings.Builder
	b.WriteString(title(p.Service, n.moved))
	b.WriteString("\n\n")
	b.WriteString(verdict(n.moved))
	b.WriteString("\n\n")
	rows := byRisk(n.moved)
	table(&b, rows)
	steps(&b, rows[:min(explained, len(rows))])
	if len(n.kept) > 0 {
		b.WriteString("\nLeft as they are:\n\n")
		for i, c := range n.kept {
			if i == riskiest {
				fmt.Fprintf(&b, "- and %d more\n", len(n.kept)-i)
				break
			}
			fmt.Fprintf(&b, "- %s: %s\n", quotaCode(c.Bucket, c.Key), prose(c.HeldWhy))
		}
	}
	b.WriteString("\nMerging puts these numbers in force; `git revert` of the merged commit takes\n" +
		"them back. To change a number, commit to this branch: rlc then leaves it alone.\n" +
		"To reject, delete the branch.\n\n")
	fmt.Fprintf(&b, "Run %s on %s", code(p.RunID), short(plumbing.NewHash(p.Base)))
	if at := n.moved[0].At; !at.IsZero() {
		fmt.Fprintf(&b, ", history until %s", at.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(&b, ".\nContent %s\n", quotafile.Hash(n.quotas))

	moved := map[string]bool{}
	for _, c := range n.moved {
		moved[c.ID()] = true
	}
	edited := maps.Clone(n.edited)
	maps.DeleteFunc(edited, func(id, _ string) bool { return moved[id] })
	return withTrailers(b.String(), []trailer{
		{runTrailer, p.RunID}, {serviceTrailer, segment}, {epochTrailer, fmt.Sprint(epoch)},
	}, edited)
}

// title is one line: how many quotas, which way, and what it does to drops.
func title(service string, changes []rlc.Change) string {
	var up, down, added, other int
	for _, c := range changes {
		switch {
		case c.Old == nil:
			added++
		case c.New.Rate > c.Old.Rate:
			up++
		case c.New.Rate < c.Old.Rate:
			down++
		default:
			other++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rlc(%s): %s", clip(inert(service), 80), count(len(changes), "quota"))
	for _, part := range []struct {
		sign string
		n    int
	}{{"↑", up}, {"↓", down}, {"+", added}, {"~", other}} {
		if part.n > 0 {
			fmt.Fprintf(&b, " %s%d", part.sign, part.n)
		}
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
// quota that does not exist yet drops nothing.
func dropped(changes []rlc.Change) (old, new loss) {
	for _, c := range changes {
		if c.Backtest.New == nil {
			continue
		}
		new.add(c.Backtest.New)
		if c.Backtest.Old != nil {
			old.add(c.Backtest.Old)
		} else if c.Old == nil {
			old.add(&rlc.Backtest{Requests: c.Backtest.New.Requests})
		}
	}
	return old, new
}

func (l *loss) add(b *rlc.Backtest) {
	l.requests += b.Requests
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

// verdict is what a reviewer reads first.
func verdict(changes []rlc.Change) string {
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
	fmt.Fprintf(&b, "%s %s; ", count(len(changes), "quota"), verb)
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

// byRisk sorts changes, the riskiest first.
func byRisk(changes []rlc.Change) []rlc.Change {
	return slices.SortedStableFunc(slices.Values(changes), func(x, y rlc.Change) int {
		return cmp.Or(cmp.Compare(risk(y), risk(x)), strings.Compare(x.ID(), y.ID()))
	})
}

// steps explains changes from samples to the number, as rlc explain does. Each
// line is indented: code to Markdown, and never a trailer.
func steps(b *strings.Builder, changes []rlc.Change) {
	b.WriteString("\nStep by step:\n")
	for _, c := range changes {
		fmt.Fprintf(b, "\n    %s\n", clip(inert(c.ID()), 120))
		for l := range strings.Lines(policies.Explain(c).Text()) {
			fmt.Fprintf(b, "    %s\n", clip(inert(strings.TrimRight(l, "\n")), 200))
		}
	}
}

// table writes the riskiest changes, sorted, as Markdown.
func table(b *strings.Builder, rows []rlc.Change) {
	b.WriteString("| bucket | key | old | new | Δ | peak | headroom | drops | why |\n|---|---|---|---|---|---|---|---|---|\n")
	for i, c := range rows {
		if i == riskiest {
			fmt.Fprintf(b, "\nAnd %d more with less risk.\n", len(rows)-i)
			break
		}
		key, old, delta, peak, headroom := "", "none", "new", "unknown", "unknown"
		if len(c.Key) > 0 {
			key = code(c.Key.String())
		}
		if c.Old != nil {
			old = limit(*c.Old, c.OldMode)
			delta = "0 %"
			if c.Old.Rate > 0 {
				delta = fmt.Sprintf("%+.0f %%", 100*(float64(c.New.Rate)/float64(c.Old.Rate)-1))
			}
		}
		if c.Peak.Rate > 0 {
			peak = number(float64(c.Peak.Rate)) + "/s " + c.Peak.At.UTC().Format("2006-01-02 15:04")
			if c.New.Rate > 0 {
				headroom = fmt.Sprintf("%.0f %%", 100*float64(c.New.Rate-c.Peak.Rate)/float64(c.New.Rate))
			}
		}
		was, is := dropped([]rlc.Change{c})
		why := prose(c.Why)
		if c.Look != "" {
			why += "; look: " + prose(c.Look)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s → %s | %s |\n",
			code(c.Bucket), key, old, limit(*c.New, c.NewMode), delta, peak, headroom, was.share(), is.share(), why)
	}
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
	if c.Old != nil && c.Old.Rate > 0 {
		fall = 1 - float64(c.New.Rate)/float64(c.Old.Rate)
	}
	switch {
	case more > 0:
		return 10 + more
	case fall > 0:
		return 1 + fall
	}
	return min(-fall, 1e6) / 1e6
}

// limit renders a limit for a table.
func limit(l rlc.Limit, m rlc.Mode) string {
	s := number(float64(l.Rate)) + "/s, burst " + strconv.FormatInt(int64(l.Burst), 10)
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
	return s
}

func quotaCode(bucket string, key rlc.Key) string { return code(rlc.QuotaID(bucket, key)) }

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
