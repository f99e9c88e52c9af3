package web_test

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

func TestAnOverrideForANameThatNothingKnowsIsWarnedOf(t *testing.T) {
	f := newFixture(t)
	f.counts = []rlc.Count{
		{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "search"}, Offered: 300},
		{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "newcomer"}, Offered: 300},
	}
	h := f.handler(t)
	for _, c := range []struct{ service, caller, warning string }{
		{"chekout", "search", "there is no service chekout; did you mean checkout?"},
		{"nope", "search", "there is no service nope"},
		{"ledgre", "search", "there is no service ledgre; did you mean ledger?"},
		{"checkout", "serch", "no quota and no traffic of the last hour names a caller serch; did you mean search?"},
		{"checkout", "search", ""},   // by a quota
		{"checkout", "newcomer", ""}, // by traffic
		{"checkout", "serch*", ""},
		{"checkout", "absent", ""},
		{"ledger", "search", ""}, // by metrics alone
		{"*", "serch", ""},
	} {
		in := `{"service":"` + c.service + `","match":{"caller":"` + c.caller + `"},"action":"block","ttl_seconds":60,"reason":"x"}`
		out := body(t, post(h, "/api/v1/overrides?preview=true", in, bearer), 200)
		got, _ := out["warning"].(string)
		if got != c.warning || got != "" && out["known"] != false {
			t.Errorf("%s, %s: %v, want the warning %q", c.service, c.caller, out, c.warning)
		}
		page := get(h, "/emergency?service="+c.service+"&caller="+c.caller+"&action=block&ttl=30m&reason=x").Body.String()
		if strings.Contains(page, "warning: ") != (c.warning != "") || !strings.Contains(page, strings.TrimSuffix(c.warning, "?")) {
			t.Errorf("the page about %s, %s does not say %q", c.service, c.caller, c.warning)
		}
	}
	// Folded away are callers that have no name of their own: nobody can tell.
	f.counts = append(f.counts, rlc.Count{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "__other__"}, Offered: 300})
	in := `{"service":"checkout","match":{"caller":"serch"},"action":"block","ttl_seconds":60,"reason":"x"}`
	if out := body(t, post(h, "/api/v1/overrides?preview=true", in, bearer), 200); out["known"] != true {
		t.Errorf("beside folded callers: %v", out)
	}
	in = strings.ReplaceAll(in, "checkout", "chekout")
	if out := body(t, post(h, "/api/v1/overrides", in, bearer), 201); out["warning"] != "there is no service chekout; did you mean checkout?" {
		t.Errorf("put in force: %v", out)
	}
}
