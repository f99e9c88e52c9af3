package promhistory

import (
	"bufio"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/porttest"
	"github.com/openrlc/rlc/internal/promserver"
	"github.com/openrlc/rlc/internal/store"
)

// sample is a raw sample: remote read sees it as it is.
type sample struct {
	ms int64
	v  float64
}

// layout is a service's series as a server might have them: samples beside the
// grid, several in one step, none for a while, marked stale, no number.
type layout struct {
	labels  map[string]string
	samples []sample
}

// layouts makes the series of one service, over the days before now. Stale
// markers are made only where they can be stored.
func layouts(seed uint64, service string, days int, stale bool) (all []layout) {
	r := rand.New(rand.NewPCG(seed, 7))
	until := now.Add(2 * time.Hour).UnixMilli()
	for _, metric := range []string{"rate1m", "raw", "dropped"} {
		for n := range 1 + r.IntN(4) {
			l := layout{labels: map[string]string{"__name__": metric, "service": service, "client": fmt.Sprint("c", n%3), "method": fmt.Sprint("m", n)}}
			at := now.Add(-time.Duration(days) * day).UnixMilli()
			if r.IntN(2) == 0 {
				at += r.Int64N(60_000) // a rule is evaluated at an offset of its own
			}
			for every := int64(60_000); at < until; {
				v := math.Round(r.Float64()*1e4) / 100
				switch r.IntN(400) {
				case 0:
					at += r.Int64N(3) * 60_000 // a gap of whole steps
				case 1:
					at += r.Int64N(4 * 3_600_000)
				case 2:
					v = math.NaN()
				case 3:
					v = -1
				case 4:
					if stale {
						v = math.Float64frombits(staleNaN)
					}
				case 5:
					every = []int64{60_000, 30_000, 15_000, 60_000, 47_313}[r.IntN(5)]
				}
				l.samples = append(l.samples, sample{at, v})
				at += every
			}
			if metric == "rate1m" && r.IntN(2) == 0 { // a rule that is younger than what it records
				l.samples = l.samples[len(l.samples)*2/3:]
			}
			all = append(all, l)
		}
	}
	return all
}

func stitched(extra ...string) *rlc.Profile {
	p := profile()
	p.Sources = append(p.Sources, `raw{service="${service}"}`)
	p.Sources = append(p.Sources, extra...)
	p.Refused = `dropped{service="${service}"}`
	return p
}

// bothWays reads a service by remote read and by range queries alone, and
// compares all of it.
func bothWays(t *testing.T, url string, s *rlc.Service, p *rlc.Profile, lookback time.Duration, at ...time.Time) map[string]rlc.History {
	t.Helper()
	var results [2]map[string]rlc.History
	for i, rangeOnly := range []bool{true, false} {
		db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "rlc.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		r, err := New(Config{URL: url, Store: db, RangeOnly: rangeOnly, MaxWait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for _, at := range at {
			results[i] = map[string]rlc.History{}
			err := r.Service(t.Context(), rlc.HistoryRequest{Service: s, Profile: p, Lookback: lookback, Now: at}, func(x rlc.Series) error {
				results[i][rlc.QuotaID(x.Bucket, x.Key)] = kept(x.History)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		requests, samples := r.Cost()
		t.Logf("%s, range queries only %t: %d requests, %d samples", s.Name, rangeOnly, requests, samples)
	}
	if a, b := slices.Sorted(maps.Keys(results[0])), slices.Sorted(maps.Keys(results[1])); !slices.Equal(a, b) {
		t.Fatalf("%s: series %v by range queries, %v by remote read", s.Name, a, b)
	}
	for id, want := range results[0] {
		got := results[1][id]
		if reflect.DeepEqual(got, want) {
			continue
		}
		for i := range min(len(want.Hours), len(got.Hours)) {
			if got.Hours[i] != want.Hours[i] {
				t.Fatalf("%s %s: by remote read\n%+v, by range queries\n%+v", s.Name, id, got.Hours[i], want.Hours[i])
			}
		}
		t.Fatalf("%s %s: %d hours, %d of the tail, problems %v, newest %v by remote read\n%d, %d, %v, %v by range queries", s.Name, id,
			len(got.Hours), len(got.Tail), got.Problems, got.Newest, len(want.Hours), len(want.Tail), want.Problems, want.Newest)
	}
	return results[1]
}

func named(name string, s *rlc.Service) *rlc.Service { s.Name = name; return s }

func TestRemoteReadSeesWhatRangeQueriesSee(t *testing.T) {
	w := newWorld(t, nil)
	var all []promserver.LabelledSeries
	names := map[string]bool{}
	for seed := range uint64(6) {
		name := fmt.Sprint("geo", seed)
		names[name] = true
		for _, l := range layouts(seed, name, 3, true) {
			all = append(all, promserver.LabelledSeries{Labels: l.labels, Samples: iter.Seq2[int64, float64](func(yield func(int64, float64) bool) {
				for _, s := range l.samples {
					if !yield(s.ms, s.v) {
						return
					}
				}
			})})
		}
	}
	w.fill(all...)
	for name := range names {
		got := bothWays(t, w.http.URL, named(name, service(callers(), rlc.Bucket{Name: "rest"}, rlc.Bucket{Name: "all", Role: rlc.CapRole})), stitched(), 4*day, now.Add(-5*time.Hour), now)
		if h := got["all"]; len(h.Hours) < 60 {
			t.Errorf("%s: %d hours", name, len(h.Hours))
		}
	}
}

// prometheus starts Debian's Prometheus over the blocks in a folder.
func prometheus(t testing.TB, dir, config string) (url string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := porttest.Free(t)
	cmd := exec.Command("/usr/bin/prometheus", "--config.file="+file, "--storage.tsdb.path="+dir, "--storage.tsdb.retention.time=10y", "--web.listen-address="+addr, "--query.max-samples=500000000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (Debian's package prometheus)", err)
	}
	var log strings.Builder
	ready := make(chan bool, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(&log, lines.Text())
			if strings.Contains(lines.Text(), "Server is ready to receive web requests") {
				ready <- true
			}
		}
		ready <- false
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	if !<-ready {
		t.Fatalf("prometheus did not start:\n%s", log.String())
	}
	return "http://" + addr
}

// blocks fills a folder as people do it: promtool and OpenMetrics text.
func blocks(t *testing.T, all []layout) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text := filepath.Join(dir, "history.txt")
	f, err := os.Create(text)
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewWriter(f)
	slices.SortStableFunc(all, func(a, b layout) int { return strings.Compare(a.labels["__name__"], b.labels["__name__"]) })
	for i, l := range all {
		name := l.labels["__name__"]
		if i == 0 || all[i-1].labels["__name__"] != name {
			fmt.Fprintf(out, "# TYPE %s gauge\n", name)
		}
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(l.labels)) {
			if k != "__name__" {
				pairs = append(pairs, k+"="+strconv.Quote(l.labels[k]))
			}
		}
		for _, s := range l.samples {
			fmt.Fprintf(out, "%s{%s} %v %d.%03d\n", name, strings.Join(pairs, ","), s.v, s.ms/1000, s.ms%1000)
		}
	}
	fmt.Fprintln(out, "# EOF")
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	data := filepath.Join(dir, "data")
	if b, err := exec.Command("/usr/bin/promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=648h", text, data).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, b)
	}
	return data
}

func TestARealPrometheusGivesTheSameEitherWay(t *testing.T) {
	var all []layout
	for seed := range uint64(3) {
		all = append(all, layouts(seed, fmt.Sprint("geo", seed), 21, false)...)
	}
	// A series with a label of the name of the server's external label.
	all = append(all, layout{labels: map[string]string{"__name__": "rate1m", "service": "own", "client": "a", "cluster": "us"}, samples: layouts(9, "x", 2, false)[0].samples})
	url := prometheus(t, blocks(t, all), "global: {external_labels: {cluster: eu}}\n")
	for seed := range 3 {
		got := bothWays(t, url, named(fmt.Sprint("geo", seed), service(callers(), rlc.Bucket{Name: "all", Role: rlc.CapRole})), stitched(), 20*day, now.Add(-time.Hour), now)
		if h := got["all"]; len(h.Hours) < 19*24 {
			t.Errorf("%d hours", len(h.Hours))
		}
	}
	// Where a label decides that remote read alone has, queries are believed.
	p := profile()
	p.Attributes["region"] = rlc.AttributeSource{Metric: []string{"cluster"}}
	eu := rlc.Bucket{Name: "eu", Match: map[string]rlc.Pattern{"region": {Kind: rlc.Exact, Values: []string{"eu"}}}}
	if got := bothWays(t, url, named("geo0", service(eu, rlc.Bucket{Name: "rest"})), p, 4*day, now); len(got["eu"].Hours) > 0 || len(got["rest"].Hours) == 0 {
		t.Errorf("an external label decided: %d hours of eu, %d of the rest", len(got["eu"].Hours), len(got["rest"].Hours))
	}
	us := eu
	us.Match = map[string]rlc.Pattern{"region": {Kind: rlc.Exact, Values: []string{"us"}}}
	us.Name = "us"
	if got := bothWays(t, url, named("own", service(us, rlc.Bucket{Name: "rest"})), p, 4*day, now); len(got["us"].Hours) < 24 {
		t.Errorf("%d hours of us", len(got["us"].Hours))
	}
}
