package quotafile_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// repo builds files from texts: "path" → content after apiVersion and kind.
func repo(texts map[string]string) rlc.Files {
	files := rlc.Files{}
	for path, text := range texts {
		kind := "ServicePolicy"
		switch {
		case path == "defaults.yaml":
			kind = "Defaults"
		case strings.HasPrefix(path, "profiles/"):
			kind = "Profile"
		case strings.HasPrefix(path, "contracts/"):
			kind = "Contract"
		case strings.HasSuffix(path, "quotas.yaml"):
			kind = "ServiceQuotas"
		}
		files[path] = []byte("apiVersion: rlc/v1\nkind: " + kind + "\n" + text)
	}
	return files
}

func parse(t *testing.T, texts map[string]string) *quotafile.Config {
	t.Helper()
	c := quotafile.Parse(repo(texts), nil)
	if err := c.Valid(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSilentKeysTakeTheOrganisationsDefaults(t *testing.T) {
	const organisation = `profile: http
timezone: Europe/Paris
defaults: {mode: enforce, algorithm: token_bucket, on_failure: local, policy: {kind: historical, headroom: 0.5}, guards: {floor: 7, step_up: 2}}
unmatched: {limit: {rate: 50, burst: 100}}
quotas: {max: 10}
counters: {max: 11, on_full: share}
series: {max: 12}
exclude: [{from: 2026-11-24T09:00:00+01:00, until: 2026-11-24T11:00:00Z, reason: INC-1}]
auto_merge: false
`
	c := parse(t, map[string]string{
		"defaults.yaml":           organisation,
		"services/a/policy.yaml":  "service: a\nbuckets: [{name: b}]\n",
		"services/bb/policy.yaml": "service: bb\nprofile: grpc\ntimezone: UTC\ndefaults: {mode: shadow, policy: {kind: recent}, guards: {floor: 9, min_valid_days: 3}}\nunmatched: {mode: enforce, limit: {rate: 0, burst: 0}}\nquotas: {max: 1}\ncounters: {max: 2}\nseries: {max: 3}\nexclude: [{from: 2026-12-01T00:00:00Z, until: 2026-12-02T00:00:00Z}]\nbuckets:\n  - {name: b, mode: enforce, guards: {floor: 20}}\n  - {name: c, match: {caller: x}, policy: {kind: predictive, horizon: 7d}}\n",
	})
	guards := rlc.DefaultGuards()
	guards.Floor, guards.StepUp = 7, 2
	inc := rlc.Window{From: time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC), Until: time.Date(2026, 11, 24, 11, 0, 0, 0, time.UTC), Reason: "INC-1"}
	a := &rlc.Service{
		Name: "a", Profile: "http", Timezone: "Europe/Paris", Mode: rlc.Enforce,
		Buckets: []rlc.Bucket{{
			Name: "b", Role: rlc.QuotaRole, Mode: rlc.Enforce, Algorithm: "token_bucket", Scope: "global", OnFailure: "local",
			Policy: &rlc.PolicySpec{Kind: "historical", Params: rlc.Params{"headroom": 0.5}}, Guards: guards, Line: 4,
		}},
		Unmatched: rlc.Unmatched{Mode: rlc.Enforce, Limit: &rlc.Limit{Rate: 50, Burst: 100}},
		MaxQuotas: 10, Counters: rlc.Counters{Max: 11, OnFull: "share"}, MaxSeries: 12,
		Exclude: []rlc.Window{inc}, Unknown: c.Profiles["http"].Unknown,
	}
	if got := c.Service("a"); !reflect.DeepEqual(got, a) {
		t.Errorf("a: got  %+v\nwant %+v", got, a)
	}

	guards.Floor, guards.MinValidDays = 9, 3
	own := guards
	own.Floor = 20
	b := &rlc.Service{
		Name: "bb", Profile: "grpc", Timezone: "UTC", Mode: rlc.Shadow,
		Buckets: []rlc.Bucket{
			{Name: "b", Role: rlc.QuotaRole, Mode: rlc.Enforce, Algorithm: "token_bucket", Scope: "global", OnFailure: "local", Policy: &rlc.PolicySpec{Kind: "recent", Params: rlc.Params{}}, Guards: own, Line: 13},
			{Name: "c", Role: rlc.QuotaRole, Mode: rlc.Shadow, Algorithm: "token_bucket", Scope: "global", OnFailure: "local", Match: map[string]rlc.Pattern{"caller": {Kind: rlc.Exact, Values: []string{"x"}}},
				Policy: &rlc.PolicySpec{Kind: "predictive", Params: rlc.Params{"horizon": "7d"}}, Guards: guards, Line: 14},
		},
		Unmatched: rlc.Unmatched{Mode: rlc.Enforce, Limit: &rlc.Limit{}},
		MaxQuotas: 1, Counters: rlc.Counters{Max: 2, OnFull: "share"}, MaxSeries: 3,
		Exclude: []rlc.Window{inc, {From: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)}},
		Unknown: c.Profiles["grpc"].Unknown,
	}
	if got := c.Service("bb"); !reflect.DeepEqual(got, b) {
		t.Errorf("bb: got  %+v\nwant %+v", got, b)
	}
}

func TestBucketsSayWhatTheyMatchAndLimit(t *testing.T) {
	c := parse(t, map[string]string{"services/s/policy.yaml": `service: s
capacity: {rate: 12000, burst: 15000, reserve: 0.1, evidence: "load test"}
unmatched: admit
buckets:
  - {name: exact, match: {caller: a}, limit: {rate: 1.5, burst: 3}}
  - {name: list, match: {caller: [b, c]}}
  - {name: prefix, match: {caller: "web/*"}, each: [procedure, caller]}
  - {name: star, match: {caller: "*", procedure: x}, new_key: {limit: {rate: 1, burst: 2}}, each: [caller]}
  - {name: absent, match: {caller: absent}}
  - {name: keys, match: {zone: z}, each: [caller], limit: {rate: 2, burst: 4}}
  - {name: cap, role: cap, scope: global, policy: {kind: capacity}}
`})
	s := c.Service("s")
	if want := (&rlc.Capacity{Rate: 12000, Burst: 15000, Reserve: 0.1, Evidence: "load test"}); !reflect.DeepEqual(s.Capacity, want) {
		t.Errorf("capacity %+v", s.Capacity)
	}
	if want := (rlc.Unmatched{Mode: rlc.Shadow}); !reflect.DeepEqual(s.Unmatched, want) {
		t.Errorf("unmatched %+v", s.Unmatched)
	}
	type view struct {
		Role   rlc.Role
		Each   []string
		Match  map[string]rlc.Pattern
		Limit  *rlc.Limit
		NewKey *rlc.Limit
		Policy string
	}
	p := func(kind rlc.PatternKind, values ...string) rlc.Pattern {
		return rlc.Pattern{Kind: kind, Values: values}
	}
	type m = map[string]rlc.Pattern
	want := map[string]view{
		"exact":  {rlc.QuotaRole, nil, m{"caller": p(rlc.Exact, "a")}, &rlc.Limit{Rate: 1.5, Burst: 3}, nil, ""},
		"list":   {rlc.QuotaRole, nil, m{"caller": p(rlc.List, "b", "c")}, nil, nil, "historical"},
		"prefix": {rlc.QuotaRole, []string{"caller", "procedure"}, m{"caller": p(rlc.Prefix, "web/"), "procedure": p(rlc.Present)}, nil, nil, "historical"},
		"star":   {rlc.QuotaRole, []string{"caller"}, m{"caller": p(rlc.Present), "procedure": p(rlc.Exact, "x")}, nil, &rlc.Limit{Rate: 1, Burst: 2}, "historical"},
		"absent": {rlc.QuotaRole, nil, m{"caller": p(rlc.Absent)}, nil, nil, "historical"},
		"keys":   {rlc.QuotaRole, []string{"caller"}, m{"caller": p(rlc.Present), "zone": p(rlc.Exact, "z")}, &rlc.Limit{Rate: 2, Burst: 4}, nil, ""},
		"cap":    {rlc.CapRole, nil, nil, nil, nil, "capacity"},
	}
	for _, b := range s.Buckets {
		got := view{Role: b.Role, Each: b.Each, Match: b.Match, Limit: b.Limit, NewKey: b.NewKey.Limit}
		if b.Policy != nil {
			got.Policy = b.Policy.Kind
		}
		if !reflect.DeepEqual(got, want[b.Name]) {
			t.Errorf("%s: got %+v, want %+v", b.Name, got, want[b.Name])
		}
	}
}

func TestPolicyParametersKeepTheirTypes(t *testing.T) {
	var kind string
	var params rlc.Params
	check := func(k string, p rlc.Params) []rlc.Problem {
		kind, params = k, p
		return []rlc.Problem{{Message: "headroom is odd", Hint: "use 0.3"}, {Message: "odd as a whole", Warning: true}}
	}
	c := quotafile.Parse(repo(map[string]string{"services/s/policy.yaml": "service: s\nbuckets:\n  - {name: b, policy: {kind: x, headroom: 0.4, on: true, at: 2026-01-01, l: [a, 1], m: {k: 7d}}}\n"}), check)
	want := rlc.Params{"headroom": 0.4, "on": true, "at": "2026-01-01", "l": []any{"a", 1.0}, "m": map[string]any{"k": "7d"}}
	if kind != "x" || !reflect.DeepEqual(params, want) {
		t.Errorf("kind %q, params %#v", kind, params)
	}
	// A problem that starts with a parameter's name stands at that parameter.
	wantLines := []string{
		"services/s/policy.yaml:5:23: warning: odd as a whole",
		"services/s/policy.yaml:5:43: headroom is odd; use 0.3",
	}
	if got := lines(c.Problems); !reflect.DeepEqual(got, wantLines) {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"a: .nan", "a: 0100", "a:", "a: TRUE", "a: [1e400]", "a: {b: ~}"} {
		c := quotafile.Parse(repo(map[string]string{"services/s/policy.yaml": "service: s\nbuckets:\n  - name: b\n    policy:\n      kind: x\n      " + bad + "\n"}), nil)
		if c.Valid() == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

func TestABrokenPolicyFailsAlone(t *testing.T) {
	c := quotafile.Parse(repo(map[string]string{
		"services/a/policy.yaml": "service: a\nbuckets: [{name: b}]\n",
		"services/b/policy.yaml": "service: b\nbuckets: [{nam: b}]\n",
		"services/c/policy.yaml": "service: [\n",
		"services/d/policy.yaml": "service: d\nbuckets: [{name: b}]\n",
		"services/d/quotas.yaml": "service: d\nquotas:\n  - {bucket: b, rate: .nan, burst: 1}\n",
		"services/e/policy.yaml": "service: e\nbuckets: [{name: b}]\n",
		"services/e/quotas.yaml": "service: e\nquotas:\n  - {bucket: b, rate: 1, burst: 1}\n",
		"services/f/policy.yaml": "service: f\nprofile: p\nbuckets: [{name: b}]\n",
		"profiles/p.yaml":        "name: p\n",
		"contracts/x.yaml":       "name: x\n",
		"README.md":              "not read",
	}), nil)
	var names []string
	for _, s := range c.Services {
		names = append(names, s.Name)
	}
	if want := []string{"a", "e"}; !slices.Equal(names, want) {
		t.Errorf("services %v, want %v", names, want)
	}
	if got, want := slices.Sorted(maps.Keys(c.Broken)), []string{"b", "c", "d", "f"}; !slices.Equal(got, want) {
		t.Errorf("broken %v, want %v", got, want)
	}
	if got, want := lines(c.Broken["d"]), []string{`services/d/quotas.yaml:5:23: rate: ".nan" is not a plain decimal number; write a plain decimal such as 1500 or 0.5`}; !slices.Equal(got, want) {
		t.Errorf("d: %q", got)
	}
	if got, want := lines(c.Broken["f"]), []string{`services/f/policy.yaml:4:10: profile "p" is not valid; see profiles/p.yaml`}; !slices.Equal(got, want) {
		t.Errorf("f: %q", got)
	}
	if q := c.Quota("e", "b", nil); q == nil || q.Rate != 1 {
		t.Errorf("e's quota %v", q)
	}
	if q := c.Quota("d", "b", nil); q != nil || c.Quotas["d"] != nil {
		t.Errorf("d's quota %v", q)
	}
	err := c.Valid()
	if !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), `services/b/policy.yaml:4:12: unknown key "nam" in bucket; did you mean name?`) {
		t.Errorf("Valid: %v", err)
	}
	if !slices.IsSortedFunc(c.Problems, func(a, b rlc.Problem) int { return strings.Compare(a.File, b.File) }) {
		t.Errorf("problems are not sorted: %q", lines(c.Problems))
	}
}

// Without the organisation's defaults nobody knows what a silent key means.
func TestBrokenDefaultsBreakEveryService(t *testing.T) {
	c := quotafile.Parse(repo(map[string]string{
		"defaults.yaml":          "defaults: {mode: enfroce}\n",
		"services/a/policy.yaml": "service: a\nbuckets: [{name: b}]\n",
	}), nil)
	want := []string{`defaults.yaml:3:18: mode: "enfroce" is not known; one of shadow, enforce`}
	if len(c.Services) != 0 || !slices.Equal(lines(c.Broken["a"]), want) {
		t.Errorf("services %v, broken %q", c.Services, lines(c.Broken["a"]))
	}
}

func TestAFileTakesABuiltInProfilesPlace(t *testing.T) {
	c := parse(t, map[string]string{"profiles/http.yaml": "name: http\nattributes: {caller: {metric: app}}\nhistory: {step: 15s, sources: ['x{s=\"${service}\"}']}\n"})
	want := &rlc.Profile{Name: "http", Attributes: map[string]rlc.AttributeSource{"caller": {Metric: []string{"app"}, Join: "/", Descriptor: "caller"}}, Step: 15 * time.Second, Sources: []string{`x{s="${service}"}`}}
	if got := c.Profiles["http"]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := builtins(c.Profiles); !slices.Equal(got, []string{"envoy", "grpc", "http", "istio", "rlc"}) {
		t.Errorf("profiles %v", got)
	}
}

func builtins(m map[string]*rlc.Profile) []string { return slices.Sorted(maps.Keys(m)) }

func TestContractsAreRead(t *testing.T) {
	c := parse(t, map[string]string{
		"contracts/acme.yaml":    "name: acme\ncaller: acme/api\nrate: 100\nburst: 200\nfrom: 2026-01-01T00:00:00Z\nuntil: 2027-01-01T00:00:00Z\nreference: C-1\n",
		"services/s/policy.yaml": "service: s\nbuckets: [{name: b, policy: {kind: contractual, contract: acme}}]\n",
	})
	want := map[string]rlc.Contract{"acme": {Name: "acme", Caller: "acme/api", Limit: rlc.Limit{Rate: 100, Burst: 200}, From: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), Reference: "C-1"}}
	if !reflect.DeepEqual(c.Contracts, want) {
		t.Errorf("got %+v", c.Contracts)
	}
}

func TestWhatIsProbablyNotMeantIsAWarning(t *testing.T) {
	c := parse(t, map[string]string{
		"services/a/policy.yaml": "service: a\nbuckets:\n  - {name: star, match: {caller: \"*\"}}\n",
		"services/b/policy.yaml": "service: b\nbuckets:\n  - {name: callers, each: [caller]}\n  - {name: two, each: [procedure]}\n",
		"services/c/policy.yaml": "service: c\nbuckets:\n  - {name: callers, each: [caller]}\n  - {name: all, role: cap}\n",
		"services/d/policy.yaml": "service: d\nbuckets:\n  - {name: callers, each: [caller], new_key: {limit: {rate: 1, burst: 1}}}\n  - {name: never, match: {caller: [x, unknown]}}\n",
		"services/e/policy.yaml": "service: e\nbuckets:\n  - {name: hand, limit: {rate: 1, burst: 1}, match: {procedure: x}}\n  - {name: callers, each: [caller], limit: {rate: 1, burst: 1}}\n",
		"services/e/quotas.yaml": "service: e\nquotas:\n  - {bucket: hand, rate: 1, burst: 1}\n  - {bucket: gone, rate: 1, burst: 1}\n",
		"services/f/policy.yaml": "service: f\nbuckets:\n  - {name: b}\n",
		"services/f/quotas.yaml": "service: f\nquotas:\n  - {bucket: b, key: {caller: x}, rate: 1, burst: 1}\n",
		"services/g/quotas.yaml": "service: g\nquotas: []\n",
		"profiles/p.yaml":        "name: p\nattributes: {caller: {metric: app}}\nhistory: {sources: [x]}\n",
	})
	want := []string{
		"profiles/p.yaml:5:21: warning: source does not name ${service}: every service reads the same; add a matcher such as service=\"${service}\"",
		`services/a/policy.yaml:5:34: warning: bucket "star": caller: "*" without each is one counter for all callers; write each: [caller] for one counter per caller`,
		`services/b/policy.yaml:5:5: warning: bucket "callers" admits new keys and no cap bounds their sum; add {name: whole-service, role: cap, policy: {kind: capacity}} with the service's capacity: {rate: …}, or a new_key limit`,
		`services/d/policy.yaml:6:35: warning: bucket "never": caller never matches "unknown", which profile rlc counts as absent; write absent for requests without identity`,
		`services/e/quotas.yaml:5:5: warning: quota for bucket "hand", whose limit is written in policy.yaml; nothing uses it; the next proposal removes it`,
		`services/e/quotas.yaml:6:5: warning: quota for bucket "gone", which policy.yaml does not have; nothing uses it; the next proposal removes it`,
		`services/f/quotas.yaml:5:5: warning: quota for bucket "b" has the key "caller=x", but the bucket counts each []; nothing uses it; the next proposal removes it`,
		"services/g/quotas.yaml:1:1: warning: quotas without a policy.yaml beside them; nothing uses them",
	}
	if got := lines(c.Problems); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(c.Broken) != 0 {
		t.Errorf("warnings broke %v", c.Broken)
	}
}

func TestNamesAreDataInPaths(t *testing.T) {
	for name, want := range map[string]string{
		"checkout": "checkout", "a.b-c_d": "a.b-c_d", "0": "0", strings.Repeat("a", 63): strings.Repeat("a", 63),
	} {
		if got := quotafile.PathSegment(name); got != want {
			t.Errorf("%q → %q, want %q", name, got, want)
		}
	}
	seen := map[string]string{}
	for _, name := range []string{"", ".", "..", "../x", "a/b", "A", "a b", ".git", ".GIT", "_a", "-a", "é", "日本", "CON\x00", strings.Repeat("a", 64), strings.Repeat("é", 300), "Payments/Checkout", "payments/checkout", "checkout\n"} {
		got := quotafile.PathSegment(name)
		ok := strings.HasPrefix(got, "_") && len(got) <= 63 && strings.Trim(got, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
		if !ok || got == name || seen[got] != "" {
			t.Errorf("%q → %q (also %q)", name, got, seen[got])
		}
		seen[got] = name + " "
	}
	if got := quotafile.PolicyPath("Payments/Checkout"); got != "services/_payments-checkout-ac52eb366454/policy.yaml" {
		t.Errorf("got %q", got)
	}
	if got := quotafile.QuotasPath("checkout"); got != "services/checkout/quotas.yaml" {
		t.Errorf("got %q", got)
	}
	c := quotafile.Parse(rlc.Files{quotafile.PolicyPath("Payments/Checkout"): []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: Payments/Checkout\nbuckets: [{name: b}]\n")}, nil)
	if c.Valid() != nil || c.Service("Payments/Checkout") == nil {
		t.Errorf("%v", c.Valid())
	}
}

func TestOnlyTheFilesOfTheFormatAreRead(t *testing.T) {
	for path, want := range map[string]bool{
		"defaults.yaml": true, "profiles/a.yaml": true, "contracts/a.yaml": true, "services/a/policy.yaml": true, "services/a/quotas.yaml": true,
		"README.md": false, "profiles/a.yml": false, "profiles/x/a.yaml": false, "profiles/.a.yaml": false, "services/policy.yaml": false,
		"services/a/b/policy.yaml": false, "services/a/other.yaml": false, "services/..data/policy.yaml": false, "services//policy.yaml": false, "x/defaults.yaml": false,
	} {
		if got := quotafile.Reads(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
