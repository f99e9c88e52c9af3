package policies

import (
	"fmt"
	"math"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Explanation is a change in words: the one text behind the command line, the
// page's waterfall and the review.
type Explanation struct {
	Verdict string // one sentence
	Look    string // why a person should look; ""
	Why     string // the quota's line in quotas.yaml
	Lines   []Line // from samples to the number, in order
	Flags   []Flagged
}

// Line is one step of the waterfall.
type Line struct {
	Rule   string
	Label  string   // the rule for people
	Detail string   //
	Rate   rlc.Rate // after the step
	Delta  float64  // by how much the step moved the rate; 0 where it did not act
	Acted  bool
	Asks   bool // it left the rate and wants a person to look
}

// Flagged is a window that was left out, in words.
type Flagged struct {
	rlc.Flag
	Text string
}

// Explain tells how a change came about.
func Explain(c rlc.Change) Explanation {
	e := Explanation{Verdict: joined([]string{verdict(c), hoursVerdict(&c)}), Look: c.Look, Why: c.Why}
	var last rlc.Rate
	for _, r := range c.Reasons {
		l := Line{Rule: r.Rule, Label: label(r.Rule), Detail: r.Detail, Rate: r.Rate, Acted: r.Acted, Asks: r.Asks}
		if r.Acted {
			l.Delta = float64(r.Rate - last)
			last = r.Rate
		}
		e.Lines = append(e.Lines, l)
	}
	for _, f := range c.Flags {
		e.Flags = append(e.Flags, Flagged{Flag: f, Text: flagText(f)})
	}
	return e
}

// verdict says in one sentence what becomes of the quota.
func verdict(c rlc.Change) string {
	mode := ""
	if c.NewMode == rlc.Shadow {
		mode = " in shadow"
	}
	switch {
	case c.Remove && c.Old != nil:
		return fmt.Sprintf("to be removed: %s", stat.RateText(c.Old.Rate))
	case c.Held != "" && c.Old == nil:
		return "no quota yet: " + c.HeldWhy
	case c.Held != "":
		return fmt.Sprintf("held at %s: %s", stat.RateText(c.Old.Rate), c.HeldWhy)
	case c.New == nil:
		return "no quota"
	case c.Old == nil:
		return fmt.Sprintf("new: %s, burst %s%s", stat.RateText(c.New.Rate), rlc.Number(c.New.Burst), mode)
	case c.Old.Rate != c.New.Rate:
		verb := "raised"
		if c.New.Rate < c.Old.Rate {
			verb = "lowered"
		}
		return fmt.Sprintf("%s from %s to %s (%s)%s", verb, stat.RateText(c.Old.Rate), stat.RateText(c.New.Rate), relative(c.Old.Rate, c.New.Rate), mode)
	case c.Old.Burst != c.New.Burst:
		return fmt.Sprintf("unchanged rate of %s, burst from %s to %s%s", stat.RateText(c.New.Rate), rlc.Number(c.Old.Burst), rlc.Number(c.New.Burst), mode)
	case c.OldMode != c.NewMode && c.NewMode == "":
		return fmt.Sprintf("unchanged at %s, no longer in shadow of its own", stat.RateText(c.New.Rate))
	}
	return fmt.Sprintf("unchanged at %s%s", stat.RateText(c.New.Rate), mode)
}

// relative is a change in percent: "+30 %", "−4.2 %".
func relative(from, to rlc.Rate) string {
	if from <= 0 {
		return "from nothing"
	}
	share, digits := float64(to/from-1), 1
	if math.Abs(share) >= 0.1-1e-9 {
		digits = 0
	}
	return stat.ShareText(share, digits)
}

func flagText(f rlc.Flag) string {
	return fmt.Sprintf("%s to %s left out (%s): peak %s, %s; counted, the quota would be %s",
		stat.TimeText(f.From), stat.TimeText(f.Until), strings.ReplaceAll(f.Rule, "_", " "), stat.RateText(f.Peak), f.Reason, stat.RateText(f.With))
}

// label names a rule for people. A rule without a name of its own reads as its
// words.
func label(rule string) string {
	switch rule {
	case "highest_step":
		return "highest step"
	case "weekly_peak":
		return "weekly peak that counts"
	case "step_up", "step_down":
		return "step of a day"
	case "week_up", "week_down":
		return "step of a week"
	case "max_increase":
		return "cap on an unproven increase"
	case "highest_of_week":
		return "highest estimate of 7 days"
	case "data":
		return "data"
	case "hours":
		return "hours of the week"
	case "valid_days":
		return "days of history"
	case "human_edit":
		return "edited by a person"
	case "alias":
		return "renamed caller"
	case "vanished":
		return "caller is gone"
	}
	return strings.ReplaceAll(rule, "_", " ")
}

// Text renders the explanation for a terminal or a review: the verdict, then
// one line for each step: "*" moved the rate, "!" asks a person to look at it.
func (e Explanation) Text() string {
	var b strings.Builder
	fmt.Fprintln(&b, e.Verdict)
	if e.Look != "" {
		fmt.Fprintf(&b, "look: %s\n", e.Look)
	}
	width := 0
	for _, l := range e.Lines {
		width = max(width, len([]rune(l.Label)))
	}
	for _, l := range e.Lines {
		mark, rate := " ", ""
		switch {
		case l.Acted:
			mark, rate = "*", stat.RateText(l.Rate)
		case l.Asks:
			mark = "!"
		}
		fmt.Fprintf(&b, "%s %-*s %10s  %s\n", mark, width, l.Label, rate, l.Detail)
	}
	for _, f := range e.Flags {
		fmt.Fprintf(&b, "~ %s\n", f.Text)
	}
	if e.Why != "" {
		fmt.Fprintf(&b, "why: %s\n", e.Why)
	}
	return b.String()
}
