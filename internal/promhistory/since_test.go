package promhistory

import (
	"errors"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// A window of 24 h is looked at in steps of 24 minutes: the first count of 05:50
// is found at the next one, 06:00.
func TestACounterYoungerThanTheWindowSaysSinceWhen(t *testing.T) {
	w := newWorld(t, nil)
	at := time.Now().UTC().Truncate(day).Add(-12 * time.Hour) // noon of yesterday
	counter := func(t time.Time) float64 { return float64(t.Unix() - at.Add(-72*time.Hour).Unix()) }
	began := at.Add(-6*time.Hour - 10*time.Minute)
	w.fill(metric(requestsTotal, at.Add(-48*time.Hour), at, counter, "service", "old", "bucket", "callers", "outcome", "admit"),
		metric(requestsTotal, began, at, counter, "service", "young", "bucket", "callers", "outcome", "admit"))
	for service, want := range map[string]time.Time{"old": {}, "young": at.Add(-6 * time.Hour), "": {}} {
		got, err := w.reader.CountedSince(t.Context(), service, day, at)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q is counted since %v, %v; want %v", service, got, err, want)
		}
	}
	if got, err := w.reader.CountedSince(t.Context(), "nobody", day, at); !errors.Is(err, rlc.ErrNotFound) {
		t.Errorf("what nobody counts: %v, %v", got, err)
	}
}
