package web_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

const profileHead = "apiVersion: rlc/v1\nkind: Profile\nname: edge\nattributes: {caller: {metric: client}}\nhistory:\n  sources: ['sum by (client) (rate(edge_requests_total{service=\"${service}\"}[1m]))']\n"

// A quota's chart says what its rates are made of: what a limiter refused is
// among them only where counters or a query of the profile hold it.
func TestAChartSaysWhetherRefusedRequestsAreAmongItsRates(t *testing.T) {
	const page = "/services/checkout/buckets/mobile-create"
	for name, c := range map[string]struct{ policy, profile, want string }{
		"enforcers' counters": {"profile: rlc", "", "Admitted, dropped and would-be drops together, as enforcers count them, so that a quota never learns from its own drops."},
		"a query":             {"profile: edge", profileHead + "  refused: 'sum by (client) (rate(edge_refused_total{service=\"${service}\"}[1m]))'\n", "Admitted and refused requests together, so that a quota never learns from its own drops."},
		"neither":             {"profile: edge", profileHead, "Profile edge has no query for refused ones: drops that never reach these metrics are missing"},
		"built in":            {"profile: grpc", "", "Profile grpc has no query for refused ones"},
	} {
		f := newFixture(t)
		f.files["services/checkout/policy.yaml"] = []byte(strings.Replace(checkoutPolicy, "profile: grpc", c.policy, 1))
		if c.profile != "" {
			f.files["profiles/edge.yaml"] = []byte(c.profile)
		}
		f.desired = quotafile.Parse(f.files, policies.Builtin().Check)
		if f.desired.Service("checkout") == nil {
			t.Fatalf("%s: %v", name, f.desired.Broken)
		}
		page := holds(t, f.handler(t), page, c.want)
		if strings.Contains(page, "never learns") != strings.Contains(c.want, "never learns") {
			t.Errorf("%s: the page promises more than the profile keeps", name)
		}
	}
}

// A limit that a person wrote is named with the file and line that it stands in.
func TestALimitWrittenByHandIsNamedWithItsFile(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	page := holds(t, h, "/services/checkout/buckets/health", "A person wrote it")
	place := regexp.MustCompile(`services/checkout/policy\.yaml:(\d+)`).FindStringSubmatch(page)
	if place == nil {
		t.Fatal("no file is named")
	}
	line, _ := strconv.Atoi(place[1])
	if at := strings.Split(checkoutPolicy, "\n")[line-1]; !strings.Contains(at, "name: health") {
		t.Errorf("line %d is %q", line, at)
	}
}

// The limit that a window left out would have made is rounded as limits are, so
// that it agrees with the what-if that leaves nothing out.
func TestTheLimitWithAWindowCountedAgreesWithTheWhatIf(t *testing.T) {
	page := holds(t, newFixture(t).handler(t), "/services/checkout/buckets/callers?key=caller%3Dbatch-reports", "Nothing left out")
	with := regexp.MustCompile(`data-l="Limit had it counted">([0-9,]+)<`).FindStringSubmatch(page)
	without := regexp.MustCompile(`Nothing left out</a></th>\s*<td role="cell" class="num" data-l="Limit, req/s">([0-9,]+)<`).FindStringSubmatch(page)
	if with == nil || without == nil || with[1] != without[1] {
		t.Errorf("with the window %q, without leaving out %q", with, without)
	}
}

// Whoever may not read values is told so once, not in each line.
func TestSettingsSayOnceWhatIsWithheld(t *testing.T) {
	h := newFixture(t).handler(t)
	page := holds(t, h, "/settings", "to read values, addresses and errors", `data-l="From">environment`)
	for _, text := range []string{"not shown", ">In force<", ">Where<", ">Last error<"} {
		lacks(t, page, text)
	}
	holds(t, h, "/settings.json", `"value":"not shown"`)
}

// A first limit that rests on two days is a range to whoever reviews it; a number
// that a person put in its place is one.
func TestAReviewShowsAThinFirstLimitAsARange(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	const number = `title="121 req/s, burst 242"> <b>64.9–121</b> <span class="sub"> low confidence</span>`
	page := holds(t, h, editing, "1 first limit rests on less than two weeks of history")
	if page = regexp.MustCompile(`>\s*<`).ReplaceAllString(page, "> <"); !strings.Contains(page, number) || strings.Count(page, "low confidence") != 1 {
		t.Errorf("the page does not say %s, once", number)
	}
	form := map[string][]string{"edit": {"callers/caller=recommendations"}, "rate": {"200"}, "reason": {"a sale"}}
	if w := formed(h, editing+"/edit", form); w.Code != 303 {
		t.Fatalf("the edit is answered %d", w.Code)
	}
	page = holds(t, h, editing, "<b>200</b>")
	lacks(t, page, "low confidence")
	lacks(t, page, "first limit rests")
}

// The tabs of a service stand in the head of each of its pages.
func TestTheTabsOfAServiceStandAtOnePlace(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, page := range []string{"", "/shadow", "/history", "/policy", "/export"} {
		text := holds(t, h, "/services/checkout"+page)
		head, _, _ := strings.Cut(text, `<section class="leaf"`)
		if strings.Count(head, `<nav class="tabs"`) != 1 || strings.Count(text, `<nav class="tabs"`) != 1 || strings.Count(head, `aria-current="page"`) < 1 {
			t.Errorf("%s: the head has no tabs, or more than one page has them", page)
		}
	}
}

// What shadow counted was admitted; what was dropped beside it was not.
func TestShadowDoesNotSayThatWhatWasDroppedWasAdmitted(t *testing.T) {
	f := newFixture(t)
	f.counts = []rlc.Count{{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "search"}, Offered: 1000, Drops: 300, VirtualDrops: 200}}
	page := holds(t, f.handler(t), "/services/checkout", "callers / search</a> is in shadow, and an override or a cap dropped <b>300</b> requests", "Shadow would have dropped 200 requests", "of what was offered; it admitted them all.")
	if strings.Contains(page, "all were admitted") {
		t.Error("the dropped are said to be admitted")
	}
}
