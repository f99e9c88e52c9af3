package web

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/internal/planner"
)

// maxReason bounds a person's reason, in bytes.
const maxReason = 2000

// What is said where an act comes without its reason.
const (
	rejectNeeds   = "A rejection needs a reason: the next run and the history show it."
	rollbackNeeds = "A rollback needs a reason: the history shows it."
	demoteNeeds   = "Going back to shadow needs a reason: the history shows it."
	overrideNeeds = "An override needs a reason: it stands in the audit log and on every page."
	switchNeeds   = "A kill switch needs a reason: it stands in the audit log and on every page."
	askNeeds      = "An ask needs a reason: the owners of the service decide by it."
	answerNeeds   = "An answer needs a reason: it is all that whoever asked is told."
)

// --- by form, from a page

func (s *server) formAccept(v *visit) error {
	// A form that does not say what its page showed showed the run's numbers.
	seen := cmp.Or(v.r.PostFormValue("seen"), rlc.RunsNumbers)
	if err := s.Acts.Accept(v.ctx(), v.r.PathValue("id"), seen, v.who.name); err != nil {
		return err
	}
	return v.back(proposalURL(v.r.PathValue("id")), "accepted")
}

func (s *server) formReject(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	reason, err := reasonOf(v.r.PostFormValue("reason"), rejectNeeds)
	if err != nil {
		return err
	}
	if err := s.Acts.Reject(v.ctx(), v.r.PathValue("id"), v.who.name, reason); err != nil {
		return err
	}
	return v.back(proposalURL(v.r.PathValue("id")), "rejected")
}

func (s *server) formRun(v *visit) error {
	service := v.r.URL.Query().Get("service")
	run, err := s.ask(v, service, time.Time{})
	if err != nil {
		return err
	}
	if _, err := s.Records.RunByID(v.ctx(), run.ID); err != nil {
		return v.back("/runs", "run") // it is not in the records yet
	}
	return v.back(runURL(run.ID), "run")
}

func (s *server) formFollow(v *visit) error {
	if err := s.Acts.FollowRewritten(v.ctx(), v.who.name); err != nil {
		return err
	}
	return v.back("/", "follow")
}

func (s *server) formVerdict(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	service, bucket := v.r.PathValue("service"), v.r.PathValue("bucket")
	key, err := rlc.ParseKey(v.r.URL.Query().Get("key"))
	if err != nil {
		return err
	}
	from, err1 := time.Parse(time.RFC3339, v.r.PostFormValue("from"))
	until, err2 := time.Parse(time.RFC3339, v.r.PostFormValue("until"))
	if err1 != nil || err2 != nil {
		return invalid("from and until must be RFC 3339 times")
	}
	counts := v.r.PostFormValue("count")
	if counts != "true" && counts != "false" {
		return invalid("count must be true or false")
	}
	if err := s.setVerdict(v, &rlc.Verdict{Service: service, Bucket: bucket, Key: key, Window: rlc.Window{From: from, Until: until, Reason: v.r.PostFormValue("reason")}, Count: counts == "true"}); err != nil {
		return err
	}
	return v.back(bucketURL(service, bucket, key), "verdict")
}

// back leads a browser on after an act; the page names the outcome.
func (v *visit) back(to, outcome string) error {
	sep := "?"
	if strings.Contains(to, "?") {
		sep = "&"
	}
	http.Redirect(v.w, v.r, to+sep+"done="+outcome, http.StatusSeeOther)
	return nil
}

// reasonOf is a person's reason without the space around it; needs is what is
// said where there is none: which act needs it, and what for.
func reasonOf(text, needs string) (string, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return "", wrongIn("reason", invalid("%s", needs))
	case len(text) > maxReason:
		return "", wrongIn("reason", invalid("The reason is longer than %d bytes.", maxReason))
	case !utf8.ValidString(text):
		return "", wrongIn("reason", invalid("The reason is not valid UTF-8."))
	}
	if i := strings.IndexFunc(text, untyped); i >= 0 {
		return "", wrongIn("reason", invalid("The reason holds %U, which is no character that people read; leave it out.", []rune(text[i:])[0]))
	}
	return text, nil
}

// untyped reports whether a character is none that people write: a control character
// other than an end of line and a tab.
func untyped(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\n\r\t", r) }

// --- by JSON

func (s *server) apiAccept(v *visit) error {
	var in struct {
		Commit string `json:"commit"`
		Reason string `json:"reason"` // taken, as other acts take one; not kept
	}
	if v.r.ContentLength != 0 && isJSON(v.r) {
		if err := read(v, &in); err != nil {
			return err
		}
	}
	if err := s.Acts.Accept(v.ctx(), v.r.PathValue("id"), in.Commit, v.who.name); err != nil {
		return err
	}
	return s.apiProposal(v)
}

func (s *server) apiReject(v *visit) error {
	var in struct {
		Reason string `json:"reason"`
	}
	if err := read(v, &in); err != nil {
		return err
	}
	reason, err := reasonOf(in.Reason, rejectNeeds)
	if err != nil {
		return err
	}
	if err := s.Acts.Reject(v.ctx(), v.r.PathValue("id"), v.who.name, reason); err != nil {
		return err
	}
	return s.apiProposal(v)
}

func (s *server) apiFollow(v *visit) error {
	if err := s.Acts.FollowRewritten(v.ctx(), v.who.name); err != nil {
		return err
	}
	return s.apiSnapshot(v)
}

// request asks for a run or a plan. Both fields may be left out: all services,
// now.
type request struct {
	Service string `json:"service"`
	Now     string `json:"now"`
}

func (s *server) ask(v *visit, service string, now time.Time) (rlc.Run, error) {
	if service != "" {
		if _, err := s.known(service); err != nil {
			return rlc.Run{}, err
		}
	}
	return s.Acts.Run(v.ctx(), planner.Ask{Trigger: rlc.ByPerson, Service: service, Now: now, Actor: v.who.name})
}

func (s *server) readRequest(v *visit) (request, time.Time, error) {
	var in request
	now, err := s.readRequestInto(v, &in, &in)
	return in, now, err
}

// readRequestInto reads a document that holds a request.
func (s *server) readRequestInto(v *visit, document any, in *request) (time.Time, error) {
	if v.r.ContentLength != 0 {
		if err := read(v, document); err != nil {
			return time.Time{}, err
		}
	}
	now, err := parseNow(in.Now)
	if err == nil && now.After(s.Now().Add(time.Minute)) {
		err = invalid("now lies in the future")
	}
	return now, err
}

// apiAskRun answers 202 with the run that has started, or 200 with one that is
// already over: the same slot runs once.
func (s *server) apiAskRun(v *visit) error {
	in, now, err := s.readRequest(v)
	if err != nil {
		return err
	}
	run, err := s.ask(v, in.Service, now)
	if err != nil {
		return err
	}
	v.w.Header().Set("Location", "/api/v1"+runURL(run.ID))
	status := http.StatusAccepted
	if run.Result != "" {
		status = http.StatusOK
	}
	return answer(v, status, runJSON(run))
}

// apiPlan computes what a run would propose. It changes nothing, so a viewer
// may ask; one plan is computed at a time, because it reads history.
func (s *server) apiPlan(v *visit) error {
	var in struct {
		request
		Policy *string `json:"policy"`
	}
	now, err := s.readRequestInto(v, &in, &in.request)
	if err != nil {
		return err
	}
	var draft []byte
	switch {
	case in.Policy != nil && in.Service == "":
		return invalid("policy needs the service that it is of")
	case in.Policy != nil && v.who.role != actor && v.who.name == "":
		return fault{status: http.StatusUnauthorized, detail: "Planning a draft needs the token: a policy says where questions go."}
	case in.Policy != nil && !v.who.server && (v.who.role != actor || !s.mayAct(v.who, in.Service)):
		return s.refuse(v, fault{status: http.StatusForbidden, detail: "Planning a draft of " + in.Service + " is for its owners and for on-call."})
	case in.Policy != nil:
		draft = []byte(*in.Policy)
	case in.Service != "":
		if _, err := s.known(in.Service); err != nil {
			return err
		}
	}
	if !s.planning.TryLock() {
		return fault{status: http.StatusServiceUnavailable, detail: "Another plan is being computed. Try again in a few seconds."}
	}
	defer s.planning.Unlock()
	run, changes, err := s.Acts.Plan(v.ctx(), planner.Ask{Trigger: rlc.ByPerson, Service: in.Service, Now: now, Actor: v.who.name, Policy: draft})
	if draft != nil && errors.Is(err, rlc.ErrInvalid) {
		return fault{status: http.StatusBadRequest, detail: rlc.Say(err)} // every error of the draft, a line each
	}
	if err != nil {
		return err
	}
	rows := make([]object, 0, len(changes))
	for i := range changes {
		rows = append(rows, changeJSON(&changes[i]))
	}
	return answer(v, http.StatusOK, object{"run": runJSON(run), "changes": rows})
}

// apiBacktest replays the stored history of one quota against a limit.
func (s *server) apiBacktest(v *visit) error {
	var in struct {
		Service   string   `json:"service"`
		Bucket    string   `json:"bucket"`
		Key       rlc.Key  `json:"key"`
		Rate      *float64 `json:"rate"`
		Burst     *int64   `json:"burst"`
		From      string   `json:"from"`
		Until     string   `json:"until"`
		rlc.Timed          // hours and windows of the rate, as in quotas.yaml
		choiceIn
	}
	if err := read(v, &in); err != nil {
		return err
	}
	asks := in.Stat != "" && in.Rate == nil
	if asks && in.Service != "" && in.Bucket == "" {
		return s.apiFleet(v, in.Service, in.choiceIn)
	}
	if in.Service == "" || in.Bucket == "" || in.Rate == nil && !asks {
		return invalid("service, bucket and rate are required, or a stat in place of the rate")
	}
	t, err := s.known(in.Service)
	if err != nil {
		return err
	}
	if name, _, _ := strings.Cut(in.Bucket, "@"); t.service == nil || t.service.Bucket(name) == nil {
		return missing("bucket", in.Bucket)
	}
	if asks {
		in.Rate = new(float64)
	}
	limit := rlc.Limit{Rate: rlc.Rate(*in.Rate)}
	if in.Burst != nil {
		limit.Burst = rlc.Burst(*in.Burst)
	} else if *in.Rate > 0 && *in.Rate <= rlc.MaxRate {
		limit.Burst = rlc.Burst(math.Max(1, math.Ceil(2**in.Rate))) // as the historical policy
	}
	if err := cmp.Or(limit.Valid(), validTimed(in.Timed)); err != nil {
		return err
	}
	until, from := s.Now().UTC(), s.Now().UTC().Add(-window)
	for text, into := range map[string]*time.Time{in.From: &from, in.Until: &until} {
		if text == "" {
			continue
		}
		if *into, err = time.Parse(time.RFC3339, text); err != nil {
			return invalid("from and until must be RFC 3339 times such as 2026-12-02T06:00:00Z")
		}
	}
	if !from.Before(until) || until.Sub(from) > 400*day {
		return invalid("from must lie before until, at most 400 days")
	}
	bucket, key := in.Bucket, in.Key
	if t, err := s.truth(v.ctx(), in.Service); err == nil {
		if r := t.row(bucket, key); r != nil {
			bucket, key = r.series()
		}
	}
	h, err := s.History.Stored(v.ctx(), in.Service, bucket, key, from.UTC(), until.UTC())
	if err != nil {
		return err
	}
	if len(h.Hours) == 0 {
		if t, err := s.truth(v.ctx(), in.Service); err == nil && t.row(in.Bucket, in.Key) == nil {
			return t.noQuota(in.Bucket, in.Key)
		}
		return fault{status: http.StatusNotFound, detail: "No history is stored for this quota and time. A run stores what it reads."}
	}
	if asks {
		return apiWhatIf(v, h, in.choiceIn)
	}
	b := backtest.FromTimed(h, limit, in.Timed)
	return answer(v, http.StatusOK, backtestJSON(named(&b, in.Bucket, in.Key)))
}

func (s *server) apiSetVerdict(v *visit) error {
	var in rlc.Verdict
	if err := read(v, &in); err != nil {
		return err
	}
	if err := s.setVerdict(v, &in); err != nil {
		return err
	}
	return answer(v, http.StatusCreated, in)
}

func (s *server) setVerdict(v *visit, in *rlc.Verdict) error {
	t, err := s.known(in.Service)
	if err != nil {
		return err
	}
	if t.service == nil || t.service.Bucket(in.Bucket) == nil {
		return missing("bucket", in.Bucket)
	}
	if !in.From.Before(in.Until) || in.Until.Sub(in.From) > 90*day {
		return invalid("from must lie before until, at most 90 days")
	}
	if len(in.Reason) > maxReason || !utf8.ValidString(in.Reason) {
		return wrongIn("reason", invalid("The reason must be valid UTF-8 of at most %d bytes.", maxReason))
	}
	in.From, in.Until = in.From.UTC(), in.Until.UTC()
	in.ID, in.Actor, in.At = "verdict-"+reference(), v.who.name, s.Now().UTC()
	return s.Acts.SetVerdict(v.ctx(), *in)
}
