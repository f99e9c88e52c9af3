package audit

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// storm lifts an hour that came once to a rate.
func storm(h rlc.History, daysAgo, hour int, rate rlc.Rate) rlc.History {
	at := now.AddDate(0, 0, -daysAgo).Add(time.Duration(hour) * time.Hour)
	for i := range h.Hours {
		if x := &h.Hours[i]; x.Start.Equal(at) {
			x.Max, x.P99, x.Mean = rate, rate, rate
		}
	}
	var tail []rlc.Sample
	for _, s := range h.Tail {
		if s.Time.Before(at) {
			tail = append(tail, s)
		}
	}
	for m := range 60 {
		tail = append(tail, rlc.Sample{Time: at.Add(time.Duration(m) * time.Minute), Rate: rate})
	}
	for _, s := range h.Tail {
		if !s.Time.Before(at.Add(time.Hour)) {
			tail = append(tail, s)
		}
	}
	h.Tail = tail
	return h
}

// 20/s at noon every day and 10/s else; once, ten days ago at 03:00, 200/s for an
// hour, which the policy leaves out: 25,884,000 requests in all. Of the storm a limit drops 60 minutes of (200 − rate)
// less the burst.
func TestAStormThatIsLeftOutMakesNoLimitTooTight(t *testing.T) {
	l := csvLimits(t, "geo,tight,,15,30", "geo,fine,,30,60", "geo,loose,,70,100")
	s, err := New(l.Service, l.Quotas, []string{"caller"})
	if err != nil {
		t.Fatal(err)
	}
	h := storm(steady(28, 10, 20), 10, 3, 200)
	var got []string
	for _, caller := range []string{"tight", "fine", "loose"} {
		row, ok, err := s.Row(t.Context(), rlc.Series{Bucket: "each-caller", Key: rlc.Key{"caller": caller}, History: h}, now)
		if err != nil || !ok {
			t.Fatal(caller, ok, err)
		}
		if row.Peak.Rate != 20 || row.Highest.Rate != 200 || !row.Highest.At.Equal(now.AddDate(0, 0, -10).Add(3*time.Hour)) {
			t.Errorf("%s: the peak that counts is %+v, the highest step %+v", caller, row.Peak, row.Highest)
		}
		got = append(got, fmt.Sprintf("%s: %s %.0f, left out %.0f, fits %t: %s", caller, row.Verdict, row.Drops, math.Round(row.LeftOut), *row.Fits, row.Detail))
	}
	want := []string{
		"tight: too tight 1169130, left out 665970, fits false: would have dropped 1,169,130 requests (4.52 %), 665,970 of them in hours that are left out (spike)",
		"fine: fine 611940, left out 611940, fits true: the limit is 1.5 times the peak that counts; it would have dropped 611,940 requests (2.36 %), all in hours that are left out (spike)",
		"loose: fine 467900, left out 467900, fits false: the limit is 3.5 times the peak that counts; it would have dropped 467,900 requests (1.81 %), all in hours that are left out (spike)",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// A limit that drops what comes each day is too tight, although the policy does
// not raise it by the hours in which it dropped.
func TestWhatEnforcementDroppedCountsAgainstTheLimit(t *testing.T) {
	l := csvLimits(t, "geo,a,,15,30")
	s, err := New(l.Service, l.Quotas, []string{"caller"})
	if err != nil {
		t.Fatal(err)
	}
	h := steady(28, 10, 20)
	for i := range h.Hours {
		if h.Hours[i].Max > 10 {
			h.Hours[i].Drops = 0.25
		}
	}
	row, ok, err := s.Row(t.Context(), rlc.Series{Bucket: "each-caller", Key: rlc.Key{"caller": "a"}, History: h}, now)
	if err != nil || !ok || row.Verdict != TooTight || math.Round(row.Drops) != 503160 || row.LeftOut != 0 {
		t.Errorf("%+v %v %v", row, ok, err)
	}
}

// A cap says what a service bears: that little of it comes is no fault of it.
func TestACapIsNotJudgedByHowMuchComes(t *testing.T) {
	svc := &rlc.Service{Name: "geo", Buckets: []rlc.Bucket{{Name: "whole", Role: rlc.CapRole, Limit: &rlc.Limit{Rate: 100, Burst: 200}}}}
	s, err := New(svc, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	row, ok, err := s.Row(t.Context(), rlc.Series{Bucket: "whole", History: steady(28, 10, 20)}, now)
	want := "a cap: it says what the service bears, not what comes; the limit is 5 times the peak that counts"
	if err != nil || !ok || row.Verdict != Fine || row.Fits != nil || row.Suggested != nil || row.Detail != want {
		t.Errorf("%+v %v %v", row, ok, err)
	}
}
