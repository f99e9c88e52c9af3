package promhistory

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/promserver"
	"github.com/openrlc/rlc/policies"
)

// scraped is a counter of a process that lives in [from, until), scraped every
// 15 s, at a constant rate; it begins at 0.
func scraped(from, until time.Time, perSecond float64, labels ...string) promserver.LabelledSeries {
	l := map[string]string{"__name__": "req_total", "service": "geo"}
	for i := 0; i < len(labels); i += 2 {
		l[labels[i]] = labels[i+1]
	}
	return promserver.LabelledSeries{Labels: l, Samples: func(yield func(int64, float64) bool) {
		for t := from; t.Before(until) && yield(t.UnixMilli(), perSecond*t.Sub(from).Seconds()); t = t.Add(15 * time.Second) {
		}
	}}
}

// restarting is one counter that falls back to 0 at each of the given times.
func restarting(from, until time.Time, perSecond float64, at []time.Time, labels ...string) promserver.LabelledSeries {
	s := scraped(from, until, perSecond, labels...)
	s.Samples = func(yield func(int64, float64) bool) {
		born, left := from, at
		for t := from; t.Before(until); t = t.Add(15 * time.Second) {
			for len(left) > 0 && !t.Before(left[0]) {
				born, left = left[0], left[1:]
			}
			if !yield(t.UnixMilli(), perSecond*t.Sub(born).Seconds()) {
				return
			}
		}
	}
	return s
}

// Scenario 2: a counter restarts, and deploys roll over two pods, at midnight
// and at full hours, where chunks meet, and within them. No step is negative or
// a spike, none is lost, and the length of the chunks makes no difference.
func TestResetsAndDeploysAtAChunksEdgeLeaveNoSpike(t *testing.T) {
	from, midnight := now.Add(-3*day).Truncate(day), now.Add(-day).Truncate(day)
	edges := []time.Time{midnight.Add(-90 * time.Minute), midnight, midnight.Add(time.Hour), midnight.Add(6*time.Hour + 25*time.Second), midnight.Add(12 * time.Hour)}
	all := []promserver.LabelledSeries{restarting(from, now, 10, edges, "client", "a", "pod", "only")}
	born := from
	for n, edge := range append(edges, now) {
		for pod := range 2 { // the second goes half a minute after the first
			gone := edge.Add(time.Duration(30*pod) * time.Second)
			all = append(all, scraped(born.Add(time.Duration(30*pod)*time.Second), gone, 5, "client", "b", "pod", fmt.Sprint(n, "-", pod)))
		}
		born = edge
	}
	p := profile()
	p.Sources = []string{`sum by (client) (rate(req_total{service="${service}"}[1m]))`}
	var before map[string]rlc.History
	for _, perQuery := range []int{1_000_000, 1500, 1} { // a day, some hours, an hour
		w := newWorld(t, func(c *Config) { c.SamplesPerQuery = perQuery })
		w.fill(all...)
		got := w.read(service(callers()), p, now)
		for _, caller := range []string{"a", "b"} {
			h := got["callers/caller="+caller]
			if len(h.Problems) > 0 || len(h.Hours) < 3*24 {
				t.Fatalf("%s: %d hours, problems %v", caller, len(h.Hours), h.Problems)
			}
			for i, x := range h.Hours {
				// A rate over a minute of four scrapes extrapolates by half an interval:
				// 7.5 s / 60 s on either side of a handover.
				if x.Max > 12.5 || x.Mean > 10.1 || x.Mean < 9.5 {
					t.Errorf("%s at %s: the hour's highest is %v, its mean %v, want about 10", caller, x.Start, x.Max, x.Mean)
				}
				if i > 0 && x.Present != x.Expected {
					t.Errorf("%s at %s: %d of %d steps", caller, x.Start, x.Present, x.Expected)
				}
			}
		}
		if before != nil && !reflect.DeepEqual(got, before) {
			t.Errorf("%d samples a query give another history", perQuery)
		}
		before = got
	}
}

// Scenario 18: the chunks of one service are too expensive however short they
// are. Its quotas are held, with what is known from before; another service is
// read by the same Reader as if nothing were.
func TestAServiceThatIsTooExpensiveIsHeldAlone(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"big", "geo"} {
		w.fill(metric("rate1m", now.Add(-4*day), now, always(3), "service", name, "client", "a"))
	}
	w.read(named("big", service(callers())), profile(), now.Add(-26*time.Hour))
	refused := 0
	w.tamper = func(out http.ResponseWriter, _ *http.Request, form url.Values) bool {
		if form.Get("step") == "" || !strings.Contains(form.Get("query"), `"big"`) {
			return false
		}
		refused++
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(out, `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}`)
		return true
	}
	big := w.read(named("big", service(callers())), profile(), now)["callers/caller=a"]
	if fmt.Sprint(rules(big)) != "[failed]" || !strings.Contains(big.Problems[0].Detail, "too many samples") || len(big.Hours) < 48 {
		t.Errorf("the expensive one: %d hours, problems %v", len(big.Hours), big.Problems)
	}
	if refused == 0 || refused > 7 { // 24 h, 12, 6, 3, 1 and once more
		t.Errorf("it was tried %d times", refused)
	}
	if h := w.read(service(callers()), profile(), now)["callers/caller=a"]; len(h.Problems) > 0 || len(h.Hours) < 4*24 {
		t.Errorf("the other one: %d hours, problems %v", len(h.Hours), h.Problems)
	}
	w.tamper = nil
	if h := w.read(named("big", service(callers())), profile(), now)["callers/caller=a"]; len(h.Problems) > 0 || len(h.Hours) < 4*24 {
		t.Errorf("once it is affordable: %d hours, problems %v", len(h.Hours), h.Problems)
	}
}

// Scenario 25: a quarter of the targets is down for nine days while every step
// has a sample. What Debian's Prometheus says of up decides: no decrease, not
// even one to look at.
func TestTargetsThatPrometheusSaysAreDownBlockADecrease(t *testing.T) {
	end := now.Truncate(time.Hour)
	down := func(at time.Time) bool { return !at.Before(end.Add(-12*day)) && at.Before(end.Add(-3*day)) }
	series := func(f func(time.Time) float64, labels ...string) layout {
		l := layout{labels: map[string]string{}}
		for i := 0; i < len(labels); i += 2 {
			l.labels[labels[i]] = labels[i+1]
		}
		for at := end.Add(-28 * day); at.Before(end.Add(time.Minute)); at = at.Add(time.Minute) {
			l.samples = append(l.samples, sample{at.Add(time.Minute).UnixMilli(), f(at)})
		}
		return l
	}
	all := []layout{series(func(at time.Time) float64 { return 10 + 3*math.Sin(float64(at.Unix())/86400*2*math.Pi) }, "__name__", "rate1m", "service", "geo", "client", "a")}
	for n := range 4 {
		all = append(all, series(func(at time.Time) float64 {
			if n == 3 && down(at) {
				return 0
			}
			return 1
		}, "__name__", "up", "job", "geo", "instance", fmt.Sprint("geo-", n)))
	}
	server := prometheus(t, blocks(t, all), "global: {}\n")
	w := newWorld(t, func(c *Config) { c.URL, c.RangeOnly = server, false })
	p := profile()
	p.Complete = `avg(up{job="${service}"})`
	read := map[string]rlc.History{}
	err := w.reader.Service(t.Context(), rlc.HistoryRequest{Service: service(callers()), Profile: p, Lookback: 28 * day, Now: end}, func(x rlc.Series) error {
		read[rlc.QuotaID(x.Bucket, x.Key)] = kept(x.History)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := read["callers/caller=a"]
	if !h.Targets || len(h.Problems) > 0 || len(h.Hours) < 27*24 {
		t.Fatalf("%d hours, targets known %t, problems %v", len(h.Hours), h.Targets, h.Problems)
	}
	for _, x := range h.Hours {
		want := 0
		if down(x.Start) {
			want = 60
		}
		if x.Partial != want || x.Present != x.Expected {
			t.Errorf("%s: %d of %d steps are partial, want %d", x.Start, x.Partial, x.Present, want)
		}
	}
	propose := func(h rlc.History) rlc.Change {
		kind, err := policies.Builtin().New(rlc.PolicySpec{Kind: "historical"})
		if err != nil {
			t.Fatal(err)
		}
		current := rlc.Quota{Limit: rlc.Limit{Rate: 100, Burst: 200}}
		est, err := kind.Propose(t.Context(), rlc.Input{Service: "geo", Bucket: "callers", Now: end, History: h, Current: &current.Limit})
		return policies.Guard(policies.Evidence{Service: "geo", Bucket: "callers", Now: end, Current: &current, History: h, Lookback: 28 * day}, est, err)
	}
	if c := propose(h); c.Moves() || c.Held != "coverage" || !strings.Contains(c.HeldWhy, "targets") {
		t.Errorf("proposed %v, held by %q: %s", c.New, c.Held, c.HeldWhy)
	}
	for i := range h.Hours {
		h.Hours[i].Partial = 0
	}
	if c := propose(h); !c.Moves() {
		t.Errorf("with every target up nothing would have been lowered either: held by %q: %s", c.Held, c.HeldWhy)
	}
}
