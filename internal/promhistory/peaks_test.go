package promhistory

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Two enforcers count client a by the second; the sum of a minute's two is the
// most that the fleet had. Client b is counted by none.
func TestAnHourKnowsItsHighestSecond(t *testing.T) {
	w := newWorld(t, streaming)
	second := func(t time.Time) float64 { return 50 + float64(t.Unix()/60%600) } // a saw of ten hours
	from, until := now.Add(-3*day), now.Add(day)
	w.fill(
		rates(from, until, wave(10), "client", "a"), rates(from, until, wave(10), "client", "b"),
		metric("peak_rate", from, until, second, "service", "geo", "client", "a", "pod", "x"),
		metric("peak_rate", from, until, second, "service", "geo", "client", "a", "pod", "y"),
	)
	p := profile()
	p.Peaks = `sum by (client) (peak_rate{service="${service}"})`
	check := func(at time.Time) {
		t.Helper()
		got := w.read(service(callers()), p, at)
		wrong := 0
		for _, h := range got["callers/caller=a"].Hours {
			most := 0.0
			for i := range 60 {
				most = max(most, 2*second(h.Start.Add(time.Duration(i)*time.Minute)))
			}
			if end := h.Start.Add(time.Hour); end.After(at) {
				most = 0 // an hour that is not over has none yet
			}
			if float64(h.Second) != most {
				wrong++
			}
		}
		if n := len(got["callers/caller=a"].Hours); wrong > 0 || n < 72 {
			t.Errorf("at %s: %d of %d hours have another highest second", at, wrong, n)
		}
		for _, h := range got["callers/caller=b"].Hours {
			if h.Second != 0 {
				t.Fatalf("nobody counts b, and yet %+v", h)
			}
		}
	}
	check(now)
	check(now.Add(5 * time.Hour)) // the first hours of today are read again
	w.restart()
	check(now.Add(5*time.Hour + time.Minute))
	if n := w.ranges(); n != 1 {
		t.Errorf("%d range queries a minute later, want one for today's peaks", n)
	}
}

// A witness that cannot be asked holds nothing.
func TestPeaksThatCannotBeReadHoldNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-3*day), now, wave(10), "client", "a"))
	p := profile()
	p.Peaks = `sum by (client) (peak_rate{service="${service}"`
	got := w.read(service(callers()), p, now)["callers/caller=a"]
	if len(got.Problems) > 0 || len(got.Hours) < 70 || got.Hours[0].Second != 0 {
		t.Errorf("%d hours, problems %v", len(got.Hours), got.Problems)
	}
}

// What a reading holds of a series is a chunk's samples and a sketch: a day of
// seconds is read in hours, and nothing of the hours before is held but what the
// tail may need.
func TestAReadingHoldsOneChunkOfSamples(t *testing.T) {
	rd := &reading{step: time.Second, r: &Reader{cfg: Config{}}, req: rlc.HistoryRequest{Profile: &rlc.Profile{}}}
	s := &series{seeded: true}
	rd.buckets = []bucketState{{whole: s}}
	rd.begin(now.Truncate(day), now.Truncate(day).Add(day))
	values := make([]float64, 86400)
	for i := range values {
		values[i] = wave(10)(now.Add(time.Duration(i) * time.Second))
	}
	for hour := range 24 {
		rd.today.first, rd.today.last = hour*3600, (hour+1)*3600
		for i := rd.today.first; i < rd.today.last; i++ {
			rd.add(s, i, values[i])
		}
		if err := rd.fold(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(rd.free) != 1 || cap(rd.free[0]) != 3600 {
		t.Errorf("%d grids, the first for %d steps; want one for an hour", len(rd.free), cap(rd.free[0]))
	}
	for i, v := range values {
		values[i] = cut(v)
	}
	got, want := s.today.Sketch("a", rlc.SeriesDay{}), stat.SketchDay("a", now.Truncate(day), time.Second, values, 0)
	if len(got.Hours) != 24 || got.TailFloor != want.TailFloor || len(got.Tail) != len(want.Tail) {
		t.Errorf("%d hours, floor %v, %d samples; want floor %v, %d samples", len(got.Hours), got.TailFloor, len(got.Tail), want.TailFloor, len(want.Tail))
	}
}

// alone refuses to list a service's series.
type alone struct{ Store }

func (alone) SeriesOf(context.Context, string) ([]rlc.SeriesKey, error) {
	return nil, errors.New("all series of the service were listed")
}

// A page that asks for each of a service's keys must not cost their square.
func TestAStoredSeriesIsFoundWithoutTheOthers(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-3*day), now, wave(10), "client", "a"))
	w.read(service(callers()), profile(), now)
	w.reader.cfg.Store = alone{w.reader.cfg.Store}
	h, err := w.reader.Stored(t.Context(), "geo", "callers", rlc.Key{"caller": "a"}, now.Add(-2*day), now)
	if err != nil || len(h.Hours) < 48 {
		t.Errorf("%d hours, %v", len(h.Hours), err)
	}
}
