package quotafile_test

import (
	"os"
	"reflect"
	"slices"
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

func TestTheLongPolicyIsRefusedForExactlyWhatIsNotBuilt(t *testing.T) {
	c := quotafile.Parse(rlc.Files{
		"services/checkout/policy.yaml": fixture(t, "policy.yaml"),
		"contracts/acme-2026.yaml":      []byte(acme),
	}, nil)
	const file = "services/checkout/policy.yaml:"
	want := gated([]string{
		file + "15:11: tier: not supported by this version",
		file + "18:11: cost: not supported by this version",
		file + "21:14: rollout: not supported by this version",
		file + "27:16: algorithm fixed_window: not supported by this version",
		file + "28:12: limit requests: not supported by this version",
		file + "29:44: algorithm concurrency: not supported by this version",
		file + "29:64: limit concurrent: not supported by this version",
		file + "35:10: aliases: not supported by this version",
		file + "36:9: events: not supported by this version",
		file + "38:11: failover: not supported by this version",
		file + "40:12: sensitive: not supported by this version",
		file + "42:10: targets: not supported by this version",
	})
	if got := lines(c.Problems); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if (len(c.Services) == 0) != (len(want) > 0) || len(c.Broken["checkout"]) != len(want) {
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

// gated is those of the refusals that this version still gives.
func gated(refusals []string) (left []string) {
	for _, r := range refusals {
		what := strings.SplitN(strings.TrimSuffix(r, ": not supported by this version"), ": ", 2)[1]
		if slices.Contains(quotafile.Unsupported(), what) {
			left = append(left, r)
		}
	}
	return left
}

func TestTheQuotasAreRefusedForTheirWindowsOnly(t *testing.T) {
	data := fixture(t, "quotas.yaml")
	_, _, problems := quotafile.ParseQuotas("quotas.yaml", data)
	want := gated([]string{"quotas.yaml:21:14: windows: not supported by this version"})
	if got := lines(problems); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The example but for its comment and the order of two lines is what
// MarshalQuotas writes.
func TestTheQuotasAreWrittenInTheStyleOfTheExample(t *testing.T) {
	text := string(fixture(t, "quotas.yaml"))
	text = strings.Replace(text, "                        # softens, never hardens: 2 of 14 days of history", "", 1)
	service, quotas, problems := quotafile.ParseQuotasUngated([]byte(text))
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
