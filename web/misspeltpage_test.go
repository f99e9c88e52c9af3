package web_test

import (
	"strings"
	"testing"
)

// An answer that a service does not exist names the one that was meant, to programs
// and on the page; a name like none is only said not to be there.
func TestAMisspeltServiceIsAnsweredWithTheOneThatWasMeant(t *testing.T) {
	h := newFixture(t).handler(t)
	for target, want := range map[string]string{
		"/api/v1/services/chekout":                         `There is no service \"chekout\"; did you mean checkout?`,
		"/api/v1/services/chekout/buckets/callers":         `There is no service \"chekout\"; did you mean checkout?`,
		"/api/v1/why?service=chekout&caller=search":        `There is no service \"chekout\"; did you mean checkout?`,
		"/services/chekout":                                `There is no service &#34;chekout&#34;; did you mean checkout?`,
		"/api/v1/services/nothing-like-it":                 `There is no service \"nothing-like-it\"`,
		"/api/v1/services/checkout/buckets/nothing-at-all": `There is no`,
	} {
		w := get(h, target)
		if body := w.Body.String(); w.Code != 404 || !strings.Contains(body, want) || strings.Contains(body, "mean") != strings.Contains(want, "mean") {
			t.Errorf("%s: %d %.400s\nwant %s", target, w.Code, body, want)
		}
	}
}
