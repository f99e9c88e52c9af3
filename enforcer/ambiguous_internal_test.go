package enforcer

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The decoder lets the last of two names win and reads names in any case: a
// check that says two things is refused before anything is counted.
func TestACheckThatSaysTwoThingsIsRefused(t *testing.T) {
	for body, want := range map[string]string{
		`{"service":"a","service":"b"}`:                                `"service" is given twice`,
		`{"service":"a","SERVICE":"b"}`:                                `unknown field "SERVICE": names are in lower case`,
		`{"Service":"a"}`:                                              `unknown field "Service": names are in lower case`,
		`{"service":"a","ſervice":"b"}`:                                `unknown field "ſervice": names are in lower case`,
		`{"service":"a","\u0073ervice":"b"}`:                           `"\u0073ervice" is given twice`,
		`{"service":"a","attributes":{"caller":"x","caller" : "y"}}`:   "an attribute is given twice",
		`{"service":"a","attributes":{"caller":"x","c\u0061ller":""}}`: "an attribute is given twice",
		`{"service":"a","attributes":{"b":"x"},"attributes":{"c":""}}`: `"attributes" is given twice`,
		`{"service":"a","cost":1,"cost":0}`:                            `"cost" is given twice`,
	} {
		w := httptest.NewRecorder()
		api{}.check(w, httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(body)))
		if detail := strings.ReplaceAll(w.Body.String(), `\"`, `"`); w.Code != http.StatusBadRequest || !strings.Contains(strings.ReplaceAll(detail, `\\`, `\`), want) {
			t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
}

func TestACheckThatSaysOneThingCostsNoAllocation(t *testing.T) {
	body := []byte(`{"service": "a \"{", "attributes": {"caller": "b:\\", "Caller" : "{\"x\":1}", "d": ""}, "cost": 1}`)
	if text := ambiguous(body, 3); text != "" {
		t.Fatal(text)
	}
	if n := testing.AllocsPerRun(100, func() { ambiguous(body, 3) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
