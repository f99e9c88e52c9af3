package web_test

import (
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// buckets puts these lines behind the buckets of checkout's policy.
func (f *fixture) buckets(t *testing.T, lines string) {
	t.Helper()
	path := quotafile.PolicyPath("checkout")
	f.files[path] = append(f.files[path], lines...)
	f.desired, f.live = quotafile.Parse(f.files, policies.Builtin().Check), quotafile.Parse(f.files, nil)
	for _, p := range f.desired.Problems {
		if !p.Warning && p.File == path {
			t.Fatal(p)
		}
	}
}

func TestACallersPageKnowsLimitsByPrefixAndList(t *testing.T) {
	f := newFixture(t)
	f.buckets(t, `  - {name: batch, match: {caller: "etl*"}, mode: enforce, limit: {rate: 2, burst: 4}}
  - {name: etl-refunds, match: {caller: "etl*", procedure: [Refund, Cancel]}, limit: {rate: 3, burst: 6}}
  - {name: named, match: {caller: [etl-daily, web]}, limit: {rate: 4, burst: 8}}
  - {name: exact, match: {caller: etl-own}, limit: {rate: 5, burst: 10}}
  - {name: etl-cap, role: cap, match: {caller: "etl-*"}, limit: {rate: 6, burst: 12}}
  - {name: etl-each, role: cap, match: {caller: "etl-n*"}, each: [procedure], limit: {rate: 7, burst: 14}}
`)
	f.counts = append(f.counts, rlc.Count{Service: "checkout", Bucket: "batch", Offered: 1000, Drops: 778})
	h := f.handler(t)
	for caller, want := range map[string][]string{
		"etl-nightly": {"batch shared", "etl-cap shared", "etl-refunds shared"},
		"etl-daily":   {"etl-cap shared", "named shared"}, // a list before a prefix
		"etl-own":     {"etl-cap shared", "exact"},        // by name before a prefix
		"web":         {"named shared"},
		"search":      {"callers"}, // by its key
	} {
		rows, err := csv.NewReader(get(h, "/callers/"+caller+".csv").Body).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", caller, err)
		}
		got := []string{}
		for _, r := range rows[1:] {
			got = append(got, r[1]+map[string]string{"true": " shared"}[r[len(r)-2]])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) && caller != "web" || caller == "web" && !slices.Contains(got, want[0]) {
			t.Errorf("%s: limits %q, want %q", caller, got, want)
		}
	}
	holds(t, h, "/callers/etl-nightly", "checkout refused <b>77.8 %</b> of what etl-nightly and the other callers of the same counter sent in 24 h, by", "requests in 24 h, by the limits below, other callers", ", with other callers")
}

func TestWhyAsksWhetherAnotherCallerWasMeant(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	holds(t, h, "/why?service=checkout&caller=serch", "No quota of checkout and no request counted in 24 h names a caller serch; did you mean", `<a href="/why?caller=search&amp;service=checkout">search</a>`)
	if out := body(t, get(h, "/api/v1/why?service=checkout&caller=serch"), 200); out["did_you_mean"] != "search" || out["unheard"] != true {
		t.Errorf("the API: %v, %v", out["unheard"], out["did_you_mean"])
	}
	for _, at := range []string{"/why?service=checkout&caller=search", "/why?service=checkout&procedure=Health"} {
		if page := holds(t, h, at); strings.Contains(page, "did you mean") {
			t.Errorf("%s asks whether another caller was meant", at)
		}
	}
}

func TestTheLimitOfWhyIsTheOverridesWhileItDecides(t *testing.T) {
	f := newFixture(t)
	f.overrides = []rlc.Override{override("held", nil)}
	at := "/why?service=checkout&caller=batch-reports"
	h := calmly(t, f)
	page := holds(t, h, at, "s, until 06:22; below it 260 req/s, live in snapshot")
	if !strings.Contains(page, "120") {
		t.Error("the tile does not show the override's limit")
	}
	page = strings.Join(strings.Fields(strings.ReplaceAll(request(h, "GET", at, "", bearer).Body.String(), "\u00a0", " ")), " ")
	if want := "An override decides now, until 2 Dec 06:22:42 UTC, set by ana: INC-944 runaway export. A higher limit counts once that has ended. Suggested:"; !strings.Contains(page, want) {
		t.Errorf("a request for more does not say %q", want)
	}
	if page := holds(t, f.handler(t), at); strings.Contains(page, "s, until 06:22; below it") { // all to shadow is on
		t.Error("an override that is not applied is shown as the limit")
	}
}

func TestSinceDoesNotDenyWhatIsCounted(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	f.counts = []rlc.Count{{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "orders"}, Offered: 1000, VirtualDrops: 40}}
	holds(t, h, "/why?service=checkout&caller=orders", "replay of four weeks, by the minute, has none")
	holds(t, h, "/callers/orders", "none replayed")
	f.counts[0].VirtualDrops = 0
	holds(t, h, "/why?service=checkout&caller=orders", "no refusal in the last run")
}

func TestTheHeadOfABucketOfAllCallersIsNotOneCallers(t *testing.T) {
	h := newFixture(t).handler(t)
	page := holds(t, h, "/services/checkout/buckets/callers", "matches caller *, counts each caller by itself", `href="/why?service=checkout"`)
	if head, _, _ := strings.Cut(page, "<section"); strings.Contains(head, "limits on") || strings.Contains(head, "caller is") {
		t.Errorf("the head of all keys is one key's")
	}
}
