package web_test

import (
	"strings"
	"testing"
)

// A column of rates or of requests names its unit in its head.
func TestColumnsNameTheirUnit(t *testing.T) {
	h := newFixture(t).handler(t)
	for target, heads := range map[string][]string{
		"/services/checkout/shadow":                {"Highest step / limit, req/s", "Would drop, requests", "Backtest, requests", "Counters, requests"},
		"/services/checkout/buckets/mobile-create": {"Highest step / limit, req/s", "Requests dropped", "Limit had it counted, req/s"},
	} {
		page := strings.ReplaceAll(get(h, target).Body.String(), "\u00a0", " ")
		for _, head := range heads {
			if !strings.Contains(page, ">"+head+"</th>") {
				t.Errorf("%s has no column %q", target, head)
			}
		}
	}
}
