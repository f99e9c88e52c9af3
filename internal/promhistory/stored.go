package promhistory

import (
	"context"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// StoredEach hands on what the store knows of a service's quotas in [from,
// until), in a few statements however many they are: each of quotas, given by
// ID, that has stored days. Nothing is queried. One-second peaks are left out:
// Stored has them.
func (r *Reader) StoredEach(ctx context.Context, service string, quotas []string, from, until time.Time, use func(quota string, h rlc.History) error) error {
	known, err := r.cfg.Store.SeriesOf(ctx, service)
	if err != nil {
		return err
	}
	sealed, err := r.cfg.Store.SealedUntil(ctx, service)
	if err != nil {
		return err
	}
	newest := map[string]rlc.SeriesID{} // by quota
	for _, k := range known {
		id := rlc.QuotaID(k.Bucket, k.Key)
		if old, ok := newest[id]; !ok || sealed[k.ID].After(sealed[old]) {
			newest[id] = k.ID
		}
	}
	quota := map[rlc.SeriesID]string{}
	var ids []rlc.SeriesID
	for _, q := range quotas {
		if id, ok := newest[q]; ok {
			quota[id] = q
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var days []rlc.SeriesDay // of one series
	hand := func() error {
		if len(days) == 0 {
			return nil
		}
		h := stat.Join(days, stepOf(days), from, until)
		err := use(quota[days[0].Series], h)
		days = nil
		return err
	}
	err = r.cfg.Store.EachDayOf(ctx, ids, from, until, func(d *rlc.SeriesDay) error {
		if len(days) > 0 && days[0].Series != d.Series {
			if err := hand(); err != nil {
				return err
			}
		}
		days = append(days, *d)
		d.Hours, d.Tail = nil, nil // ours now
		return nil
	})
	if err != nil {
		return err
	}
	return hand()
}

// together is how many series' days are read or looked at as one: what a
// statement costs beside its rows is then little, and so is the memory.
const together = 64

// stored hands on the stored days of series in [from, until), those of one
// series after the other; the day is valid until use returns.
func (rd *reading) stored(ctx context.Context, all []*series, from, until time.Time, use func(*series, *rlc.SeriesDay) error) error {
	if len(all) == 0 {
		return nil
	}
	ids, by := make([]rlc.SeriesID, len(all)), make(map[rlc.SeriesID]*series, len(all))
	for i, s := range all {
		ids[i], by[s.ID] = s.ID, s
	}
	return rd.r.cfg.Store.EachDayOf(ctx, ids, from, until, func(d *rlc.SeriesDay) error { return use(by[d.Series], d) })
}

// secondsOf are the stored one-second peaks of series by the start of their hour.
func (r *Reader) secondsOf(ctx context.Context, from, until time.Time, all ...rlc.SeriesID) (map[rlc.SeriesID]map[time.Time]rlc.Rate, error) {
	ids, of := make([]rlc.SeriesID, len(all)), make(map[rlc.SeriesID]rlc.SeriesID, len(all))
	for i, id := range all {
		ids[i] = secondsID(id)
		of[ids[i]] = id
	}
	peaks := map[rlc.SeriesID]map[time.Time]rlc.Rate{}
	return peaks, r.cfg.Store.EachDayOf(ctx, ids, from, until, func(d *rlc.SeriesDay) error {
		id := of[d.Series]
		if peaks[id] == nil {
			peaks[id] = map[time.Time]rlc.Rate{}
		}
		for _, h := range d.Hours {
			peaks[id][h.Start] = h.Max
		}
		return nil
	})
}
