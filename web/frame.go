package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// zones are offered to everybody; a browser's own is added by app.js and kept
// in the cookie.
var zones = []string{"UTC", "Europe/London", "Europe/Paris", "America/New_York", "America/Los_Angeles", "Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Australia/Sydney"}

// prefer reads time zone and theme: from the URL, which is remembered in a
// cookie, else from the cookie.
func (s *server) prefer(v *visit) {
	v.zone = time.UTC
	q := v.r.URL.Query()
	name := q.Get("tz")
	if l := zone(name); l != nil {
		v.zone = l
		v.remember("tz", l.String())
	} else if c, err := v.r.Cookie("tz"); err == nil {
		if name, err := url.QueryUnescape(c.Value); err == nil && zone(name) != nil {
			v.zone = zone(name)
		}
	}
	if t := q.Get("theme"); t == "light" || t == "dark" {
		v.theme = t
		v.remember("theme", t)
	} else if c, err := v.r.Cookie("theme"); err == nil && (c.Value == "light" || c.Value == "dark") {
		v.theme = c.Value
	}
}

func (v *visit) remember(name, value string) {
	http.SetCookie(v.w, &http.Cookie{Name: name, Value: url.QueryEscape(value), Path: "/", MaxAge: 31536000, SameSite: http.SameSiteLaxMode, Secure: v.r.TLS != nil})
}

// zone finds an IANA zone by its name, one that is offered in any case: utc is
// UTC. It is nil for anything else, "Local" among it.
func zone(name string) *time.Location {
	if name == "" || strings.EqualFold(name, "Local") || len(name) > 64 {
		return nil
	}
	for _, offered := range zones {
		if strings.EqualFold(name, offered) {
			name = offered
		}
	}
	l, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	return l
}

// noZone says that the address asks for times in a zone that there is not; nil
// where it does not.
func (v *visit) noZone() []ui.Banner {
	name := v.r.URL.Query().Get("tz")
	if name == "" || zone(name) != nil {
		return nil
	}
	return []ui.Banner{{Level: "warn", Text: "There is no time zone " + clipped(name) + ".", Detail: "Times are in " + city(v.zone.String()) + "; a zone is named like Europe/Paris or UTC."}}
}

// frame gathers what every page shares: one count of open proposals, and the
// server's word on itself. Where the records are away a page that reads none of
// them is made all the same, and says so.
func (s *server) frame(v *visit, title, tab string) (ui.Frame, error) {
	_, open, err := s.Records.Proposals(v.ctx(), rlc.Open, "", rlc.Page{Number: 1, Size: 1})
	if err != nil && !unavailable(err) {
		return ui.Frame{}, err
	}
	f := s.framed(v, title, tab, open)
	if err != nil {
		f.Banners = append(f.Banners, ui.Banner{Level: "bad", Text: "The records cannot be reached.", Detail: "Limits in force stay as they are, and overrides work: they are kept in the data folder and recorded later."})
	}
	return f, nil
}

// framed is frame of a page that knows how many proposals are open.
func (s *server) framed(v *visit, title, tab string, open int) ui.Frame {
	f := s.bareFrame(v, title)
	f.Tab = tab
	f.Every = refreshed[v.r.Pattern]
	f.At = v.timeAs(s.Now(), "15:04:05")
	if open > 0 {
		f.Open = count(float64(open))
	}
	f.Banners = append(v.noZone(), s.alarms(v)...)
	s.overridden(v, &f)
	f.Done = v.done()
	return f
}

// alarms are the server's word on itself.
func (s *server) alarms(v *visit) (all []ui.Banner) {
	for _, b := range s.Status.Banners() {
		all = append(all, ui.Banner{Level: b.Level, Text: b.Text, Detail: b.Detail, Since: v.time(b.Since), Follow: b.Follow && v.who.role == actor})
	}
	return all
}

// refreshed are the pages whose parts are asked for again while somebody looks,
// and every how many seconds.
var refreshed = map[string]int{
	"GET /{$}":                                         15,
	"GET /scorecard":                                   60,
	"GET /services":                                    15,
	"GET /services/{service}":                          15,
	"GET /services/{service}/shadow":                   15,
	"GET /services/{service}/history":                  15,
	"GET /services/{service}/buckets/{bucket}":         30,
	"GET /services/{service}/buckets/{bucket}/promote": 15,
	"GET /callers/{caller}":                            30,
	"GET /why":                                         30,
	"GET /proposals":                                   15,
	"GET /proposals/{id}":                              15,
	"GET /emergency":                                   5,
	"GET /loop":                                        5,
	"GET /settings":                                    30,
	"GET /runs":                                        10,
	"GET /runs/{id}":                                   10,
}

// done names the outcome of an act that led here. A browser says where a request
// comes from: an address that somebody was sent tells of no act.
func (v *visit) done() string {
	if from := v.r.Header.Get("Sec-Fetch-Site"); from != "" && from != "same-origin" {
		return ""
	}
	return done[v.r.URL.Query().Get("done")]
}

// done are the outcomes that a page names after an act; the URL carries the
// word, never the text.
var done = map[string]string{
	"accepted":  "Accepted. It is on the base branch; enforcers follow within seconds.",
	"rejected":  "Rejected. The reason is recorded.",
	"edited":    "Committed to the review’s branch in your name. Runs leave the branch alone; accept it to put the number in force.",
	"verdict":   "Recorded. The next run follows your word.",
	"snoozed":   "Snoozed. It comes back in 7 days.",
	"woken":     "Woken. It is on the list again.",
	"onboarded": "Committed, all in shadow. A run reads its history now; its limits appear here for review.",
	"imported":  "Committed, all in shadow. The service stands here within a minute; a run reads its history then.",
	"asked":     "Asked. The owners see it on the overview and on their service's page.",
	"answered":  "Answered. It is on the audit page.",
	"follow":    "RLC follows the new history of the base branch.",
	"override":  "In force. The zones below say how far it has come.",
	"extended":  "Extended.",
	"ended":     "Ended. Requests above their old limit come back little by little.",
	"promote":   "Enforced in the first zone. The others follow as each one has soaked.",
	"demote":    "Back in shadow everywhere.",
	"rollback":  "Rolled back, as a new version. Numbers that went are pinned.",
	"lift":      "Lifted: runs may propose the number again.",
	"kept":      "A cap that does the same is on the base branch, in your name. The override stands until its end.",
	"switch":    "Done. Every page shows a switch that is on.",
	"run":       "The run has started. This page shows it when it is done.",
}

// bareFrame needs no store and tells nothing: errors and the sign-in page use
// it.
func (s *server) bareFrame(v *visit, title string) ui.Frame {
	f := ui.Frame{
		Title: title, Assets: s.assets.prefix, Theme: v.theme, Flip: "dark",
		Zone: zoneName(v.zone, s.Now()), Back: url.QueryEscape(v.r.URL.RequestURI()),
	}
	if v.r.Method != http.MethodGet {
		f.Back = "%2F"
	}
	if v.r.URL.Path == "/login" { // from there it goes on to where it was to go
		f.Back = url.QueryEscape(local(v.r.FormValue("next")))
	}
	if v.theme == "dark" {
		f.Flip = "light"
	}
	f.User = v.who.name
	if v.r.URL.Path == "/services" {
		f.Search = v.r.URL.Query().Get("q")
	}
	listed := false
	for _, name := range zones {
		on := name == v.zone.String()
		listed = listed || on
		f.Zones = append(f.Zones, ui.Choice{Value: name, Label: city(name), On: on})
	}
	if !listed {
		f.Zones = append(f.Zones, ui.Choice{Value: v.zone.String(), Label: city(v.zone.String()), On: true})
	}
	for name, values := range v.r.URL.Query() {
		if name == "token" { // it has no business there, and is not repeated
			continue
		}
		if name == "tz" || name == "theme" || name == "done" || len(values) == 0 {
			continue
		}
		for _, value := range values[:min(len(values), 100)] {
			f.Keep = append(f.Keep, ui.Field{Name: name, Value: value})
		}
	}
	return f
}

func city(zone string) string {
	if i := strings.LastIndexByte(zone, '/'); i >= 0 {
		zone = zone[i+1:]
	}
	return strings.ReplaceAll(zone, "_", " ")
}

func zoneName(l *time.Location, now time.Time) string {
	if l == time.UTC {
		return "UTC"
	}
	name, _ := now.In(l).Zone()
	return name
}

// time renders an instant in the viewer's zone: day and minute in the text, in
// full, with UTC, on hover. The zero time is a dash.
func (v *visit) time(t time.Time) ui.Time {
	return v.timeAs(t, "2 Jan 15:04")
}

func (v *visit) timeAs(t time.Time, layout string) ui.Time {
	if t.IsZero() {
		return ui.Time{Text: "—"}
	}
	l := t.In(v.zone)
	full := l.Format("Mon 2006-01-02 15:04:05 MST")
	if v.zone != time.UTC {
		full += " = " + t.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return ui.Time{ISO: t.UTC().Format(time.RFC3339), Text: l.Format(layout), Full: full}
}

// dated is an instant as a piece of a sentence.
func dated(t ui.Time) ui.Part { return ui.Part{Text: t.Text, At: t} }

// with is this page's address with some query parameters changed; an empty
// value removes one. A changed filter starts at page 1.
func (v *visit) with(pairs ...string) string {
	q := v.r.URL.Query()
	q.Del("done")
	if len(pairs) > 0 && pairs[0] != "page" {
		q.Del("page")
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			q.Del(pairs[i])
		} else {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	u := url.URL{Path: v.r.URL.Path, RawPath: v.r.URL.RawPath, RawQuery: q.Encode()}
	return u.String()
}

// as is this page's address with an ending: .json or .csv.
func (v *visit) as(ending string) string {
	q := v.r.URL.Query()
	q.Del("done")
	u := url.URL{Path: v.r.URL.Path + ending, RawQuery: q.Encode()}
	if v.r.URL.RawPath != "" {
		u.RawPath = v.r.URL.RawPath + ending
	}
	return u.String()
}

// pager is the foot of a list of total rows.
func (v *visit) pager(p rlc.Page, shown, total int) ui.Pager {
	out := ui.Pager{CSV: v.as(".csv"), JSON: v.as(".json")}
	if shown == 0 {
		if total > 0 {
			out.Range = "0 of " + count(float64(total))
		}
		if p.Number > 1 {
			v.gone = fmt.Errorf("%w: no page %d of this list; it has %s", rlc.ErrNotFound, p.Number, plural(max(1, (total+p.Limit()-1)/p.Limit()), "page", "pages"))
		}
	} else {
		out.Range = count(float64(p.Offset()+1)) + "–" + count(float64(p.Offset()+shown)) + " of " + count(float64(total))
	}
	if p.Number > 1 {
		out.Prev = v.with("page", strconv.Itoa(p.Number-1))
	}
	if p.Offset()+shown < total {
		out.Next = v.with("page", strconv.Itoa(p.Number+1))
	}
	return out
}

// sorted makes the heads of a table. Each column is label, sort name ("" for
// none) and class.
func (v *visit) sorted(by string, desc bool, columns ...[3]string) []ui.Column {
	out := make([]ui.Column, 0, len(columns))
	for _, c := range columns {
		col := ui.Column{Label: c[0], Class: c[2]}
		if c[1] != "" {
			dir := "asc"
			if c[1] == by {
				col.Sort = "ascending"
				if desc {
					col.Sort = "descending"
				} else {
					dir = "desc"
				}
			}
			col.URL = v.with("sort", c[1], "dir", dir)
		}
		out = append(out, col)
	}
	return out
}
