package web

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
)

func proposalLine(p rlc.Proposal) string {
	up, down, fresh := moves(p.Changes)
	text := plural(len(p.Changes), "quota", "quotas") + " " + movesText(up, down, fresh)
	old, neu, known := drops(p.Changes)
	if known {
		text += "; drops in replay " + count(old) + " → " + count(neu)
	}
	return text
}

// moves counts what rises, falls and is new. A quota whose hours fall, falls.
func moves(all []rlc.Change) (up, down, fresh int) {
	for _, c := range all {
		switch way := policies.Direction(&c); {
		case c.Old == nil:
			fresh++
		case way > 0:
			up++
		case way < 0:
			down++
		}
	}
	return up, down, fresh
}

// moveText is how far a change moves a quota's rate and its hours.
func moveText(c *rlc.Change) string {
	hours := policies.HoursDelta(c)
	if hours != "" && *c.Old == *c.New {
		return strings.TrimPrefix(hours, ", ")
	}
	return delta(c.Old, c.New) + hours
}

func movesText(up, down, fresh int) string {
	var parts []string
	for _, p := range []struct {
		n    int
		sign string
	}{{up, "↑"}, {down, "↓"}, {fresh, "+"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%s%d", p.sign, p.n))
		}
	}
	return strings.Join(parts, " ")
}

// drops adds up the replayed drops of the quotas in force and of the proposed
// ones; known is false where none was replayed.
func drops(all []rlc.Change) (old, proposed float64, known bool) {
	for _, c := range all {
		if c.Backtest.Old != nil {
			old += c.Backtest.Old.Drops
			known = true
		}
		if c.Backtest.New != nil {
			proposed += c.Backtest.New.Drops
			known = true
		}
	}
	return old, proposed, known
}

// firstGuess reports whether a change is a run's first limit that rests on too
// little history to stand as a number. made are the changes as the run made them: a
// person's number is no guess.
func firstGuess(made []rlc.Change, c *rlc.Change) bool {
	i := slices.IndexFunc(made, func(m rlc.Change) bool { return m.ID() == c.ID() })
	return i >= 0 && c.Old == nil && c.New != nil && made[i].New != nil && *made[i].New == *c.New && thinly(&made[i], c.New)
}

// thinText says how many first limits are shown as a range.
func thinText(n int) string {
	if n == 0 {
		return ""
	}
	return " " + plural(n, "first limit rests", "first limits rest") + " on less than two weeks of history: the right number lies somewhere in the range shown, and its upper end is what accepting puts in force."
}
