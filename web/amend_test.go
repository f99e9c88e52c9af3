package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

// Amended and Amend keep people's numbers of the fixture's proposals beside them.
func (f *fixture) Amended(_ context.Context, p rlc.Proposal) ([]rlc.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Clone(p.Changes)
	for i := range out {
		if l, ok := f.amended[p.ID+"|"+out[i].ID()]; ok {
			out[i].New, out[i].Why, out[i].Backtest.New = &l, "set by ana: a sale", nil
		}
	}
	return out, nil
}

func (f *fixture) Amend(ctx context.Context, id, seen, quota string, limit rlc.Limit, actor, reason string) error {
	p, err := f.db.ProposalByID(ctx, id)
	if err != nil {
		return err
	}
	if err := p.StillHolds(seen); err != nil {
		return err
	}
	f.did("edit %s of %s to %v by %s: %s", quota, id, limit, actor, reason)
	f.mu.Lock()
	if f.amended == nil {
		f.amended = map[string]rlc.Limit{}
	}
	f.amended[id+"|"+quota] = limit
	f.mu.Unlock()
	p.Human, p.Commit = true, "0badcafe"
	return f.db.SetProposal(ctx, p, &rlc.AuditEntry{At: now, Actor: actor, Action: "proposal.edited", Object: id})
}

const editing = "/proposals/cron-2026-12-02T060000Z-checkout"

// formed sends a form as whoever has the token.
func formed(h http.Handler, target string, form url.Values) *httptest.ResponseRecorder {
	return request(h, "POST", target, form.Encode(), func(r *http.Request) {
		bearer(r)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
}

// A number of one's own is previewed over the same history, committed with a reason,
// and is what every page and answer then shows as proposed.
func TestAPersonsNumberIsPreviewedCommittedAndShown(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	ask := editing + "?edit=" + url.QueryEscape("callers/caller=search")
	form := request(h, "GET", ask, "", bearer).Body.String()
	if !strings.Contains(form, "it is held until its line is removed from quotas.yaml.") {
		t.Error("the form does not say how long the number is held, in the words of what holds it")
	}
	if !strings.Contains(form, `<option value="callers/caller=search" selected>`) || !strings.Contains(form, `value="407"`) || strings.Contains(form, ">Commit<") {
		t.Error("the form is not filled with what is proposed, or commits before the preview")
	}
	page := strings.ReplaceAll(request(h, "GET", ask+"&rate=300&burst=600", "", bearer).Body.String(), "\u00a0", " ")
	for _, want := range []string{"<b>300 req/s</b>", "burst 600", "+7 % on what is desired", "4 % below the peak that counts of 312", "it would have dropped <b>", "the proposed 407 would have dropped 0", ">Commit<"} {
		if !strings.Contains(page, want) {
			t.Errorf("the preview does not say %q", want)
		}
	}
	w := formed(h, editing+"/edit", url.Values{"edit": {"callers/caller=search"}, "rate": {"500"}, "burst": {""}, "reason": {"a sale"}})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != editing+"?done=edited" {
		t.Fatalf("committed: %d to %q", w.Code, w.Header().Get("Location"))
	}
	if got, want := f.done(), []string{"edit callers/caller=search of cron-2026-12-02T060000Z-checkout to {500 1000} by token: a sale"}; !slices.Equal(got, want) {
		t.Errorf("acts %q, want %q: the burst is two seconds of the rate, as proposed", got, want)
	}
	holds(t, h, editing, "<b>500</b>", "set by ana: a sale", "so RLC leaves it alone. These are the numbers that it holds.")
	holds(t, h, "/services/checkout", ">500<")
	var out struct {
		Changes []struct {
			Bucket   string
			Key      map[string]string
			New      struct{ Rate float64 }
			Backtest struct {
				New *struct{ Requests float64 }
			}
		}
	}
	if err := json.Unmarshal(get(h, "/api/v1"+editing).Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	for _, c := range out.Changes {
		if c.Key["caller"] == "search" && (c.New.Rate != 500 || c.Backtest.New == nil || c.Backtest.New.Requests == 0) {
			t.Errorf("the API tells %+v, want the person's number, replayed", c)
		}
	}
}

func TestANumberThatMeansNothingIsRefused(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	good := url.Values{"edit": {"callers/caller=search"}, "rate": {"500"}, "burst": {"1000"}, "reason": {"a sale"}}
	for _, c := range []struct{ field, value, says string }{
		{"rate", "many", "The rate must be a number of requests per second in digits, such as 1200 or 80.5, not many."},
		{"rate", "80,5", "not 80,5."},
		{"rate", "1e3", "not 1e3."},
		{"rate", "-5", "not -5."},
		{"rate", "", "The rate is missing"},
		{"burst", "1.5", "The burst must be a whole number of requests"},
		{"reason", " ", "A number of your own needs a reason"},
	} {
		bad := url.Values{}
		for k, v := range good {
			bad[k] = v
		}
		bad.Set(c.field, c.value)
		w := formed(h, editing+"/edit", bad)
		if w.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s=%q: %d, want the form again", c.field, c.value, w.Code)
			continue
		}
		page := strings.ReplaceAll(w.Body.String(), "\u00a0", " ")
		if !strings.Contains(page, c.says) {
			t.Errorf("%s=%q: the form does not say %q", c.field, c.value, c.says)
		}
		for name, v := range bad {
			if name != "edit" && !strings.Contains(page, `value="`+v[0]+`"`) {
				t.Errorf("%s=%q: %s is lost", c.field, c.value, name)
			}
		}
	}
	bad := url.Values{"edit": {"callers/caller=nobody"}, "rate": good["rate"], "reason": good["reason"]}
	if w := formed(h, editing+"/edit", bad); w.Code != http.StatusNotFound {
		t.Errorf("a quota that it does not hold: %d, want 404", w.Code)
	}
	if page := request(h, "GET", editing+"?edit=callers%2Fcaller%3Dsearch&rate=0", "", bearer).Body.String(); !strings.Contains(page, "it admits nothing") {
		t.Error("a rate of 0 is not told to admit nothing")
	}
	if w := request(h, "POST", editing+"/edit", good.Encode(), nil); w.Code != http.StatusUnauthorized {
		t.Errorf("by nobody: %d, want 401", w.Code)
	}
	if w := request(h, "POST", "/api/v1"+editing+"/edit", `{"bucket":"callers","key":{"caller":"search"},"rate":-1,"reason":"x"}`, func(r *http.Request) { bearer(r); r.Header.Set("Content-Type", "application/json") }); w.Code != http.StatusBadRequest {
		t.Errorf("a negative rate: %d, want 400", w.Code)
	}
	if got := f.done(); len(got) != 0 {
		t.Errorf("refused, yet done: %q", got)
	}
}

// What is accepted is what was shown: where somebody changed a number after a page or
// an answer was read, its accepting is a conflict that changes nothing.
func TestWhatWasChangedSinceItWasShownIsNotAccepted(t *testing.T) {
	seen := regexp.MustCompile(`name="seen" value="([^"]*)"`)
	for _, api := range []bool{false, true} {
		f := newFixture(t)
		h := f.handler(t)
		shown := func() string {
			if api {
				return fmt.Sprint(body(t, get(h, "/api/v1"+editing), 200)["commit"])
			}
			m := seen.FindStringSubmatch(request(h, "GET", editing, "", bearer).Body.String())
			if m == nil {
				t.Fatal("the page does not say what it shows")
			}
			return m[1]
		}
		accept := func(what string) *httptest.ResponseRecorder {
			if api {
				return post(h, "/api/v1"+editing+"/accept", `{"commit":"`+what+`"}`, bearer)
			}
			return formed(h, editing+"/accept", url.Values{"seen": {what}})
		}
		before := shown()
		if w := formed(h, editing+"/edit", url.Values{"edit": {"callers/caller=search"}, "rate": {"5"}, "reason": {"a sale"}}); w.Code != http.StatusSeeOther {
			t.Fatalf("edited: %d %s", w.Code, w.Body)
		}
		if w := accept(before); w.Code != http.StatusConflict {
			t.Errorf("api %v: what was shown before it was edited: %d, want 409", api, w.Code)
		}
		if p, err := f.db.ProposalByID(t.Context(), strings.TrimPrefix(editing, "/proposals/")); err != nil || p.State != rlc.Open {
			t.Errorf("api %v: then it is %s, %v; want it open", api, p.State, err)
		}
		if w := accept(shown()); w.Code >= 400 {
			t.Errorf("api %v: what is shown now: %d %s", api, w.Code, w.Body)
		}
	}
	// A reason is taken; a misspelt commit must not accept whatever stands.
	if w := post(newFixture(t).handler(t), "/api/v1"+editing+"/accept", `{"comit":"a1"}`, bearer); w.Code != http.StatusBadRequest {
		t.Errorf("a misspelt commit: %d, want 400", w.Code)
	}
	if w := post(newFixture(t).handler(t), "/api/v1"+editing+"/accept", `{"reason":"a sale"}`, bearer); w.Code != http.StatusOK {
		t.Errorf("accepted with a reason: %d %s", w.Code, w.Body)
	}
	f := newFixture(t)
	h := f.handler(t)
	formed(h, editing+"/edit", url.Values{"edit": {"callers/caller=search"}, "rate": {"5"}, "reason": {"a sale"}})
	if w := formed(h, editing+"/accept", nil); w.Code != http.StatusConflict {
		t.Errorf("a form that does not say what it showed: %d, want 409", w.Code)
	}
}

// full is a repository on a disk without room.
type full struct{ web.Acts }

func (full) Accept(context.Context, string, string, string) error {
	return fmt.Errorf("accept it: %w", &os.PathError{Op: "write", Path: "/var/lib/rlc/config.git/x", Err: syscall.ENOSPC})
}

// A full disk is said as such, without a place of this machine, and logged.
func TestAFullDiskIsSaid(t *testing.T) {
	f := newFixture(t)
	c := f.config()
	c.Acts = full{c.Acts}
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []*httptest.ResponseRecorder{formed(h, editing+"/accept", nil), post(h, "/api/v1"+editing+"/accept", "", bearer)} {
		if text := w.Body.String(); w.Code != http.StatusInsufficientStorage || !strings.Contains(text, "it is full or read-only") || !strings.Contains(text, "Reference for the log") || strings.Contains(text, "/var/lib") {
			t.Errorf("%d %s", w.Code, text)
		}
	}
}

// Four eyes: who changed a number is not the one who accepts it.
func TestWhoEditedDoesNotAcceptWhereFourEyesAreAsked(t *testing.T) {
	for eyes, want := range map[bool]int{false: http.StatusSeeOther, true: http.StatusForbidden} {
		h := company(t, newFixture(t), func(c *web.Config) { c.Access.FourEyes = eyes })
		form := url.Values{"edit": {"callers/caller=search"}, "rate": {"500"}, "reason": {"a sale"}}.Encode()
		if w := request(h, "POST", editing+"/edit", form, as("sue", "sre")); w.Code != http.StatusSeeOther {
			t.Fatalf("edited: %d %s", w.Code, w.Body)
		}
		seen := url.Values{"seen": {"0badcafe"}}.Encode()
		if w := request(h, "POST", editing+"/accept", seen, as("sue", "sre")); w.Code != want {
			t.Errorf("four eyes %v, by who edited: %d, want %d", eyes, w.Code, want)
		}
		if w := request(h, "POST", editing+"/accept", seen, as("tom", "sre")); eyes && w.Code != http.StatusSeeOther {
			t.Errorf("four eyes, by somebody else: %d", w.Code)
		}
	}
}

// The hint beside an empty burst is what an empty burst becomes.
func TestAnEmptyBurstIsAsManySecondsAsTheHintSays(t *testing.T) {
	h := newFixture(t).handler(t)
	at := editing + "?edit=" + url.QueryEscape("callers/caller=search")
	for rate, burst := range map[string]string{"80": "160", "1000": "2,000", "62.6": "126"} {
		page := strings.ReplaceAll(request(h, "GET", at+"&rate="+rate, "", bearer).Body.String(), "\u00a0", " ")
		if !strings.Contains(page, "empty: 2 s of the rate, as proposed") || !strings.Contains(page, "burst "+burst+": ") {
			t.Errorf("%s req/s: the preview does not say 2 s and burst %s", rate, burst)
		}
	}
}

func TestTheCommandForAShellSaysADurationAsPeopleDo(t *testing.T) {
	h := newFixture(t).handler(t)
	for ttl, want := range map[string]string{"30m": "--ttl 30m --reason", "2h": "--ttl 2h --reason", "1d": "--ttl 1d --reason"} {
		if page := get(h, "/emergency?service=checkout&caller=search&action=block&reason=x&ttl="+ttl).Body.String(); !strings.Contains(page, want) {
			t.Errorf("%s: the page has no command with %q", ttl, want)
		}
	}
}

// Of two people who change the same proposal from the same page the second is told, and
// has the form back over what the first made of it.
func TestTwoPeopleDoNotEditOverEachOther(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	edit := func(seen, rate string) *httptest.ResponseRecorder {
		return formed(h, editing+"/edit", url.Values{"seen": {seen}, "edit": {"callers/caller=search"}, "rate": {rate}, "reason": {"a sale"}})
	}
	form := regexp.MustCompile(`action="[^"]*/edit"[^>]*>\s*<input type="hidden" name="seen" value="([^"]*)"`)
	shown := func(page string) string {
		m := form.FindStringSubmatch(page)
		if m == nil {
			t.Fatal("the form does not say what it shows")
		}
		return m[1]
	}
	before := shown(request(h, "GET", editing+"?edit=", "", bearer).Body.String())
	if w := edit(before, "5"); w.Code != http.StatusSeeOther {
		t.Fatalf("the first: %d %s", w.Code, w.Body)
	}
	w := edit(before, "7")
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), `name="rate" inputmode="decimal" value="7"`) || !strings.Contains(w.Body.String(), "after it was shown") {
		t.Errorf("the second: %d, want 409 and the form with 7", w.Code)
	}
	if w := edit(shown(w.Body.String()), "7"); w.Code != http.StatusSeeOther {
		t.Errorf("the second over what the first made: %d %s", w.Code, w.Body)
	}
	if w := request(h, "POST", "/api/v1"+editing+"/edit", `{"bucket":"callers","key":{"caller":"search"},"rate":8,"reason":"x","commit":"0ther"}`, func(r *http.Request) { bearer(r); r.Header.Set("Content-Type", "application/json") }); w.Code != http.StatusConflict {
		t.Errorf("by the API over another commit: %d, want 409", w.Code)
	}
}
