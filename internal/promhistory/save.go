package promhistory

import (
	"context"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

const (
	// mostUnsaved is how many bytes of days are kept before they are saved. Days of
	// a series that are saved together lie together: reading them touches fewer
	// pages of the store, as does writing its index, which has series in no order.
	mostUnsaved = 32 << 20
	// batch is how many days are saved in one transaction, for which everybody else
	// who writes has to wait.
	batch = 4000
	// lastSave is how long saving may take once the reading was told to end.
	lastSave = 10 * time.Second
	// slab is how much room is made for packed days at once, the first times less,
	// and aDay what one of them seldom exceeds.
	slab, firstSlab, aDay = 1 << 20, 64 << 10, 16 << 10
)

// unsaved are the days that were read and not saved yet.
type unsaved struct {
	keys  []rlc.SeriesKey // not saved by name in this reading
	days  []rlc.PackedDay
	marks []rlc.PackedDay // those that tell how far reading has come: saved when all days are
	size  int             // bytes
	slabs [][]byte        // hold the Data; the last one is filled
	spare [][]byte
}

// keep packs a day to be saved; it is the caller's again then. A mark is a day
// that tells how far reading has come.
func (rd *reading) keep(s rlc.SeriesKey, d *rlc.SeriesDay, mark bool) error {
	u := &rd.unsaved
	room := u.room()
	data, err := rd.r.cfg.Store.PackDay(*room, d)
	if err != nil {
		return err
	}
	packed := rlc.PackedDay{Series: d.Series, Day: d.Day, Sealed: d.Sealed, Data: data[len(*room):len(data):len(data)]}
	*room = data
	u.size += len(packed.Data)
	if mark {
		u.marks = append(u.marks, packed)
	} else {
		u.days = append(u.days, packed)
	}
	if !rd.saved[s.ID] {
		u.keys, rd.saved[s.ID] = append(u.keys, s), true
	}
	return nil
}

// room is the slab that has some.
func (u *unsaved) room() *[]byte {
	n := len(u.slabs) - 1
	if n < 0 || cap(u.slabs[n])-len(u.slabs[n]) < aDay {
		if last := len(u.spare) - 1; last >= 0 {
			u.slabs, u.spare = append(u.slabs, u.spare[last][:0]), u.spare[:last]
		} else {
			u.slabs = append(u.slabs, make([]byte, 0, min(slab, firstSlab<<min(len(u.slabs), 4))))
		}
		n++
	}
	return &u.slabs[n]
}

// save saves what is not.
func (rd *reading) save(ctx context.Context) error {
	u := &rd.unsaved
	if len(u.keys) > 0 {
		if err := rd.r.cfg.Store.SaveSeries(ctx, u.keys); err != nil {
			return err
		}
	}
	for _, all := range [][]rlc.PackedDay{u.days, u.marks} {
		slices.SortFunc(all, rlc.PackedDay.Compare)
		for some := range slices.Chunk(all, batch) {
			if err := rd.r.cfg.Store.SavePacked(ctx, some); err != nil {
				return err
			}
		}
	}
	*u = unsaved{keys: u.keys[:0], days: u.days[:0], marks: u.marks[:0], spare: append(u.spare, u.slabs...)}
	return nil
}

// saveLast saves what is not when the reading ends, also where its time is over:
// what was read whole stays.
func (rd *reading) saveLast(ctx context.Context) error {
	if len(rd.unsaved.days)+len(rd.unsaved.marks) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lastSave)
		defer cancel()
	}
	return rd.save(ctx)
}
