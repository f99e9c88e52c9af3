package promhistory

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/common/model"

	"github.com/openrlc/rlc"
)

// peaksQuery is the highest one-second rate of the hour that ends at an
// instant. A step's mean hides what fits into it: who counts by the second is
// the better witness for bursts.
func (r *Reader) peaksQuery(p *rlc.Profile) string {
	if p.Peaks == "" {
		return ""
	}
	expr := p.Peaks
	if _, plain := plainSelector(expr); plain {
		expr = r.once(expr)
	}
	return fmt.Sprintf("max_over_time((%s)[1h:%ds])", expr, int(p.Step.Seconds()))
}

// readPeaks reads the peaks of the whole hours of [from, to). They are a
// witness that a quota can do without: where they cannot be read, they are not
// asked for again in this reading, and nothing is held.
func (rd *reading) readPeaks(ctx context.Context, from, to time.Time) error {
	from, to = from.Truncate(time.Hour), to.Truncate(time.Hour)
	if rd.peaks == "" || !from.Before(to) {
		return nil
	}
	err := rd.each(ctx, rd.peaks, from, to, time.Hour, 0, func(m model.Matrix) error {
		return rd.partition(ctx, m, func(s *series, at int, v float64) {
			if end := time.Duration(at+1) * rd.step; valid(v) && v > 0 && end%time.Hour == 0 {
				if s.seconds == nil {
					s.seconds = make([]float64, 24)
				}
				s.seconds[end/time.Hour-1] += v // of several label sets: never above their sum
			}
		})
	})
	if err != nil && ctx.Err() == nil {
		rd.r.cfg.Log.Warn("one-second peaks were not read", "service", rd.req.Service.Name, "error", err)
		rd.peaks = ""
		return nil
	}
	return err
}

// secondsID is the bookkeeping series that keeps a series' peaks: the hour's
// peak stands where its rates do.
func secondsID(id rlc.SeriesID) rlc.SeriesID {
	return rlc.SeriesID(digest("seconds", string(id)))
}

// secondsDay is today's day of a series' peaks, of the hours before end. Hours
// read again keep the highest.
func (rd *reading) secondsDay(ctx context.Context, s *series, end time.Time) (rlc.SeriesKey, rlc.SeriesDay, error) {
	d := rd.today
	key := rlc.SeriesKey{ID: secondsID(s.ID), Service: s.Service, Key: rlc.Key{"seconds": rlc.QuotaID(s.Bucket, s.Key)}}
	out := rlc.SeriesDay{Series: key.ID, Day: d.start, Sealed: rd.sealed(end)}
	had := map[time.Time]rlc.Rate{}
	if s.known && !d.start.After(s.sealed) {
		all, err := rd.r.secondsOf(ctx, d.start, d.start.Add(day), s.ID)
		if err != nil {
			return key, out, err
		}
		had = all[s.ID]
	}
	for n, v := range s.seconds {
		at := d.start.Add(time.Duration(n) * time.Hour)
		if peak := max(rlc.Rate(v), had[at]); peak > 0 && at.Before(end) {
			out.Hours = append(out.Hours, rlc.Hour{Start: at, Max: peak, P99: peak, Mean: peak, Present: 1, Expected: 1})
		}
	}
	return key, out, nil
}

// witnesses are the stored peaks of series in the window.
func (rd *reading) witnesses(ctx context.Context, some []*series) (map[rlc.SeriesID]map[time.Time]rlc.Rate, error) {
	if rd.req.Profile.Peaks == "" {
		return nil, nil
	}
	ids := make([]rlc.SeriesID, len(some))
	for i, s := range some {
		ids[i] = s.ID
	}
	return rd.r.secondsOf(ctx, rd.req.Now.Add(-rd.req.Lookback), rd.req.Now, ids...)
}
