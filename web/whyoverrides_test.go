package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

// calm is the fixture with no kill switch thrown.
type calm struct{ *fixture }

func (calm) Switches() []rlc.KillSwitch {
	return []rlc.KillSwitch{{Name: rlc.StopAutomation}, {Name: rlc.AllToShadow}}
}

func calmly(t *testing.T, f *fixture) http.Handler {
	t.Helper()
	c := f.config()
	c.Overrides = calm{f}
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func ids(t *testing.T, out map[string]any) (got []string) {
	t.Helper()
	for _, o := range out["overrides"].([]any) {
		got = append(got, o.(map[string]any)["id"].(string))
	}
	return got
}

func TestWhyNamesTheOverrideThatDecidesBeforeTheBucket(t *testing.T) {
	f := newFixture(t)
	f.overrides = []rlc.Override{override("held", nil)}
	h := calmly(t, f)
	holds(t, h, "/why?service=checkout&caller=batch-reports",
		"An override decides first:", "checkout ← caller=batch-reports", "<b>held to 120 req/s</b>", "until 2 Dec 06:22:42 UTC, set by ana: INC-944 runaway export.", "Below that the request is counted by")
	if csv := get(h, "/why.csv?service=checkout&caller=batch-reports").Body.String(); !strings.Contains(csv, "override,held to 120 req/s") {
		t.Errorf("the sheet: %s", csv)
	}
	if out := body(t, get(h, "/api/v1/why?service=checkout&caller=batch-reports"), 200); out["overridden"] != true || out["bucket"] != "callers" || !slices.Equal(ids(t, out), []string{"held"}) {
		t.Errorf("the API: %v", out)
	}
	if page := holds(t, h, "/why?service=checkout&caller=search", "It is counted by"); strings.Contains(page, "An override") {
		t.Error("another caller's request is said to be overridden")
	}
	// The fixture's own switches hold all to shadow.
	shadow := f.handler(t)
	holds(t, shadow, "/why?service=checkout&caller=batch-reports", "All to shadow is on, so no override is applied.", "held to 120 req/s")
	if out := body(t, get(shadow, "/api/v1/why?service=checkout&caller=batch-reports"), 200); out["overridden"] != false {
		t.Errorf("all to shadow: %v", out)
	}
}

func TestTheOverrideThatDecidesIsNamedBeforeTheOthers(t *testing.T) {
	f := newFixture(t)
	low := rlc.Rate(7)
	is := func(action string, match map[string][]string) func(*rlc.Override) {
		return func(o *rlc.Override) { o.Action, o.Match, o.Rate = action, match, nil }
	}
	search := map[string][]string{"caller": {"sea*"}}
	f.overrides = []rlc.Override{
		override("lift", is("lift", nil)),
		override("high", func(o *rlc.Override) { o.Match, o.Service = search, "*" }),
		override("low", func(o *rlc.Override) { o.Match, o.Rate = search, &low }),
		override("drop", func(o *rlc.Override) { is("drop", search)(o); o.DropRatio = 0.5 }),
		override("block", is("block", map[string][]string{"caller": {"geo", "search"}, "procedure": {"absent"}})),
		override("over", func(o *rlc.Override) { is("block", nil)(o); o.Until = now }),
		override("elsewhere", func(o *rlc.Override) { is("block", nil)(o); o.Service = "geo" }),
		override("procedure", is("block", map[string][]string{"procedure": {"*"}})),
	}
	h := calmly(t, f)
	for target, want := range map[string][]string{
		"/api/v1/why?service=checkout&caller=search":                  {"block", "drop", "low", "high", "lift"},
		"/api/v1/why?service=checkout&caller=search&procedure=Create": {"procedure", "drop", "low", "high", "lift"},
		"/api/v1/why?service=checkout&caller=notify":                  {"lift"},
		"/callers/search.json":                                        {"block", "procedure", "drop", "low", "high", "lift"},
	} {
		if got := ids(t, body(t, get(h, target), 200)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}

func TestACallersPageNamesTheOverrideInForceFirst(t *testing.T) {
	f := newFixture(t)
	f.overrides = []rlc.Override{override("held", nil), override("new", func(o *rlc.Override) { o.Match = map[string][]string{"caller": {"newcomer"}} })}
	h := calmly(t, f)
	page := holds(t, h, "/callers/batch-reports", "An override decides first:", "held to 120 req/s", "until 2 Dec 06:22:42 UTC, set by ana: INC-944 runaway export.", `data-mode="override"`)
	if strings.Contains(page, "newcomer") {
		t.Error("another caller's override is shown")
	}
	holds(t, h, "/callers/newcomer", "An override decides first:", "No limit picks out newcomer")
	if page := holds(t, h, "/callers/search"); strings.Contains(page, "An override") {
		t.Error("a caller without an override is said to have one")
	}
	if csv := get(h, "/callers/batch-reports.csv").Body.String(); !strings.Contains(csv, ",override\r\n") || !strings.Contains(csv, "held to 120 req/s") {
		t.Errorf("the sheet: %s", csv)
	}
	limits := body(t, get(h, "/callers/batch-reports.json"), 200)["limits"]
	if row := first(t, limits, map[string]any{"bucket": "callers"}); row["override"] != "held" {
		t.Errorf("the row: %v", row)
	}
}

func TestAShadowBucketIsSaidToRefuseNothing(t *testing.T) {
	f := newFixture(t)
	f.counts = []rlc.Count{
		{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "search"}, Offered: 1000, VirtualDrops: 12},
		{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "orders"}, Offered: 1000, VirtualDrops: 6, Drops: 6},
		{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "geo"}, Offered: 1000},
	}
	h := f.handler(t)
	for caller, want := range map[string]string{
		"search": "<b>1.2 %</b>",
		"orders": "were refused while it enforced",
		"geo":    "it would have refused nothing.",
	} {
		if page := holds(t, h, "/why?service=checkout&caller="+caller, "it would have refused", want); strings.Contains(page, "it refused") {
			t.Errorf("%s: a bucket in shadow is said to have refused", caller)
		}
	}
}

func TestZonesSayHowManyEnforcersHaveTheOverrides(t *testing.T) {
	f := newFixture(t)
	f.overrides = []rlc.Override{override("held", nil)}
	newest := rlc.Version{Epoch: 3, Number: 7}
	f.acks = []rlc.Ack{{Enforcer: "a", Overrides: newest}, {Enforcer: "b", Zone: "eu-1", Overrides: newest}, {Enforcer: "c", Zone: "eu-1", Overrides: newest}, {Enforcer: "d", Zone: "us-1"}}
	holds(t, f.handler(t), "/emergency", "Without a zone: 1 of 1 enforcer has the newest overrides", "In zone eu-1: 2 of 2 enforcers have the newest overrides", "In zone us-1: 0 of 1 enforcer has the newest overrides")
}

func TestAnOverridePutInForceIsWarnedOfWhereNothingNamesItsCaller(t *testing.T) {
	in := `{"service":"checkout","match":{"caller":"serch"},"action":"block","ttl_seconds":60,"reason":"x"}`
	out := body(t, post(newFixture(t).handler(t), "/api/v1/overrides", in, bearer), 201)
	if out["warning"] != "no quota and no traffic of the last hour names a caller serch; did you mean search?" {
		t.Errorf("put in force: %v", out)
	}
}
