package promhistory

import (
	"errors"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// A window of 24 h is looked at in steps of 24 minutes, and one of them in steps of
// 15 s, also the one that is not over: who counts since two minutes counts.
func TestACounterYoungerThanTheWindowSaysSinceWhen(t *testing.T) {
	w := newWorld(t, nil)
	at := time.Now().UTC().Truncate(day).Add(-12 * time.Hour) // noon of yesterday
	counter := func(t time.Time) float64 { return float64(t.Unix() - at.Add(-72*time.Hour).Unix()) }
	began := at.Add(-6*time.Hour - 10*time.Minute)
	w.fill(metric(requestsTotal, at.Add(-48*time.Hour), at, counter, "service", "old", "bucket", "callers", "outcome", "admit"),
		metric(requestsTotal, began, at, counter, "service", "young", "bucket", "callers", "outcome", "admit"),
		metric(requestsTotal, at.Add(-2*time.Minute), at, counter, "service", "new", "bucket", "callers", "outcome", "admit"))
	for service, want := range map[string]time.Time{"old": {}, "young": began.Add(time.Minute), "new": at.Add(-time.Minute), "": {}} {
		got, err := w.reader.CountedSince(t.Context(), service, day, at)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q is counted since %v, %v; want %v", service, got, err, want)
		}
	}
	if got, err := w.reader.CountedSince(t.Context(), "nobody", day, at); !errors.Is(err, rlc.ErrNotFound) {
		t.Errorf("what nobody counts: %v, %v", got, err)
	}
}
