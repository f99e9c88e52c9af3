package audit

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

var now = time.Date(2026, 3, 30, 0, 0, 0, 0, time.UTC)

// steady is days of traffic at a rate, one hour a day at its peak.
func steady(days int, rate, peak rlc.Rate) rlc.History {
	h := rlc.History{Step: time.Minute, From: now.Add(-time.Duration(days) * 24 * time.Hour), Until: now, Newest: now, TailFloor: rate + 0.001}
	for at := h.From; at.Before(now); at = at.Add(time.Hour) {
		x := rlc.Hour{Start: at, Max: rate, P99: rate, Mean: rate, Present: 60, Expected: 60}
		if at.Hour() == 12 && peak > rate {
			x.Max, x.P99, x.Mean = peak, peak, peak
			for m := range 60 {
				h.Tail = append(h.Tail, rlc.Sample{Time: at.Add(time.Duration(m) * time.Minute), Rate: peak})
			}
		}
		h.Hours = append(h.Hours, x)
	}
	return h
}

func csvLimits(t *testing.T, lines ...string) Limits {
	t.Helper()
	all, err := ReadCSV(strings.NewReader("service,caller,procedure,rate,burst\n" + strings.Join(lines, "\n")))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

// Peak 20/s at noon for an hour, 10/s else, 28 days. A limit of 15/s with 30
// tokens drops (20−15)·60 s each of 60 minutes less its 30 tokens, each day.
func TestEveryLimitGetsItsVerdict(t *testing.T) {
	l := csvLimits(t, "geo,tight,,15,30", "geo,fine,,30,60", "geo,loose,,61,100", "geo,met,,20,40", "geo,gone,,5,10")
	s, err := New(l.Service, l.Quotas, []string{"caller"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	var table Table
	for _, caller := range []string{"tight", "fine", "loose", "met", "free"} {
		row, ok, err := s.Row(t.Context(), rlc.Series{Bucket: "each-caller", Key: rlc.Key{"caller": caller}, History: steady(28, 10, 20)}, now)
		if err != nil || !ok {
			t.Fatal(caller, ok, err)
		}
		got[caller] = fmt.Sprintf("%s %.0f", row.Verdict, row.Drops)
		if row.Suggested == nil || row.Suggested.Rate < 20 || row.Peak.Rate != 20 || row.Highest.Rate != 20 || row.Days != 28 {
			t.Errorf("%s: %+v", caller, row)
		}
		table.Add(row)
	}
	for _, row := range s.Unseen() {
		got[row.Key["caller"]] = fmt.Sprintf("%s %.0f", row.Verdict, row.Drops)
		table.Add(row)
	}
	want := map[string]string{
		"tight": "too tight 503160", // 28 × (60 × 300 − 30)
		"fine":  "fine 0", "met": "fine 0", "loose": "protects nothing 0", "free": "none 0", "gone": "unknown 0",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	table.Sort()
	var order []string
	for _, r := range table.Rows {
		order = append(order, r.Key["caller"])
	}
	if fmt.Sprint(order) != "[tight free loose fine met gone]" {
		t.Errorf("order %v", order)
	}
	table.Until, table.From = now, now.Add(-28*24*time.Hour)
	if s := table.Summary(); s != "6 limits and callers over 28 days: 1 too tight, 1 none, 1 protects nothing, 2 fine, 1 unknown." {
		t.Error(s)
	}
	// Peak 20: fits are 26 to 60, with a part in a thousand of rounding.
	if want := "1 of 4 quotas lie at 1.3 to 3 times the peak that counts, as the scorecard has it; caps and limits that stand in a policy are not among them."; table.notes()[0] != want {
		t.Errorf("%v, want %s", table.notes(), want)
	}
}

func TestWhatCannotBeBelievedIsUnknown(t *testing.T) {
	l := csvLimits(t, "geo,a,,15,30")
	s, err := New(l.Service, l.Quotas, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := steady(28, 10, 20)
	h.Problems = []rlc.HistoryProblem{{Rule: "failed", Detail: "status 503"}}
	row, ok, err := s.Row(t.Context(), rlc.Series{Bucket: "each-caller", Key: rlc.Key{"caller": "a"}, History: h}, now)
	if err != nil || !ok || row.Verdict != Unknown || row.Detail != "failed: status 503" || row.Drops != 0 {
		t.Errorf("%+v %v %v", row, ok, err)
	}
}

func TestTrafficWithoutALimitTakesNothingFromABucket(t *testing.T) {
	procedure := rlc.Bucket{Name: "create", Role: rlc.QuotaRole, Match: map[string]rlc.Pattern{"procedure": {Kind: rlc.Exact, Values: []string{"Create"}}}, Limit: &rlc.Limit{Rate: 5, Burst: 10}}
	acme := rlc.Bucket{Name: "acme", Role: rlc.QuotaRole, Match: map[string]rlc.Pattern{"caller": {Kind: rlc.Exact, Values: []string{"acme"}}}, Limit: &rlc.Limit{Rate: 5, Burst: 10}}
	every := rlc.Bucket{Name: "callers", Role: rlc.QuotaRole, Each: []string{"caller"}, Limit: &rlc.Limit{Rate: 5, Burst: 10}}
	whole := rlc.Bucket{Name: "whole", Role: rlc.QuotaRole, Limit: &rlc.Limit{Rate: 5, Burst: 10}}
	for _, c := range []struct {
		name    string
		buckets []rlc.Bucket
		want    string // each of the rest; - for no rest
	}{
		{"none", nil, "[caller]"},
		{"a caller", []rlc.Bucket{acme}, "[caller]"},
		{"a procedure of any caller", []rlc.Bucket{acme, procedure}, "[]"},
		{"each caller", []rlc.Bucket{every}, "[]"},
		{"everything", []rlc.Bucket{acme, whole}, "-"},
	} {
		s, err := New(&rlc.Service{Name: "geo", Buckets: c.buckets}, nil, []string{"caller"})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := "-"
		if b := s.Service.Bucket(unlimited); b != nil {
			got = fmt.Sprint(b.Each)
		}
		if got != c.want {
			t.Errorf("%s: rest %s, want %s", c.name, got, c.want)
		}
	}
}

func TestLimitsByCSVAreReadStrictly(t *testing.T) {
	all, err := ReadCSV(strings.NewReader("service,caller,procedure,rate,burst\nb,x,,1.5,\na,,,10,20\na,x,Create,3,6\n"))
	if err != nil || len(all) != 2 || all[0].Service.Name != "a" || len(all[0].Service.Buckets) != 2 || all[1].Quotas[0].Limit != (rlc.Limit{Rate: 1.5, Burst: 3}) {
		t.Fatal(all, err)
	}
	for _, c := range []struct{ in, want string }{
		{"a,b\n", "line 1: want the header"},
		{"", "line 1: want the header"},
		{"service,caller,procedure,rate,burst\n,x,,1,1\n", "line 2: no service"},
		{"service,caller,procedure,rate,burst\na,x,,NaN,1\n", "line 2"},
		{"service,caller,procedure,rate,burst\na,x,,-1,1\n", "line 2"},
		{"service,caller,procedure,rate,burst\na,x,,1,1.5\n", `line 2: burst "1.5" is no whole number`},
		{"service,caller,procedure,rate,burst\na,x,,1,1\na,x,*,2,2\n", "line 3: the same service, caller and procedure as line 2"},
		{"service,caller,procedure,rate,burst\na,x\n", "line 2"},
	} {
		if _, err := ReadCSV(strings.NewReader(c.in)); !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.in, err, c.want)
		}
	}
}

func TestHostileNamesStayData(t *testing.T) {
	table := Table{Profile: "p", From: now.Add(-time.Hour), Until: now}
	table.Add(Row{Service: "<script>alert(1)</script>", Bucket: "=HYPERLINK(1)", Key: rlc.Key{"caller": "\x1b[31m\u202e"}, Verdict: None})
	var html, text, csv bytes.Buffer
	for _, err := range []error{table.WriteHTML(&html), table.WriteText(&text), table.WriteCSV(&csv)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(html.String(), "<script") || strings.Contains(html.String(), "http") {
		t.Error("the page holds a script or leads elsewhere")
	}
	if strings.ContainsAny(text.String(), "\x1b\u202e") {
		t.Error("control characters reach the terminal")
	}
	if !strings.Contains(csv.String(), "'=HYPERLINK(1)") {
		t.Error("a spreadsheet would compute a name")
	}
}

func TestATableIsBounded(t *testing.T) {
	var table Table
	for range MaxRows + 3 {
		table.Add(Row{Verdict: Fine})
	}
	if len(table.Rows) != MaxRows || table.Omitted != 3 || table.Totals[Fine] != MaxRows+3 || len(table.notes()) != 1 {
		t.Errorf("%d rows, %d omitted, %v", len(table.Rows), table.Omitted, table.Totals)
	}
}

func TestATableOfNothingHasNoHeader(t *testing.T) {
	table := Table{From: now.Add(-24 * time.Hour), Until: now}
	var text bytes.Buffer
	if err := table.WriteText(&text); err != nil || text.String() != "Nothing was found: no limit and no traffic.\n" {
		t.Errorf("%v\n%s", err, text.String())
	}
	table.Add(Row{Verdict: None})
	if s := table.Summary(); s != "1 limit or caller over 1 day: 1 none." {
		t.Error(s)
	}
}

// What stands in a policy is computed by no run: the scorecard cannot count it, and so
// the audit does not.
func TestLimitsOfAPolicyAreNotAmongTheQuotasThatFit(t *testing.T) {
	l := csvLimits(t, "geo,a,,26,52")
	svc := *l.Service
	svc.Unmatched.Limit = &rlc.Limit{Rate: 26, Burst: 52}
	s, err := New(&svc, l.Quotas, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, h := range s.limits {
		if h.quota != (id != unlimited) {
			t.Errorf("%s: a quota %v", id, h.quota)
		}
	}
	var table Table
	for _, series := range []rlc.Series{{Bucket: "each-caller", Key: rlc.Key{"caller": "a"}, History: steady(28, 10, 20)}, {Bucket: unlimited, History: steady(28, 10, 20)}} {
		row, ok, err := s.Row(t.Context(), series, now)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		table.Add(row)
	}
	if table.Known != 1 || table.Fitting != 1 {
		t.Errorf("%d of %d, want 1 of 1", table.Fitting, table.Known)
	}
}
