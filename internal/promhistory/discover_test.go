package promhistory

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/promserver"
)

// minutes is a rate over the six hours before now.
func minutes(service, client, method string, rate float64) promserver.LabelledSeries {
	var samples iter.Seq2[int64, float64] = func(yield func(int64, float64) bool) {
		for at := now.Add(-6 * time.Hour); !at.After(now); at = at.Add(time.Minute) {
			if !yield(at.UnixMilli(), rate) {
				return
			}
		}
	}
	return promserver.LabelledSeries{Labels: map[string]string{"__name__": "rate1m", "service": service, "client": client, "method": method}, Samples: samples}
}

func TestServicesAndTheirTrafficAreFoundFromTheMetrics(t *testing.T) {
	w := newWorld(t, nil)
	hostile := `a"} or up{x="`
	if err := w.prom.Backfill(t.Context(), []promserver.LabelledSeries{
		minutes("geo", "web", "Get", 4), minutes("geo", "batch", "Get", 6), minutes(hostile, "web", "Get", 1),
		minutes("__other__", "web", "Get", 2), minutes("__unmatched__", "web", "Get", 2), // enforcers' labels
	}, nil); err != nil {
		t.Fatal(err)
	}
	p := profile()
	names, err := w.reader.Services(t.Context(), p, now.Add(-time.Hour), now)
	if want := fmt.Sprint([]string{hostile, "geo"}); err != nil || fmt.Sprint(names) != want {
		t.Errorf("services %v %v, want %v", names, err, want)
	}
	for name, want := range map[string]string{
		"geo":   "[{map[caller:batch procedure:Get] 6} {map[caller:web procedure:Get] 4}]",
		hostile: "[{map[caller:web procedure:Get] 1}]",
		"other": "[]",
	} {
		s := service(callers())
		s.Name = name
		flows, err := w.reader.Flows(t.Context(), rlc.HistoryRequest{Service: s, Profile: p, Lookback: day, Now: now}, time.Hour)
		if err != nil || fmt.Sprint(flows) != want {
			t.Errorf("%s: %v %v, want %s", name, flows, err, want)
		}
	}
	// Two label sets, one minute each, over two UTC days.
	b, err := w.reader.Bill(t.Context(), rlc.HistoryRequest{Service: service(callers()), Profile: p, Lookback: day, Now: now})
	if err != nil || b.LabelSets != 2 || b.Queries != 2 || b.Trouble != "" || b.Samples < 2*1440 || b.Samples > 2*2880 {
		t.Errorf("bill %+v %v", b, err)
	}
	p.Sources = []string{`sum(rate1m)`}
	if _, err := w.reader.Services(t.Context(), p, now.Add(-time.Hour), now); err == nil {
		t.Error("services listed by a source that names none")
	}
}

// A pod that lived for an hour of the day adds an hour's requests to the day's mean,
// and two that took turns are as much as one; hours before the first sample are not
// zeroes. What is gone by now is in the bill all the same.
func TestTrafficThatComesAndGoesIsCountedForItsTime(t *testing.T) {
	w := newWorld(t, nil)
	pod := func(name string, rate float64, from, until time.Duration) promserver.LabelledSeries {
		return promserver.LabelledSeries{
			Labels: map[string]string{"__name__": "rate1m", "service": "geo", "client": name, "method": "Get"},
			Samples: func(yield func(int64, float64) bool) {
				for at := now.Add(-from); at.Before(now.Add(-until)); at = at.Add(time.Minute) {
					if !yield(at.UnixMilli(), rate) {
						return
					}
				}
			},
		}
	}
	// Ten hours are known: 60/s for one of them; 40/s from one pod, then the other.
	if err := w.prom.Backfill(t.Context(), []promserver.LabelledSeries{
		pod("short", 60, 5*time.Hour, 4*time.Hour), pod("first", 40, 12*time.Hour, 7*time.Hour), pod("second", 40, 7*time.Hour, 2*time.Hour),
	}, nil); err != nil {
		t.Fatal(err)
	}
	req := rlc.HistoryRequest{Service: service(callers()), Profile: profile(), Lookback: day, Now: now}
	req.Service.Name = "geo"
	flows, err := w.reader.Flows(t.Context(), req, day)
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, f := range flows {
		total += float64(f.Rate)
	}
	if len(flows) != 3 || total < 45 || total > 47 { // (60·1 + 40·10)/10, and what a look back of five minutes adds at each end
		t.Errorf("%v add up to %g/s, want 46", flows, total)
	}
	if b, err := w.reader.Bill(t.Context(), req); err != nil || b.LabelSets < 1 || b.Samples < 1440 || b.Trouble != "" {
		t.Errorf("bill %+v %v", b, err)
	}
	labels, err := w.reader.Labels(t.Context(), req.Profile, "geo", now.Add(-day), now)
	if fmt.Sprint(labels) != "[client method service]" || err != nil {
		t.Errorf("labels %v %v", labels, err)
	}
}
