package web

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// snoozeAct is a row of the audit log that keeps an episode off the page, until
// its own time or a newer row's: its object is the quota's page, its detail
// "FROM until UNTIL: REASON". One that is woken has its own time for UNTIL.
const snoozeAct = "verdict.snooze"

// snoozed is how long an episode stays off the page, unless somebody asks.
const snoozed = 7 * day

// triage is what people and the configuration say of episodes.
type triage struct {
	verdicts []rlc.Verdict
	asleep   map[string]time.Time // episode to when it comes back
	service  *rlc.Service
	episodes []rlc.Episode // of the page's service, all of them
}

// EpisodeID names an episode of a service by its quota and its begin.
func EpisodeID(bucket string, key rlc.Key, from time.Time) string {
	return bucketURL("", bucket, key) + " " + stamp(from)
}

func (s *server) triage(ctx context.Context, sh *shadowed) (*triage, error) {
	name := sh.truth.name
	t := &triage{service: sh.truth.service, episodes: sh.episodes}
	var err error
	if t.verdicts, err = s.Records.Verdicts(ctx, name); err != nil {
		return nil, err
	}
	t.asleep, err = Snoozed(ctx, s.Identities, name, s.Now())
	return t, err
}

// Snoozed are the episodes of a service that are off its page, by EpisodeID, with
// when they come back.
func Snoozed(ctx context.Context, log interface {
	AuditLog(ctx context.Context, f rlc.AuditFilter, p rlc.Page) ([]rlc.AuditEntry, int, error)
}, service string, now time.Time) (map[string]time.Time, error) {
	rows, _, err := log.AuditLog(ctx, rlc.AuditFilter{Action: snoozeAct, Object: serviceURL(service) + "/buckets/", From: now.Add(-snoozed)}, rlc.Page{Number: 1, Size: 1000})
	if err != nil {
		return nil, err
	}
	seen, asleep := map[string]bool{}, map[string]time.Time{}
	for _, e := range rows { // the newest first: it counts
		u, err := url.Parse(e.Object)
		from, rest, _ := strings.Cut(e.Detail, " until ")
		until, _, _ := strings.Cut(rest, "Z: ")
		back, err2 := time.Parse(time.RFC3339, until+"Z")
		path, ok := strings.CutPrefix(e.Object, serviceURL(service)+"/buckets/")
		if err != nil || err2 != nil || !ok || u.EscapedPath() == "" {
			continue
		}
		id := bucketURL("", "", nil) + path + " " + from
		if !seen[id] && back.After(now) {
			asleep[id] = back
		}
		seen[id] = true
	}
	return asleep, nil
}

// word is the standing verdict on an episode; "" for none.
func (t *triage) word(v *visit, e rlc.Episode) string {
	out := ""
	for _, x := range t.verdicts { // the last word comes last
		if x.Bucket == e.Bucket && x.Key.Equal(e.Key) && x.Overlaps(e.From, e.Until) {
			what := "left out"
			if x.Count {
				what = "counts as traffic"
			}
			out = x.Actor + ": " + what
			if x.Reason != "" {
				out += ", " + x.Reason
			}
		}
	}
	if back, ok := t.asleep[EpisodeID(e.Bucket, e.Key, e.From)]; ok {
		out = strings.TrimPrefix(out+"; snoozed until "+v.time(back).Text, "; ")
	}
	return out
}

// judged reports whether somebody has given a verdict on an episode.
func (t *triage) judged(e rlc.Episode) bool {
	return slices.ContainsFunc(t.verdicts, func(x rlc.Verdict) bool {
		return x.Bucket == e.Bucket && x.Key.Equal(e.Key) && x.Overlaps(e.From, e.Until)
	})
}

// waiting counts the episodes that nobody has judged or put off.
func (t *triage) waiting() (n int) {
	for _, e := range t.awake() {
		if !t.judged(e) {
			n++
		}
	}
	return n
}

// awake are the episodes that nobody put off.
func (t *triage) awake() (out []rlc.Episode) {
	for _, e := range t.episodes {
		if _, ok := t.asleep[EpisodeID(e.Bucket, e.Key, e.From)]; !ok {
			out = append(out, e)
		}
	}
	return out
}

// shown are the episodes that the page lists: those awake, or all where the
// address asks for them.
func (t *triage) shown(v *visit) []rlc.Episode {
	if v.r.URL.Query().Get("snoozed") == "show" {
		return t.episodes
	}
	return t.awake()
}

// cause is what most likely made an episode, from what is known: declared
// windows first, then its like on other days, then what else went over at the
// same time, then its shape. It is a guess and says so on the page.
func (t *triage) cause(e rlc.Episode) string {
	if t.service != nil {
		for _, w := range t.service.Exclude {
			if w.Overlaps(e.From, e.Until) {
				return "declared: " + w.Reason
			}
		}
		for _, w := range t.service.Events {
			if e.From.Before(w.Until) && w.From.Before(e.Until) {
				return "event " + w.Name
			}
		}
	}
	days, others := map[string]bool{}, map[string]bool{}
	for _, o := range t.episodes {
		same := o.Bucket == e.Bucket && o.Key.Equal(e.Key)
		if same && o.From.UTC().Hour() == e.From.UTC().Hour() {
			days[o.From.UTC().Format(time.DateOnly)] = true
		}
		if !same && o.From.Before(e.Until) && e.From.Before(o.Until) {
			others[rlc.QuotaID(o.Bucket, o.Key)] = true
		}
	}
	over := 0.0
	if e.Limit > 0 {
		over = float64(e.Peak / e.Limit)
	}
	switch {
	case len(days) >= 3:
		return fmt.Sprintf("regular traffic: on %d days at this hour", len(days))
	case len(others) > 0:
		return "the whole service: " + plural(len(others), "other quota", "other quotas") + " too"
	case over >= 1.8:
		return "incident or batch: once, " + trim(over, 1) + " × the limit"
	case e.Until.Sub(e.From) <= 5*time.Minute:
		return "a short burst"
	}
	return "growth"
}

// triageRow is one episode with its guess, its verdict and the buttons.
func (t *triage) row(v *visit, name string, e rlc.Episode) ui.EpisodeRow {
	row := episodeRow(v, name, e, rlc.Shadow, e.Bucket, e.Key)
	row.Cause, row.Word = t.cause(e), t.word(v, e)
	if v.may() {
		// The address names the episode, too: its form is told from the others by it.
		at := url.Values{"from": {e.From.UTC().Format(time.RFC3339)}}
		if len(e.Key) > 0 {
			at.Set("key", e.Key.String())
		}
		row.Post = serviceURL(name) + "/buckets/" + segment(e.Bucket) + "/episodes?" + at.Encode()
		_, row.Asleep = t.asleep[EpisodeID(e.Bucket, e.Key, e.From)]
		row.FromRaw, row.UntilRaw = e.From.UTC().Format(time.RFC3339), e.Until.UTC().Format(time.RFC3339)
	}
	return row
}

// verdictWords begin the reason of a verdict that a button gave.
var verdictWords = map[string]string{
	"raise":   "raise: it is traffic",
	"keep":    "keep: the limit is right to refuse it",
	"exclude": "exclude: no regular traffic",
}

// formEpisode is a verdict button. Raise counts the window as traffic, so that
// it is not cleaned away; keep and exclude leave it out of history, so that it
// raises nothing, and differ in what people read; snooze and wake change no run. The last word counts.
func (s *server) formEpisode(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	name, bucket := v.r.PathValue("service"), v.r.PathValue("bucket")
	key, err := rlc.ParseKey(v.r.URL.Query().Get("key"))
	if err != nil {
		return err
	}
	from, err1 := time.Parse(time.RFC3339, v.r.PostFormValue("from"))
	until, err2 := time.Parse(time.RFC3339, v.r.PostFormValue("until"))
	if err1 != nil || err2 != nil {
		return invalid("from and until must be RFC 3339 times")
	}
	reason := strings.TrimSpace(v.r.PostFormValue("reason"))
	word := v.r.PostFormValue("verdict")
	to := serviceURL(name) + "/shadow"
	if word == "snooze" || word == "wake" {
		back := s.Now().Add(snoozed)
		if word == "wake" {
			back = s.Now()
		}
		if reason == "" {
			reason = map[string]string{"snooze": "put off", "wake": "no longer put off"}[word]
		}
		if reason, err = reasonOf(reason, ""); err != nil {
			return err
		}
		t, err := s.known(name)
		if err != nil {
			return err
		}
		if t.service == nil || t.service.Bucket(bucket) == nil {
			return missing("bucket", bucket)
		}
		e := rlc.AuditEntry{At: s.Now().UTC(), Actor: v.who.name, Action: snoozeAct, Object: bucketURL(name, bucket, key), Detail: stamp(from) + " until " + stamp(back) + ": " + reason}
		if err := s.Identities.AddAudit(v.ctx(), e); err != nil {
			return err
		}
		if err := s.Acts.Recount(v.ctx(), name); err != nil {
			return err
		}
		return v.back(to, map[string]string{"snooze": "snoozed", "wake": "woken"}[word])
	}
	text, ok := verdictWords[word]
	if !ok {
		return invalid("verdict must be raise, keep, exclude, snooze or wake")
	}
	if reason != "" {
		text += "; " + reason
	}
	if err := s.setVerdict(v, &rlc.Verdict{Service: name, Bucket: bucket, Key: key, Window: rlc.Window{From: from, Until: until, Reason: text}, Count: word == "raise"}); err != nil {
		return err
	}
	return v.back(to, "verdict")
}
