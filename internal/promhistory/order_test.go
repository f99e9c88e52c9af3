package promhistory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// order notes in which order days are saved, and ends a reading while it packs
// the days of ends.
type order struct {
	Store
	saved *[]rlc.PackedDay
	ends  time.Time
	end   func()
}

func (o order) PackDay(b []byte, d *rlc.SeriesDay) ([]byte, error) {
	if o.end != nil && d.Day.Equal(o.ends) {
		o.end()
	}
	return o.Store.PackDay(b, d)
}

func (o order) SavePacked(ctx context.Context, days []rlc.PackedDay) error {
	*o.saved = append(*o.saved, days...)
	return o.Store.SavePacked(ctx, days)
}

// Who is killed between two batches must read their days again: what says that
// they were read is saved last, and an earlier day of it before a later one.
func TestABucketsOwnDaysAreSavedAfterThoseOfItsKeys(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 5 {
		w.fill(rates(now.Add(-2*day), now, wave(100), "client", fmt.Sprint("c", i)))
	}
	var saved []rlc.PackedDay
	o := order{Store: w.reader.cfg.Store, saved: &saved}
	w.reader.cfg.Store = o
	w.read(service(callers()), profile(), now)
	all, err := o.SeriesOf(t.Context(), "geo")
	if err != nil {
		t.Fatal(err)
	}
	of := map[rlc.SeriesID]rlc.SeriesKey{}
	for _, s := range all {
		of[s.ID] = s
	}
	keys, marks := 0, map[string]time.Time{}
	for _, d := range saved {
		if s := of[d.Series]; s.Bucket != "" {
			if keys++; len(marks) > 0 {
				t.Errorf("%s of %s is saved after %v", s.Key, d.Day.Format(time.DateOnly), marks)
			}
		} else {
			if last := marks[s.Key.String()]; !d.Day.After(last) {
				t.Errorf("%s of %s is saved after that of %s", s.Key, d.Day.Format(time.DateOnly), last.Format(time.DateOnly))
			}
			marks[s.Key.String()] = d.Day
		}
	}
	if keys != 5*3 || len(marks) != 2 { // the bucket's, and the sources of each hour
		t.Errorf("%d days of keys, marks %v", keys, marks)
	}
}

// What was read whole when a reading's time is over is not read again.
func TestDaysThatWereReadWholeStayWhenTheTimeIsOver(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-9*day).Truncate(day), now, wave(100), "client", "a"))
	s, p := service(callers()), profile()
	ctx, end := context.WithCancel(t.Context())
	var saved []rlc.PackedDay
	whole := w.reader.cfg.Store
	third := now.Add(-6 * day).Truncate(day)
	w.reader.cfg.Store = order{whole, &saved, third, end}
	if _, err := w.tryRead(ctx, s, p, now); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want that it was canceled", err)
	}
	w.reader.cfg.Store = whole
	sealed, err := whole.SealedUntil(t.Context(), "geo")
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed) != 3 {
		t.Errorf("sealed are %v, want the key, the bucket and the sources", sealed)
	}
	for id, at := range sealed {
		if at.Before(third) || at.After(third.Add(day)) {
			t.Errorf("%s is sealed until %s, want the end of the days before %s", id, at, third)
		}
	}
	_, before := w.reader.Cost()
	same(t, "a", w.read(s, p, now)["callers/caller=a"], want(wave(100)))
	if _, after := w.reader.Cost(); after-before > int64(now.Sub(third)/time.Minute) {
		t.Errorf("%d samples were read again, at most %d are new", after-before, now.Sub(third)/time.Minute)
	}
}
