package promhistory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// order notes in which order days are saved.
type order struct {
	Store
	saved map[time.Time][]rlc.SeriesID
}

func (o order) SaveDays(ctx context.Context, days []rlc.SeriesDay) error {
	for _, d := range days {
		o.saved[d.Day] = append(o.saved[d.Day], d.Series)
	}
	return o.Store.SaveDays(ctx, days)
}

// Who is killed between two batches of a day must read it again: what says that
// the day was read is saved last.
func TestABucketsOwnDayIsSavedAfterItsKeys(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 5 {
		w.fill(rates(now.Add(-2*day), now, wave(100), "client", fmt.Sprint("c", i)))
	}
	o := order{w.reader.cfg.Store, map[time.Time][]rlc.SeriesID{}}
	w.reader.cfg.Store = o
	w.read(service(callers()), profile(), now)
	all, err := o.SeriesOf(t.Context(), "geo")
	if err != nil {
		t.Fatal(err)
	}
	var whole rlc.SeriesID
	for _, s := range all {
		if s.Key["bucket"] == "callers" {
			whole = s.ID
		}
	}
	midnight := now.Truncate(day)
	ids := o.saved[midnight]
	if len(ids) != 7 || ids[5] != whole { // five keys, the bucket, and the day's sources
		t.Errorf("saved %v, want %s as the sixth of seven", ids, whole)
	}
}
