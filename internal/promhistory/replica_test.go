package promhistory

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/promserver"
)

// A13: two servers that scrape the same behind one URL. With the label that
// tells them apart configured, each request counts once, also while one of the
// two was away.
func TestReplicasOfAPairCountOnce(t *testing.T) {
	replica := func(c *Config) { c.Replica, c.RangeOnly = "prometheus_replica", false }
	from := now.Add(-3 * day).Truncate(day)
	f := wave(10)
	away := func(t time.Time) bool { return t.After(now.Add(-30*time.Hour)) && t.Before(now.Add(-28*time.Hour)) }
	fill := func(w *world) {
		var all []promserver.LabelledSeries
		for n, name := range []string{"p0", "p1"} {
			g := f
			if n == 0 {
				g = func(t time.Time) float64 {
					if away(t) {
						return math.NaN()
					}
					return f(t)
				}
			}
			all = append(all, rates(from, now, g, "client", "a", "prometheus_replica", name), metric("dropped", from, now, always(4), "service", "geo", "client", "a", "prometheus_replica", name))
		}
		w.fill(all...)
	}
	p := profile()
	p.Refused = `dropped{service="${service}"}`
	w := newWorld(t, replica)
	fill(w)
	got := w.read(service(callers()), p, now)["callers/caller=a"]

	single := newWorld(t, nil)
	single.fill(rates(from, now, f, "client", "a"), metric("dropped", from, now, always(4), "service", "geo", "client", "a"))
	want := single.read(service(callers()), p, now)["callers/caller=a"]
	if !reflect.DeepEqual(got.Hours, want.Hours) || !reflect.DeepEqual(got.Tail, want.Tail) || len(got.Problems) > 0 || len(got.Hours) < 72 {
		t.Errorf("%d hours, the last %+v, problems %v; one server alone gives %d, %+v", len(got.Hours), last(got.Hours), got.Problems, len(want.Hours), last(want.Hours))
	}

	// Setting the label makes the doubled sketches of before others' series.
	w.reader.cfg.Replica = ""
	doubled := w.read(service(callers()), p, now)["callers/caller=a"]
	if h := last(doubled.Hours).Max; h < 1.9*last(got.Hours).Max {
		t.Errorf("without the label the last hour's highest is %v, want about twice %v", h, last(got.Hours).Max)
	}
}

func last(all []rlc.Hour) (h rlc.Hour) {
	if len(all) > 0 {
		h = all[len(all)-1]
	}
	return h
}

func TestWhatEnforcersCountedIsNotDoubledByAPair(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Replica = "replica" })
	at := time.Now().UTC().Truncate(time.Minute)
	counter := func(t time.Time) float64 { return float64(t.Unix()-at.Add(-48*time.Hour).Unix()) / 6 } // 10 a minute
	pair := func(name string) promserver.LabelledSeries {
		return metric(requestsTotal, at.Add(-48*time.Hour), at, counter, "service", "geo", "bucket", "callers", "caller", "a", "outcome", "drop", "replica", name)
	}
	w.fill(pair("p0"), pair("p1")) // at once: the store takes nothing older than its newest hour
	got, err := w.reader.Counts(t.Context(), "geo", day, at)
	if err != nil || len(got) != 1 || got[0].Drops != 14400 {
		t.Errorf("counted %+v, %v; want 14400 drops", got, err)
	}
}

func TestDoctorSeesWhetherAPairIsCountedTwice(t *testing.T) {
	counter := func(t time.Time) float64 { return float64(t.Unix() % 1e6) }
	for _, c := range []struct {
		replica, source string
		level           Level
	}{
		{"", `rate1m{service="${service}"}`, Fail},
		{"replica", `rate1m{service="${service}"}`, OK},
		{"", `max without (replica) (rate1m{service="${service}"})`, OK},
		{"", `sum by (client) (rate(http_total{service="${service}"}[5m]))`, Fail},
		{"", `sum by (client) (max without (replica) (rate(http_total{service="${service}"}[5m])))`, OK},
		{"replica", `sum by (client) (rate(http_total{service="${service}"}[5m]))`, Fail}, // it has to say so itself
		{"pair", `rate1m{service="${service}"}`, Fail},                                    // another label
		{"", `sum by (client) (rate(plain_total[5m]))`, Fail},
	} {
		t.Run(fmt.Sprint(c.replica, " ", c.source), func(t *testing.T) {
			w := newWorld(t, func(x *Config) { x.Replica = c.replica })
			for _, name := range []string{"p0", "p1"} {
				w.fill(rates(now.Add(-2*day), now, always(5), "client", "a", "replica", name),
					metric("http_total", now.Add(-2*day), now, counter, "service", "geo", "client", "a", "replica", name),
					metric("plain_total", now.Add(-2*day), now, counter, "client", "a", "replica", name))
			}
			p := profile()
			p.Sources = []string{c.source}
			if f := w.diagnose(service(callers()), p, 2*day)["replicas"]; f.Level != c.level {
				t.Errorf("%+v, want %s", f, c.level)
			}
		})
	}
}

func TestAReplicaLabelMustBeALabel(t *testing.T) {
	for _, bad := range []string{"a b", "a) (x", "1a", "ä", "a,b"} {
		if _, err := New(Config{URL: "http://x", Store: reader(t, "http://x", Config{}).cfg.Store, Replica: bad}); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%q: %v, want it refused", bad, err)
		}
	}
}
