package promserver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Ranges of blocks, in milliseconds: what the head holds before it is written
// out, and what a backfill writes at a time. A block costs some 20 MiB of buffers
// whatever is in it, so few series go by the week, many by the day.
const (
	blockRange = int64(2 * time.Hour / time.Millisecond)
	dayRange   = int64(24 * time.Hour / time.Millisecond)
	weekRange  = 7 * dayRange
	manySeries = 100
)

// unfinished begins the name of a folder whose blocks are not yet taken in.
const unfinished = "backfill.tmp-"

// LabelledSeries is one series to be filled in: its labels, the metric's name
// as __name__ among them, and its samples in ascending time (Unix
// milliseconds).
type LabelledSeries struct {
	Labels  map[string]string
	Samples iter.Seq2[int64, float64]
}

// Backfill adds samples that lie in the past. What is older than every live
// sample is written straight into blocks, a week or (of many series) a day at a
// time, beside the write-ahead log; the rest goes the way of live samples: where a series
// already has newer ones, a sample is skipped, and one more than an hour older
// than the newest live sample of all is an error (start from Newest).
//
// Progress, which may be nil, hears of every block: done of total series-blocks.
// Queries wait while the finished blocks are taken in, for some milliseconds.
// Scrape and Record should start after it: until then nothing is newer than
// the backfill.
func (s *Server) Backfill(ctx context.Context, series []LabelledSeries, progress func(done, total int)) error {
	if progress == nil {
		progress = func(int, int) {}
	}
	// Blocks end where the head begins; samples from then on belong to it.
	var cut int64
	if err := s.use(func(db *tsdb.DB) (err error) {
		cut, err = headStart(ctx, db)
		return err
	}); err != nil {
		return fmt.Errorf("backfill: %w", err)
	}
	if cut == math.MaxInt64 {
		cut = time.Now().UnixMilli() / blockRange * blockRange
	}

	feeds := make([]*feed, 0, len(series))
	defer func() {
		for _, f := range feeds {
			f.stop()
		}
	}()
	for i := range series {
		feeds = append(feeds, newFeed(&series[i]))
	}

	staging, err := os.MkdirTemp(s.config.Dir, unfinished)
	if err != nil {
		return fmt.Errorf("backfill: %w", err)
	}
	defer os.RemoveAll(staging)
	span := weekRange
	if len(feeds) > manySeries {
		span = dayRange
	}
	blocks, first, last := 0, oldest(feeds)/span, (cut-1)/span
	total := int(max(last-first+1, 0)) + 1
	for {
		from := oldest(feeds)
		if from >= cut {
			break
		}
		end := min((floorDiv(from, span)+1)*span, cut)
		if err := writeBlock(ctx, s, staging, feeds, span, end); err != nil {
			return fmt.Errorf("backfill %s: %w", time.UnixMilli(from).UTC().Format(time.DateOnly), err)
		}
		blocks++
		progress(min(blocks, total-1)*len(feeds), total*len(feeds))
	}
	if blocks > 0 {
		if err := s.takeIn(staging); err != nil {
			return fmt.Errorf("backfill: %w", err)
		}
	}
	if err := s.appendLive(ctx, feeds); err != nil {
		return fmt.Errorf("backfill: %w", err)
	}
	progress(total*len(feeds), total*len(feeds))
	return nil
}

// headStart is the time of the oldest sample in the head, MaxInt64 where it has
// none. A block must not reach beyond it: on its next start the engine would
// take the live samples that a block covers for old ones and forget them.
func headStart(ctx context.Context, db *tsdb.DB) (int64, error) {
	oldest := int64(math.MaxInt64)
	head := db.Head()
	if head.NumSeries() == 0 {
		return oldest, nil
	}
	q, err := tsdb.NewBlockQuerier(tsdb.NewRangeHead(head, math.MinInt64, math.MaxInt64), math.MinInt64, math.MaxInt64)
	if err != nil {
		return 0, err
	}
	defer q.Close()
	set := q.Select(ctx, false, nil, labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+"))
	var it chunkenc.Iterator
	for set.Next() {
		if it = set.At().Iterator(it); it.Next() != chunkenc.ValNone {
			oldest = min(oldest, it.AtT())
		}
	}
	return oldest, set.Err()
}

// writeBlock moves what the feeds have before end into one block, which is span
// long at most.
func writeBlock(ctx context.Context, s *Server, dir string, feeds []*feed, span, end int64) error {
	// The writer refuses samples older than half its range behind the newest
	// one: twice the span lets series follow each other.
	w, err := tsdb.NewBlockWriter(s.config.Log, dir, 2*span)
	if err != nil {
		return err
	}
	defer w.Close()
	wrote := false
	app, pending := w.AppenderV2(ctx), 0
	for _, f := range feeds {
		ref := storage.SeriesRef(0)
		for ; f.ok && f.t < end; f.next() {
			if ref, err = app.Append(ref, f.labels, 0, f.t, f.v, nil, nil, storage.AOptions{}); err != nil {
				return errors.Join(fmt.Errorf("%s at %d: %w", f.labels, f.t, err), app.Rollback())
			}
			wrote = true
			pending++
		}
		if pending > 10_000 {
			if err := app.Commit(); err != nil {
				return err
			}
			app, pending = w.AppenderV2(ctx), 0
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), app.Rollback())
		}
	}
	if err := app.Commit(); err != nil {
		return err
	}
	if !wrote {
		return nil
	}
	_, err = w.Flush(ctx)
	return err
}

// dropUnfinished removes what backfills left that were killed: their samples
// are not in the store, and the next backfill writes them again.
func dropUnfinished(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, unfinished+"*"))
	for _, folder := range left {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	return err
}

// takeIn moves finished blocks into the store, which finds them as it opens.
func (s *Server) takeIn(staging string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return errClosed
	}
	err := s.db.Close()
	s.db = nil
	if err != nil {
		return err
	}
	blocks, err := os.ReadDir(staging)
	for _, b := range blocks {
		err = errors.Join(err, os.Rename(filepath.Join(staging, b.Name()), filepath.Join(s.config.Dir, b.Name())))
	}
	return errors.Join(err, s.open())
}

// appendLive appends the rest of the feeds to the head in slices of time: the
// head refuses samples more than an hour behind its newest.
func (s *Server) appendLive(ctx context.Context, feeds []*feed) error {
	const slice = int64(10 * time.Minute / time.Millisecond)
	for {
		from := oldest(feeds)
		if from == math.MaxInt64 {
			return nil
		}
		end := (floorDiv(from, slice) + 1) * slice
		err := s.use(func(db *tsdb.DB) error {
			app := db.AppenderV2(ctx)
			for _, f := range feeds {
				ref := storage.SeriesRef(0)
				for ; f.ok && f.t < end; f.next() {
					r, err := app.Append(ref, f.labels, 0, f.t, f.v, nil, nil, storage.AOptions{})
					switch {
					case err == nil:
						ref = r
					case errors.Is(err, storage.ErrOutOfOrderSample), errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
					default:
						return errors.Join(fmt.Errorf("%s at %d: %w", f.labels, f.t, err), app.Rollback())
					}
				}
			}
			return app.Commit()
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// feed is a series' samples, one at hand.
type feed struct {
	labels labels.Labels
	pull   func() (int64, float64, bool)
	stop   func()
	t      int64
	v      float64
	ok     bool // t and v hold a sample
}

func newFeed(s *LabelledSeries) *feed {
	f := &feed{labels: labels.FromMap(s.Labels)}
	f.pull, f.stop = iter.Pull2(s.Samples)
	f.next()
	return f
}

func (f *feed) next() { f.t, f.v, f.ok = f.pull() }

// oldest is the time of the oldest sample at hand, MaxInt64 where none is.
func oldest(feeds []*feed) int64 {
	t := int64(math.MaxInt64)
	for _, f := range feeds {
		if f.ok {
			t = min(t, f.t)
		}
	}
	return t
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// sortedNames is the names of a label set in order.
func sortedNames(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
