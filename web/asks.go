package web

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
	"github.com/openrlc/rlc/web/ui"
)

// ask is a caller's request for a higher limit. It is a row of the audit log,
// and so is its answer: it changes no limit by itself.
type ask struct {
	id, service, bucket string
	key                 rlc.Key
	rate                rlc.Rate
	reason, actor       string
	at                  time.Time
	over                bool // answered, or granted by the limit in force
}

const (
	askAct    = "quota.ask"
	answerAct = "quota.answer"
	askAge    = 30 * day // older ones are no longer shown
	mostAsks  = 200      // read at once
	askPace   = 5        // of one person, a minute
)

// asks are those that stand: not answered, not granted by the limit in force.
// service "" is all of them.
func (s *server) asks(ctx context.Context, service string) ([]ask, error) {
	all, err := s.asked(ctx, service)
	return slices.DeleteFunc(all, func(a ask) bool { return a.over }), err
}

// asked are those that stand and those that are over, the newest first.
func (s *server) asked(ctx context.Context, service string) ([]ask, error) {
	since := s.Now().Add(-askAge)
	object := ""
	if service != "" {
		object = serviceURL(service) + "/buckets/"
	}
	asked, _, err := s.Identities.AuditLog(ctx, rlc.AuditFilter{Action: askAct, Object: object, From: since}, rlc.Page{Number: 1, Size: mostAsks})
	if err != nil || len(asked) == 0 {
		return nil, err
	}
	answered, _, err := s.Identities.AuditLog(ctx, rlc.AuditFilter{Action: answerAct, From: since}, rlc.Page{Number: 1, Size: 1000})
	if err != nil {
		return nil, err
	}
	over := map[string]bool{}
	for _, a := range answered {
		over[a.Object] = true
	}
	_, desired := s.Truths.Desired()
	var out []ask
	for _, row := range asked {
		a, ok := readAsk(row)
		if !ok || service != "" && a.service != service {
			continue
		}
		a.over = over[a.id]
		if desired != nil {
			q := desired.Quota(a.service, a.bucket, a.key)
			a.over = a.over || q != nil && q.Rate >= a.rate
		}
		out = append(out, a)
	}
	return out, nil
}

// readAsk reads an audit row: its object is the address of the quota's page,
// its detail "RATE req/s: REASON".
func readAsk(e rlc.AuditEntry) (a ask, ok bool) {
	u, err := url.Parse(e.Object)
	if err != nil {
		return a, false
	}
	parts := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/services/"), "/buckets/")
	number, reason, found := strings.Cut(e.Detail, " req/s: ")
	if len(parts) != 2 || !found {
		return a, false
	}
	a = ask{id: e.ID, actor: e.Actor, at: e.At, reason: reason}
	var err1, err2, err3, err4 error
	a.service, err1 = url.PathUnescape(parts[0])
	a.bucket, err2 = url.PathUnescape(parts[1])
	a.key, err3 = rlc.ParseKey(u.Query().Get("key"))
	rate, err4 := strconv.ParseFloat(number, 64)
	a.rate = rlc.Rate(rate)
	return a, err1 == nil && err2 == nil && err3 == nil && err4 == nil
}

// suggested is a rate to ask for: what the peak that counts needs with
// 30 % to spare, at least a quarter more than the limit.
func suggested(r *row) (rate rlc.Rate, because string) {
	limit := 0.0
	if l := r.force(); l != nil {
		limit = float64(l.Rate)
	}
	peak := float64(r.peak())
	if 1.3*peak > 1.25*limit {
		return rlc.Rate(math.Ceil(1.3 * peak)), "Suggested: the peak that counts, " + rateOf(peak) + ", and 30 %."
	}
	return rlc.Rate(math.Ceil(1.25 * limit)), "Suggested: the limit and 25 %. The peak that counts is " + rateOf(peak) + "."
}

func rateOf(peak float64) string {
	if peak == 0 {
		return unknown
	}
	return rate(peak) + " req/s"
}

// form is the form of one explained request.
func (e *explained) form(v *visit) *ui.AskForm {
	suggests, because := suggested(e.quota)
	f := &ui.AskForm{Quota: quotaName(e.quota.name, e.quota.key), Rate: strconv.FormatFloat(float64(suggests), 'f', -1, 64), Because: because, Owner: "whoever is on call: the service has no owner"}
	if len(e.truth.service.Owners) > 0 {
		f.Owner = strings.Join(e.truth.service.Owners, ", ")
	}
	if v.who.name == "" {
		f.SignIn = "/login?next=" + query(v.r.URL.RequestURI())
		return f
	}
	f.Fields = []ui.Field{{Name: "service", Value: e.truth.name}, {Name: "bucket", Value: e.quota.name}, {Name: "key", Value: e.quota.key.String()}, {Name: "back", Value: v.r.URL.RequestURI()}}
	return f
}

// askPage is where a request for more comes from.
func askPage(v *visit) string { return local(v.r.PostForm.Get("back")) }

// formAsk is POST /why: a person asks for more.
func (s *server) formAsk(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	key, err := rlc.ParseKey(v.r.PostFormValue("key"))
	if err != nil {
		return err
	}
	name, bucket := v.r.PostFormValue("service"), v.r.PostFormValue("bucket")
	t, err := s.known(name)
	if err != nil {
		return err
	}
	rate, err := s.askedRate(t, bucket, key, v.r.PostFormValue("rate"))
	if err != nil {
		return err
	}
	reason, err := reasonOf(v.r.PostFormValue("reason"), askNeeds)
	if err != nil {
		return err
	}
	if !s.logins.take("ask "+v.who.name, askPace) {
		return fault{status: http.StatusTooManyRequests, detail: fmt.Sprintf("That is more than %d a minute. Try again in a minute.", askPace)}
	}
	earlier, err := s.asked(v.ctx(), name)
	if err != nil {
		return err
	}
	again := 0
	for _, a := range earlier {
		if a.actor != v.who.name || a.bucket != bucket || !a.key.Equal(key) || a.rate != rate || a.reason != reason {
			continue
		}
		if !a.over {
			return v.back(local(v.r.PostFormValue("back")), "asked")
		}
		again++
	}
	number, at := strconv.FormatFloat(float64(rate), 'f', -1, 64), s.Now().UTC()
	e := rlc.AuditEntry{At: at, Actor: v.who.name, Action: askAct, Object: bucketURL(name, bucket, key), Detail: number + " req/s: " + reason}
	// What is the same ask has the same id, whichever replica takes it: sent twice
	// at once it is one row.
	e.ID = "ask-" + hashOf(strings.Join([]string{e.Actor, e.Object, e.Detail, at.Format(time.DateOnly), strconv.Itoa(again)}, "\x00"))[:24]
	n := rlc.Notice{ID: e.ID, Kind: "ask", Service: name, At: at, Text: v.who.name + " asks for " + number + " req/s on " + rlc.QuotaID(bucket, key) + ": " + reason}
	if err := s.Acts.Ask(v.ctx(), e, n); err != nil {
		return err
	}
	return v.back(local(v.r.PostFormValue("back")), "asked")
}

// askedRate reads the rate that somebody asks for, and checks that it is more
// than the limit in force of a quota that the bucket can have.
func (s *server) askedRate(t *truth, bucket string, key rlc.Key, text string) (rlc.Rate, error) {
	if t.service == nil {
		return 0, missing("bucket", bucket)
	}
	i := slices.IndexFunc(t.service.Buckets, func(b rlc.Bucket) bool { return b.Name == bucket })
	if i < 0 {
		return 0, missing("bucket", bucket)
	}
	if err := keyFits(&t.service.Buckets[i], key); err != nil {
		return 0, err
	}
	n, err := decimal(text, "The rate", "requests per second")
	if err != nil {
		return 0, wrongIn("rate", err)
	}
	if n == 0 || n > rlc.MaxRate {
		return 0, wrongIn("rate", invalid("The rate must be above 0 and at most %s requests per second.", count(rlc.MaxRate)))
	}
	_, desired := s.Truths.Desired()
	_, live := s.Truths.Live()
	t.lay(desired, live, nil)
	r := t.hit(match.Hit{Bucket: i, Key: key}, "")
	if l := r.force(); l != nil && n <= float64(l.Rate) {
		return 0, wrongIn("rate", invalid("%s is not above the limit in force, %s req/s.", text, strconv.FormatFloat(float64(l.Rate), 'f', -1, 64)))
	}
	return rlc.Rate(n), nil
}

// mostValue is how many bytes a value of an asked key may have.
const mostValue = 256

// keyFits reports what keeps a bucket from having a quota of this key.
func keyFits(b *rlc.Bucket, key rlc.Key) error {
	for name := range key {
		if !slices.Contains(b.Each, name) {
			return invalid("bucket %s has no quota by %q: it counts by %s", b.Name, clipped(name), cmp.Or(strings.Join(b.Each, ", "), "nothing"))
		}
	}
	for _, name := range b.Each {
		value := key[name]
		switch {
		case value == "":
			return invalid("the key names no %s, which bucket %s counts by", name, b.Name)
		case len(value) > mostValue:
			return invalid("%s is longer than %d bytes", name, mostValue)
		case !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }):
			return invalid("%s must be printable text", name)
		}
	}
	return nil
}

// clipped is the beginning of a text that nothing bounds.
func clipped(s string) string { return s[:min(len(s), 40)] }

// formAnswer is POST /services/{service}/asks/{id}/answer: an owner's word that
// ends an ask.
func (s *server) formAnswer(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	name, id := v.r.PathValue("service"), v.r.PathValue("id")
	reason, err := reasonOf(v.r.PostFormValue("reason"), answerNeeds)
	if err != nil {
		return err
	}
	stand, err := s.asks(v.ctx(), name)
	if err != nil {
		return err
	}
	for _, a := range stand {
		if a.id != id {
			continue
		}
		e := rlc.AuditEntry{At: s.Now().UTC(), Actor: v.who.name, Action: answerAct, Object: id, Detail: name + ", " + a.actor + " had asked: " + reason}
		if err := s.Identities.AddAudit(v.ctx(), e); err != nil {
			return err
		}
		return v.back(serviceURL(name), "answered")
	}
	return missing("ask", id)
}

// askRows lists what stands of a service; quota "" is all of its quotas.
func (s *server) askRows(v *visit, service, quota string) ([]ui.AskRow, error) {
	stand, err := s.asks(v.ctx(), service)
	if err != nil {
		return nil, err
	}
	var out []ui.AskRow
	for _, a := range stand {
		if quota != "" && rlc.QuotaID(a.bucket, a.key) != quota || len(out) == 20 {
			continue
		}
		row := ui.AskRow{At: v.time(a.at), Quota: ui.Link{Text: quotaName(a.bucket, a.key), URL: bucketURL(a.service, a.bucket, a.key)}, Text: "to be " + rate(float64(a.rate)) + " req/s: " + a.reason, By: "asked by " + a.actor}
		if v.may() && s.mayAct(v.who, service) {
			row.Answer = serviceURL(service) + "/asks/" + url.PathEscape(a.id) + "/answer"
		}
		out = append(out, row)
	}
	return out, nil
}

// askTasks are the asks on the overview.
func askTasks(stand []ask) []ui.Task {
	const most = 5
	chip := ui.Chip{Mode: "new", Text: "asked"}
	var out []ui.Task
	for i, a := range stand {
		if i == most {
			out = append(out, ui.Task{Chip: chip, Title: "And " + plural(len(stand)-most, "more", "more"), Detail: "from callers that ask for a higher limit", Action: ui.Link{Text: "Audit", URL: "/audit?action=" + askAct}})
			break
		}
		out = append(out, ui.Task{Chip: chip, Title: a.service, Detail: a.actor + " asks for " + rate(float64(a.rate)) + " req/s on " + quotaName(a.bucket, a.key) + ": " + a.reason, Action: ui.Link{Text: "Answer", URL: serviceURL(a.service) + "#asked"}})
	}
	return out
}
