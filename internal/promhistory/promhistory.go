// Package promhistory turns buckets and a window into series, by remote read or
// range queries over Prometheus' HTTP API, and keeps the sketches fresh.
//
// A run reads the tail only. What it reads becomes hourly sketches and tails
// in the store; a closed hour is sealed 15 minutes after its end and not read
// again, unless it misses samples and is younger than 48 hours. The unit of
// reading is the UTC day: the day that holds the first hour that is not sealed
// is read from its start, so that its tail is that of a whole day.
//
// Nothing that a server says is trusted: a warning, a doubled label set, an
// answer of the wrong kind, size or place holds the series it could concern.
package promhistory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Store keeps sketches. SavePacked replaces the days that are there.
type Store interface {
	SaveSeries(ctx context.Context, all []rlc.SeriesKey) error
	SeriesOf(ctx context.Context, service string) ([]rlc.SeriesKey, error)
	SeriesNamed(ctx context.Context, service, bucket string, key rlc.Key) ([]rlc.SeriesKey, error)
	// PackDay appends the Data of a packed day to b.
	PackDay(b []byte, d *rlc.SeriesDay) ([]byte, error)
	SavePacked(ctx context.Context, days []rlc.PackedDay) error
	Days(ctx context.Context, id rlc.SeriesID, from, until time.Time) ([]rlc.SeriesDay, error)
	// EachDayOf is Days of several series, those of one after the other, one at a
	// time; the day is valid until use returns.
	EachDayOf(ctx context.Context, ids []rlc.SeriesID, from, until time.Time, use func(*rlc.SeriesDay) error) error
	SealedUntil(ctx context.Context, service string) (map[rlc.SeriesID]time.Time, error)
}

// Config says where history comes from and what it may cost. URL and Store are
// required.
type Config struct {
	URL   string // of the Prometheus, without /api/v1
	Store Store
	// Client sends the requests; nil means one without compression (a server
	// that gzips spends seven times the time) and without a limit on hosts. Its
	// redirects are refused either way where they lead to another host.
	Client *http.Client
	// Networks are the only addresses that the URL's host may lead to, looked at
	// with every connection. None: any but link-local ones and the like, and this
	// machine only where the URL itself says so. Not for a Client of one's own.
	Networks []netip.Prefix
	Auth     Auth              // how we say who we are; the zero value says nothing
	TLS      TLS               // certificates; not together with Client
	Params   map[string]string // sent with every request to the query API; ThanosParams are for Thanos
	// Replica is the label that tells the servers of an HA pair apart behind one
	// URL that does not deduplicate: of what differs in it alone the highest value
	// counts at each step. Sources that are plain selectors are then read by range
	// queries; expressions have to say max without (it) around their selectors
	// themselves. "" for none.
	Replica string
	Log     *slog.Logger     // nil: nothing is logged
	Now     func() time.Time // compared with the server's clock; nil: time.Now
	// Each names the attributes that a bucket counts by, for Counts; ok is
	// false where the bucket is unknown. Nil: learned from the stored series.
	Each func(service, bucket string) (each []string, ok bool)

	// RangeOnly reads by range queries even where remote read would do. Where it
	// is false remote read is tried first, once: a server without it is
	// remembered.
	RangeOnly bool

	QueryTimeout    time.Duration // of one query; 30 s by default
	ServiceTimeout  time.Duration // of one service's whole reading; 5 min by default
	MaxWait         time.Duration // longest wait before a retry, whatever Retry-After says; 30 s by default
	MaxQueries      int           // at once, over all services; 4 by default
	MaxBody         int64         // bytes of one answer; 64 MiB by default
	MaxSeries       int           // label sets of one answer; 100,000 by default
	MaxSamples      int           // read for one service in one run; 500 million by default
	SamplesPerQuery int           // aimed at by the length of chunks; 400,000 by default (some 10 MB of JSON)
}

// Reader reads history. It is safe for concurrent use.
type Reader struct {
	cfg  Config
	http *client
	api  v1.API

	noRemote atomic.Bool  // the server has no remote read
	samples  atomic.Int64 // received since New
	manners  atomic.Pointer[manners]

	mu       sync.Mutex
	agreed   map[change]map[string]string // what a change of source was found to be
	servings map[string]*sync.Mutex       // one reading of a service at a time
	points   map[rlc.SeriesID]point       // what a reading found, for the next one
}

// point is a series' running 28-day 95 % point.
type point struct {
	rate rlc.Rate
	at   time.Time // end of the window that it is of
	had  [2]begun  // what the last days were begun with: read again, they are the same
}

// begun is a day and the running point before it.
type begun struct {
	day  time.Time
	rate rlc.Rate
}

// New checks c and makes a Reader; nothing is sent.
func New(c Config) (*Reader, error) {
	if c.Store == nil {
		return nil, errors.New("read history: no store given")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Replica != "" && labelName.FindString(c.Replica) != c.Replica {
		return nil, fmt.Errorf("%w: history source: %q is no name of a label", rlc.ErrInvalid, c.Replica)
	}
	orElse(&c.QueryTimeout, 30*time.Second)
	orElse(&c.ServiceTimeout, 5*time.Minute)
	orElse(&c.MaxWait, 30*time.Second)
	orElse(&c.MaxQueries, 4)
	orElse(&c.MaxBody, 64<<20)
	orElse(&c.MaxSeries, 100_000)
	orElse(&c.MaxSamples, 500_000_000)
	orElse(&c.SamplesPerQuery, 400_000)
	h, err := newClient(c)
	if err != nil {
		return nil, err
	}
	return &Reader{cfg: c, http: h, api: v1.NewAPI(h), agreed: map[change]map[string]string{}, servings: map[string]*sync.Mutex{}, points: map[rlc.SeriesID]point{}}, nil
}

// once is a selection of which replicas count once.
func (r *Reader) once(expr string) string {
	if r.cfg.Replica == "" || expr == "" {
		return expr
	}
	return "max without (" + r.cfg.Replica + ") (" + expr + ")"
}

func orElse[T int | int64 | time.Duration](v *T, missing T) {
	if *v <= 0 {
		*v = missing
	}
}

// Close gives up the idle connections.
func (r *Reader) Close() {
	r.http.http.CloseIdleConnections()
	r.http.access.close()
}

// Cost is what reading has cost since New: requests sent and samples received.
func (r *Reader) Cost() (requests, samples int64) {
	return r.http.sent.Load(), r.samples.Load()
}

// Check asks the server for the value of vector(1): is it a Prometheus, and
// does it answer.
func (r *Reader) Check(ctx context.Context) error {
	v, err := r.instant(ctx, "vector(1)", r.cfg.Now())
	if err != nil {
		return fmt.Errorf("check history source: %w", err)
	}
	if len(v) != 1 || v[0].Value != 1 {
		return fmt.Errorf("check history source: %w: vector(1) is %v", ErrNotPrometheus, v)
	}
	return nil
}

// Stored is what the store knows of a bucket's key in [from, until): nothing is
// queried. A series that is not there gives a History without hours. Of several
// stored series of that name (the policy or the profile has changed since) it
// is the one sealed last.
func (r *Reader) Stored(ctx context.Context, service, bucket string, key rlc.Key, from, until time.Time) (rlc.History, error) {
	known, err := r.cfg.Store.SeriesNamed(ctx, service, bucket, key)
	if err != nil {
		return rlc.History{}, err
	}
	if len(known) > 1 {
		sealed, err := r.cfg.Store.SealedUntil(ctx, service)
		if err != nil {
			return rlc.History{}, err
		}
		slices.SortFunc(known, func(a, b rlc.SeriesKey) int { return sealed[b.ID].Compare(sealed[a.ID]) })
	}
	if len(known) == 0 {
		return rlc.History{From: from, Until: until}, nil
	}
	days, err := r.cfg.Store.Days(ctx, known[0].ID, from, until)
	if err != nil {
		return rlc.History{}, err
	}
	peaks, err := r.secondsOf(ctx, from, until, known[0].ID)
	if err != nil {
		return rlc.History{}, err
	}
	h := stat.Join(days, stepOf(days), from, until)
	for i := range h.Hours {
		h.Hours[i].Second = peaks[known[0].ID][h.Hours[i].Start]
	}
	return h, nil
}

// stepOf finds the step of stored days: a full hour expects 1 h / step samples.
func stepOf(days []rlc.SeriesDay) time.Duration {
	most := 0
	for _, d := range days {
		for _, h := range d.Hours {
			most = max(most, h.Expected)
		}
	}
	if most == 0 {
		return 0
	}
	return time.Hour / time.Duration(most)
}

// rangeQuery evaluates expr at start, start+step, … end. A lookback above 0
// replaces the server's five minutes, so that a gap stays a gap.
func (r *Reader) rangeQuery(ctx context.Context, expr string, start, end time.Time, step, lookback time.Duration) (model.Matrix, error) {
	opts := []v1.Option{v1.WithTimeout(r.cfg.QueryTimeout)}
	if lookback > 0 {
		var err error
		if expr, lookback, err = r.within(ctx, expr, lookback); err != nil {
			return nil, err
		}
	}
	if lookback > 0 {
		opts = append(opts, v1.WithLookbackDelta(lookback))
	}
	v, warnings, infos, err := r.api.QueryRange(ctx, expr, v1.Range{Start: start, End: end, Step: step}, opts...)
	if err := r.judge(v, warnings, infos, err); err != nil {
		return nil, err
	}
	m, ok := v.(model.Matrix)
	if !ok {
		return nil, fmt.Errorf("%w: a %s, want a matrix", ErrWrongType, v.Type())
	}
	if len(m) > r.cfg.MaxSeries {
		return nil, fmt.Errorf("%w: %d series in one answer, at most %d", ErrTooLarge, len(m), r.cfg.MaxSeries)
	}
	return m, nil
}

// manners is how a server looks back from an instant.
type manners struct {
	closed  bool // a sample exactly at the beginning of the time looked back belongs to it (before Prometheus 3)
	ignores bool // the time to look back cannot be asked for (before Prometheus 2.43, Mimir, VictoriaMetrics)
}

// within is how expr is asked for so that an instant sees the samples of
// (instant − lookback, instant] alone: what the server is asked for and the
// lookback it is sent, 0 for none. A server that looks back as far as it
// pleases is asked for the last sample of a plain selector; of other
// expressions it fills the gaps of the selectors within, which cannot be
// helped.
func (r *Reader) within(ctx context.Context, expr string, lookback time.Duration) (string, time.Duration, error) {
	m, err := r.learn(ctx)
	if err != nil {
		return "", 0, err
	}
	if m.closed {
		lookback -= time.Millisecond
	}
	if _, plain := plainSelector(expr); plain && m.ignores {
		return fmt.Sprintf("last_over_time(%s[%dms])", expr, lookback.Milliseconds()), 0, nil
	}
	return expr, lookback, nil
}

// learn asks a server for its manners, once. One that does not answer is taken
// for a Prometheus 3 until it does.
func (r *Reader) learn(ctx context.Context) (manners, error) {
	if m := r.manners.Load(); m != nil {
		return *m, nil
	}
	// A minute looked back from a full minute holds two full minutes or one.
	at := r.cfg.Now().Truncate(time.Minute)
	v, err := r.instant(ctx, "count_over_time(vector(1)[1m:1m])", at)
	if ctx.Err() != nil {
		return manners{}, ctx.Err()
	}
	if err != nil || len(v) != 1 {
		return manners{}, nil
	}
	// Who looks at the parameter refuses one that is no duration.
	u := r.http.URL("/api/v1/query", nil)
	u.RawQuery = url.Values{"query": {"vector(1)"}, "lookback_delta": {"none"}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return manners{}, err
	}
	_, _, err = r.http.Do(ctx, req)
	if ctx.Err() != nil {
		return manners{}, ctx.Err()
	}
	if err != nil && !errors.Is(err, ErrQuery) {
		return manners{}, nil
	}
	m := manners{closed: v[0].Value == 2, ignores: err == nil}
	r.manners.Store(&m)
	return m, nil
}

func (r *Reader) instant(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	v, warnings, infos, err := r.api.Query(ctx, expr, at, v1.WithTimeout(r.cfg.QueryTimeout))
	if err := r.judge(v, warnings, infos, err); err != nil {
		return nil, err
	}
	vector, ok := v.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("%w: a %s, want a vector", ErrWrongType, v.Type())
	}
	if len(vector) > r.cfg.MaxSeries {
		return nil, fmt.Errorf("%w: %d series in one answer, at most %d", ErrTooLarge, len(vector), r.cfg.MaxSeries)
	}
	return vector, nil
}

func (r *Reader) judge(v model.Value, warnings v1.Warnings, infos v1.Infos, err error) error {
	if err != nil {
		return r.http.translate(err)
	}
	if v == nil {
		return ErrNoResult
	}
	if text := warningText(warnings); text != "" {
		return &warning{text}
	}
	if len(infos) > 0 {
		r.cfg.Log.Debug("history source says", "infos", infos)
	}
	return nil
}
