package quotafile_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// fixture reads testdata/config: the examples of config.md, byte for byte.
func fixture(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/config/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const acme = "apiVersion: rlc/v1\nkind: Contract\nname: acme-2026\ncaller: acme\nrate: 100\nburst: 200\n"

func lines(problems []rlc.Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}
	return all
}

func TestTheFirstPolicyIsValid(t *testing.T) {
	c := quotafile.Parse(rlc.Files{"services/checkout/policy.yaml": fixture(t, "first.yaml")}, nil)
	if err := c.Valid(); err != nil {
		t.Fatal(err)
	}
	want := &rlc.Service{
		Name:     "checkout",
		Owners:   []string{"team-payments"},
		Profile:  "rlc",
		Timezone: "UTC",
		Mode:     rlc.Shadow,
		Buckets: []rlc.Bucket{{
			Name: "callers", Role: rlc.QuotaRole,
			Each: []string{"caller"}, Match: map[string]rlc.Pattern{"caller": {Kind: rlc.Present}},
			Mode: rlc.Shadow, Algorithm: "token_bucket", Scope: "global", OnFailure: "local",
			Policy: &rlc.PolicySpec{Kind: "historical", Params: rlc.Params{}}, Guards: rlc.DefaultGuards(),
			Line: 6,
		}},
		Unmatched: rlc.Unmatched{Mode: rlc.Shadow},
		MaxQuotas: 2000,
		Counters:  rlc.Counters{Max: 100_000, OnFull: "admit"},
		MaxSeries: 200,
		Unknown:   c.Profiles["rlc"].Unknown,
	}
	if got := c.Service("checkout"); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	wantProblems := []string{`services/checkout/policy.yaml:6:5: warning: bucket "callers" admits new keys and no cap bounds their sum; add {name: whole-service, role: cap, policy: {kind: capacity}} with the service's capacity: {rate: …}, or a new_key limit`}
	if got := lines(c.Problems); !reflect.DeepEqual(got, wantProblems) {
		t.Errorf("got %q", got)
	}
}

func TestTheLongPolicyIsValid(t *testing.T) {
	c := quotafile.Parse(rlc.Files{
		"services/checkout/policy.yaml": fixture(t, "policy.yaml"),
		"contracts/acme-2026.yaml":      []byte(acme),
	}, nil)
	want := []string{`services/checkout/policy.yaml:16:5: warning: bucket "create" is in enforce and profile grpc does not count what is refused: its quota learns from its own drops; add refused to profile grpc, or read the enforcers' own counters with profile rlc`}
	if got := lines(c.Problems); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if len(c.Services) != 1 || len(c.Broken) > 0 {
		t.Errorf("services %v, broken %v", c.Services, c.Broken)
	}
}

func TestTheProfileIsValidAndEqualsTheBuiltIn(t *testing.T) {
	c := quotafile.Parse(rlc.Files{"profiles/grpc.yaml": fixture(t, "profile.yaml")}, nil)
	if len(c.Problems) > 0 {
		t.Fatal(lines(c.Problems))
	}
	want := quotafile.BuiltinProfiles()["grpc"]
	want.Refused = `sum by (client_service, grpc_method) (rate(grpc_ratelimited_total{service="${service}"}[1m]))`
	if got := c.Profiles["grpc"]; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// The example but for its comment and the order of two lines is what
// MarshalQuotas writes.
func TestTheQuotasAreWrittenInTheStyleOfTheExample(t *testing.T) {
	text := string(fixture(t, "quotas.yaml"))
	text = strings.Replace(text, "                        # softens, never hardens: 2 of 14 days of history", "", 1)
	service, quotas, problems := quotafile.ParseQuotas("quotas.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	search := strings.Index(text, "  - bucket: callers\n    key: {caller: search}")
	frontend := strings.Index(text, "  - bucket: callers\n    key: {caller: frontend-v2}")
	create := strings.Index(text, "  - bucket: create")
	head := strings.Index(text, "# Written by rlc")
	want := text[head:search] + text[frontend:create] + text[search:frontend] + text[create:]
	if got := string(quotafile.MarshalQuotas(service, quotas)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
