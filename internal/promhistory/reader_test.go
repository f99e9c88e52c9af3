package promhistory

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/promserver"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/internal/store"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv(serverEnv); arg != "" {
		if err := fillBench(arg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The proxy that does harm leaves goroutines of its own.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"))
}

// now is fixed within a test: ten days of history end here.
var now = time.Now().UTC().Truncate(day).Add(-day).Add(15*time.Hour + 40*time.Minute)

func profile() *rlc.Profile {
	return &rlc.Profile{
		Name: "p", Step: time.Minute,
		Attributes: map[string]rlc.AttributeSource{"caller": {Metric: []string{"client"}}, "procedure": {Metric: []string{"method"}}},
		Sources:    []string{`rate1m{service="${service}"}`},
	}
}

func policy() *rlc.PolicySpec { return &rlc.PolicySpec{Kind: "historical"} }

func service(buckets ...rlc.Bucket) *rlc.Service {
	s := &rlc.Service{Name: "geo", Mode: rlc.Shadow, MaxQuotas: 100, Buckets: buckets, Unknown: map[string][]string{"caller": {"unknown"}}}
	for i := range s.Buckets {
		if s.Buckets[i].Role == "" {
			s.Buckets[i].Role = rlc.QuotaRole
		}
		if s.Buckets[i].Limit == nil {
			s.Buckets[i].Policy = policy()
		}
	}
	return s
}

func callers() rlc.Bucket { return rlc.Bucket{Name: "callers", Each: []string{"caller"}} }

func exact(v string) map[string]rlc.Pattern {
	return map[string]rlc.Pattern{"caller": {Kind: rlc.Exact, Values: []string{v}}}
}

// world is a real embedded Prometheus behind HTTP, a real store and a Reader.
type world struct {
	t       *testing.T
	prom    *promserver.Server
	http    *httptest.Server
	store   *store.DB
	reader  *Reader
	mu      sync.Mutex
	queries []url.Values
	bytes   int
	tamper  func(w http.ResponseWriter, r *http.Request, form url.Values) bool // true: answered
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t}
	var err error
	if w.prom, err = promserver.Open(promserver.Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if w.store, err = store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "rlc.db")); err != nil {
		t.Fatal(err)
	}
	api := w.prom.Handler()
	w.http = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		w.mu.Lock()
		w.queries = append(w.queries, form)
		tamper := w.tamper
		w.mu.Unlock()
		if tamper != nil && tamper(out, r, form) {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		api.ServeHTTP(&counting{out, w}, r)
	}))
	c := Config{URL: w.http.URL, Store: w.store, MaxWait: time.Millisecond, RangeOnly: true}
	if change != nil {
		change(&c)
	}
	if w.reader, err = New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.reader.Close()
		w.http.Close()
		w.prom.Close()
		w.store.Close()
	})
	return w
}

type counting struct {
	http.ResponseWriter
	w *world
}

func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }
func (c *counting) Write(b []byte) (int, error) {
	c.w.mu.Lock()
	c.w.bytes += len(b)
	c.w.mu.Unlock()
	return c.ResponseWriter.Write(b)
}

// restart forgets what was asked so far.
func (w *world) restart() { w.mu.Lock(); w.queries, w.bytes = nil, 0; w.mu.Unlock() }

// ranges counts the range queries since restart.
func (w *world) ranges() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queries {
		if q.Get("step") != "" {
			n++
		}
	}
	return n
}

// fill adds series; the sample at t is the rate of the minute that ends at t.
func (w *world) fill(series ...promserver.LabelledSeries) {
	w.t.Helper()
	if err := w.prom.Backfill(w.t.Context(), series, nil); err != nil {
		w.t.Fatal(err)
	}
}

// rates is a series of rate1m with f(t) for the minute that starts at t; NaN
// leaves a gap.
func rates(from, until time.Time, f func(t time.Time) float64, labels ...string) promserver.LabelledSeries {
	return metric("rate1m", from, until, f, append([]string{"service", "geo"}, labels...)...)
}

func metric(name string, from, until time.Time, f func(t time.Time) float64, labels ...string) promserver.LabelledSeries {
	l := map[string]string{"__name__": name}
	for i := 0; i < len(labels); i += 2 {
		l[labels[i]] = labels[i+1]
	}
	var samples iter.Seq2[int64, float64] = func(yield func(int64, float64) bool) {
		for t := from; t.Before(until); t = t.Add(time.Minute) {
			if v := f(t); !math.IsNaN(v) && !yield(t.Add(time.Minute).UnixMilli(), v) {
				return
			}
		}
	}
	return promserver.LabelledSeries{Labels: l, Samples: samples}
}

func always(v float64) func(time.Time) float64 { return func(time.Time) float64 { return v } }

// read reads and returns the series by quota ID.
func (w *world) read(s *rlc.Service, p *rlc.Profile, at time.Time) map[string]rlc.History {
	w.t.Helper()
	got, err := w.tryRead(w.t.Context(), s, p, at)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) tryRead(ctx context.Context, s *rlc.Service, p *rlc.Profile, at time.Time) (map[string]rlc.History, error) {
	got := map[string]rlc.History{}
	last := ""
	err := w.reader.Service(ctx, rlc.HistoryRequest{Service: s, Profile: p, Lookback: 9 * day, Now: at}, func(x rlc.Series) error {
		id := rlc.QuotaID(x.Bucket, x.Key)
		if _, twice := got[id]; twice || id < last {
			w.t.Errorf("%s comes twice or after %s", id, last)
		}
		got[id], last = kept(x.History), id
		return nil
	})
	return got, err
}

// kept is a history that outlives its yield.
func kept(h rlc.History) rlc.History {
	h.Hours, h.Tail = slices.Clone(h.Hours), slices.Clone(h.Tail)
	return h
}

func rules(h rlc.History) (all []string) {
	for _, p := range h.Problems {
		all = append(all, p.Rule)
	}
	return all
}

// wave varies over the day and is never quite the same.
func wave(level float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		return math.Round(1000*level*(2+math.Sin(float64(t.Unix())/86400*2*math.Pi)+float64(t.Unix()*2654435761%1000)/5000)) / 1000
	}
}

// want is the history of a sum of functions by the arithmetic of stat alone.
func want(f func(time.Time) float64) rlc.History {
	from := now.Add(-9 * day).Truncate(day)
	values := make([]float64, now.Sub(from)/time.Minute)
	for i := range values {
		values[i] = cut(f(from.Add(time.Duration(i) * time.Minute)))
	}
	h := stat.Summarise(time.Minute, from, values)
	for i := range h.Hours {
		h.Hours[i].Mean = rlc.Rate(cut(float64(h.Hours[i].Mean)))
	}
	return h
}

// same compares what was read with what it should be, over the hours of got.
func same(t *testing.T, name string, got, want rlc.History) {
	t.Helper()
	for len(want.Hours) > 0 && len(got.Hours) > 0 && want.Hours[0].Start.Before(got.Hours[0].Start) {
		want.Hours = want.Hours[1:]
	}
	if !reflect.DeepEqual(got.Hours, want.Hours) {
		t.Errorf("%s: %d hours, want %d", name, len(got.Hours), len(want.Hours))
		for i := range min(len(got.Hours), len(want.Hours)) {
			if got.Hours[i] != want.Hours[i] {
				t.Fatalf("%s: hour %+v\nwant %+v", name, got.Hours[i], want.Hours[i])
			}
		}
	}
	if got.TailFloor != want.TailFloor || len(got.Problems) > 0 || !got.Newest.Equal(want.Newest) {
		t.Errorf("%s: floor %v, want %v; problems %v; newest %v, want %v", name, got.TailFloor, want.TailFloor, got.Problems, got.Newest, want.Newest)
	}
	for len(want.Tail) > 0 && want.Tail[0].Time.Before(got.From.Truncate(time.Hour)) {
		want.Tail = want.Tail[1:]
	}
	if !reflect.DeepEqual(got.Tail, want.Tail) {
		t.Errorf("%s: a tail of %d samples, want %d", name, len(got.Tail), len(want.Tail))
	}
}

func TestLabelSetsArePartitionedBeforeTheyAreSummarised(t *testing.T) {
	w := newWorld(t, nil)
	from := now.Add(-10 * day)
	a, b, c, d := wave(10), wave(20), wave(3), wave(1)
	w.fill(
		rates(from, now, a, "client", "search", "method", "Get"),
		rates(from, now, b, "client", "search", "method", "Put"),
		rates(from, now, c, "client", "mobile", "method", "Get"),
		rates(from, now, d, "client", "unknown", "method", "Get"),
		metric("rate1m", from, now, always(1000), "service", "other", "client", "search"),
	)
	s := service(callers(),
		rlc.Bucket{Name: "mobile", Match: exact("mobile")},
		rlc.Bucket{Name: "rest"},
		rlc.Bucket{Name: "total", Role: rlc.CapRole},
		rlc.Bucket{Name: "hand", Role: rlc.CapRole, Match: exact("search"), Limit: &rlc.Limit{Rate: 5, Burst: 5}})
	got := w.read(s, profile(), now)
	if len(got) != 4 {
		t.Errorf("series %v", keysOf(got))
	}
	same(t, "search", got["callers/caller=search"], want(func(t time.Time) float64 { return a(t) + b(t) }))
	same(t, "mobile", got["mobile"], want(c))
	same(t, "rest", got["rest"], want(d)) // an unknown caller is no caller
	total := got["total"]
	if p := math.Abs(float64(total.Hours[30].Mean) - float64(got["callers/caller=search"].Hours[30].Mean+got["mobile"].Hours[30].Mean+got["rest"].Hours[30].Mean)); p > 1e-6 {
		t.Errorf("the cap's mean differs from the sum of the quotas' by %g", p)
	}
	hand, err := w.reader.Stored(t.Context(), "geo", "hand", nil, now.Add(-day), now)
	if err != nil || len(hand.Hours) < 24 || hand.Step != time.Minute {
		t.Errorf("a hand-written cap has %d stored hours of step %s: %v", len(hand.Hours), hand.Step, err)
	}
	none, err := w.reader.Stored(t.Context(), "geo", "nothing", rlc.Key{"caller": "x"}, now.Add(-day), now)
	if err != nil || len(none.Hours) != 0 {
		t.Errorf("a series that is not there: %+v, %v", none, err)
	}
}

func keysOf(m map[string]rlc.History) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

func TestTheSecondRunReadsOnlyTheTail(t *testing.T) {
	w := newWorld(t, nil)
	f := wave(10)
	w.fill(rates(now.Add(-10*day), now.Add(time.Hour), f, "client", "a"), rates(now.Add(-10*day), now.Add(time.Hour), f, "client", "b"))
	s := service(callers())
	w.read(s, profile(), now)
	first, firstBytes := w.ranges(), w.bytes
	w.restart()
	got := w.read(s, profile(), now.Add(time.Hour))
	second, secondBytes := w.ranges(), w.bytes
	t.Logf("first run %d range queries, %d bytes; second %d, %d", first, firstBytes, second, secondBytes)
	if first != 10 || second != 1 {
		t.Errorf("%d range queries in the first run, want one for each of 10 days; %d in the second, want 1", first, second)
	}
	// The second reads the 16 h 40 min of its day, of 9 days and 15 h 40 min.
	if secondBytes > firstBytes/10 {
		t.Errorf("%d bytes in the first run, %d in the second", firstBytes, secondBytes)
	}
	h := got["callers/caller=a"]
	if want := now.Add(time.Hour); !h.Newest.Equal(want) || len(h.Problems) > 0 {
		t.Errorf("newest %v, want %v; problems %v", h.Newest, want, h.Problems)
	}
	fresh := newWorld(t, nil)
	fresh.fill(rates(now.Add(-10*day), now.Add(time.Hour), f, "client", "a"))
	other := fresh.read(s, profile(), now.Add(time.Hour))["callers/caller=a"]
	if !reflect.DeepEqual(h, other) {
		t.Error("what was read in two runs differs from what is read in one")
	}
}

func TestARunAtTheSameNowReadsTheSame(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-3*day), now, wave(10), "client", "a"))
	s := service(callers())
	one, two := w.read(s, profile(), now), w.read(s, profile(), now)
	if !reflect.DeepEqual(one, two) {
		t.Error("two runs with the same now differ")
	}
}

func TestNothingLaterThanNowIsRead(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-2*day), now.Add(2*time.Hour), func(t time.Time) float64 {
		if t.Before(now) {
			return 1
		}
		return 1e6
	}, "client", "a"))
	h := w.read(service(callers()), profile(), now)["callers/caller=a"]
	for _, hour := range h.Hours {
		if hour.Max > 1 {
			t.Errorf("hour %+v", hour)
		}
	}
	if last := h.Hours[len(h.Hours)-1]; last.Expected != 40 || last.Present != 40 {
		t.Errorf("the open hour has %d of %d steps, want 40 of 40", last.Present, last.Expected)
	}
}

// A run at a past now reads what it would have read then, also when a later one
// has stored more of that day.
func TestNothingLaterThanNowIsReadAfterALaterRun(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-3*day), now.Add(2*time.Hour), wave(10), "client", "a"))
	s := service(callers())
	then := w.read(s, profile(), now)
	w.read(s, profile(), now.Add(2*time.Hour))
	if again := w.read(s, profile(), now); !reflect.DeepEqual(then, again) {
		t.Error("a run at a past now differs from the run that was made then")
	}
}

func TestAGapStaysAGapAndIsReadAgainWhileItMayBeMended(t *testing.T) {
	w := newWorld(t, nil)
	gapped := now.Add(-20 * time.Hour).Truncate(time.Hour)
	w.fill(rates(now.Add(-5*day).Truncate(day), now.Add(3*day), func(t time.Time) float64 {
		if !t.Before(gapped) && t.Before(gapped.Add(10*time.Minute)) {
			return math.NaN()
		}
		return 5
	}, "client", "a"))
	s := service(callers())
	h := w.read(s, profile(), now)["callers/caller=a"]
	missing := 0
	for _, hour := range h.Hours {
		missing += hour.Expected - hour.Present
	}
	if missing != 10 {
		t.Errorf("%d steps are missing, want the 10 of the gap", missing)
	}
	for _, c := range []struct {
		after time.Duration
		days  int
	}{
		{time.Hour, 2},      // the day of the gap and today
		{40 * time.Hour, 3}, // 60 h after the gap: only what is not sealed, two days and the rest of a third
	} {
		w.restart()
		w.read(s, profile(), now.Add(c.after))
		if n := w.ranges(); n != c.days {
			t.Errorf("%s later %d days are read, want %d", c.after, n, c.days)
		}
	}
}

func TestADayReadAgainNeverKnowsLess(t *testing.T) {
	had := stat.SketchDay("s", now.Truncate(day), time.Minute, ramp(180), 0)
	lost := ramp(180)
	for i := 60; i < 120; i += 2 {
		lost[i] = math.NaN()
	}
	got := better(stat.SketchDay("s", now.Truncate(day), time.Minute, lost, 0), had)
	if !reflect.DeepEqual(got.Hours, had.Hours) {
		t.Errorf("hours %+v\nwant %+v", got.Hours, had.Hours)
	}
	for _, s := range got.Tail {
		if s.Rate < got.TailFloor {
			t.Errorf("sample %+v below the floor %v", s, got.TailFloor)
		}
	}
}

func ramp(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i)
	}
	return v
}

func TestOnlyTheKeysThatAnEditConcernsAreNew(t *testing.T) {
	ids := func(s *rlc.Service, p *rlc.Profile, key string) rlc.SeriesID {
		return newIdentity(s, p, "").of(0, rlc.Key{"caller": key})
	}
	before := service(callers())
	after := service(callers(), rlc.Bucket{Name: "acme", Match: exact("acme")})
	if ids(before, profile(), "acme") == ids(after, profile(), "acme") {
		t.Error("a bucket took acme's label sets away: its id must change")
	}
	if ids(before, profile(), "search") != ids(after, profile(), "search") {
		t.Error("search is not concerned: its id must stay")
	}
	if newIdentity(before, profile(), "").of(0, nil) == newIdentity(after, profile(), "").of(0, nil) {
		t.Error("the bucket as a whole has changed")
	}
	other := profile()
	other.Sources = append(other.Sources, "x")
	if ids(before, profile(), "search") == ids(before, other, "search") {
		t.Error("another source list is another series")
	}
	cap := service(callers(), rlc.Bucket{Name: "all", Role: rlc.CapRole})
	if ids(before, profile(), "search") != ids(cap, profile(), "search") {
		t.Error("a cap takes nothing away")
	}
}

func TestABucketTakenOutOfAnotherIsReadAnew(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-4*day), now, always(7), "client", "acme"), rates(now.Add(-4*day), now, always(2), "client", "b"))
	w.read(service(callers()), profile(), now)
	got := w.read(service(callers(), rlc.Bucket{Name: "acme", Match: exact("acme")}), profile(), now)
	if _, still := got["callers/caller=acme"]; still {
		t.Error("acme is still a key of callers")
	}
	if h := got["acme"]; len(h.Hours) < 4*24 || h.Hours[0].Max != 7 {
		t.Errorf("acme has %d hours", len(h.Hours))
	}
	if h := got["callers/caller=b"]; len(h.Hours) < 4*24 {
		t.Errorf("b has %d hours", len(h.Hours))
	}
}

func TestKeysBeyondTheMaximumAreLeftOutSmallestFirst(t *testing.T) {
	w := newWorld(t, nil)
	var all []promserver.LabelledSeries
	for i := range 6 {
		// The busiest comes late: a ranking by the first day alone would miss it.
		from := now.Add(-3 * day)
		if i == 5 {
			from = now.Add(-day)
		}
		all = append(all, rates(from, now, always(float64(1+i*i*i*10)), "client", fmt.Sprint("c", i)))
	}
	w.fill(all...)
	s := service(callers())
	s.MaxQuotas = 2
	got := w.read(s, profile(), now)
	if len(got) != 3 || len(got["callers/caller=c4"].Hours) == 0 || len(got["callers/caller=c5"].Hours) < 24 {
		t.Errorf("series %v", keysOf(got))
	}
	if p := got["callers"].Problems; len(p) != 1 || p[0].Rule != "budget" || !strings.Contains(p[0].Detail, "4 keys of caller") || !strings.Contains(p[0].Detail, "label client") {
		t.Errorf("problems of the bucket as a whole: %v", p)
	}
}

func TestAnAttributeThatHistoryLacksIsAProblem(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-2*day), now, always(7), "client", "a")) // no method
	match := func(a, v string) map[string]rlc.Pattern {
		return map[string]rlc.Pattern{a: {Kind: rlc.Exact, Values: []string{v}}}
	}
	got := w.read(service(
		rlc.Bucket{Name: "eu", Match: match("region", "eu")},    // the profile does not map it
		rlc.Bucket{Name: "get", Match: match("procedure", "G")}, // no label set carries it
		rlc.Bucket{Name: "rest"},                                // what the two would take is in it
		rlc.Bucket{Name: "caps", Role: rlc.CapRole},
	), profile(), now)
	for name, want := range map[string]bool{"eu": true, "get": true, "rest": true, "caps": false} {
		if has := strings.Contains(strings.Join(rules(got[name]), " "), "attribute_not_in_history"); has != want {
			t.Errorf("%s: problems %v", name, got[name].Problems)
		}
	}
}

func TestSourcesAreStitchedByTheHour(t *testing.T) {
	begins := now.Add(-2 * day).Truncate(time.Hour)
	for _, c := range []struct {
		name    string
		rule    float64
		problem bool
	}{{"agreeing within 2 %", 5.05, false}, {"a third higher", 6.6, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.fill(
				metric("rate1m", begins, now, always(c.rule), "service", "geo", "client", "a"),
				metric("raw", now.Add(-6*day).Truncate(day), now, always(5), "service", "geo", "client", "a"),
			)
			p := profile()
			p.Sources = append(p.Sources, `sum by (client) (raw{service="${service}"})`)
			s := service(callers())
			for range 2 { // the change is remembered in the next run too
				h := w.read(s, p, now)["callers/caller=a"]
				for _, hour := range h.Hours {
					if want := map[bool]rlc.Rate{true: 5, false: rlc.Rate(cut(c.rule))}[hour.Start.Before(begins)]; hour.Max != want || hour.Present != hour.Expected {
						t.Fatalf("hour %+v, want %v", hour, want)
					}
				}
				if got := len(h.Problems) == 1 && h.Problems[0].Rule == "source_changed"; got != c.problem {
					t.Errorf("problems %v", h.Problems)
				}
				if h.Source != `rate1m{service="geo"}` {
					t.Errorf("source %s", h.Source)
				}
			}
			other, err := New(w.reader.cfg) // and after a restart
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			w.reader = other
			if h := w.read(s, p, now)["callers/caller=a"]; len(h.Problems) == 1 != c.problem {
				t.Errorf("after a restart: problems %v", h.Problems)
			}
		})
	}
}

func TestHealthTargetsAndRefusalsAreHonoured(t *testing.T) {
	w := newWorld(t, nil)
	hour := now.Add(-10 * time.Hour).Truncate(time.Hour)
	in := func(t time.Time, h int, minutes int) bool {
		at := hour.Add(time.Duration(h) * time.Hour)
		return !t.Before(at) && t.Before(at.Add(time.Duration(minutes)*time.Minute))
	}
	w.fill(
		rates(now.Add(-2*day).Truncate(day), now, always(10), "client", "a"),
		metric("dropped", now.Add(-2*day).Truncate(day), now, func(t time.Time) float64 {
			if in(t, 3, 60) {
				return 4
			}
			return 0
		}, "service", "geo", "client", "a"),
		metric("fine", now.Add(-2*day).Truncate(day), now, func(t time.Time) float64 {
			if in(t, 1, 6) {
				return 0
			}
			return 1
		}, "service", "geo"),
		metric("targets", now.Add(-2*day).Truncate(day), now, func(t time.Time) float64 {
			if in(t, 2, 15) {
				return 0.74
			}
			return 1
		}, "service", "geo"),
	)
	p := profile()
	p.Refused, p.Healthy, p.Complete = `dropped{service="${service}"}`, `fine{service="${service}"} == 1`, `targets{service="${service}"}`
	h := w.read(service(callers()), p, now)["callers/caller=a"]
	if !h.Targets || len(h.Problems) > 0 {
		t.Errorf("targets %v, problems %v", h.Targets, h.Problems)
	}
	for _, x := range h.Hours {
		want := rlc.Hour{Start: x.Start, Max: 10, P99: 10, Mean: 10, Present: x.Expected, Expected: x.Expected}
		switch x.Start.Sub(hour) {
		case time.Hour:
			want.Unhealthy = true
		case 2 * time.Hour:
			want.Partial = 15
		case 3 * time.Hour:
			want.Max, want.P99, want.Mean = 14, 14, 14
		}
		if x != want {
			t.Errorf("hour %+v\nwant %+v", x, want)
		}
	}
}

func TestTheShareThatEnforcersDroppedIsKnownPerHour(t *testing.T) {
	w := newWorld(t, nil)
	hour := now.Add(-8 * time.Hour).Truncate(time.Hour)
	count := func(perSecond func(t time.Time) float64) func(t time.Time) float64 {
		sum := 0.0
		return func(t time.Time) float64 { sum += 60 * perSecond(t); return sum }
	}
	storm := func(t time.Time) float64 {
		if !t.Before(hour) && t.Before(hour.Add(time.Hour)) {
			return 3
		}
		return 0
	}
	from := now.Add(-30 * time.Hour)
	w.fill(
		metric("rlc_enforcer_requests_total", from, now, count(always(9)), "service", "geo", "bucket", "callers", "caller", "a", "outcome", "admit"),
		metric("rlc_enforcer_requests_total", from, now, count(storm), "service", "geo", "bucket", "callers", "caller", "a", "outcome", "drop"),
	)
	p := profile()
	p.Name = "rlc"
	p.Attributes = map[string]rlc.AttributeSource{"caller": {Metric: []string{"caller"}}, "procedure": {Metric: []string{"procedure"}}}
	p.Sources = []string{`sum by (caller, procedure) (rate(rlc_enforcer_requests_total{service="${service}"}[2m]))`}
	h := w.read(service(callers()), p, now)["callers/caller=a"]
	for _, x := range h.Hours {
		switch d := float64(x.Drops); {
		case x.Start.Equal(hour) && math.Abs(d-0.25) > 0.01: // 3 of 12 requests a second
			t.Errorf("the hour of the storm: %+v", x)
		case x.Start.Sub(hour).Abs() > time.Hour && d != 0:
			t.Errorf("another hour: %+v", x)
		}
	}
}

func TestSilenceIsNoData(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-6*day), now.Add(-3*day), always(1), "client", "gone"), rates(now.Add(-6*day), now, always(1), "client", "here"))
	got := w.read(service(callers(), rlc.Bucket{Name: "empty", Match: exact("nobody")}), profile(), now)
	for id, want := range map[string]string{"callers/caller=gone": "no_data", "callers/caller=here": "", "empty": "no_data"} {
		if r := strings.Join(rules(got[id]), " "); r != want {
			t.Errorf("%s: %v, want %q", id, got[id].Problems, want)
		}
	}
	if d := got["callers/caller=gone"].Problems[0].Detail; !strings.HasPrefix(d, "no data since ") {
		t.Error(d)
	}
}

func TestCompositeAttributesAreJoined(t *testing.T) {
	p := &rlc.Profile{Attributes: map[string]rlc.AttributeSource{"caller": {Metric: []string{"ns", "app"}, Join: "/"}, "zone": {Descriptor: "z"}}}
	for _, c := range []struct {
		labels map[string]string
		want   rlc.Attributes
	}{
		{map[string]string{"ns": "web", "app": "x"}, rlc.Attributes{"caller": "web/x"}},
		{map[string]string{"app": "x"}, rlc.Attributes{"caller": "/x"}},
		{map[string]string{"zone": "a"}, rlc.Attributes{}},
	} {
		if got := attributes(p, metricOf(c.labels)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %v, want %v", c.labels, got, c.want)
		}
	}
}

func metricOf(labels map[string]string) model.Metric {
	m := model.Metric{}
	for k, v := range labels {
		m[model.LabelName(k)] = model.LabelValue(v)
	}
	return m
}

// rows counts what the store decodes for a reader.
type rowStore struct {
	Store
	rows int
}

func (s *rowStore) EachDayOf(ctx context.Context, ids []rlc.SeriesID, from, until time.Time, use func(*rlc.SeriesDay) error) error {
	return s.Store.EachDayOf(ctx, ids, from, until, func(d *rlc.SeriesDay) error {
		s.rows++
		return use(d)
	})
}

// The next reading decodes a key's stored days once, for its history; what the
// one before learned of them serves the new day. A reader that has just begun
// decodes them twice.
func TestTheNextReadingDecodesTheStoredDaysOnce(t *testing.T) {
	w := newWorld(t, nil)
	const keys, days = 10, 9
	for i := range keys {
		w.fill(rates(now.Add(-days*day), now, wave(100), "client", fmt.Sprint("c", i)))
	}
	counted := &rowStore{Store: w.reader.cfg.Store}
	w.reader.cfg.Store = counted
	s, p := service(callers()), profile()
	w.read(s, p, now.Add(-day))
	counted.rows = 0
	w.read(s, p, now)
	// Of each key ten calendar days, and three more where gaps are looked for;
	// besides, the bucket as a whole and its days.
	if most := keys*(days+1+3) + 2*(days+4); counted.rows > most {
		t.Errorf("%d rows, at most %d", counted.rows, most)
	}
}
