package promserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/openrlc/rlc"
)

// Scrape gathers g every so often and stores its samples with the extra labels
// (job, instance, …), as well as `up`, until ctx ends. A series that g no
// longer has is marked stale. It returns nil once ctx has ended; a scrape that
// does not succeed is logged and shows as up 0.
func (s *Server) Scrape(ctx context.Context, g prometheus.Gatherer, every time.Duration, extra map[string]string) error {
	if every < time.Millisecond {
		return fmt.Errorf("scrape every %s: %w", rlc.DurationText(every), errPeriod)
	}
	target := newTarget(extra)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := s.scrape(ctx, g, target, time.Now()); err != nil && ctx.Err() == nil {
			if errors.Is(err, errClosed) {
				return err
			}
			s.config.Log.Warn("scrape", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

var errPeriod = errors.New("the period must be at least a millisecond")

func (s *Server) scrape(ctx context.Context, g prometheus.Gatherer, t *target, now time.Time) error {
	families, gatherErr := g.Gather()
	at := model.TimeFromUnixNano(now.UnixNano())
	vector, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: at}, families...)
	gatherErr = errors.Join(gatherErr, err)
	up := 1.0
	if gatherErr != nil {
		up = 0
	}
	vector = append(vector, &model.Sample{Metric: model.Metric{model.MetricNameLabel: "up"}, Value: model.SampleValue(up), Timestamp: at})
	b := labels.NewBuilder(labels.EmptyLabels())
	return errors.Join(gatherErr, s.store(ctx, t, int64(at), func(yield func(labels.Labels, float64) bool) {
		for _, sample := range vector {
			b.Reset(labels.EmptyLabels())
			for name, v := range sample.Metric {
				b.Set(string(name), string(v))
			}
			for _, name := range t.names {
				b.Set(name, t.extra[name])
			}
			if !yield(b.Labels(), float64(sample.Value)) {
				return
			}
		}
	}))
}

// Rule is a recording rule: the value of Expr is stored under the name Name.
type Rule struct {
	Name string
	Expr string
}

// Record evaluates rules at whole multiples of every, in order, and stores
// what they give, until ctx ends. A series that a rule no longer gives is
// marked stale. A rule that does not parse is an error at once; one that does
// not evaluate is logged. It returns nil once ctx has ended.
func (s *Server) Record(ctx context.Context, rules []Rule, every time.Duration) error {
	if every < time.Millisecond {
		return fmt.Errorf("record every %s: %w", rlc.DurationText(every), errPeriod)
	}
	targets := make([]*target, len(rules))
	for i, r := range rules {
		if _, err := s.parser.ParseExpr(r.Expr); err != nil {
			return fmt.Errorf("recording rule %s: %w", r.Name, err)
		}
		if !model.LegacyValidation.IsValidMetricName(r.Name) {
			return fmt.Errorf("recording rule %q: not a metric's name", r.Name)
		}
		targets[i] = newTarget(nil)
	}
	for {
		next := time.Now().Truncate(every).Add(every)
		wait := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-wait.C:
		}
		for i, r := range rules {
			if err := s.record(ctx, r, targets[i], next); err != nil && ctx.Err() == nil {
				if errors.Is(err, errClosed) {
					return err
				}
				s.config.Log.Warn("recording rule", "rule", r.Name, "error", err)
			}
		}
	}
}

func (s *Server) record(ctx context.Context, r Rule, t *target, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.QueryTimeout)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	var vector promql.Vector
	err := s.use(func(db *tsdb.DB) error {
		q, err := s.engine.NewInstantQuery(ctx, db, nil, r.Expr, at)
		if err != nil {
			return err
		}
		defer q.Close()
		res := q.Exec(ctx)
		if res.Err != nil {
			return res.Err
		}
		switch v := res.Value.(type) {
		case promql.Vector:
			for _, sample := range v {
				if sample.H == nil {
					vector = append(vector, promql.Sample{Metric: sample.Metric.Copy(), F: sample.F})
				}
			}
		case promql.Scalar:
			vector = promql.Vector{{F: v.V}}
		default:
			return fmt.Errorf("gives a %s, want a vector", v.Type())
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.store(ctx, t, at.UnixMilli(), func(yield func(labels.Labels, float64) bool) {
		for _, sample := range vector {
			b := labels.NewBuilder(sample.Metric)
			b.Set(model.MetricNameLabel, r.Name)
			if !yield(b.Labels(), sample.F) {
				return
			}
		}
	})
}

// target is what one scraped target or rule gave last, by hash of the labels.
type target struct {
	extra map[string]string
	names []string // of extra, in order
	last  map[uint64]appended
}

type appended struct {
	labels labels.Labels
	ref    storage.SeriesRef
}

func newTarget(extra map[string]string) *target {
	return &target{extra: extra, names: sortedNames(extra), last: map[uint64]appended{}}
}

// store appends samples at one time and marks the series of t that are not
// among them stale.
func (s *Server) store(ctx context.Context, t *target, at int64, samples func(func(labels.Labels, float64) bool)) error {
	return s.use(func(db *tsdb.DB) error {
		app := db.AppenderV2(ctx)
		seen := make(map[uint64]appended, len(t.last))
		var failed error
		add := func(l labels.Labels, v float64) bool {
			hash := l.Hash()
			ref, err := app.Append(t.last[hash].ref, l, 0, at, v, nil, nil, storage.AOptions{})
			if err != nil {
				failed = fmt.Errorf("store %s: %w", l, err)
				return true // the other samples are good
			}
			seen[hash] = appended{l, ref}
			return true
		}
		samples(add)
		for hash, gone := range t.last {
			if _, ok := seen[hash]; !ok {
				// A marker that is refused (a newer sample from elsewhere) is not needed.
				_, _ = app.Append(gone.ref, gone.labels, 0, at, math.Float64frombits(value.StaleNaN), nil, nil, storage.AOptions{})
			}
		}
		if err := app.Commit(); err != nil {
			return err
		}
		t.last = seen
		return failed
	})
}
