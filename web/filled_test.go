package web_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/web"
)

// narrow is a gate that is open, for zones that there are.
type narrow struct{ passed }

func (n narrow) Promote(ctx context.Context, service, bucket string, zones []string, all bool, actor string) (rollout.Promotion, error) {
	if slices.Contains(zones, "mars-1") {
		return rollout.Promotion{}, fmt.Errorf("%w: no enforcer is in zone mars-1", rlc.ErrInvalid)
	}
	return n.passed.Promote(ctx, service, bucket, zones, all, actor)
}

var (
	postForms = regexp.MustCompile(`(?s)<form[^>]*method="post"[^>]*>.*?</form>`)
	controls  = regexp.MustCompile(`(?s)<(?:input|button)[^>]*>|<textarea[^>]*>.*?</textarea>`)
)

// attr is an attribute of a tag.
func attr(tag, name string) string {
	m := regexp.MustCompile(`(?s)[\s]` + name + `="([^"]*)"`).FindStringSubmatch(tag[:strings.IndexByte(tag, '>')+1])
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

// typeable reports whether a person types into a control.
func typeable(tag string) bool {
	if strings.HasPrefix(tag, "<textarea") {
		return !strings.Contains(tag[:strings.IndexByte(tag, '>')], " hidden")
	}
	return strings.HasPrefix(tag, "<input") && slices.Contains([]string{"", "text"}, attr(tag, "type"))
}

// sentForm is a page's form with the names that a person types into, and what else a
// browser sends of it.
type sentForm struct {
	action string
	typed  []string
	sends  url.Values
}

func formsOf(page string) (out []sentForm) {
	for _, text := range postForms.FindAllString(page, -1) {
		f := sentForm{action: attr(text, "action"), sends: url.Values{}}
		for _, tag := range controls.FindAllString(text[strings.IndexByte(text, '>'):], -1) {
			name, value, kind := attr(tag, "name"), attr(tag, "value"), attr(tag, "type")
			switch {
			case name == "":
			case typeable(tag):
				f.typed = append(f.typed, name)
			case strings.HasPrefix(tag, "<textarea"):
				f.sends.Set(name, html.UnescapeString(strings.TrimPrefix(tag[strings.IndexByte(tag, '>')+1:len(tag)-len("</textarea>")], "\n")))
			case (kind == "radio" || kind == "checkbox") && !strings.Contains(tag, " checked"):
			case strings.HasPrefix(tag, "<button") && f.sends.Has(name): // one button is pressed
			default:
				f.sends.Set(name, value)
			}
		}
		if len(f.typed) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// typeWrong are what a person may type by mistake; a name that is not here has text
// that is too long.
var typeWrong = map[string]string{"rate": "80,5", "burst": "1.5", "owners": strings.Repeat("team, ", 20) + "team", "zones": "mars-1", "text": "domain: [", "service": "checkout", "caller": "search"}

// Whatever form is refused comes back as it was filled in, beside what is wrong with
// it: on every page, for every field that is typed into.
func TestARefusedFormComesBackAsItWasFilledIn(t *testing.T) {
	f := newFixture(t)
	h := company(t, f, func(c *web.Config) { c.Rollouts = narrow{passed{rollouts{f}}} })
	who := func(r *http.Request) {
		as("ada", "admins,team-payments")(r)
		r.Header.Set("Accept", "text/html")
	}
	ask := url.Values{"service": {"checkout"}, "bucket": {"callers"}, "key": {"caller=search"}, "rate": {"500"}, "reason": {"launch"}}
	if w := request(h, "POST", "/why", ask.Encode(), who); w.Code != http.StatusSeeOther {
		t.Fatalf("ask: %d %s", w.Code, w.Body)
	}
	pasted := url.Values{"text": {"domain: pasted\ndescriptors:\n  - key: caller\n    value: search\n    rate_limit: {unit: second, requests_per_unit: 300}\n"}}
	pages := map[string]string{"/import/": request(h, "POST", "/import", pasted.Encode(), who).Body.String()}
	for _, at := range []string{
		"/emergency", editing, editing + "?edit=callers%2Fcaller%3Dsearch", "/services/checkout/history", "/services/checkout/history?from=" + strings.Repeat("b", 40) + "&to=" + strings.Repeat("a", 40),
		"/services/checkout/buckets/callers/promote", "/services/ledger/onboard", "/import", "/services/checkout/shadow", "/services/checkout", "/why?service=checkout&caller=search", "/services/checkout/buckets/callers?key=caller%3Dsearch",
	} {
		w := request(h, "GET", at, "", who)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d", at, w.Code)
		}
		pages[at] = w.Body.String()
	}
	reached := map[string]bool{}
	for at, page := range pages {
		for _, form := range formsOf(page) {
			reached[routeOf(form.action)] = true
			for _, wrong := range form.typed {
				if wrong == "burst" && form.action != editing+"/edit" || form.action == "/emergency" && slices.Contains([]string{"service", "caller", "procedure"}, wrong) {
					continue // nothing that one line can hold is wrong there
				}
				in := url.Values{}
				for name, values := range form.sends {
					in[name] = values
				}
				if form.action == editing+"/edit" {
					in.Set("edit", "callers/caller=search")
				}
				if form.action == "/emergency" {
					in.Set("action", map[bool]string{true: "drop", false: "limit"}[wrong == "drop"])
				}
				for _, name := range form.typed {
					in.Set(name, map[string]string{"rate": "5000", "burst": "6000", "drop": "12.5", "other": "45m", "also": "tenant=acme", "owners": "team-typed", "text": "domain: typed"}[name])
					if in.Get(name) == "" {
						in.Set(name, "typed "+name)
					}
				}
				in.Set(wrong, typeWrong[wrong])
				if in.Get(wrong) == "" {
					in.Set(wrong, strings.Repeat("long ", 500)+"text")
				}
				w := request(h, "POST", form.action, in.Encode(), func(r *http.Request) {
					who(r)
					r.Header.Set("Referer", "http://"+r.Host+at)
				})
				back := w.Body.String()
				if w.Code != http.StatusUnprocessableEntity {
					t.Errorf("%s of %s, wrong %s: %d, want 422 %.200s", form.action, at, wrong, w.Code, back)
					continue
				}
				if n := strings.Count(back, ` id="wrong"`); n != 1 && wrong != "text" { // the page of a pasted file lists its errors
					t.Errorf("%s of %s, wrong %s: nothing beside it", form.action, at, wrong)
				}
				if n := strings.Count(back, `aria-invalid="true" `); wrong != "text" && wrong != "zones" && (n != 1 || !regexp.MustCompile(`<(input|textarea)[^>]* name="`+wrong+`"[^>]* aria-invalid="true"`).MatchString(back)) {
					t.Errorf("%s of %s: %d fields are marked for a wrong %s", form.action, at, n, wrong)
				}
				for _, name := range form.typed {
					want := html.EscapeString(in.Get(name))
					if !strings.Contains(back, ` value="`+want+`"`) && !strings.Contains(back, want+"</textarea>") {
						t.Errorf("%s of %s, wrong %s: what was typed as %s is lost", form.action, at, wrong, name)
					}
				}
				for name, values := range form.sends {
					for _, radio := range regexp.MustCompile(`<input[^>]*type="radio"[^>]* name="`+name+`"[^>]*>`).FindAllString(back, -1) {
						if on := strings.Contains(radio, " checked"); on != (attr(radio, "value") == values[0]) && form.action != "/emergency" {
							t.Errorf("%s: choice %s is %v", form.action, radio, on)
						}
					}
				}
			}
		}
	}
	// What nobody types into has nothing to lose: buttons, and a token that no page repeats.
	untyped := []string{"/hooks/forge", "/login", "/logout", "/proposals/{id}/accept", "/runs", "/follow", "/services/{service}/pins/{pin}/lift", "/services/{service}/buckets/{bucket}/verdicts", "/emergency/{id}/extend", "/emergency/{id}/end", "/emergency/{id}/keep"}
	for _, r := range web.Routes() {
		if r.Method == "POST" && !strings.HasPrefix(r.Path, "/api/") && !slices.Contains(untyped, r.Path) && !reached[r.Path] {
			t.Errorf("no page was asked that has the form of %s", r.Path)
		}
	}
	for _, act := range f.done() {
		if strings.Contains(act, "typed") {
			t.Errorf("refused, yet done: %s", act)
		}
	}
}

// routeOf is the route that takes what is sent to an address.
func routeOf(action string) string {
	path, _, _ := strings.Cut(action, "?")
	parts := strings.Split(path, "/")
	for _, r := range web.Routes() {
		want := strings.Split(r.Path, "/")
		if r.Method != "POST" || len(want) != len(parts) {
			continue
		}
		fits := true
		for i := range want {
			fits = fits && (want[i] == parts[i] || strings.HasPrefix(want[i], "{"))
		}
		if fits {
			return r.Path
		}
	}
	return ""
}
