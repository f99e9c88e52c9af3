package promserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	// maxForm bounds the body of a POSTed form.
	maxForm = 1 << 20
	// maxPoints is Prometheus' own limit on the steps of a range query.
	maxPoints = 11_000
)

// Handler answers Prometheus' HTTP API: query, query_range, series, labels,
// label/<name>/values (GET and POST) and read (POST) under /api/v1, besides
// /-/healthy and /-/ready. Answers are gzipped only for those who ask.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, f := range map[string]func(*http.Request) (result, error){
		"/api/v1/query":                s.query,
		"/api/v1/query_range":          s.queryRange,
		"/api/v1/series":               s.series,
		"/api/v1/labels":               s.labelNames,
		"/api/v1/label/{label}/values": s.labelValues,
	} {
		h := s.answer(f)
		mux.Handle("GET "+path, h)
		mux.Handle("POST "+path, h)
	}
	mux.HandleFunc("POST /api/v1/read", s.read)
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "Prometheus Server is Healthy.")
	})
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.use(func(*tsdb.DB) error { return nil }); err != nil {
			http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "Prometheus Server is Ready.")
	})
	return mux
}

// result is what an endpoint answers with: a promql value, label sets or
// names, and what Prometheus has to say about it.
type result struct {
	data  any // promql.Matrix, promql.Vector, promql.Scalar, promql.String, []labels.Labels or []string
	notes annotations.Annotations
	query string // for the positions in notes
	done  func() // called once the answer is written; may be nil
}

// apiError is an error as Prometheus words it.
type apiError struct {
	kind string // errorType
	err  error
}

func (e *apiError) Error() string { return e.err.Error() }
func (e *apiError) Unwrap() error { return e.err }

func badParam(name string, err error) error {
	return &apiError{"bad_data", fmt.Errorf("invalid parameter %q: %w", name, err)}
}

// answer runs an endpoint within the limits on time, turns and bytes, and
// writes what it says.
func (s *Server) answer(f func(*http.Request) (result, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			s.fail(w, &apiError{"bad_data", fmt.Errorf("error parsing form values: %w", err)})
			return
		}
		timeout := s.config.QueryTimeout
		if v := r.FormValue("timeout"); v != "" {
			d, err := parseDuration(v)
			if err != nil || d <= 0 {
				s.fail(w, badParam("timeout", fmt.Errorf("cannot parse %q to a valid duration", v)))
				return
			}
			timeout = min(timeout, d)
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		// A client that does not read must not hold the store open.
		out := http.NewResponseController(w)
		_ = out.SetWriteDeadline(time.Now().Add(timeout + 30*time.Second))
		defer context.AfterFunc(s.closing, func() {
			cancel()
			_ = out.SetWriteDeadline(time.Now())
		})()
		if err := s.turn(ctx); err != nil {
			s.fail(w, err)
			return
		}
		defer func() { <-s.turns }()

		err := s.use(func(*tsdb.DB) error {
			res, err := f(r.WithContext(ctx))
			if err != nil {
				return err
			}
			// Written while the store is held: label strings may point into it.
			s.write(w, r, res)
			if res.done != nil {
				res.done()
			}
			return nil
		})
		if err != nil {
			s.fail(w, err)
		}
	})
}

// turn waits until fewer than MaxQueries are evaluated.
func (s *Server) turn(ctx context.Context) error {
	select {
	case s.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, res result) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Add("Vary", "Accept-Encoding")
	out := &encoder{w: w}
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		defer z.Close()
		out.w = z
	}
	warnings, infos := res.notes.AsStrings(res.query, 10, 10)
	out.answer(res.data, warnings, infos)
	if out.err != nil {
		s.config.Log.Debug("metrics answer not delivered", "error", out.err)
	}
}

func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		q := strings.TrimPrefix(strings.ReplaceAll(params, " ", ""), "q=")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			v, err := strconv.ParseFloat(q, 64)
			return q == "" || err != nil || v > 0
		}
	}
	return false
}

// fail writes an error with the status that Prometheus gives it.
func (s *Server) fail(w http.ResponseWriter, err error) {
	kind, status := classify(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	out := &encoder{w: w}
	out.failure(kind, err.Error())
}

func classify(err error) (kind string, status int) {
	var api *apiError
	var canceled promql.ErrQueryCanceled
	var timeout promql.ErrQueryTimeout
	var store promql.ErrStorage
	switch {
	case errors.As(err, &timeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout", http.StatusServiceUnavailable
	case errors.As(err, &canceled), errors.Is(err, context.Canceled):
		return "canceled", http.StatusServiceUnavailable
	case errors.As(err, &api):
		return api.kind, http.StatusBadRequest
	case errors.Is(err, errClosed):
		return "unavailable", http.StatusServiceUnavailable
	case errors.As(err, &store):
		return "internal", http.StatusInternalServerError
	}
	return "execution", http.StatusUnprocessableEntity
}

func (s *Server) query(r *http.Request) (result, error) {
	at, err := timeParam(r, "time", time.Now())
	if err != nil {
		return result{}, err
	}
	opts, limit, err := queryParams(r)
	if err != nil {
		return result{}, err
	}
	q, err := s.engine.NewInstantQuery(r.Context(), s.db, opts, r.FormValue("query"), at)
	if err != nil {
		return result{}, badParam("query", err)
	}
	return run(r, q, limit)
}

func (s *Server) queryRange(r *http.Request) (result, error) {
	start, err := parseTime(r.FormValue("start"))
	if err != nil {
		return result{}, badParam("start", err)
	}
	end, err := parseTime(r.FormValue("end"))
	if err != nil {
		return result{}, badParam("end", err)
	}
	if end.Before(start) {
		return result{}, badParam("end", errors.New("end timestamp must not be before start time"))
	}
	step, err := parseDuration(r.FormValue("step"))
	if err != nil {
		return result{}, badParam("step", err)
	}
	if step <= 0 {
		return result{}, badParam("step", errors.New("zero or negative query resolution step widths are not accepted. Try a positive integer"))
	}
	if end.Sub(start)/step > maxPoints {
		return result{}, &apiError{"bad_data", errors.New("exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)")}
	}
	opts, limit, err := queryParams(r)
	if err != nil {
		return result{}, err
	}
	q, err := s.engine.NewRangeQuery(r.Context(), s.db, opts, r.FormValue("query"), start, end, step)
	if err != nil {
		return result{}, badParam("query", err)
	}
	return run(r, q, limit)
}

// run evaluates q.
func run(r *http.Request, q promql.Query, limit int) (result, error) {
	res := q.Exec(r.Context())
	if res.Err != nil {
		q.Close()
		return result{}, res.Err
	}
	out := result{data: res.Value, notes: res.Warnings, query: r.FormValue("query"), done: q.Close}
	truncated := false
	switch v := res.Value.(type) {
	case promql.Vector:
		if limit > 0 && len(v) > limit {
			out.data, truncated = v[:limit], true
		}
	case promql.Matrix:
		if limit > 0 && len(v) > limit {
			out.data, truncated = v[:limit], true
		}
	}
	if truncated {
		out.notes.Add(errTruncated)
	}
	return out, nil
}

var errTruncated = errors.New("results truncated due to limit")

func queryParams(r *http.Request) (promql.QueryOpts, int, error) {
	limit, err := limitParam(r)
	if err != nil {
		return nil, 0, err
	}
	var lookback time.Duration
	if v := r.FormValue("lookback_delta"); v != "" {
		if lookback, err = parseDuration(v); err != nil {
			return nil, 0, &apiError{"bad_data", fmt.Errorf("error parsing lookback delta duration: %w", err)}
		}
	}
	return promql.NewPrometheusQueryOpts(false, lookback, nil), limit, nil
}

func (s *Server) series(r *http.Request) (result, error) {
	if len(r.Form["match[]"]) == 0 {
		return result{}, &apiError{"bad_data", errors.New("no match[] parameter provided")}
	}
	l, err := s.lookup(r)
	if err != nil {
		return result{}, err
	}
	defer l.querier.Close()
	hints := &storage.SelectHints{Start: timestamp.FromTime(l.start), End: timestamp.FromTime(l.end), Func: "series"}
	var sets []storage.SeriesSet
	for _, m := range l.matchers {
		sets = append(sets, l.querier.Select(r.Context(), true, hints, m...))
	}
	set := storage.NewMergeSeriesSet(sets, 0, storage.ChainedSeriesMerge)
	found := []labels.Labels{}
	for set.Next() {
		if l.limit > 0 && len(found) == l.limit {
			notes := set.Warnings()
			return result{data: found, notes: notes.Add(errTruncated)}, nil
		}
		found = append(found, set.At().Labels().Copy())
		if err := r.Context().Err(); err != nil {
			return result{}, err
		}
	}
	return result{data: found, notes: set.Warnings()}, set.Err()
}

func (s *Server) labelNames(r *http.Request) (result, error) {
	return s.names(r, func(q storage.Querier, m ...*labels.Matcher) ([]string, annotations.Annotations, error) {
		return q.LabelNames(r.Context(), &storage.LabelHints{}, m...)
	})
}

func (s *Server) labelValues(r *http.Request) (result, error) {
	name := r.PathValue("label")
	if strings.HasPrefix(name, "U__") {
		name = model.UnescapeName(name, model.ValueEncodingEscaping)
	}
	if !model.UTF8Validation.IsValidLabelName(name) {
		return result{}, &apiError{"bad_data", fmt.Errorf("invalid label name: %q", name)}
	}
	return s.names(r, func(q storage.Querier, m ...*labels.Matcher) ([]string, annotations.Annotations, error) {
		return q.LabelValues(r.Context(), name, &storage.LabelHints{}, m...)
	})
}

// names collects names over every set of matchers.
func (s *Server) names(r *http.Request, list func(storage.Querier, ...*labels.Matcher) ([]string, annotations.Annotations, error)) (result, error) {
	l, err := s.lookup(r)
	if err != nil {
		return result{}, err
	}
	defer l.querier.Close()
	if len(l.matchers) == 0 {
		l.matchers = [][]*labels.Matcher{nil}
	}
	found := []string{}
	var notes annotations.Annotations
	for _, m := range l.matchers {
		names, n, err := list(l.querier, m...)
		if err != nil {
			return result{}, err
		}
		for _, name := range names {
			found = append(found, strings.Clone(name))
		}
		notes.Merge(n)
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if l.limit > 0 && len(found) > l.limit {
		found = found[:l.limit]
		notes.Add(errTruncated)
	}
	return result{data: found, notes: notes}, nil
}

// lookup is the part that the endpoints over label sets share.
type lookup struct {
	start, end time.Time
	limit      int
	matchers   [][]*labels.Matcher
	querier    storage.Querier
}

func (s *Server) lookup(r *http.Request) (l lookup, err error) {
	if l.limit, err = limitParam(r); err != nil {
		return l, err
	}
	if l.start, err = timeParam(r, "start", minTime); err != nil {
		return l, err
	}
	if l.end, err = timeParam(r, "end", maxTime); err != nil {
		return l, err
	}
	if l.matchers, err = s.parser.ParseMetricSelectors(r.Form["match[]"]); err != nil {
		return l, badParam("match[]", err)
	}
	for _, m := range l.matchers {
		if !slices.ContainsFunc(m, func(m *labels.Matcher) bool { return !m.Matches("") }) {
			return l, badParam("match[]", errors.New("match[] must contain at least one non-empty matcher"))
		}
	}
	l.querier, err = s.db.Querier(timestamp.FromTime(l.start), timestamp.FromTime(l.end))
	return l, err
}

// The earliest and latest time that Prometheus understands.
var (
	minTime = time.Unix(math.MinInt64/1000+62135596801, 0).UTC()
	maxTime = time.Unix(math.MaxInt64/1000-62135596801, 999999999).UTC()
)

func timeParam(r *http.Request, name string, missing time.Time) (time.Time, error) {
	v := r.FormValue(name)
	if v == "" {
		return missing, nil
	}
	t, err := parseTime(v)
	if err != nil {
		return time.Time{}, badParam(name, fmt.Errorf("invalid time value for '%s': %w", name, err))
	}
	return t, nil
}

// parseTime reads Unix seconds or RFC 3339.
func parseTime(v string) (time.Time, error) {
	if f, err := strconv.ParseFloat(v, 64); err == nil && !math.IsNaN(f) && math.Abs(f) < 1e14 {
		sec, frac := math.Modf(f)
		return time.Unix(int64(sec), int64(math.Round(frac*1000))*int64(time.Millisecond)).UTC(), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, v); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("cannot parse %q to a valid timestamp", v)
}

// parseDuration reads seconds or Prometheus' notation ("1h30m").
func parseDuration(v string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(v, 64); err == nil {
		ns := f * float64(time.Second)
		if math.IsNaN(ns) || ns >= math.MaxInt64 || ns < math.MinInt64 {
			return 0, fmt.Errorf("cannot parse %q to a valid duration. It overflows int64", v)
		}
		return time.Duration(ns), nil
	}
	if d, err := model.ParseDuration(v); err == nil {
		return time.Duration(d), nil
	}
	return 0, fmt.Errorf("cannot parse %q to a valid duration", v)
}

func limitParam(r *http.Request) (int, error) {
	v := r.FormValue("limit")
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, badParam("limit", fmt.Errorf("%q is not a number of results", v))
	}
	return n, nil
}
