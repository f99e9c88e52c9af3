package policies

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// monthBudget is how far automatic merging may raise a quota in 30 days
// (policies.md 4); then a person looks.
const monthBudget = 0.5

// mergeCoverage is the share of its history that a quota must have to move
// without a person.
const mergeCoverage = 0.95

// Merging is what AutoMerge knows of a proposal.
type Merging struct {
	Service *rlc.Service
	Changes []rlc.Change // those that move
	Now     time.Time
	// MonthAgo are the limits in force 30 days ago, by quota ID. For a quota
	// that is younger it is its first one; where it is missing, the one in force
	// is the measure.
	MonthAgo map[string]rlc.Limit
}

// AutoMerge decides whether a proposal may be merged without a person, and
// why, or why not. It spends from a budget: +50 % in 30 days for each quota. A
// person decides what is larger than the service's max_change, also in a single
// hour of the week, what has less than 95 % of its history, a decrease that would have dropped anything or left the
// burst below what was counted in a second, what a
// guard asks a person to look at (a sum beyond capacity is such), and whatever begins or stops enforcing, adds a
// timed limit or removes a line. During a freeze nothing is merged, or only
// increases.
func AutoMerge(m Merging) (ok bool, because string) {
	if m.Service.AutoMerge == nil {
		return false, "the service merges nothing by itself"
	}
	if len(m.Changes) == 0 {
		return false, "nothing moves"
	}
	if f, frozen := FrozenAt(m.Service, m.Now); frozen && !(f.Increases && onlyIncreases(m.Changes)) {
		return false, "frozen until " + stat.TimeText(f.Until)
	}
	largest := 0.0
	for i := range m.Changes {
		c := &m.Changes[i]
		if why := needsPerson(m, c); why != "" {
			return false, c.ID() + ": " + why
		}
		if c.Old != nil {
			largest = max(largest, moved(c))
		}
	}
	return true, fmt.Sprintf("no quota moves by more than %.0f %%, %.0f %% are allowed", max(0, math.Ceil(100*largest-1e-9)), 100*m.Service.AutoMerge.MaxChange)
}

// needsPerson says why one change waits for a person, "" where it does not.
func needsPerson(m Merging, c *rlc.Change) string {
	enforces := true
	if b := m.Service.Bucket(c.Bucket); b != nil {
		enforces = b.Mode == rlc.Enforce
	}
	most := m.Service.AutoMerge.MaxChange
	switch {
	case c.Remove || c.New == nil:
		return "a person removes quotas"
	case c.Look != "":
		return c.Look
	case len(c.OldTimed.Windows)+len(c.NewTimed.Windows) > 0 && !(rlc.Timed{Windows: c.OldTimed.Windows}).Equal(rlc.Timed{Windows: c.NewTimed.Windows}):
		return "an event is reviewed when it is declared"
	case enforces && c.NewMode != rlc.Shadow && (c.Old == nil || c.OldMode == rlc.Shadow):
		return "it would begin to enforce"
	case c.Coverage < mergeCoverage:
		return fmt.Sprintf("history covers %.0f %% of its time, less than %.0f %%", math.Floor(100*float64(c.Coverage)), 100*mergeCoverage)
	case c.Old == nil:
		return "" // new, and it drops nothing
	case Lowers(c) && c.Backtest.New == nil:
		return "nothing was replayed against its decrease"
	case Lowers(c) && c.Backtest.New.Drops > 0:
		return fmt.Sprintf("its decrease would have dropped %s requests", rlc.Number(math.Ceil(c.Backtest.New.Drops)))
	case Lowers(c) && BurstFallsShort(c):
		return "its burst would not hold the highest second that was counted"
	case fallingHours(c) > 0 && c.Backtest.New.AtLeast:
		return "what its lower hours would have dropped is not known exactly"
	case moved(c) > most*(1+1e-9):
		return fmt.Sprintf("moves by %.0f %%, more than %.0f %%", math.Ceil(100*moved(c)-1e-9), 100*most)
	}
	was, ok := m.MonthAgo[c.ID()]
	if !ok {
		was = *c.Old
	}
	if float64(c.New.Rate) > float64(was.Rate)*(1+monthBudget)*(1+1e-9) && c.New.Rate > c.Old.Rate {
		return fmt.Sprintf("would be %s against %s 30 days ago, more than +%.0f %%", stat.RateText(c.New.Rate), stat.RateText(was.Rate), 100*monthBudget)
	}
	return ""
}

// moved is the largest relative change of rate, burst and an hour of the week.
func moved(c *rlc.Change) float64 {
	most := max(apart(float64(c.Old.Rate), float64(c.New.Rate)), apart(float64(c.Old.Burst), float64(c.New.Burst)))
	if c.OldTimed.Hours != nil || c.NewTimed.Hours != nil {
		was, is := ofChange(c)
		eachHour(measuredAt(c), func(t time.Time) { most = max(most, apart(float64(was(t)), float64(is(t)))) })
	}
	return most
}

// apart is the change from a to b relative to a.
func apart(a, b float64) float64 {
	if a == b {
		return 0
	}
	return math.Abs(b-a) / a // +Inf from 0
}

func onlyIncreases(changes []rlc.Change) bool {
	for _, c := range changes {
		if c.New == nil || c.Old == nil || c.New.Rate < c.Old.Rate || c.New.Burst < c.Old.Burst || !c.OldTimed.Equal(c.NewTimed) {
			return false
		}
	}
	return true
}

// Frozen is a time without changes.
type Frozen struct {
	Until     time.Time // the latest end of those that hold
	Increases bool      // raising a quota is allowed in all of them
}

// FrozenAt reports whether one of the service's freezes holds at now, in the
// service's time zone. A freeze that cannot be read holds, for as long as it is
// declared: it is a person's wish that nothing moves.
func FrozenAt(svc *rlc.Service, now time.Time) (f Frozen, frozen bool) {
	loc, err := time.LoadLocation(svc.Timezone)
	if err != nil {
		loc = time.UTC
	}
	f.Increases = true
	for _, z := range svc.Freeze {
		until, holds := holds(z, now.In(loc))
		if !holds {
			continue
		}
		frozen = true
		f.Increases = f.Increases && z.Allow == "increases"
		if until.After(f.Until) {
			f.Until = until
		}
	}
	if !frozen {
		return Frozen{}, false
	}
	return f, true
}

// sundaysAreZero writes a schedule's weekdays out without a 7, which is Sunday too and
// which the parser does not know. What is no weekday stays as it is.
func sundaysAreZero(schedule string) string {
	fields := strings.Fields(schedule)
	if len(fields) != 5 || !strings.Contains(fields[4], "7") {
		return schedule
	}
	var days []string
	for part := range strings.SplitSeq(fields[4], ",") {
		span, every, _ := strings.Cut(part, "/")
		first, last, ranged := strings.Cut(span, "-")
		from, err := strconv.Atoi(first)
		to, step := from, 1
		if ranged && err == nil {
			to, err = strconv.Atoi(last)
		}
		if every != "" && err == nil {
			step, err = strconv.Atoi(every)
		}
		if err != nil || step < 1 || to > 7 {
			return schedule
		}
		for d := from; d <= to; d += step {
			days = append(days, strconv.Itoa(d%7))
		}
	}
	fields[4] = strings.Join(days, ",")
	return strings.Join(fields, " ")
}

// holds looks for the last moment that began the freeze: one that lies within
// its length before now.
func holds(z rlc.Freeze, now time.Time) (until time.Time, is bool) {
	// The parser panics on some text and reads time zones: neither passes the
	// validator, but a freeze must not stop a run.
	defer func() {
		if recover() != nil {
			until, is = now.Add(z.For), true
		}
	}()
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse(sundaysAreZero(z.Cron))
	if err != nil {
		return now.Add(z.For), true
	}
	// A moment that is For ago has just ended; the last one tells the end.
	for at := schedule.Next(now.Add(-z.For)); !at.IsZero() && !at.After(now); at = schedule.Next(at) {
		until, is = at.Add(z.For), true
	}
	return until, is
}
