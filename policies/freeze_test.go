package policies

import (
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// A week's seventh day is Sunday, and no schedule that the parser stumbles over:
// such a freeze would never end.
func TestAFreezeOnTheSeventhDayIsOnSunday(t *testing.T) {
	sunday := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for spec, want := range map[string][7]bool{ // from Sunday
		"0 0 * * 7":     {true},
		"0 0 * * 0":     {true},
		"0 0 * * 6-7":   {true, 6: true},
		"0 0 * * 1-7/3": {true, true, false, false, true}, // Monday, Thursday, Sunday
	} {
		svc := &rlc.Service{Timezone: "UTC", Freeze: []rlc.Freeze{{Cron: spec, For: 24 * time.Hour}}}
		for day := range want {
			if _, frozen := FrozenAt(svc, sunday.AddDate(0, 0, day)); frozen != want[day] {
				t.Errorf("%s on %s: %v, want %v", spec, sunday.AddDate(0, 0, day).Weekday(), frozen, want[day])
			}
		}
	}
}
