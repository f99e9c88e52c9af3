package web_test

import (
	"strings"
	"testing"
)

// What is wrong with a body is said by its field and in words of JSON: no type of
// this program, and no number without its range.
func TestABodyThatCannotBeReadIsExplainedInTheClientsWords(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, c := range []struct{ path, in, want string }{
		{"/api/v1/backtest", `{"service":5}`, "service must be text, not a number"},
		{"/api/v1/backtest", `{"service":"checkout","burst":1e18}`, "burst must be a whole number, not 1e18"},
		{"/api/v1/backtest", `{"service":"checkout","rate":"5"}`, "rate must be a number, not text"},
		{"/api/v1/backtest", `{"service":"checkout","key":["a"]}`, "key must be an object, not a list"},
		{"/api/v1/backtest", `[]`, "the body must be an object, not a list"},
		{"/api/v1/backtest", `{"service":`, "the body ends in the middle of the JSON"},
		{"/api/v1/backtest", ``, "the body is empty"},
		{"/api/v1/backtest", `{"service":"checkout","exclude":[{"from":"noon"}]}`, "is no time such as 2026-12-02T06:00:00Z"},
		{"/api/v1/tokens", `{"name":"t","role":"owner","ttl_seconds":3600,"services":["*"]}`, "* is no service's name; leave services out"},
	} {
		out := body(t, post(h, c.path, c.in, bearer), 400)
		detail, _ := out["detail"].(string)
		if !strings.Contains(detail, c.want) || strings.Contains(detail, "Go ") || strings.Contains(detail, "struct") {
			t.Errorf("%s %s: %q, want %q", c.path, c.in, detail, c.want)
		}
	}
}
