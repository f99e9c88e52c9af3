package promhistory

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/promserver"
)

// diagnose gives the findings by check; several of a check are joined.
func (w *world) diagnose(s *rlc.Service, p *rlc.Profile, lookback time.Duration) map[string]Finding {
	w.t.Helper()
	all, err := w.reader.Diagnose(w.t.Context(), rlc.HistoryRequest{Service: s, Profile: p, Lookback: lookback, Now: now})
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[string]Finding{}
	for _, f := range all {
		if had, ok := got[f.Check]; ok {
			f.Text = had.Text + "\n" + f.Text
			if had.Level != OK {
				f.Level = had.Level
			}
		}
		got[f.Check] = f
	}
	return got
}

func TestAHealthySourceGivesNothingToDo(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-10*day), now, always(3), "client", "a"), rates(now.Add(-10*day), now, always(1), "client", "b"))
	got := w.diagnose(service(callers()), profile(), 9*day)
	for check, want := range map[string]string{
		"reach": "answers", "metric": "2 label sets", "cardinality": "2 label sets", "labels": "every label set", "names": "100.0 %",
		"interval": "a sample every 1m", "retention": "9d", "replicas": "no series", "rule": "cheapest",
		"bill": "at most 28 k samples in 10 range queries; one a day later 3 k in 1", // 2 × (9 days and 15:40 h of minutes)
	} {
		if f := got[check]; f.Level != OK || f.Fix != "" || !strings.Contains(f.Text, want) {
			t.Errorf("%s: %+v, want %q", check, f, want)
		}
	}
	if len(got) != 10 {
		t.Errorf("%d checks", len(got))
	}
}

// A relabelling or a rollout ends all series and starts others.
func TestTheIntervalIsThatOfTheSamplesASeriesHas(t *testing.T) {
	replaced := now.Add(-5 * time.Minute)
	every := func(minutes int) func(time.Time) float64 {
		return func(t time.Time) float64 {
			if t.Minute()%minutes != 0 {
				return math.NaN()
			}
			return 1
		}
	}
	for _, c := range []struct {
		name   string
		series []promserver.LabelledSeries
		level  Level
		text   string
	}{
		{"all are young", []promserver.LabelledSeries{
			rates(replaced, now, always(1), "client", "a"), rates(replaced, now, always(1), "client", "b"),
		}, OK, "a sample every 1m, the step is 1m"},
		{"most are gone or young", []promserver.LabelledSeries{
			rates(now.Add(-day), now, always(1), "client", "a"),
			rates(now.Add(-day), now.Add(-40*time.Minute), always(1), "client", "b", "method", "x"), rates(now.Add(-40*time.Minute), replaced, always(1), "client", "b", "method", "y"), rates(replaced, now, always(1), "client", "b"),
		}, OK, "a sample every 1m"},
		{"young and sparse", []promserver.LabelledSeries{rates(now.Add(-7*time.Minute), now, every(2), "client", "a")}, Fail, "a sample every 2m"},
		{"old and sparse", []promserver.LabelledSeries{rates(now.Add(-day), now, every(2), "client", "a")}, Fail, "a sample every 2m, the profile's step is 1m: 50 % of the steps would be gaps"},
	} {
		w := newWorld(t, nil)
		w.fill(c.series...)
		if f := w.diagnose(service(callers()), profile(), 9*day)["interval"]; f.Level != c.level || !strings.Contains(f.Text, c.text) {
			t.Errorf("%s: %+v, want %s, %q", c.name, f, c.level, c.text)
		}
	}
}

func TestWhatIsWrongWithASourceIsNamed(t *testing.T) {
	w := newWorld(t, nil)
	counter := func(t time.Time) float64 { return float64(t.Unix() % 1e6) }
	var all []promserver.LabelledSeries
	for i := range 12 { // a twelfth has a bucket
		all = append(all, rates(now.Add(-3*day), now, always(float64(i+1)), "client", fmt.Sprint("c", i)))
	}
	for _, replica := range []string{"p0", "p1"} {
		all = append(all, metric("http_total", now.Add(-2*day), now, counter, "service", "geo", "client", "a", "replica", replica))
	}
	sparse := metric("slow", now.Add(-2*day), now, func(t time.Time) float64 {
		if t.Minute()%5 != 0 {
			return math.NaN()
		}
		return 1
	}, "service", "geo", "client", "a")
	w.fill(append(all, sparse)...)
	with := func(sources ...string) *rlc.Profile { p := profile(); p.Sources = sources; return p }
	s := service(rlc.Bucket{Name: "c11", Match: exact("c11")})
	rate := `sum by (client) (rate(http_total{service="${service}"}[5m]))`
	for _, c := range []struct {
		name    string
		service *rlc.Service
		profile *rlc.Profile
		check   string
		level   Level
		text    string
	}{
		{"no metric", s, with(`nothing{service="${service}"}`), "metric", Fail, "there is no metric nothing"},
		{"no such service", named("other", service(callers())), profile(), "metric", Fail, "though the metric rate1m has 12 label sets"},
		{"names do not join", s, profile(), "names", Fail, "15.4 % of the last hour's traffic leads to a bucket, want 99 %; of 11 label sets that do not, the worst are: {client=\"c10\", service=\"geo\"} 11/s"}, // 12 of 78
		{"a label is not there", service(rlc.Bucket{Name: "b", Match: map[string]rlc.Pattern{"procedure": {Kind: rlc.Exact, Values: []string{"x"}}}}), profile(), "labels", Fail, "no label set has procedure (label method)"},
		{"sparser than the step", service(callers()), with(`slow{service="${service}"}`), "interval", Fail, "a sample every 5m"},
		{"a window too short", service(callers()), with(`sum by (client) (rate(slow{service="${service}"}[5m])) or rate1m`), "interval", Fail, "by luck"},
		{"young", service(callers()), profile(), "retention", Warn, "1d ago, and none of 9d ago"},
		{"two replicas", service(callers()), with(rate), "replicas", Fail, "http_total comes 2 times"},
		{"no rule", service(callers()), with(rate), "rule", Warn, "record the query"},
	} {
		if f := w.diagnose(c.service, c.profile, 9*day)[c.check]; f.Level != c.level || !strings.Contains(f.Text, c.text) {
			t.Errorf("%s: %+v, want %s, %q", c.name, f, c.level, c.text)
		}
	}
	f := w.diagnose(s, profile(), 9*day)["names"]
	if n := strings.Count(f.Text, "/s"); n != 10 || strings.Contains(f.Text, `"c0"`) {
		t.Errorf("%d label sets are named: %s", n, f.Text)
	}
	// What it writes is a file that Prometheus takes.
	file := write(t, filepath.Join(t.TempDir(), "rules.yml"), w.diagnose(service(callers()), with(rate), 9*day)["rule"].Fix)
	if out, err := exec.Command("/usr/bin/promtool", "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTheBillComesBeforeAnythingLarge(t *testing.T) {
	w := newWorld(t, nil)
	w.fill(rates(now.Add(-2*day), now, always(3), "client", "a"))
	large := `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"50000"]}]}}`
	w.tamper = func(out http.ResponseWriter, r *http.Request, form url.Values) bool {
		if strings.HasPrefix(form.Get("query"), "count(") {
			return say(large)(out, r, form)
		}
		if strings.Contains(form.Get("query"), "_over_time(rate1m") && strings.HasPrefix(form.Get("query"), "avg") {
			t.Errorf("asked of 50,000 label sets: %s", form.Get("query"))
		}
		return false
	}
	got := w.diagnose(service(callers()), profile(), 28*day)
	if f := got["bill"]; f.Level != Fail || !strings.Contains(f.Text, "2.1 G samples") { // 50,000 × 28.65 days of minutes
		t.Errorf("%+v", f)
	}
	if f := got["names"]; f.Level != Warn || !strings.Contains(f.Text, "not looked at") {
		t.Errorf("%+v", f)
	}
}

func TestSelectorsAreFoundWithinAnExpression(t *testing.T) {
	for expr, want := range map[string][]selection{
		`m{a="x"}`: {{`m{a="x"}`, "m", 0}},
		`sum by (client, m) (rate(http_total{service="a}b", x='y'}[5m] offset 1h)) / on (z) group_left (q) n`: {{`http_total{service="a}b", x='y'}`, "http_total", 5 * time.Minute}, {"n", "n", 0}},
		`max without (replica) (m) > 1e3`: {{"m", "m", 0}},
		`vector(1)`:                       nil,
		`m{a="x`:                          nil,
	} {
		if got := selections(expr); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", expr, got, want)
		}
	}
}
