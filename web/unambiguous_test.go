package web_test

import (
	"strings"
	"testing"
)

// The decoder lets the last of two names win, and a name in another case stand
// for the field: an act that says two things would reach further than it reads.
func TestAnActThatSaysTwoThingsIsRefused(t *testing.T) {
	h := newFixture(t).handler(t)
	for text, want := range map[string]string{
		`{"service":"search","SERVICE":"*"}`:                         `unknown field "SERVICE"; it is service`,
		`{"service":"search","service":"*"}`:                         `"service" is given twice`,
		`{"service":"search","match":{"caller":"zz","caller":"yy"}}`: `"caller" is given twice`,
		`{"Service":"search"}`:                                       `unknown field "Service"; it is service`,
	} {
		out := body(t, post(h, "/api/v1/backtest", strings.Replace(text, `"match":{`, `"key":{`, 1), nil), 400)
		if detail, _ := out["detail"].(string); !strings.Contains(detail, want) {
			t.Errorf("backtest %s: %q, want %q", text, detail, want)
		}
		act := strings.TrimSuffix(text, "}") + `,"action":"block","ttl_seconds":60,"reason":"r"}`
		out = body(t, post(h, "/api/v1/overrides", act, bearer), 400)
		if detail, _ := out["detail"].(string); !strings.Contains(detail, want) {
			t.Errorf("override %s: %q, want %q", text, detail, want)
		}
	}
	// Fields of what is embedded or nested, and names that are people's own, are known.
	asked(t, h, "/api/v1/backtest", `{"service":"checkout","stat":"max","headroom":0.3,"exclude":[{"from":"2026-11-24T20:00:00Z","until":"2026-11-24T21:00:00Z"}]}`)
}
