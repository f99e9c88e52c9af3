package promhistory

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

func streaming(c *Config) { c.RangeOnly = false }

func isRead(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/api/v1/read") }

// onRead answers remote reads only.
func onRead(answer func(w http.ResponseWriter, nth int)) func(http.ResponseWriter, *http.Request, url.Values) bool {
	n := 0
	return func(w http.ResponseWriter, r *http.Request, _ url.Values) bool {
		if !isRead(r) {
			return false
		}
		n++
		answer(w, n)
		return true
	}
}

func streamType(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
}

// frame is a frame of one series with a sample a minute after each time.
func frame(set []prompb.Label, from time.Time, values ...float64) []byte {
	c := chunkenc.NewXORChunk()
	app, _ := c.Appender()
	for i, v := range values {
		app.Append(0, from.Add(time.Duration(i+1)*time.Minute).UnixMilli(), v)
	}
	return seal(prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{{Labels: set, Chunks: []prompb.Chunk{{Type: prompb.Chunk_XOR, Data: c.Bytes()}}}}})
}

func seal(m prompb.ChunkedReadResponse) []byte {
	b, _ := m.Marshal()
	out := binary.AppendUvarint(nil, uint64(len(b)))
	out = binary.BigEndian.AppendUint32(out, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return append(out, b...)
}

func set(client string) []prompb.Label {
	return []prompb.Label{{Name: "__name__", Value: "rate1m"}, {Name: "client", Value: client}, {Name: "service", Value: "geo"}}
}

func TestAPlainSelectorIsWhatTheParserSaysItIs(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	kinds := map[labels.MatchType]prompb.LabelMatcher_Type{
		labels.MatchEqual: prompb.LabelMatcher_EQ, labels.MatchNotEqual: prompb.LabelMatcher_NEQ,
		labels.MatchRegexp: prompb.LabelMatcher_RE, labels.MatchNotRegexp: prompb.LabelMatcher_NRE,
	}
	check := func(expr string) (plain bool, problem string) {
		got, ok := plainSelector(expr)
		if !ok {
			return false, ""
		}
		ast, err := p.ParseExpr(expr)
		v, is := ast.(*parser.VectorSelector)
		if err != nil || !is || v.OriginalOffset != 0 || v.Timestamp != nil || v.StartOrEnd != 0 {
			return true, fmt.Sprintf("%q is taken for a plain selector; the parser says %v, %T", expr, err, ast)
		}
		want := map[string]bool{}
		for _, m := range v.LabelMatchers {
			want[fmt.Sprint(m.Name, "\x00", kinds[m.Type], "\x00", m.Value)] = true
		}
		have := map[string]bool{}
		for _, m := range got {
			have[fmt.Sprint(m.Name, "\x00", m.Type, "\x00", m.Value)] = true
		}
		if !reflect.DeepEqual(want, have) {
			return true, fmt.Sprintf("%q selects %v, the parser says %v", expr, have, want)
		}
		return true, ""
	}
	for expr, want := range map[string]bool{
		`m`: true, ` job:rate1m{service="geo"} `: true, `m{a="x",b!="y",c=~"z.*",d!~"q",}`: true, `{__name__="m"}`: true,
		"m{a=`x\\d`}": true, `m{a='it"s'}`: true, `m{a="\u00e9\x41\n"}`: true, `m{ a = "x" , b="" }`: true, `m{}`: true,
		`m{a="x"} offset 5m`: false, `m[5m]`: false, `sum(m)`: false, `m or n`: false, `1`: false, `inf`: false, `{a=""}`: false, `{a=~".*"}`: false,
		`m{__name__="n"}`: false, `m @ 5`: false, `-m`: false, `"m"`: false, `{"m"}`: false, `m{a="x" b="y"}`: false, `m{a="x"}}`: false, `m{`: false, `m{a=x}`: false,
		`sum`: false, `m{a="` + "\n" + `"}`: false, ``: false, `m{"a.b"="x"}`: false, `m{,}`: false, `(m)`: false, `m{a="\xff"}`: false,
	} {
		if plain, problem := check(expr); plain != want || problem != "" {
			t.Errorf("%q: plain %t, want %t; %s", expr, plain, want, problem)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"m", "a", "{", "}", "=", "!=", "=~", "!~", ",", " ", `"x"`, `'y"'`, "`z`", `"\t\\"`, "[5m]", "offset", "sum", "(", ")", "__name__", "inf", ":", "5m", "#", "\n", `"`, "é", "or", "@"}), 1, 12).Draw(t, "parts")
		if _, problem := check(strings.Join(parts, "")); problem != "" {
			t.Fatal(problem)
		}
	})
}

func TestAServerWithoutRemoteReadIsAskedOnceAndReadByRangeQueries(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, nth int){
		"404": func(w http.ResponseWriter, _ int) { w.WriteHeader(404) },
		"405": func(w http.ResponseWriter, _ int) { w.WriteHeader(405) },
		"415": func(w http.ResponseWriter, _ int) { w.WriteHeader(415) },
		"501": func(w http.ResponseWriter, _ int) { w.WriteHeader(501) },
		"whole samples": func(w http.ResponseWriter, _ int) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write([]byte{0})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, streaming)
			f := wave(10)
			w.fill(rates(now.Add(-10*day), now, f, "client", "a"))
			reads := 0
			w.tamper = onRead(func(out http.ResponseWriter, nth int) { reads = nth; answer(out, nth) })
			same(t, "a", w.read(service(callers()), profile(), now)["callers/caller=a"], want(f))
			w.read(service(callers()), profile(), now.Add(time.Hour))
			if reads != 1 || w.ranges() < 10 {
				t.Errorf("%d remote reads and %d range queries in two runs", reads, w.ranges())
			}
		})
	}
}

func TestARunReadsOneStreamADayAndTheNextTheTailAlone(t *testing.T) {
	w := newWorld(t, streaming)
	f, g := wave(10), wave(3)
	until := now.Add(time.Hour)
	w.fill(rates(now.Add(-10*day), until, f, "client", "a"), rates(now.Add(-10*day), until, g, "client", "b"))
	reads := 0
	w.tamper = func(_ http.ResponseWriter, r *http.Request, _ url.Values) bool {
		if isRead(r) {
			reads++
		}
		return false
	}
	got := w.read(service(callers()), profile(), now)
	same(t, "a", got["callers/caller=a"], want(f))
	same(t, "b", got["callers/caller=b"], want(g))
	requests, samples := w.reader.Cost()
	steps := int64(now.Sub(now.Add(-9*day).Truncate(day)) / time.Minute)
	// Besides the days: how many label sets there are, and their labels.
	if reads != 10 || requests != 12 || samples != 2*steps || w.ranges() > 0 {
		t.Errorf("the first run took %d streams of %d requests and %d samples, %d range queries; want 10 of 12, %d and 0", reads, requests, samples, w.ranges(), 2*steps)
	}
	reads = 0
	w.read(service(callers()), profile(), until)
	more, all := w.reader.Cost()
	if tail := int64(until.Sub(until.Truncate(day)) / time.Minute); reads != 1 || more-requests != 3 || all-samples != 2*tail {
		t.Errorf("the second run took %d streams of %d requests and %d samples; want 1 of 3 and %d", reads, more-requests, all-samples, 2*tail)
	}
}

func TestABrokenStreamIsReadAgainAndLeavesNothingBehind(t *testing.T) {
	day0 := now.Add(-9 * day).Truncate(day).Add(20 * time.Hour) // of the first day that is read; it has no samples
	// What comes after a label set ends it: its samples are in by then.
	whole := append(frame(set("a"), day0, 5000, 5000), frame(set("b"), day0, 1)...)
	for name, answer := range map[string]func(w http.ResponseWriter){
		"cut": func(w http.ResponseWriter) { _, _ = w.Write(append(whole, whole[:9]...)) },
		"text": func(w http.ResponseWriter) {
			_, _ = w.Write(append(whole, "query timed out in expression evaluation, sorry for that"...))
		},
		"flipped bit": func(w http.ResponseWriter) {
			b := append([]byte{}, whole...)
			b[20] ^= 1
			_, _ = w.Write(append(whole, b...))
		},
		"broken chunk": func(w http.ResponseWriter) {
			_, _ = w.Write(append(whole, seal(prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{{Labels: set("c"), Chunks: []prompb.Chunk{{Type: prompb.Chunk_XOR, Data: []byte{0, 9, 0, 1}}}}}})...))
		},
		"503":           func(w http.ResponseWriter) { w.Header().Set("Retry-After", "3600"); w.WriteHeader(503) },
		"closed":        func(w http.ResponseWriter) { w.Header().Set("Content-Length", "999"); _, _ = w.Write(whole) },
		"never a frame": func(w http.ResponseWriter) { _, _ = w.Write(bytes.Repeat([]byte{0xff}, 64)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, streaming)
			f := wave(10)
			w.fill(rates(now.Add(-2*day).Truncate(day), now, f, "client", "a"))
			w.tamper = func(out http.ResponseWriter, r *http.Request, _ url.Values) bool {
				if !isRead(r) {
					return false
				}
				w.mu.Lock()
				w.tamper = nil
				w.mu.Unlock()
				streamType(out)
				answer(out)
				return true
			}
			h := w.read(service(callers()), profile(), now)["callers/caller=a"]
			if len(h.Problems) > 0 || len(h.Hours) < 48 {
				t.Fatalf("%d hours, problems %v", len(h.Hours), h.Problems)
			}
			for _, x := range h.Hours {
				if x.Max > 40 || x.Present < x.Expected {
					t.Errorf("hour %+v", x)
				}
			}
		})
	}
}

func TestAStreamThatStaysBrokenHoldsTheSeries(t *testing.T) {
	w := newWorld(t, streaming)
	w.fill(rates(now.Add(-2*day), now, wave(10), "client", "a"))
	reads := 0
	w.tamper = onRead(func(out http.ResponseWriter, n int) { reads = n; out.WriteHeader(503) })
	_, err := w.tryRead(t.Context(), service(callers()), profile(), now)
	if err == nil || !strings.Contains(err.Error(), "failed: ") {
		t.Errorf("%v", err)
	}
	if reads != 6 { // 24, 12, 6, 3 and 1 hour, that one twice
		t.Errorf("%d reads of a busy server, want 6", reads)
	}
}

func TestAStreamIsBounded(t *testing.T) {
	many := func(n int) func(http.ResponseWriter, int) {
		return func(w http.ResponseWriter, _ int) {
			streamType(w)
			for i := range n {
				_, _ = w.Write(frame(set(fmt.Sprint("c", i)), now.Add(-9*day).Truncate(day), 1, 2, 3))
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		answer func(http.ResponseWriter, int)
	}{
		"label sets": {func(c *Config) { c.MaxSeries = 50 }, many(60)},
		"samples":    {func(c *Config) { c.MaxSamples = 50 }, many(60)},
		"a frame":    {func(c *Config) { c.MaxBody = 10_000 }, func(w http.ResponseWriter, _ int) { streamType(w); _, _ = w.Write(binary.AppendUvarint(nil, 1<<40)) }},
		"a stream":   {func(c *Config) { c.MaxBody = 1000 }, many(400)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(cfg *Config) { streaming(cfg); c.change(cfg) })
			w.tamper = func(out http.ResponseWriter, r *http.Request, form url.Values) bool {
				switch {
				case isRead(r):
					c.answer(out, 0)
				case strings.HasSuffix(r.URL.Path, "/labels"):
					return say(`{"status":"success","data":["__name__","client","service"]}`)(out, r, form)
				default:
					return say(`{"status":"success","data":{"resultType":"vector","result":[]}}`)(out, r, form)
				}
				return true
			}
			s := service(callers())
			s.MaxQuotas = 10_000
			if _, err := w.tryRead(t.Context(), s, profile(), now); err == nil || !strings.Contains(err.Error(), "budget: ") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestALabelSetStreamedTwiceHoldsItsBucketOnly(t *testing.T) {
	w := newWorld(t, streaming)
	w.fill(rates(now.Add(-2*day), now, always(5), "client", "a"), rates(now.Add(-2*day), now, always(5), "client", "b"))
	day0 := now.Truncate(day)
	for name, frames := range map[string][][]byte{
		"one after the other": {frame(set("a"), day0, 1, 2), frame(set("a"), day0, 1, 2), frame(set("b"), day0, 3)},
		"apart":               {frame(set("a"), day0, 1, 2), frame(set("b"), day0, 3), frame(set("a"), day0.Add(time.Hour), 1)},
	} {
		w.tamper = onRead(func(out http.ResponseWriter, _ int) { streamType(out); _, _ = out.Write(bytes.Join(frames, nil)) })
		h := w.read(service(rlc.Bucket{Name: "a", Match: exact("a")}, rlc.Bucket{Name: "b", Match: exact("b")}), profile(), now)
		if strings.Join(rules(h["a"]), " ") != "duplicate" || len(rules(h["b"])) > 0 && rules(h["b"])[0] == "duplicate" {
			t.Errorf("%s: problems %v, %v", name, h["a"].Problems, h["b"].Problems)
		}
	}
	// A series that goes on in the next frame is one.
	w = newWorld(t, streaming)
	w.fill(rates(now.Add(-2*day), now, always(5), "client", "a"))
	w.tamper = onRead(func(out http.ResponseWriter, _ int) {
		streamType(out)
		_, _ = out.Write(append(frame(set("a"), day0, 1, 2), frame(set("a"), day0.Add(2*time.Minute), 3, 4)...))
	})
	h := w.read(service(callers()), profile(), now)["callers/caller=a"]
	if len(h.Hours) != 1 || h.Hours[0].Max != 4 || h.Hours[0].Present != 4 || len(h.Problems) > 0 && h.Problems[0].Rule == "duplicate" {
		t.Errorf("%+v", h)
	}
}

func TestKeysBeyondTheMaximumAreLeftOutOfAStreamToo(t *testing.T) {
	for _, rangeOnly := range []bool{true, false} {
		w := newWorld(t, func(c *Config) { c.RangeOnly = rangeOnly })
		for i := range 6 {
			w.fill(rates(now.Add(-3*day), now, always(float64(1+i*i*i*10)), "client", fmt.Sprint("c", i)))
		}
		s := service(callers())
		s.MaxQuotas = 2
		got := w.read(s, profile(), now)
		if len(got) != 3 || len(got["callers/caller=c4"].Hours) < 70 || len(got["callers/caller=c5"].Hours) < 70 || !strings.Contains(got["callers"].Problems[0].Detail, "4 keys of caller") {
			t.Errorf("range queries only %t: series %v, problems %v", rangeOnly, keysOf(got), got["callers"].Problems)
		}
	}
}

func FuzzAStreamNeverPanics(f *testing.F) {
	f.Add(frame(set("a"), now, 1, 2, math.NaN()))
	f.Add([]byte("remote read: no"))
	f.Fuzz(func(t *testing.T, b []byte) {
		g := &grid{from: now.UnixMilli(), step: 60_000, times: make([]int64, 60), values: make([]float64, 60), most: 1000}
		feed := func(p *piece) error {
			_, _ = labelSet(p.labels)
			g.begin()
			return g.add(p.chunks)
		}
		_ = frames(bufio.NewReader(bytes.NewReader(b)), 1<<20, feed)
		// The same bytes where no checksum stands before them.
		_ = feed(&piece{chunks: []xorChunk{{encoding: int32(prompb.Chunk_XOR), data: b}}})
		var m prompb.ChunkedReadResponse
		if m.Unmarshal(b) == nil {
			_ = frames(bufio.NewReader(bytes.NewReader(seal(m))), 1<<20, feed)
		}
	})
}
