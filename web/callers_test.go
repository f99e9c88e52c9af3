package web_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

func TestACallerSeesItsLimitsAndWhatTheyRefuse(t *testing.T) {
	h := newFixture(t).handler(t)
	holds(t, h, "/callers/mobile-gateway", "checkout refused <b>0.4 %</b> of what mobile-gateway sent in 24 h", "A rise from 1,900 to 3,000 req/s is in review.", "mobile-create", "2,278", " episodes</td>", "team-payments", "Request more", `href="/why?service=checkout&amp;caller=mobile-gateway&amp;procedure=Create"`)
	holds(t, h, "/callers/search", "enforced, <b>1.2 %</b> of it would have been", "callers / search")
	holds(t, h, "/callers/orders", "no episode")
	holds(t, h, "/callers/nobody", "No limit picks out nobody", "A bucket for all callers may still count its requests.")
	w := get(h, "/callers/search.csv")
	rows := strings.Split(strings.TrimSpace(w.Body.String()), "\r\n")
	if len(rows) != 2 || !strings.HasPrefix(rows[1], "checkout,callers,caller=search,shadow,280,") {
		t.Errorf("the sheet: %q", rows)
	}
	for _, name := range hostile {
		if w := get(h, "/callers/"+url.PathEscape(name)); w.Code != 200 || strings.Contains(w.Body.String(), "<script>alert") {
			t.Errorf("%q: %d", name, w.Code)
		}
	}
}

func TestWhyNamesTheWinnerAndWhyNotTheOthers(t *testing.T) {
	h := newFixture(t).handler(t)
	holds(t, h, "/why?service=checkout&caller=mobile-gateway&procedure=Create",
		"It is counted by", "1,900 req/s", "enforce", "In 24 h it refused <b>0.4 %</b>", "it fits too, but mobile-create fits more closely",
		"procedure is Create; the bucket wants Health", "whole-service", "team-payments", "Sign in", "to ask in your name", "the first of")
	holds(t, h, "/why?service=checkout&procedure=Other", "No quota bucket of checkout counts this request", "caller is absent")
	holds(t, h, "/why", "Name a service", "rlc why checkout --caller etl-nightly")
	if w := get(h, "/why?service=nosuch"); w.Code != http.StatusNotFound {
		t.Errorf("an unknown service: %d", w.Code)
	}
	api, page := get(h, "/api/v1/why?service=checkout&caller=search"), get(h, "/why.json?service=checkout&caller=search")
	if api.Body.String() != page.Body.String() || !strings.Contains(api.Body.String(), `"bucket":"callers"`) {
		t.Errorf("api %s page %s", api.Body, page.Body)
	}
}

func TestAskingForMoreReachesTheOwnersAndEnds(t *testing.T) {
	f := newFixture(t)
	h := company(t, f, nil)
	send := func(who func(*http.Request), target string, form url.Values) int {
		return request(h, "POST", target, form.Encode(), who).Code
	}
	reader, owner := as("rae", "team-search"), as("ana", "team-payments")
	more := url.Values{"service": {"checkout"}, "bucket": {"callers"}, "key": {"caller=search"}, "rate": {"500"}, "reason": {"launch on Friday"}, "back": {"/why?service=checkout&caller=search"}}
	if code := send(reader, "/why", more); code != http.StatusSeeOther {
		t.Fatalf("asking: %d", code)
	}
	if want := []string{"ask /services/checkout/buckets/callers?key=caller%3Dsearch by rae: 500 req/s: launch on Friday"}; !slices.Equal(f.done(), want) {
		t.Errorf("done %q, want %q", f.done(), want)
	}
	bad := url.Values{"service": {"checkout"}, "bucket": {"callers"}, "key": {"caller=search"}, "rate": {"NaN"}, "reason": {"x"}}
	if code := send(reader, "/why", bad); code != http.StatusBadRequest && code != http.StatusUnprocessableEntity {
		t.Errorf("no number: %d", code)
	}
	for range 4 {
		send(reader, "/why", more)
	}
	if code := send(reader, "/why", more); code != http.StatusTooManyRequests {
		t.Errorf("the sixth in a minute: %d", code)
	}
	see := func(who func(*http.Request), target string) string {
		return request(h, "GET", target, "", who).Body.String()
	}
	if page := see(owner, "/"); !strings.Contains(page, "rae asks for 500 req/s on callers / search: launch on Friday") {
		t.Error("the overview does not say so")
	}
	page := see(owner, "/services/checkout")
	i := strings.Index(page, "/services/checkout/asks/")
	if i < 0 {
		t.Fatal("the owner cannot answer")
	}
	answer := page[i : i+strings.IndexByte(page[i:], '"')]
	if strings.Contains(see(reader, "/services/checkout"), "/asks/") {
		t.Error("a reader is offered the answer")
	}
	if code := send(reader, answer, url.Values{"reason": {"no"}}); code != http.StatusForbidden {
		t.Errorf("a reader answers: %d", code)
	}
	if code := send(owner, answer, url.Values{"reason": {"raised on Thursday"}}); code != http.StatusSeeOther {
		t.Errorf("the owner answers: %d", code)
	}
	if strings.Contains(see(owner, "/services/checkout"), answer) {
		t.Error("it still stands after its answer")
	}
	log, _, err := f.db.AuditLog(context.Background(), rlc.AuditFilter{Action: "quota.answer"}, rlc.Page{Number: 1, Size: 5})
	if err != nil || len(log) != 1 || log[0].Actor != "ana" || log[0].Detail != "checkout, rae had asked: raised on Thursday" {
		t.Errorf("audit %+v, %v", log, err)
	}
}
