package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

const lastRun = "/runs/cron-2026-12-02T060000Z"

// newMixedRun is a world whose newest run moved quotas of checkout, held geo by
// a failed read and search by two reasons, and left media as it is. Notify moves
// as a proposal that stood before says.
func newMixedRun(t *testing.T) (h http.Handler, run rlc.Run) {
	t.Helper()
	f := newFixture(t)
	at := runAt.Add(time.Hour)
	run = rlc.Run{ID: "cron-2026-12-02T070000Z", Trigger: rlc.ByCron, Now: at, Started: at, Finished: at.Add(9 * time.Second), Result: rlc.ResultDegraded, Detail: "degraded: geo: callers/caller=web is held: the query timed out", Held: 3, Changed: 2, Total: 7}
	quota := func(service, caller string, old, new float64, held, why string) rlc.Change {
		return rlc.Change{RunID: run.ID, Service: service, Bucket: "callers", Key: rlc.Key{"caller": caller}, At: at, Old: &rlc.Limit{Rate: rlc.Rate(old), Burst: 100}, New: &rlc.Limit{Rate: rlc.Rate(new), Burst: 100}, Held: held, HeldWhy: why, Failed: held == "failed", Why: "weekly peak 100 × 1.30"}
	}
	moved := quota("checkout", "orders", 100, 130, "", "")
	f.run(t, run, []rlc.Change{
		moved, quota("checkout", "search", 100, 100, "", ""), quota("geo", "web", 100, 100, "failed", "the query timed out"),
		quota("media", "web", 100, 100, "", ""), quota("notify", "web", 100, 120, "", ""),
		quota("search", "web", 100, 100, "few_days", "2 of 7 days"), quota("search", "mobile", 100, 100, "pinned", ""),
	}, []rlc.Proposal{{ID: run.ID + "-checkout", RunID: run.ID, Service: "checkout", State: rlc.Pending, Created: at, Content: "cc", Changes: []rlc.Change{moved}}})
	return f.handler(t), run
}

func TestARunIsToldServiceByService(t *testing.T) {
	h, run := newMixedRun(t)
	here := "/runs/" + run.ID
	sheet := func(ask string) []string {
		return strings.Split(strings.TrimSpace(get(h, here+"/services.csv"+ask).Body.String()), "\r\n")
	}
	head := "service,quotas,changed,held,result,because,proposal,proposal_state"
	checkout := "checkout,2,1,0,ok,," + run.ID + "-checkout,pending"
	geo := "geo,1,0,1,degraded,1 failed: the query timed out,,"
	media, notify := "media,1,0,0,ok,,,", "notify,1,1,0,ok,,,"
	search := "search,2,0,2,ok,1 few_days: 2 of 7 days; 1 pinned: ,,"
	for ask, want := range map[string][]string{
		"":                    {head, checkout, geo, media, notify, search},
		"?only=changed":       {head, checkout, notify},
		"?only=held":          {head, geo, search},
		"?q=E&only=held":      {head, geo, search},
		"?q=med":              {head, media},
		"?q=zzz":              {head},
		"?per_page=2&page=3":  {head, search},
		"?per_page=2&page=99": {head},
	} {
		if got := sheet(ask); !slices.Equal(got, want) {
			t.Errorf("%q: got\n%s\nwant\n%s", ask, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if got, want := get(h, here+"/services.json?only=held&per_page=1").Body.String(), `{"page":1,"per_page":1,"run":"`+run.ID+`","services":[{"because":[{"failed":true,"quotas":1,"rule":"failed","why":"the query timed out"}],"changed":0,"held":1,"proposal":null,"proposal_state":null,"quotas":1,"result":"degraded","service":"geo"}],"total":2,"totals":{"changed":2,"held":2,"services":5}}`+"\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	if a, b := get(h, here+"/services.json").Body.String(), get(h, "/api/v1"+here+"/services").Body.String(); a != b {
		t.Errorf("the page's sheet is %s, the API's %s", a, b)
	}
	page := holds(t, h, here, "all 5", "changed 2", "held 2", `href="`+here+`?service=search&amp;show=held">1 × 2 of 7 days</a>`, "1 × Pinned", "the query timed out",
		`href="/proposals/`+run.ID+`-checkout">proposal</a>`, `href="/proposals?service=notify">put up before</a>`, here+"/services.csv", "The next run reads it again by itself", `href="`+here+`.csv?show=held"`)
	if strings.Count(page, `aria-label="Results by quota"`) != 1 || strings.Contains(page, "callers / orders") {
		t.Error("beside the services stands what is held, and nothing else")
	}
	if only := holds(t, h, here+"?only=changed", "put up before"); strings.Contains(only, ">media<") {
		t.Error("the filter lets a service through that did not change")
	}
}

func TestARunsQuotasAreShownByServiceAndState(t *testing.T) {
	h, run := newMixedRun(t)
	here := "/runs/" + run.ID
	quotas := func(ask string) (out []string) {
		for _, line := range strings.Split(strings.TrimSpace(get(h, here+".csv"+ask).Body.String()), "\r\n")[1:] {
			cells := strings.Split(line, ",")
			out = append(out, cells[0]+" "+cells[2])
		}
		return out
	}
	for ask, want := range map[string][]string{
		"":                             {"checkout caller=orders", "checkout caller=search", "geo caller=web", "media caller=web", "notify caller=web", "search caller=mobile", "search caller=web"},
		"?show=changed":                {"checkout caller=orders", "notify caller=web"},
		"?show=held&service=search":    {"search caller=mobile", "search caller=web"},
		"?service=checkout":            {"checkout caller=orders", "checkout caller=search"},
		"?show=changed&service=search": nil,
	} {
		if got := quotas(ask); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", ask, got, want)
		}
		rows := body(t, get(h, here+".json"+ask), 200)
		if n := len(rows["changes"].([]any)); n != len(want) || rows["total"] != float64(len(want)) || rows["id"] != run.ID {
			t.Errorf("%q: the JSON has %d changes, total %v, of run %v", ask, n, rows["total"], rows["id"])
		}
	}
	holds(t, h, here+"?show=held&service=search", "Quotas of search", "2 of 7 days", `href="`+here+`">By service</a>`)
	for _, ask := range []string{"?show=new", "?only=all"} {
		if w := get(h, here+ask); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", ask, w.Code)
		}
	}
}

func TestARunWithoutResultsSaysWhyAndWhatToDo(t *testing.T) {
	f := newFixture(t)
	for id, r := range map[string]rlc.Run{
		"nothing": {Result: rlc.ResultOK},
		"repeat":  {Result: rlc.ResultOK, Detail: "run cron-2026-12-02T060000Z had read this commit already", Total: 5},
		"aged":    {Result: rlc.ResultOK, Total: 5, Held: 2},
		"refused": {Result: rlc.ResultRefused, Detail: "refused: 40 of 90 series lost half their data since the last run"},
	} {
		r.ID, r.Trigger, r.Now, r.Started, r.Finished = id, rlc.ByCron, runAt, runAt, runAt.Add(time.Second)
		f.run(t, r, nil, nil)
	}
	claimed := rlc.Run{ID: "claimed", Trigger: rlc.ByCron, Now: runAt, Started: runAt}
	if _, _, err := f.db.BeginRun(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	h := f.handler(t)
	for target, want := range map[string][]string{
		"/runs/nothing":                         {"There was nothing to look at", "services/checkout/policy.yaml"},
		"/runs/repeat":                          {"It would only have repeated another run", `href="` + lastRun + `"`},
		"/runs/aged":                            {"The results are not recorded any more", "What was held is not recorded any more"},
		"/runs/refused":                         {"40 of 90 series lost half their data since the last run. So much at once", "see whether Prometheus scrapes every target"},
		"/runs/claimed":                         {"No results yet", "Under way"},
		"/runs/person-2026-12-02T060230Z":       {"No service has a result", "State of the parts", "Enforcers go on with the numbers in force"},
		lastRun + "?q=zzz":                      {"No service of this run fits the filter", "q=zzz", "Show all"},
		lastRun + "?show=held&service=media":    {"Nothing of media was held", "show=held"},
		lastRun + "?show=changed&service=media": {"Nothing of media changed"},
		lastRun + "?service=media":              {"The run has no result of media", "service=media", "By service"},
		"/runs/refused?show=changed":            {"Nothing changed", "show=changed"},
	} {
		holds(t, h, target, want...)
	}
	for _, target := range []string{"/runs/lost", "/runs/lost/services.csv", "/runs/lost.csv", lastRun + "?page=9", lastRun + "?show=all&page=9"} {
		if w := get(h, target); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
}
