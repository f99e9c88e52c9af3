package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc/web"
)

// form0 reads the first episode's form of the shadow page.
func form0(t *testing.T, page string) (action string, form url.Values) {
	t.Helper()
	_, rest, ok := strings.Cut(page, `<form method="post" action="/services/checkout/buckets/`)
	if !ok {
		t.Fatal("no episode can be judged")
	}
	action, rest, _ = strings.Cut(rest, `"`)
	value := func(name string) string {
		_, r, _ := strings.Cut(rest, `name="`+name+`" value="`)
		v, _, _ := strings.Cut(r, `"`)
		return v
	}
	return "/services/checkout/buckets/" + strings.ReplaceAll(action, "&amp;", "&"), url.Values{"from": {value("from")}, "until": {value("until")}}
}

func TestVerdictButtonsFeedTheNextRun(t *testing.T) {
	f := newFixture(t)
	c, ticks := f.config(), atomic.Int64{}
	c.Now = func() time.Time { return now.Add(time.Duration(ticks.Add(1)) * time.Microsecond) } // the last word comes last
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	send := func(target string, form url.Values) int {
		return request(h, "POST", target, form.Encode(), func(r *http.Request) {
			bearer(r)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}).Code
	}
	if page := holds(t, h, "/services/checkout/shadow", "Likely cause", "<b>25 episodes wait</b> for a verdict", "1 judged, 0 snoozed"); strings.Contains(page, `value="raise"`) {
		t.Error("a viewer is offered the verdict")
	}
	see := func(target string) string { return request(h, "GET", target, "", bearer).Body.String() }
	for _, c := range []struct {
		word  string
		count bool
		says  string
	}{{"raise", true, "counts as traffic, raise: it is traffic"}, {"keep", false, "left out, keep: the limit is right to refuse it"}, {"exclude", false, "left out, exclude: no regular traffic"}} {
		action, form := form0(t, see("/services/checkout/shadow"))
		form.Set("verdict", c.word)
		if code := send(action, form); code != http.StatusSeeOther {
			t.Fatalf("%s: %d", c.word, code)
		}
		all, err := f.db.Verdicts(context.Background(), "checkout")
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, v := range all {
			found = found || v.From.Format("2006-01-02T15:04:05Z") == form.Get("from") && v.Count == c.count && strings.HasPrefix(v.Reason, c.word+": ")
		}
		if !found {
			t.Errorf("%s: no such verdict in %+v", c.word, all)
		}
		if !strings.Contains(see("/services/checkout/shadow"), c.says) {
			t.Errorf("the page does not say %q", c.says)
		}
	}
	holds(t, h, "/services/checkout/shadow", "<b>24 episodes wait</b> for a verdict", "2 judged, 0 snoozed")
	action, form := form0(t, see("/services/checkout/shadow"))
	form.Set("verdict", "snooze")
	if code := send(action, form); code != http.StatusSeeOther {
		t.Fatalf("snooze: %d", code)
	}
	if page := see("/services/checkout/shadow"); !strings.Contains(page, "1 episode is snoozed") {
		t.Error("a snoozed episode is not put off")
	}
	if !strings.Contains(see("/services/checkout/shadow?snoozed=show"), "snoozed until 9 Dec 06:04") {
		t.Error("a snoozed episode is not shown when asked for")
	}
	form.Set("verdict", "wake")
	form.Set("reason", "misclick")
	if code := send(action, form); code != http.StatusSeeOther {
		t.Fatalf("wake: %d", code)
	}
	if page := see("/services/checkout/shadow"); strings.Contains(page, "is snoozed") {
		t.Error("a woken episode is still put off")
	}
	form.Set("verdict", "other")
	if code := send(action, form); code < 400 {
		t.Errorf("another word: %d", code)
	}
}
