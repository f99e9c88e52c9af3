package web_test

import (
	"net/http"
	"strings"
	"testing"
)

// The storms of two keys lie in one flagged hour: without a word it is left out
// of both, as it is where the address names the hour; with an empty exclude it
// counts, and raises the sum.
func TestAServicesWhatIfLeavesOutWhatTheAddressNames(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	sum := func(exclude string) float64 {
		return body(t, get(h, "/services/checkout/whatif.json?stat=max&window=28d&headroom=0.3&floor=1&burst=2"+exclude), 200)["limits_rate"].(float64)
	}
	const hour = "&exclude=2026-11-24T20%3A00%3A00Z%2F2026-11-24T21%3A00%3A00Z"
	byItself, named, none, both := sum(""), sum("&exclude="+hour), sum("&exclude="), sum("&exclude=&exclude=flagged"+hour)
	if byItself != named || both != named || none < 1.5*named {
		t.Errorf("left out by itself %g, named %g, both %g, nothing %g", byItself, named, both, none)
	}
	holds(t, h, "/services/checkout/whatif", `name="exclude" value="flagged" checked`, "leave out 24 Nov 09:00 – 11:00, INC-917")
	page := holds(t, h, "/services/checkout/whatif?exclude="+hour, "leave out 24 Nov 20:00 – 21:00")
	if strings.Contains(page, `value="flagged" checked`) {
		t.Error("what was flagged is ticked though the address does not name it")
	}
	if w := get(h, "/services/checkout/whatif?exclude=yesterday"); w.Code != http.StatusUnprocessableEntity && w.Code != http.StatusBadRequest {
		t.Errorf("a window that is none: %d", w.Code)
	}
}

func TestAWhatIfThatDropsNothingSaysSo(t *testing.T) {
	f := newFixture(t)
	page := holds(t, f.handler(t), "/services/geo/whatif?headroom=0.6", "would have dropped <b>nothing</b> in four weeks.", "With any headroom from none to 60 %, nothing would have been dropped.")
	if strings.Contains(page, "at most 0") || strings.Contains(page, `class="frontier"`) {
		t.Error("an empty curve is drawn, or 0 is called a bound")
	}
}
