package web_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

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
