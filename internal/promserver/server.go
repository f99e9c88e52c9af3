// Package promserver is the embedded Prometheus: its own storage and PromQL
// engine, as libraries, behind the part of its HTTP API that RLC reads.
package promserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Config says where samples live and for how long.
type Config struct {
	Dir       string        // required; created when it does not exist
	Retention time.Duration // how far back samples are kept; 40 days by default
	Log       *slog.Logger  // nil: nothing is logged
	// QueryTimeout bounds a query, waiting for its turn included; 2 minutes by
	// default. A query beyond it is answered with 503.
	QueryTimeout time.Duration
	// MaxQueries bounds the queries that are evaluated at once; 8 by default.
	// Those beyond wait.
	MaxQueries int
	// MaxSamples bounds the samples that a query holds in memory; 50 million by
	// default, as in Prometheus. A query beyond it is answered with 422.
	MaxSamples int
}

// Server is an open store. It is safe for concurrent use.
type Server struct {
	config  Config
	parser  parser.Parser
	engine  *promql.Engine
	turns   chan struct{} // one token for each query that is evaluated
	closing context.Context
	close   context.CancelFunc

	mu sync.RWMutex // held for reading by whatever uses db
	db *tsdb.DB     // nil once closed
}

// errClosed says that the server has been closed.
var errClosed = errors.New("the metrics store is closed")

// Open opens the store in c.Dir, replaying what a killed process left in its
// write-ahead log. One process at a time may hold it.
func Open(c Config) (*Server, error) {
	if c.Dir == "" {
		return nil, errors.New("open metrics store: no folder given")
	}
	if c.Retention <= 0 {
		c.Retention = 40 * 24 * time.Hour
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = slog.New(quiet{c.Log.Handler()})
	if c.QueryTimeout <= 0 {
		c.QueryTimeout = 2 * time.Minute
	}
	if c.MaxQueries <= 0 {
		c.MaxQueries = 8
	}
	if c.MaxSamples <= 0 {
		c.MaxSamples = 50_000_000
	}
	s := &Server{config: c, parser: parser.NewParser(parser.Options{}), turns: make(chan struct{}, c.MaxQueries)}
	s.closing, s.close = context.WithCancel(context.Background())
	s.engine = promql.NewEngine(promql.EngineOpts{
		Logger:                   c.Log,
		MaxSamples:               c.MaxSamples,
		Timeout:                  c.QueryTimeout,
		LookbackDelta:            5 * time.Minute,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		Parser:                   s.parser,
	})
	if err := s.open(); err != nil {
		s.close()
		return nil, err
	}
	// The folder is locked now: no other process is at work on these.
	if err := dropUnfinished(c.Dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open metrics store %s: %w", c.Dir, err), s.Close())
	}
	return s, nil
}

// open opens the storage engine. Live blocks are merged up to a day, which is
// what a history reader asks for; backfilled ones are never rewritten.
func (s *Server) open() error {
	o := tsdb.DefaultOptions()
	o.RetentionDuration = s.config.Retention.Milliseconds()
	o.MinBlockDuration = blockRange
	o.MaxBlockDuration = dayRange
	o.StripeSize = 1 << 10 // thousands of series, not millions
	db, err := tsdb.Open(s.config.Dir, s.config.Log, nil, o, nil)
	if err != nil {
		return fmt.Errorf("open metrics store %s: %w", s.config.Dir, err)
	}
	s.db = db
	return nil
}

// Close ends the queries in flight and closes the store.
func (s *Server) Close() error {
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	err := errors.Join(s.engine.Close(), s.db.Close())
	s.db = nil
	return err
}

// use calls f with the open storage, which stays open until f returns.
func (s *Server) use(f func(*tsdb.DB) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return errClosed
	}
	return f(s.db)
}

// Newest is the time of the newest sample of a metric, to the millisecond;
// zero where the store has none.
func (s *Server) Newest(ctx context.Context, metric string) (time.Time, error) {
	name, err := labels.NewMatcher(labels.MatchEqual, model.MetricNameLabel, metric)
	if err != nil {
		return time.Time{}, err
	}
	newest := int64(math.MinInt64)
	err = s.use(func(db *tsdb.DB) error {
		end := db.Head().MaxTime()
		for _, b := range db.Blocks() {
			end = max(end, b.MaxTime())
		}
		// The newest samples are most likely near the end.
		for _, back := range []int64{blockRange, dayRange, math.MaxInt64} {
			from := int64(math.MinInt64)
			if back != math.MaxInt64 && end > math.MinInt64+back {
				from = end - back
			}
			if err := eachSample(ctx, db, from, end, name, func(t int64) { newest = max(newest, t) }); err != nil {
				return err
			}
			if newest != math.MinInt64 {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("find newest sample of %s: %w", metric, err)
	}
	if newest == math.MinInt64 {
		return time.Time{}, nil
	}
	return time.UnixMilli(newest).UTC(), nil
}

func eachSample(ctx context.Context, db *tsdb.DB, from, until int64, m *labels.Matcher, f func(t int64)) error {
	q, err := db.Querier(from, until)
	if err != nil {
		return err
	}
	defer q.Close()
	set := q.Select(ctx, false, &storage.SelectHints{Start: from, End: until}, m)
	var it chunkenc.Iterator
	for set.Next() {
		it = set.At().Iterator(it)
		for it.Next() != chunkenc.ValNone {
			f(it.AtT())
		}
		if it.Err() != nil {
			return it.Err()
		}
	}
	return set.Err()
}
