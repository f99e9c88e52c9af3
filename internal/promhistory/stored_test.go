package promhistory

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// few counts what is asked of a store.
type few struct {
	Store
	asked *int
}

func (f few) SeriesOf(ctx context.Context, service string) ([]rlc.SeriesKey, error) {
	*f.asked++
	return f.Store.SeriesOf(ctx, service)
}

func (f few) SealedUntil(ctx context.Context, service string) (map[rlc.SeriesID]time.Time, error) {
	*f.asked++
	return f.Store.SealedUntil(ctx, service)
}

func (f few) EachDayOf(ctx context.Context, ids []rlc.SeriesID, from, until time.Time, use func(*rlc.SeriesDay) error) error {
	*f.asked++
	return f.Store.EachDayOf(ctx, ids, from, until, use)
}

func (f few) Days(ctx context.Context, id rlc.SeriesID, from, until time.Time) ([]rlc.SeriesDay, error) {
	*f.asked++
	return f.Store.Days(ctx, id, from, until)
}

func TestAllStoredQuotasOfAServiceAreReadAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	for i, name := range []string{"a", "b", "c", "d"} {
		w.fill(rates(now.Add(-3*day), now, wave(float64(10*(i+1))), "client", name))
	}
	w.read(service(callers()), profile(), now)
	from := now.Add(-2 * day)
	want := map[string]rlc.History{}
	for _, name := range []string{"a", "b", "d"} {
		key := rlc.Key{"caller": name}
		h, err := w.reader.Stored(t.Context(), "geo", "callers", key, from, now)
		if err != nil || len(h.Hours) < 48 {
			t.Fatalf("%d hours of %s, %v", len(h.Hours), name, err)
		}
		want[rlc.QuotaID("callers", key)] = h
	}
	asked, got := 0, map[string]rlc.History{}
	w.reader.cfg.Store = few{w.reader.cfg.Store, &asked}
	quotas := []string{"callers/caller=d", "callers/caller=a", "callers/caller=nobody", "callers/caller=b"}
	err := w.reader.StoredEach(t.Context(), "geo", quotas, from, now, func(id string, h rlc.History) error {
		got[id] = h
		return nil
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: got %d histories, want those that are read one by one", err, len(got))
	}
	if asked != 3 {
		t.Errorf("asked the store %d times, want 3 however many quotas there are", asked)
	}
}

func TestAStoredQuotaShowsTheSecondsThatWereCounted(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-3*day), now, wave(10), "client", "a"))
	w.read(service(callers()), profile(), now)
	known, err := w.store.SeriesNamed(t.Context(), "geo", "callers", rlc.Key{"caller": "a"})
	if err != nil || len(known) != 1 {
		t.Fatal(known, err)
	}
	at := now.Add(-5 * time.Hour).Truncate(time.Hour)
	id := secondsID(known[0].ID)
	if err := w.store.SaveSeries(t.Context(), []rlc.SeriesKey{{ID: id, Service: "geo", Key: rlc.Key{"seconds": "callers/caller=a"}}}); err != nil {
		t.Fatal(err)
	}
	if err := w.store.SaveDays(t.Context(), []rlc.SeriesDay{{Series: id, Day: at.Truncate(day), Sealed: now, Hours: []rlc.Hour{{Start: at, Max: 77, P99: 77, Mean: 77, Present: 1, Expected: 1}}}}); err != nil {
		t.Fatal(err)
	}
	h, err := w.reader.Stored(t.Context(), "geo", "callers", rlc.Key{"caller": "a"}, now.Add(-day), now)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range h.Hours {
		if want := map[bool]rlc.Rate{true: 77}[x.Start.Equal(at)]; x.Second != want {
			t.Errorf("%s: highest second %g, want %g", x.Start, float64(x.Second), float64(want))
		}
	}
}
