package match_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
)

// pattern reads the notation of policy.yaml: "a|b" is a list.
func pattern(s string) rlc.Pattern {
	switch {
	case s == "absent":
		return rlc.Pattern{Kind: rlc.Absent}
	case s == "*":
		return rlc.Pattern{Kind: rlc.Present}
	case strings.Contains(s, "|"):
		return rlc.Pattern{Kind: rlc.List, Values: strings.Split(s, "|")}
	case strings.HasSuffix(s, "*"):
		return rlc.Pattern{Kind: rlc.Prefix, Values: []string{strings.TrimSuffix(s, "*")}}
	}
	return rlc.Pattern{Kind: rlc.Exact, Values: []string{s}}
}

// bucket builds a bucket from "attr=pattern attr=pattern each:attr".
func bucket(name string, role rlc.Role, words string) rlc.Bucket {
	b := rlc.Bucket{Name: name, Role: role, Match: map[string]rlc.Pattern{}}
	for _, w := range strings.Fields(words) {
		if attr, ok := strings.CutPrefix(w, "each:"); ok {
			b.Each = append(b.Each, attr)
			continue
		}
		attr, p, _ := strings.Cut(w, "=")
		b.Match[attr] = pattern(p)
	}
	return b
}

func service(buckets ...rlc.Bucket) *rlc.Service {
	for i := range buckets {
		buckets[i].Line = i + 1
	}
	return &rlc.Service{Name: "s", Buckets: buckets, Unknown: map[string][]string{"caller": {"", "unknown"}}}
}

func compile(t *testing.T, s *rlc.Service) *match.Matcher {
	t.Helper()
	m, problems := match.Compile(s)
	if len(problems) > 0 {
		t.Fatalf("refused: %v", problems)
	}
	return m
}

// attrs reads "caller=a procedure=b".
func attrs(words string) rlc.Attributes {
	a := rlc.Attributes{}
	for _, w := range strings.Fields(words) {
		n, v, _ := strings.Cut(w, "=")
		a[n] = v
	}
	return a
}

func TestMostSpecificQuotaBucketIsCharged(t *testing.T) {
	s := service(
		bucket("all", rlc.QuotaRole, ""),
		bucket("callers", rlc.QuotaRole, "each:caller"),
		bucket("web", rlc.QuotaRole, "caller=web*"),
		bucket("webshop", rlc.QuotaRole, "caller=webshop*"),
		bucket("partners", rlc.QuotaRole, "caller=acme|globex|webshop-eu"),
		bucket("acme", rlc.QuotaRole, "caller=acme"),
		bucket("acme-create", rlc.QuotaRole, "caller=acme procedure=Create|Refund"),
		bucket("create", rlc.QuotaRole, "procedure=Create"),
		bucket("nobody", rlc.QuotaRole, "caller=absent procedure=Login"),
	)
	m := compile(t, s)
	for request, want := range map[string]string{
		"caller=search":                       "callers/caller=search",
		"caller=search procedure=Create":      "callers/caller=search", // caller is compared before procedure
		"caller=web1":                         "web",
		"caller=web":                          "web", // a prefix matches itself
		"caller=webshop-us":                   "webshop",
		"caller=webshop-eu":                   "partners", // a list before a longer prefix
		"caller=globex":                       "partners",
		"caller=acme":                         "acme", // an exact value before a list
		"caller=acme procedure=Refund":        "acme-create",
		"caller=acme procedure=List":          "acme",
		"procedure=Create":                    "create",
		"procedure=List":                      "all",
		"":                                    "all",
		"procedure=Login":                     "nobody",
		"caller=unknown procedure=Login":      "nobody", // the profile's word for no identity
		"caller=unknown procedure=Create":     "create",
		"caller=Acme":                         "callers/caller=Acme", // values are compared byte by byte
		"caller=a,b=c":                        `callers/caller=a\,b\=c`,
		"caller=search procedure=Login zone=": "callers/caller=search",
	} {
		if got := m.Match(attrs(request)).Quota.ID; got != want {
			t.Errorf("%q is charged to %q, want %q", request, got, want)
		}
	}
}

func TestExactBucketBeatsEach(t *testing.T) {
	m := compile(t, service(
		bucket("pairs", rlc.QuotaRole, "each:caller each:procedure"),
		bucket("acme-each", rlc.QuotaRole, "caller=acme each:procedure"),
		bucket("acme-create", rlc.QuotaRole, "caller=acme procedure=Create"),
	))
	for request, want := range map[string]string{
		"caller=acme procedure=Create":   "acme-create",
		"caller=acme procedure=List":     "acme-each/procedure=List",
		"caller=globex procedure=Create": "pairs/caller=globex,procedure=Create",
		"caller=globex":                  "", // each wants a value of every attribute
	} {
		if got := m.Match(attrs(request)).Quota.ID; got != want {
			t.Errorf("%q is charged to %q, want %q", request, got, want)
		}
	}
}

func TestNothingMatchingIsUnmatched(t *testing.T) {
	m := compile(t, service(bucket("acme", rlc.QuotaRole, "caller=acme")))
	want := match.Result{Quota: match.Hit{Bucket: -1}}
	if got := m.Match(attrs("caller=globex")); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := compile(t, service()).Match(attrs("caller=a")); !reflect.DeepEqual(got, want) {
		t.Errorf("a service without buckets: got %+v, want %+v", got, want)
	}
}

func TestEveryMatchingCapIsCharged(t *testing.T) {
	m := compile(t, service(
		bucket("whole", rlc.CapRole, ""),
		bucket("callers", rlc.QuotaRole, "each:caller"),
		bucket("per-procedure", rlc.CapRole, "each:procedure"),
		bucket("acme", rlc.CapRole, "caller=acme"),
		bucket("acme-again", rlc.CapRole, "caller=acme"), // caps never tie
		bucket("web", rlc.CapRole, "caller=web*"),
	))
	got := m.Match(attrs("caller=acme procedure=Create"))
	want := match.Result{
		Quota: match.Hit{Bucket: 1, Key: rlc.Key{"caller": "acme"}, ID: "callers/caller=acme"},
		Caps: []match.Hit{
			{Bucket: 0, ID: "whole"},
			{Bucket: 2, Key: rlc.Key{"procedure": "Create"}, ID: "per-procedure/procedure=Create"},
			{Bucket: 3, ID: "acme"},
			{Bucket: 4, ID: "acme-again"},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestTiesBetweenQuotaBucketsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		tie  bool
	}{
		{"caller=a", "caller=a", true},
		{"caller=a", "caller=b", false},
		{"caller=a|b", "caller=b|c", true},
		{"caller=a|b", "caller=c|d", false},
		{"caller=a|b procedure=x|y", "caller=b|c procedure=z|w", false},
		{"caller=a|b procedure=x|y", "caller=b|c procedure=y|w", true},
		{"caller=a|b", "caller=a", false},
		{"caller=a*", "caller=ab*", false}, // the longer wins
		{"caller=a*", "caller=b*", false},
		{"caller=a*", "caller=a*", true},
		{"each:caller", "caller=*", true}, // each is "*"
		{"each:caller", "each:procedure", false},
		{"", "", true},
		{"", "caller=absent", false},
		{"caller=absent", "caller=absent", true},
		{"caller=absent", "each:caller", false},
		{"caller=a* procedure=x", "caller=a*", false},
		{"caller=a procedure=x", "caller=a zone=x", false},
	} {
		_, problems := match.Compile(service(bucket("a", rlc.QuotaRole, tc.a), bucket("b", rlc.QuotaRole, tc.b)))
		if tie := len(problems) > 0; tie != tc.tie {
			t.Errorf("%q beside %q: tie %v, want %v (%v)", tc.a, tc.b, tie, tc.tie, problems)
		}
		if _, problems := match.Compile(service(bucket("a", rlc.QuotaRole, tc.a), bucket("b", rlc.CapRole, tc.b))); len(problems) > 0 {
			t.Errorf("%q beside the cap %q: %v", tc.a, tc.b, problems)
		}
	}
}

func TestTieNamesBothBucketsAndTheLine(t *testing.T) {
	_, problems := match.Compile(service(bucket("a", rlc.QuotaRole, "caller=x"), bucket("b", rlc.QuotaRole, "caller=x")))
	want := []rlc.Problem{{
		Line:    2,
		Message: `bucket "b" ties with bucket "a" (line 1): both match the same requests with the same specificity`,
		Hint:    "make one match more specific, or give one role: cap",
	}}
	if !reflect.DeepEqual(problems, want) {
		t.Errorf("got %v, want %v", problems, want)
	}
}

func TestPatternsThatCanNeverMatchAreRefused(t *testing.T) {
	for name, b := range map[string]rlc.Bucket{
		"exact without value":  {Name: "b", Match: map[string]rlc.Pattern{"caller": {Kind: rlc.Exact}}},
		"empty list":           {Name: "b", Match: map[string]rlc.Pattern{"caller": {Kind: rlc.List}}},
		"prefix of nothing":    {Name: "b", Match: map[string]rlc.Pattern{"caller": {Kind: rlc.Prefix, Values: []string{""}}}},
		"each of what is away": {Name: "b", Each: []string{"caller"}, Match: map[string]rlc.Pattern{"caller": {Kind: rlc.Absent}}},
	} {
		if m, problems := match.Compile(service(b)); m != nil || len(problems) != 1 {
			t.Errorf("%s: matcher %v, problems %v", name, m != nil, problems)
		}
	}
}

func TestUsesNamesWhatDecidesABucket(t *testing.T) {
	m := compile(t, service(
		bucket("callers", rlc.QuotaRole, "each:caller"),
		bucket("acme", rlc.QuotaRole, "caller=acme"),
		bucket("acme-key", rlc.QuotaRole, "caller=acme api_key=k1"),
		bucket("globex-create", rlc.QuotaRole, "caller=globex procedure=Create"),
		bucket("cap", rlc.CapRole, "zone=z1"),
		bucket("rest", rlc.QuotaRole, ""),
	))
	for i, want := range [][]string{
		{"caller", "procedure", "api_key"}, // others take some of its callers' requests away
		{"caller", "api_key"},              // globex-create never takes from acme
		{"caller", "api_key"},
		{"caller", "procedure"},
		{"zone"}, // caps take nothing from each other
		{"caller", "procedure", "api_key"},
	} {
		if got := m.Uses(i); !reflect.DeepEqual(got, want) {
			t.Errorf("bucket %d uses %v, want %v", i, got, want)
		}
	}
}
