package planner

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func TestHistoriesThatDifferAnywhereAreHashedApart(t *testing.T) {
	at := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	base := func() rlc.History {
		return rlc.History{
			Hours: []rlc.Hour{{Start: at, Max: 3, P99: 2, Mean: 1, Present: 60, Expected: 60}, {Start: at.Add(time.Hour), Max: 4, P99: 2, Mean: 1, Present: 59, Expected: 60}},
			Tail:  []rlc.Sample{{Time: at, Rate: 3}, {Time: at.Add(time.Minute), Rate: 3}},
		}
	}
	hash := func(h rlc.History) string {
		sum := sha256.New()
		hashHistory(sum, h)
		return string(sum.Sum(nil))
	}
	seen := map[string]int{hash(base()): 0}
	for i, change := range []func(h *rlc.History){
		func(h *rlc.History) { h.Hours[1].Start = at.Add(2 * time.Hour) },
		func(h *rlc.History) { h.Hours[1].Max = 5 },
		func(h *rlc.History) { h.Hours[1].P99 = 3 },
		func(h *rlc.History) { h.Hours[1].Mean = 2 },
		func(h *rlc.History) { h.Hours[1].Second = 2 },
		func(h *rlc.History) { h.Hours[1].Drops = 0.5 },
		func(h *rlc.History) { h.Hours[1].Present = 60 },
		func(h *rlc.History) { h.Hours[1].Expected = 61 },
		func(h *rlc.History) { h.Hours[1].Partial = 1 },
		func(h *rlc.History) { h.Hours[1].Unhealthy = true },
		func(h *rlc.History) { h.Hours = h.Hours[:1] },
		func(h *rlc.History) { h.Tail[0].Rate = 2 },
		func(h *rlc.History) { h.Tail[1].Time = at.Add(2 * time.Minute) },
		func(h *rlc.History) { h.Tail = h.Tail[:1] },
	} {
		h := base()
		change(&h)
		id := hash(h)
		if other, ok := seen[id]; ok {
			t.Errorf("change %d is hashed as %d", i+1, other)
		}
		seen[id] = i + 1
	}
	if a, b := hash(base()), hash(base()); a != b {
		t.Error("equal histories are hashed apart")
	}
}
