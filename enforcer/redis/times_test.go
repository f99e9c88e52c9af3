package redis

import (
	"reflect"
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/distribute/redistest"
)

func TestRoundTripsAreCountedUpToEachBound(t *testing.T) {
	var all times
	for _, took := range []time.Duration{0, 125 * time.Microsecond, 126 * time.Microsecond, 8 * time.Millisecond, time.Second} {
		all.add(took)
	}
	want := RoundTrips{Count: 5, Seconds: 1.008251, UpTo: map[float64]uint64{
		0.000125: 2, 0.00025: 3, 0.0005: 3, 0.001: 3, 0.002: 3, 0.004: 3, 0.008: 4, 0.016: 4, 0.064: 4, 0.256: 4,
	}}
	if got := all.roundTrips(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Every call that was answered, or cut, is a round trip.
func TestRoundTripsAreMeasured(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{Strict: true})
	s := strict(t, c, "k", 10)
	for range 3 {
		take(t, s, 0, 1)
	}
	// One at a time: three, and one more for the script, which was not known.
	if got := c.Stats().RoundTrips; got.Count != 4 || got.Seconds <= 0 {
		t.Errorf("%+v", got)
	}
}
