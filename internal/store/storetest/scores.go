package storetest

import (
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

func scores(t *testing.T, db *store.DB) {
	day := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	fleet := rlc.Score{
		Day: day, Fleet: true, Owner: "of all", Services: 9, Requests: 9e9, Limited: 8e9, Known: 70, Fitting: 60, Spread: []int{10, 60}, Counted: 4e6, Drops: 12, VirtualDrops: 99,
		Unmatched: 7, Open: 2, Oldest: now.Add(-time.Hour), Median: now.Add(-time.Minute), At: now,
	}
	filled(t, fleet)
	team := rlc.Score{Day: day, Owner: "team-pay", Services: 3}
	nobody := rlc.Score{Day: day, Services: 1}
	must(t, db.SaveScores(ctx(t), day, []rlc.Score{team, {Owner: "gone"}}))
	must(t, db.SaveScores(ctx(t), day, []rlc.Score{team, nobody, fleet}))
	same(t, "one day", get(db.Scores(ctx(t), day))(t), []rlc.Score{fleet, nobody, team})

	next := rlc.Score{Day: day.AddDate(0, 0, 1), Owner: "team-pay", Services: 4}
	must(t, db.SaveScores(ctx(t), next.Day, []rlc.Score{next}))
	same(t, "from the next day on", get(db.Scores(ctx(t), next.Day))(t), []rlc.Score{next})
	same(t, "both days", get(db.Scores(ctx(t), day))(t), []rlc.Score{fleet, nobody, team, next})

	late := rlc.Score{Day: day.AddDate(0, 0, 101), Owner: "team-pay"}
	must(t, db.SaveScores(ctx(t), late.Day, []rlc.Score{late}))
	same(t, "a hundred days later", get(db.Scores(ctx(t), day))(t), []rlc.Score{next, late})

	if err := db.SaveScores(ctx(t), day, []rlc.Score{{Owner: "nul\x00"}}); err == nil {
		t.Error("an owner that an engine would change is stored")
	}
}
