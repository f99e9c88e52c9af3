package policies

import (
	"fmt"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Blind says which peaks a step hides, "" where it hides none.
func Blind(step time.Duration) string {
	if step <= time.Second {
		return ""
	}
	return fmt.Sprintf("peaks below %d s are not visible", int(step.Seconds()))
}

// BurstText says whether a limit's burst would have held what enforcers counted by
// the second, and which peaks nobody can see: one sentence or two, "" where every
// second is a step.
func BurstText(b *rlc.Backtest) string {
	blind := Blind(time.Duration(b.Step * float64(time.Second)))
	seen := b.Bursts
	if seen == nil {
		return sentence(blind)
	}
	text := fmt.Sprintf("The burst would have held every second that enforcers counted, at most %s", stat.RateText(seen.Highest.Rate))
	if seen.Over > 0 {
		text = fmt.Sprintf("The burst would not have held the highest second of %d of %d hours, at most %s; %s holds them all", seen.Over, seen.Hours, stat.RateText(seen.Highest.Rate), rlc.Number(seen.Holds))
	}
	if seen.Unseen > 0 && blind != "" {
		text += fmt.Sprintf("; in %d of %d hours nobody counted seconds, and %s", seen.Unseen, seen.Hours+seen.Unseen, blind)
	}
	return sentence(text)
}

func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// BurstsText is BurstText of several changes: how many bursts would have held what
// was counted, and for how many nobody counted. "" where nothing was replayed.
func BurstsText(changes []rlc.Change) string {
	held, over, unseen, replayed := 0, 0, 0, 0
	step := time.Duration(0)
	for i := range changes {
		b := changes[i].Backtest.New
		if b == nil || changes[i].Remove {
			continue
		}
		replayed++
		switch {
		case b.Bursts == nil:
			unseen++
			step = max(step, time.Duration(b.Step*float64(time.Second)))
		case b.Bursts.Over > 0:
			over++
		default:
			held++
		}
	}
	blind := Blind(step)
	switch {
	case replayed == 0 || unseen == replayed && blind == "":
		return ""
	case replayed == 1 || unseen == replayed:
		for i := range changes {
			if b := changes[i].Backtest.New; b != nil && !changes[i].Remove {
				return BurstText(b)
			}
		}
	}
	var parts []string
	if held > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d bursts would have held every second that enforcers counted", held, replayed))
	}
	if over > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d would not have held the highest one", over, replayed))
	}
	if unseen > 0 && blind != "" {
		parts = append(parts, fmt.Sprintf("for %d nobody counted, and %s", unseen, blind))
	}
	return sentence(strings.Join(parts, "; "))
}

// BurstFallsShort reports whether a change leaves a burst short: it would not hold
// the highest second of more hours than the one in force.
func BurstFallsShort(c *rlc.Change) bool {
	b := c.Backtest.New
	if b == nil || b.Bursts == nil {
		return false
	}
	before := 0
	if old := c.Backtest.Old; old != nil && old.Bursts != nil {
		before = old.Bursts.Over
	}
	return b.Bursts.Over > before
}
