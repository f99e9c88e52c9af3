package web_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

func TestWhatIsSeenOfAServiceWithoutAPolicyIsASheetToo(t *testing.T) {
	h := newFixture(t).handler(t)
	holds(t, h, "/services/ledger/onboard", `href="/services/ledger/onboard.csv"`, `href="/services/ledger/onboard.json"`)
	rows := strings.Split(get(h, "/services/ledger/onboard.csv").Body.String(), "\r\n")
	if rows[0] != "bucket,key,peak,days,coverage,rate,burst,confidence,why" || rows[1] != "callers,caller=orders,300,28,1,390,780,high,weekly peak 300 × 1.30" || len(rows) != 4 {
		t.Errorf("sheet %q", rows)
	}
	var got struct {
		Service, Profile, Each, Policy string
		Offered                        float64
		Doubts                         []string
		Limits                         []struct {
			Key        rlc.Key
			Limit      *rlc.Limit
			Confidence string
		}
	}
	if err := json.Unmarshal(get(h, "/services/ledger/onboard.json").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Service != "ledger" || got.Profile != "grpc" || got.Each != "caller" || got.Policy != "service: ledger\n" || got.Offered != 210 || len(got.Doubts) != 2 || len(got.Limits) != 2 ||
		got.Limits[1].Key["caller"] != hostile[4] || *got.Limits[1].Limit != (rlc.Limit{Rate: 36, Burst: 72}) || got.Limits[1].Confidence != "low" {
		t.Errorf("answer %+v", got)
	}
	for target, want := range map[string]int{"/services/checkout/onboard.csv": http.StatusConflict, "/services/checkout/onboard.json": http.StatusConflict, "/services/nosuch/onboard.csv": http.StatusNotFound} {
		if w := get(h, target); w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
}

func TestTheChecklistIsASheetToo(t *testing.T) {
	h := newFixture(t).handler(t)
	base := "/services/checkout/buckets/mobile-create/promote"
	holds(t, h, base, `href="`+base+`.csv"`)
	rows := strings.Split(strings.TrimSpace(get(h, base+".csv").Body.String()), "\r\n")
	if rows[0] != "name,text,ok,found,fix" || len(rows) != 7 || !strings.HasPrefix(rows[2], "shadow_days,") || !strings.Contains(rows[2], ",false,3") {
		t.Errorf("sheet %q", rows)
	}
}
