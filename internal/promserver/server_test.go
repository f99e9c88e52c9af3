package promserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.uber.org/goleak"

	"github.com/openrlc/rlc/internal/porttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, c Config) *Server {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// minutes yields a sample a minute in (from, until], of value f(minute).
func minutes(from, until time.Time, f func(i int) float64) iter.Seq2[int64, float64] {
	return func(yield func(int64, float64) bool) {
		i := 0
		for t := from.Add(time.Minute); !t.After(until); t = t.Add(time.Minute) {
			if !yield(t.UnixMilli(), f(i)) {
				return
			}
			i++
		}
	}
}

func gauge(name string, from, until time.Time, f func(i int) float64, pairs ...string) LabelledSeries {
	l := map[string]string{"__name__": name}
	for i := 0; i < len(pairs); i += 2 {
		l[pairs[i]] = pairs[i+1]
	}
	return LabelledSeries{Labels: l, Samples: minutes(from, until, f)}
}

func constant(v float64) func(int) float64 { return func(int) float64 { return v } }

// ask sends a form and returns status and body.
func ask(t *testing.T, h http.Handler, path string, pairs ...string) (int, string) {
	t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	r := httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func unix(t time.Time) string { return fmt.Sprint(t.Unix()) }

func TestBackfilledWeeksAreThereAtOnceAndAfterReopening(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().Truncate(time.Minute)
	from := now.Add(-5 * 24 * time.Hour)
	s := open(t, Config{Dir: dir})
	var done, total int
	err := s.Backfill(t.Context(), []LabelledSeries{
		gauge("a", from, now, func(i int) float64 { return float64(i) }, "caller", "x"),
		gauge("a", from.Add(24*time.Hour), now, constant(1), "caller", "y"),
	}, func(d, n int) { done, total = d, n })
	if err != nil {
		t.Fatal(err)
	}
	if done != total || total < 2*2 { // a block at least, and the live part
		t.Errorf("progress ended at %d of %d", done, total)
	}
	check := func(s *Server) {
		t.Helper()
		_, body := ask(t, s.Handler(), "/api/v1/query", "query", `count_over_time(a[6d])`, "time", unix(now))
		want := fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"caller":"x"},"value":[%d,"7200"]},{"metric":{"caller":"y"},"value":[%d,"5760"]}]}}`, now.Unix(), now.Unix())
		if body != want {
			t.Errorf("got  %s\nwant %s", body, want)
		}
		newest, err := s.Newest(t.Context(), "a")
		if err != nil || !newest.Equal(now) {
			t.Errorf("newest %v, %v; want %v", newest, err, now)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(open(t, Config{Dir: dir}))
}

func TestLiveSamplesFollowABackfillAndSurviveAnother(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().Truncate(time.Second)
	s := open(t, Config{Dir: dir})
	if err := s.Backfill(t.Context(), []LabelledSeries{gauge("m", now.Add(-72*time.Hour), now.Add(-48*time.Hour), constant(1))}, nil); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "live"})
	reg.MustRegister(g)
	if err := s.scrape(t.Context(), reg, newTarget(map[string]string{"job": "j"}), now); err != nil {
		t.Fatal(err)
	}
	// A later backfill fills the gap up to the live samples and past them.
	if err := s.Backfill(t.Context(), []LabelledSeries{gauge("m", now.Add(-48*time.Hour), now.Add(time.Minute), constant(2))}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	for query, want := range map[string]string{
		`count_over_time(m[80h])`: `"4320"]`, // 72 h of minutes; the last one lies after now
		`live`:                    `"metric":{"__name__":"live","job":"j"}`,
		`up`:                      `"1"]`,
	} {
		if _, body := ask(t, s.Handler(), "/api/v1/query", "query", query, "time", unix(now.Add(30*time.Second))); !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %s", query, body, want)
		}
	}
}

func TestNewestOfAnUnknownMetricIsZero(t *testing.T) {
	s := open(t, Config{})
	if at, err := s.Newest(t.Context(), "nothing"); err != nil || !at.IsZero() {
		t.Errorf("%v, %v", at, err)
	}
}

func TestBackfillStopsWithItsContext(t *testing.T) {
	s := open(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	err := s.Backfill(ctx, []LabelledSeries{gauge("a", now.Add(-10*24*time.Hour), now, func(i int) float64 {
		if i == 5000 {
			cancel()
		}
		return 1
	})}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.config.Dir, "backfill.tmp-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A backfill that was killed is no part of the store; its folder goes when the
// store is opened again, and nothing else does.
func TestWhatAKilledBackfillLeftIsRemoved(t *testing.T) {
	dir := t.TempDir()
	block := filepath.Join(dir, "backfill.tmp-1", "01K", "chunks")
	if err := os.MkdirAll(block, 0o755); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(dir, "notes")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Dir: dir})
	if _, err := os.Stat(filepath.Dir(filepath.Dir(block))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}

func TestErrorsAreWordedAsPrometheusDoes(t *testing.T) {
	s := open(t, Config{MaxSamples: 50})
	now := time.Now().Truncate(time.Minute)
	var series []LabelledSeries
	for i := range 10 {
		series = append(series, gauge("a", now.Add(-time.Hour), now, constant(1), "i", fmt.Sprint(i)))
	}
	if err := s.Backfill(t.Context(), series, nil); err != nil {
		t.Fatal(err)
	}
	week := func(step string) []string {
		return []string{"query", "a", "start", unix(now.Add(-8 * 24 * time.Hour)), "end", unix(now), "step", step}
	}
	for _, c := range []struct {
		name, path string
		form       []string
		status     int
		kind, says string
	}{
		{"syntax", "query", []string{"query", "a{"}, 400, "bad_data", `invalid parameter \"query\"`},
		{"no query", "query", nil, 400, "bad_data", "no expression found"},
		{"points", "query_range", week("60"), 400, "bad_data", "exceeded maximum resolution of 11,000 points"},
		{"end before start", "query_range", []string{"query", "a", "start", "10", "end", "9", "step", "1"}, 400, "bad_data", "end timestamp must not be before start time"},
		{"zero step", "query_range", []string{"query", "a", "start", "9", "end", "10", "step", "0"}, 400, "bad_data", "zero or negative"},
		{"bad start", "query_range", []string{"query", "a", "start", "x", "end", "10", "step", "1"}, 400, "bad_data", `invalid parameter \"start\"`},
		{"NaN step", "query_range", []string{"query", "a", "start", "9", "end", "10", "step", "NaN"}, 400, "bad_data", "step"},
		{"too many samples", "query_range", week("3600")[:0:0], 0, "", ""},
		{"execution", "query", []string{"query", "a * on() a", "time", unix(now)}, 422, "execution", "many-to-many"},
		{"no match", "series", nil, 400, "bad_data", "no match[] parameter provided"},
		{"empty match", "series", []string{"match[]", `{x=""}`}, 400, "bad_data", "at least one non-empty matcher"},
		{"limit", "series", []string{"match[]", "a", "limit", "-1"}, 400, "bad_data", "limit"},
		{"label", "label/%FF/values", nil, 400, "bad_data", "invalid label name"},
		{"timeout", "query", []string{"query", "a", "timeout", "0.000000001"}, 503, "timeout", ""},
		{"form too large", "query", []string{"query", strings.Repeat("a", maxForm)}, 400, "bad_data", "too large"},
	} {
		if c.status == 0 {
			c.path, c.form, c.status, c.kind, c.says = "query_range", []string{"query", "a", "start", unix(now.Add(-time.Hour)), "end", unix(now), "step", "60"}, 422, "execution", "too many samples"
		}
		t.Run(c.name, func(t *testing.T) {
			status, body := ask(t, s.Handler(), "/api/v1/"+c.path, c.form...)
			if status != c.status || !strings.Contains(body, `{"status":"error","errorType":"`+c.kind+`"`) || !strings.Contains(body, c.says) || !json.Valid([]byte(body)) {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

func TestNamesAndSeriesAreListed(t *testing.T) {
	s := open(t, Config{})
	now := time.Now().Truncate(time.Minute)
	odd := "a\"}\n\\\x00é"
	err := s.Backfill(t.Context(), []LabelledSeries{
		gauge("a", now.Add(-time.Hour), now, constant(1), "caller", odd),
		gauge("b", now.Add(-time.Hour), now, constant(1), "procedure", "p"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	quoted, _ := json.Marshal(odd)
	for _, c := range []struct {
		path string
		form []string
		want string
	}{
		{"labels", nil, `["__name__","caller","procedure"]`},
		{"labels", []string{"match[]", "a"}, `["__name__","caller"]`},
		{"label/__name__/values", nil, `["a","b"]`},
		{"label/__name__/values", []string{"limit", "1"}, `["a"]`},
		{"label/caller/values", []string{"match[]", "a", "match[]", "b"}, "[" + string(quoted) + "]"},
		{"series", []string{"match[]", "b"}, `[{"__name__":"b","procedure":"p"}]`},
		{"series", []string{"match[]", "a", "end", unix(now.Add(-3 * time.Hour)), "start", unix(now.Add(-4 * time.Hour))}, `[]`},
	} {
		_, body := ask(t, s.Handler(), "/api/v1/"+c.path, c.form...)
		if !strings.HasPrefix(body, `{"status":"success","data":`+c.want) {
			t.Errorf("%s %v: %s, want %s", c.path, c.form, body, c.want)
		}
	}
	if _, body := ask(t, s.Handler(), "/api/v1/query", "query", "rate(a[5m])", "time", unix(now)); !strings.Contains(body, `"infos":["PromQL info`) {
		t.Errorf("no info about the rate of a gauge: %s", body)
	}
}

func TestAnswersAreGzippedOnlyForThoseWhoAsk(t *testing.T) {
	h := open(t, Config{}).Handler()
	for accept, want := range map[string]string{"": "", "gzip": "gzip", "identity, gzip;q=0": "", "br, gzip;q=0.5": "gzip"} {
		r := httptest.NewRequest("GET", "/api/v1/query?query=1", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding"); got != want {
			t.Errorf("Accept-Encoding %q: Content-Encoding %q, want %q", accept, got, want)
		}
		if want == "" && !strings.HasPrefix(w.Body.String(), `{"status":"success","data":{"resultType":"scalar","result":[`) {
			t.Errorf("body %s", w.Body)
		}
	}
}

func TestQueriesBeyondTheirTurnsWait(t *testing.T) {
	s := open(t, Config{MaxQueries: 1})
	s.turns <- struct{}{} // one is being evaluated
	status, body := ask(t, s.Handler(), "/api/v1/query", "query", "1", "timeout", "10ms")
	if status != 503 || !strings.Contains(body, `"errorType":"timeout"`) {
		t.Errorf("%d %s", status, body)
	}
	<-s.turns
	if status, body := ask(t, s.Handler(), "/api/v1/query", "query", "1"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}

func TestAClosedServerSaysSo(t *testing.T) {
	s := open(t, Config{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if status, body := ask(t, s.Handler(), "/api/v1/query", "query", "1"); status != 503 {
		t.Errorf("%d %s", status, body)
	}
	r := httptest.NewRecorder()
	s.Handler().ServeHTTP(r, httptest.NewRequest("GET", "/-/ready", nil))
	if r.Code != 503 {
		t.Errorf("ready: %d", r.Code)
	}
	if err := s.Backfill(t.Context(), nil, nil); !errors.Is(err, errClosed) {
		t.Errorf("backfill: %v", err)
	}
}

func TestAVanishedSeriesIsMarkedStale(t *testing.T) {
	s := open(t, Config{})
	reg := prometheus.NewRegistry()
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"caller"})
	reg.MustRegister(vec)
	vec.WithLabelValues("x").Set(3)
	vec.WithLabelValues("y").Set(4)
	target, now := newTarget(map[string]string{"job": "enforcer"}), time.Now().Truncate(time.Second)
	if err := s.scrape(t.Context(), reg, target, now); err != nil {
		t.Fatal(err)
	}
	vec.DeleteLabelValues("x")
	if err := s.scrape(t.Context(), reg, target, now.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, body := ask(t, s.Handler(), "/api/v1/query", "query", "g", "time", unix(now.Add(time.Second))); strings.Contains(body, `"x"`) || !strings.Contains(body, `{"__name__":"g","caller":"y","job":"enforcer"}`) {
		t.Errorf("after x was deleted: %s", body)
	}
}

func TestAFailingGathererIsDown(t *testing.T) {
	s := open(t, Config{})
	now := time.Now().Truncate(time.Second)
	broken := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("boom") })
	if err := s.scrape(t.Context(), broken, newTarget(nil), now); err == nil {
		t.Error("no error")
	}
	if _, body := ask(t, s.Handler(), "/api/v1/query", "query", "up", "time", unix(now)); !strings.Contains(body, `"0"]`) {
		t.Errorf("up: %s", body)
	}
}

func TestARecordingRuleStoresUnderItsName(t *testing.T) {
	s := open(t, Config{})
	now := time.Now().Truncate(time.Minute)
	err := s.Backfill(t.Context(), []LabelledSeries{
		gauge("a", now.Add(-time.Hour), now, constant(2), "caller", "x", "pod", "1"),
		gauge("a", now.Add(-time.Hour), now, constant(3), "caller", "x", "pod", "2"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.record(t.Context(), Rule{"caller:a:sum", "sum by (caller) (a)"}, newTarget(nil), now); err != nil {
		t.Fatal(err)
	}
	if _, body := ask(t, s.Handler(), "/api/v1/query", "query", "caller:a:sum", "time", unix(now)); !strings.Contains(body, `{"metric":{"__name__":"caller:a:sum","caller":"x"},"value":[`+unix(now)+`,"5"]}`) {
		t.Error(body)
	}
	for _, bad := range []Rule{{"ok", "sum("}, {"not ok", "1"}} {
		if err := s.Record(t.Context(), []Rule{bad}, time.Minute); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

func TestScrapeAndRecordEndWithTheirContext(t *testing.T) {
	s := open(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- s.Scrape(ctx, prometheus.NewRegistry(), time.Hour, nil) }()
	go func() { ended <- s.Record(ctx, []Rule{{"one", "1"}}, time.Hour) }()
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestRemoteReadStreamsChunks(t *testing.T) {
	s := open(t, Config{})
	now := time.Now().Truncate(time.Minute)
	from := now.Add(-26 * time.Hour)
	if err := s.Backfill(t.Context(), []LabelledSeries{
		gauge("a", from, now, func(i int) float64 { return float64(i) }, "caller", "x"),
		gauge("b", from, now, constant(1)),
	}, nil); err != nil {
		t.Fatal(err)
	}
	req := prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
		Queries: []*prompb.Query{{StartTimestampMs: from.UnixMilli(), EndTimestampMs: now.UnixMilli(),
			Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_EQ, Name: "__name__", Value: "a"}}}},
	}
	raw, err := req.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/read", bytes.NewReader(snappy.Encode(nil, raw))))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse" {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	count, sum := 0, 0.0
	for body := w.Body; body.Len() > 0; {
		n, err := binary.ReadUvarint(body)
		if err != nil {
			t.Fatal(err)
		}
		check := binary.BigEndian.Uint32(body.Next(4))
		frame := body.Next(int(n))
		if crc32.Checksum(frame, crc32.MakeTable(crc32.Castagnoli)) != check {
			t.Fatal("checksum")
		}
		var res prompb.ChunkedReadResponse
		if err := res.Unmarshal(frame); err != nil {
			t.Fatal(err)
		}
		for _, c := range res.ChunkedSeries[0].Chunks {
			chunk, err := chunkenc.FromData(chunkenc.EncXOR, c.Data)
			if err != nil {
				t.Fatal(err)
			}
			for it := chunk.Iterator(nil); it.Next() != chunkenc.ValNone; {
				at, v := it.At()
				if want := from.Add(time.Duration(v+1) * time.Minute).UnixMilli(); at != want {
					t.Fatalf("sample %g at %d, want %d", v, at, want)
				}
				count++
				sum += v
			}
		}
	}
	if count != 26*60 || sum != 1559*1560/2 {
		t.Errorf("%d samples of sum %g", count, sum)
	}
	for name, body := range map[string][]byte{"not snappy": {1, 2}, "samples only": snappy.Encode(nil, nil)} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/read", bytes.NewReader(body)))
		if w.Code != 400 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

func TestNumbersAndTimesAreWrittenAsPrometheusWritesThem(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1e21: "1e+21", 1e20: "100000000000000000000", 1e-7: "1e-07", 0.1: "0.1", math.Inf(1): "+Inf", -2.5: "-2.5"} {
		var b bytes.Buffer
		e := &encoder{w: &b}
		e.point(-1500, v)
		e.flush()
		if got := b.String(); got != `[-1.500,"`+want+`"]` && got != `[-1.5,"`+want+`"]` {
			t.Errorf("%g: %s", v, got)
		}
	}
}

// TestTheSameQueriesGiveTheSameAnswersAsPrometheus reads the same blocks with
// Debian's Prometheus.
func TestTheSameQueriesGiveTheSameAnswersAsPrometheus(t *testing.T) {
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus on this machine")
	}
	dir := t.TempDir()
	s := open(t, Config{Dir: filepath.Join(dir, "ours")})
	end := time.Now().Truncate(2 * time.Hour).Add(-time.Minute)
	if err := s.Backfill(t.Context(), []LabelledSeries{
		gauge("requests_total", end.Add(-30*time.Hour), end, func(i int) float64 { return float64(i%900) * 17.25 }, "caller", "x"),
		gauge("requests_total", end.Add(-20*time.Hour), end, func(i int) float64 { return float64(i) / 3 }, "caller", "y\n\"é"),
	}, nil); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(dir, "theirs")
	blocks, err := filepath.Glob(filepath.Join(dir, "ours", "01*"))
	if err != nil || len(blocks) == 0 {
		t.Fatal("no blocks", err)
	}
	for _, b := range blocks {
		if err := os.CopyFS(filepath.Join(theirs, filepath.Base(b)), os.DirFS(b)); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := porttest.Free(t)
	cmd := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+theirs, "--web.listen-address="+addr, "--storage.tsdb.retention.time=40d", "--log.level=error")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	ready := time.Now().Add(20 * time.Second)
	for {
		res, err := client.Get("http://" + addr + "/-/ready")
		if err == nil {
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.StatusCode == 200 {
				break
			}
		}
		if time.Now().After(ready) {
			t.Fatal("prometheus does not get ready")
		}
	}
	// Half a minute beside the samples: ranges of 2.x are closed at both ends,
	// those of 3.x are open on the left.
	off := end.Add(-30 * time.Second)
	start := unix(off.Add(-25 * time.Hour))
	for _, q := range []string{
		"/api/v1/query?query=requests_total&time=" + unix(end),
		"/api/v1/query?query=1e20&time=" + unix(end),
		"/api/v1/query?query=%22x%22&time=" + unix(end),
		"/api/v1/query?query=requests_total%5B3m%5D&time=" + unix(off),
		"/api/v1/query_range?query=rate(requests_total%5B5m%5D)&step=60&start=" + start + "&end=" + unix(off),
		"/api/v1/query_range?query=sum(rate(requests_total%5B2m%5D))/0&step=3600&start=" + start + "&end=" + unix(off),
		"/api/v1/query_range?query=nothing&step=60&start=" + start + "&end=" + unix(off),
		"/api/v1/query_range?query=requests_total&step=1&start=" + start + "&end=" + unix(off),
		"/api/v1/series?match[]=requests_total",
		"/api/v1/labels",
		"/api/v1/label/caller/values",
		"/api/v1/query_range?query=requests_total&step=1",
		"/api/v1/query?query=requests_total*on()requests_total&time=" + unix(end),
	} {
		res, err := client.Get("http://" + addr + q)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := io.ReadAll(res.Body)
		res.Body.Close()
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", q, nil))
		var a, b any
		if err := errors.Join(json.Unmarshal(want, &a), json.Unmarshal(w.Body.Bytes(), &b)); err != nil {
			t.Fatal(err)
		}
		if w.Code != res.StatusCode || !same(a, b) {
			t.Errorf("%s\nours   %d %.300s\ntheirs %d %.300s", q, w.Code, w.Body, res.StatusCode, want)
		}
	}
}

// same compares decoded answers: all they hold but the wording of errors and
// the infos that 2.x does not have; numbers to the twelfth digit.
func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return false
		}
		delete(b, "infos")
		for k, v := range a {
			if k != "error" && !same(v, b[k]) {
				return false
			}
		}
		return len(a) == len(b)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !same(a[i], b[i]) {
				return false
			}
		}
		return true
	case string:
		b, ok := b.(string)
		if !ok {
			return false
		}
		x, err1 := strconv.ParseFloat(a, 64)
		y, err2 := strconv.ParseFloat(b, 64)
		return a == b || err1 == nil && err2 == nil && math.Abs(x-y) <= 1e-12*math.Abs(x)
	}
	return a == b
}

func TestTheEnginesDailyWorkIsLoggedForDebuggingOnly(t *testing.T) {
	for level, want := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true} {
		var log bytes.Buffer
		s := open(t, Config{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := log.Len() > 0; got != want || strings.Contains(log.String(), "level=INFO") {
			t.Errorf("at %v: %q", level, log.String())
		}
	}
}
