package web

import (
	_ "embed"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
)

//go:embed openapi.json
var openAPI []byte

func (s *server) openAPI(v *visit) error {
	v.w.Header().Set("Content-Type", "application/json")
	_, err := v.w.Write(openAPI)
	return ignoreGone(err)
}

// object is a JSON object whose fields are fixed by name.
type object = map[string]any

func keyJSON(k rlc.Key) rlc.Key {
	if k == nil {
		return rlc.Key{}
	}
	return k
}

// orNull is nil for an empty text.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func timeJSON(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}

func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

func paged(name string, rows any, p rlc.Page, total int) object {
	return object{name: rows, "page": max(p.Number, 1), "per_page": p.Limit(), "total": total}
}

// --- services

func serviceJSON(r rlc.ServiceSummary) object {
	return object{
		"name": r.Name, "owners": list(r.Owners), "buckets": r.Buckets, "enforcing": r.Enforcing, "held": r.Held,
		"virtual_drops_24h": r.VirtualDrops, "drops_24h": r.Drops, "open_review": orNull(r.OpenReview),
		"offered": r.Offered, "limit_sum": r.LimitSum, "capacity": r.Capacity, "headroom": r.Headroom, "headroom_at": orNull(r.HeadroomAt),
		"problem": orNull(r.Problem), "updated_at": timeJSON(r.Updated),
	}
}

func (s *server) apiServices(v *visit) error {
	if v.r.URL.Query().Get("show") == "unmanaged" {
		return s.unmanaged(v)
	}
	filter, page, err := serviceFilter(v)
	if err != nil {
		return err
	}
	all, total, err := s.Records.Summaries(v.ctx(), filter, page)
	if err != nil {
		return err
	}
	out := make([]object, 0, len(all))
	for _, r := range all {
		out = append(out, serviceJSON(r))
	}
	return answer(v, http.StatusOK, paged("services", out, page, total))
}

func (s *server) servicesCSV(v *visit) error {
	if v.r.URL.Query().Get("show") == "unmanaged" {
		return s.unmanaged(v)
	}
	filter, page, err := serviceFilter(v)
	if err != nil {
		return err
	}
	all, _, err := s.Records.Summaries(v.ctx(), filter, page)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, r := range all {
		h := ""
		if r.Headroom != nil {
			h = float(float64(*r.Headroom))
		}
		rows = append(rows, []string{r.Name, strings.Join(r.Owners, " "), strconv.Itoa(r.Buckets), strconv.Itoa(r.Enforcing), strconv.Itoa(r.Held), h, whole(r.VirtualDrops), whole(r.Drops), r.OpenReview, r.Problem})
	}
	return sheet(v, "services", []string{"name", "owners", "buckets", "enforcing", "held", "headroom", "virtual_drops_24h", "drops_24h", "open_review", "problem"}, rows)
}

func (s *server) apiService(v *visit) error {
	name := v.r.PathValue("service")
	t, err := s.known(name)
	if err != nil {
		return err
	}
	sum, err := s.Records.Summary(v.ctx(), name)
	if errors.Is(err, rlc.ErrNotFound) {
		sum = rlc.ServiceSummary{Name: name}
		if t.service != nil {
			sum.Owners, sum.Buckets = t.service.Owners, len(t.service.Buckets)
		}
	} else if err != nil {
		return err
	}
	out := serviceJSON(sum)
	if t.broken {
		s.asLive(t, out)
	}
	out["problems"] = list(t.problems)
	out["desired"] = object{"snapshot": t.commit.Version.String(), "commit": t.commit.Hash}
	out["live"] = nil
	if t.hasLive {
		out["live"] = object{"snapshot": t.live.String()}
	}
	if t.service != nil {
		out["mode"], out["profile"], out["timezone"] = t.service.Mode, t.service.Profile, t.service.Timezone
	}
	return answer(v, http.StatusOK, out)
}

// asLive puts what is live, or null for what is unknown, where a summary has
// figures of a policy that could not be read.
func (s *server) asLive(t *truth, out object) {
	for _, figure := range []string{"buckets", "enforcing", "limit_sum", "capacity", "offered", "headroom"} {
		out[figure] = nil
	}
	_, live := s.Truths.Live()
	if t.service == nil || live == nil {
		return
	}
	enforcing := 0
	for i := range t.service.Buckets {
		if t.service.Buckets[i].Mode == rlc.Enforce {
			enforcing++
		}
	}
	var sum rlc.Rate
	for _, q := range live.Quotas[t.name] {
		if b := t.service.Bucket(q.Bucket); b != nil && b.Role == rlc.QuotaRole {
			sum += q.Rate
		}
	}
	out["owners"], out["buckets"], out["enforcing"], out["limit_sum"] = list(t.service.Owners), len(t.service.Buckets), enforcing, sum
	if c := t.service.Capacity; c != nil {
		out["capacity"] = c.Rate
	}
}

// --- buckets

func rowJSON(r *row) object {
	out := object{
		"bucket": r.name, "key": keyJSON(r.key), "mode": r.mode, "algorithm": nil, "policy": nil, "role": nil,
		"live": r.live, "desired": r.desired, "proposed": r.proposed, "why": r.why, "held": orNull(r.held()), "held_why": nil, "peak": nil, "headroom": nil, "proposal": orNull(r.proposal),
	}
	if r.bucket != nil {
		out["algorithm"], out["role"] = r.bucket.Algorithm, r.bucket.Role
		if r.bucket.Policy != nil {
			out["policy"] = r.bucket.Policy.Kind
		}
	}
	if r.change != nil {
		out["held_why"] = orNull(r.change.HeldWhy)
		if r.change.Peak.Rate > 0 {
			out["peak"] = r.change.Peak
		}
	}
	if h, ok := headroom(r.force(), r.peak()); ok {
		out["headroom"] = h
	}
	return out
}

func (s *server) apiBuckets(v *visit) error {
	t, err := s.truth(v.ctx(), v.r.PathValue("service"))
	if err != nil {
		return err
	}
	return s.answerBuckets(v, t)
}

func (s *server) answerBuckets(v *visit, t *truth) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	rows, err := arrange(t.rows, nil, q.Get("q"), q.Get("mode"), q.Get("sort"), q.Get("dir") == "desc")
	if err != nil {
		return err
	}
	return answer(v, http.StatusOK, paged("buckets", rowsJSON(cut(rows, page)), page, len(rows)))
}

func rowsJSON(rows []row) []object {
	out := make([]object, 0, len(rows))
	for i := range rows {
		out = append(out, rowJSON(&rows[i]))
	}
	return out
}

var bucketHeader = []string{"bucket", "key", "mode", "algorithm", "policy", "live_rate", "live_burst", "desired_rate", "desired_burst", "proposed_rate", "proposed_burst", "peak", "headroom", "drops_24h", "virtual_drops_24h", "held", "why"}

func bucketRows(rows []row, seen counts) [][]string {
	out := make([][]string, 0, len(rows))
	for i := range rows {
		r := &rows[i]
		line := []string{r.name, r.key.String(), string(r.mode), "", ""}
		if r.bucket != nil {
			line[3] = r.bucket.Algorithm
			if r.bucket.Policy != nil {
				line[4] = r.bucket.Policy.Kind
			}
		}
		for _, l := range []*rlc.Limit{r.live, r.desired, r.proposed} {
			if l == nil {
				line = append(line, "", "")
			} else {
				line = append(line, float(float64(l.Rate)), strconv.FormatInt(int64(l.Burst), 10))
			}
		}
		peak, head := "", ""
		if r.peak() > 0 {
			peak = float(float64(r.peak()))
		}
		if h, ok := headroom(r.force(), r.peak()); ok {
			head = float(h)
		}
		drops, virtual := "", ""
		if seen != nil {
			drops, virtual = whole(seen[r.id()].Drops), whole(seen[r.id()].VirtualDrops)
		}
		out = append(out, append(line, peak, head, drops, virtual, r.held(), r.why))
	}
	return out
}

func (s *server) apiBucket(v *visit) error {
	t, err := s.truth(v.ctx(), v.r.PathValue("service"))
	if err != nil {
		return err
	}
	key, err := rlc.ParseKey(v.r.URL.Query().Get("key"))
	if err != nil {
		return err
	}
	return s.answerBucket(v, t, v.r.PathValue("bucket"), key)
}

// answerBucket answers one quota with its evidence, or a bucket with the list
// of its quotas where keys exist and none is named.
func (s *server) answerBucket(v *visit, t *truth, name string, key rlc.Key) error {
	rows := t.ofBucket(name)
	if len(rows) == 0 {
		return t.noBucket(name)
	}
	r := t.row(name, key)
	if len(key) == 0 && (r == nil || len(rows) > 1) {
		page, err := v.page()
		if err != nil {
			return err
		}
		out := paged("quotas", rowsJSON(cut(rows, page)), page, len(rows))
		out["bucket"] = name
		return answer(v, http.StatusOK, out)
	}
	if r == nil {
		return t.noQuota(name, key)
	}
	full, err := s.Records.LatestChange(v.ctx(), t.name, name, key)
	switch {
	case err == nil:
		r.change = &full
	case !errors.Is(err, rlc.ErrNotFound):
		return err
	}
	out := rowJSON(r)
	out["service"] = t.name
	out["reasons"], out["flags"], out["backtest"], out["estimate"], out["run"] = []rlc.Reason{}, []rlc.Flag{}, nil, nil, nil
	out["explanation"] = object{"verdict": "No run has looked at this quota yet.", "text": "No run has looked at this quota yet.\n"}
	if c := r.change; c != nil {
		out["reasons"], out["flags"], out["estimate"], out["run"] = list(c.Reasons), list(c.Flags), c.Estimate, c.RunID
		out["backtest"], out["coverage"], out["valid_days"] = backtestsJSON(c), c.Coverage, c.ValidDays
		e := policies.Explain(*c)
		out["explanation"] = object{"verdict": e.Verdict, "text": e.Text()}
	}
	out["history"] = nil
	if h, err := s.stored(v.ctx(), t, r, s.Now().UTC()); err == nil && len(h.Hours) > 0 {
		hours := make([]object, 0, len(h.Hours))
		for _, x := range h.Hours {
			hours = append(hours, object{"start": x.Start.UTC(), "max": x.Max, "p99": x.P99, "mean": x.Mean, "present": x.Present, "expected": x.Expected})
		}
		out["history"] = object{"step_seconds": h.Step.Seconds(), "hours": hours}
	}
	return answer(v, http.StatusOK, out)
}

// --- shadow

func (s *server) apiShadow(v *visit) error {
	sh, err := s.gatherShadow(v.ctx(), v.r.PathValue("service"))
	if err != nil {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	episodes := make([]object, 0, len(sh.episodes))
	for _, e := range cut(sh.episodes, page) {
		episodes = append(episodes, episodeJSON(e))
	}
	out := paged("episodes", episodes, page, len(sh.episodes))
	live := object{"offered": sh.live.Offered, "virtual_drops": sh.live.VirtualDrops, "drops": sh.live.Drops, "window_seconds": day.Seconds(), "error": nil}
	if sh.liveErr != nil {
		live["error"] = plain(sh.liveErr)
	}
	quotas := make([]object, 0, len(sh.counted))
	for _, c := range cut(sh.counted, page) {
		quotas = append(quotas, object{"bucket": c.Bucket, "key": keyJSON(c.Key), "offered": c.Offered, "virtual_drops": c.VirtualDrops})
	}
	live["at"], live["quotas"] = timeJSON(sh.now), quotas
	out["live"] = live
	out["backtest"] = object{"virtual_drops": sh.total, "at": timeJSON(sh.at)}
	return answer(v, http.StatusOK, out)
}

func episodeJSON(e rlc.Episode) object {
	return object{"bucket": e.Bucket, "key": keyJSON(e.Key), "from": e.From.UTC(), "until": e.Until.UTC(), "peak": e.Peak, "limit": e.Limit, "virtual_drops": e.Drops, "share": e.Share}
}

// --- proposals

func proposalJSON(p rlc.Proposal) object {
	changes := make([]object, 0, len(p.Changes))
	for i := range p.Changes {
		changes = append(changes, changeJSON(&p.Changes[i]))
	}
	return object{
		"id": p.ID, "service": p.Service, "state": p.State, "url": p.URL, "changes": changes,
		"run": p.RunID, "branch": p.Branch, "commit": orNull(p.Commit), "base": orNull(p.Base), "content": p.Content, "human": p.Human,
		"created_at": timeJSON(p.Created), "decided_at": timeJSON(p.Decided), "actor": orNull(p.Actor), "reason": orNull(p.Reason), "error": orNull(scrub(p.Error)),
	}
}

func scrub(text string) string {
	if text == "" {
		return ""
	}
	return plain(errors.New(text))
}

func changeJSON(c *rlc.Change) object {
	return object{
		"service": c.Service, "bucket": c.Bucket, "key": keyJSON(c.Key), "old": c.Old, "new": c.New, "old_mode": orNull(string(c.OldMode)), "new_mode": orNull(string(c.NewMode)),
		"reasons": list(c.Reasons), "backtest": backtestsJSON(c), "why": c.Why, "held": orNull(c.Held), "held_why": orNull(c.HeldWhy), "failed": c.Failed,
		"look": orNull(c.Look), "estimate": c.Estimate, "policy": c.Policy, "policy_hash": c.PolicyID, "input_hash": c.InputID,
		"peak": c.Peak, "valid_days": c.ValidDays, "coverage": c.Coverage, "flags": list(c.Flags), "at": timeJSON(c.At),
	}
}

func backtestsJSON(c *rlc.Change) object {
	return object{"old": backtestJSON(c.Backtest.Old), "new": backtestJSON(c.Backtest.New)}
}

func backtestJSON(b *rlc.Backtest) any {
	if b == nil {
		return nil
	}
	episodes := make([]object, 0, len(b.Episodes))
	for _, e := range b.Episodes {
		episodes = append(episodes, episodeJSON(e))
	}
	return object{"requests": b.Requests, "drops": b.Drops, "share": b.Share, "step_seconds": b.Step, "at_least": b.AtLeast, "episodes": episodes, "worst": b.Worst}
}

var changeHeader = []string{"service", "bucket", "key", "old_rate", "old_burst", "new_rate", "new_burst", "peak", "drops_old", "drops_new", "held", "held_why", "why"}

func changeRows(all []rlc.Change) [][]string {
	out := make([][]string, 0, len(all))
	for _, c := range all {
		line := []string{c.Service, c.Bucket, c.Key.String()}
		for _, l := range []*rlc.Limit{c.Old, c.New} {
			if l == nil {
				line = append(line, "", "")
			} else {
				line = append(line, float(float64(l.Rate)), strconv.FormatInt(int64(l.Burst), 10))
			}
		}
		line = append(line, float(float64(c.Peak.Rate)))
		for _, b := range []*rlc.Backtest{c.Backtest.Old, c.Backtest.New} {
			if b == nil {
				line = append(line, "")
			} else {
				line = append(line, whole(b.Drops))
			}
		}
		out = append(out, append(line, c.Held, c.HeldWhy, c.Why))
	}
	return out
}

func (s *server) apiProposals(v *visit) error {
	all, total, page, _, err := s.proposalList(v)
	if err != nil {
		return err
	}
	out := make([]object, 0, len(all))
	for _, p := range all {
		out = append(out, proposalJSON(p))
	}
	return answer(v, http.StatusOK, paged("proposals", out, page, total))
}

func (s *server) proposalsCSV(v *visit) error {
	all, _, _, _, err := s.proposalList(v)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, p := range all {
		before, after := "", "" // nothing was replayed
		if old, neu, known := drops(p.Changes); known {
			before, after = whole(old), whole(neu)
		}
		rows = append(rows, []string{p.ID, p.Service, string(p.State), p.URL, strconv.Itoa(len(p.Changes)), before, after, stamp(p.Created), stamp(p.Decided), p.Actor, p.Reason})
	}
	return sheet(v, "proposals", []string{"id", "service", "state", "url", "changes", "drops_old", "drops_new", "created_at", "decided_at", "actor", "reason"}, rows)
}

func (s *server) apiProposal(v *visit) error {
	p, err := s.Records.ProposalByID(v.ctx(), v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return answer(v, http.StatusOK, proposalJSON(p))
}

// --- runs

func runJSON(r rlc.Run) object {
	return object{
		"id": r.ID, "trigger": r.Trigger, "started_at": timeJSON(r.Started), "finished_at": timeJSON(r.Finished), "result": orNull(string(r.Result)), "held": r.Held, "changed": r.Changed,
		"service": orNull(r.Service), "now": timeJSON(r.Now), "stage": r.Stage, "detail": scrub(r.Detail), "actor": orNull(r.Actor), "quotas": r.Total, "commit": orNull(r.Commit),
	}
}

func (s *server) apiRuns(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	all, total, err := s.Records.Runs(v.ctx(), page)
	if err != nil {
		return err
	}
	out := make([]object, 0, len(all))
	for _, r := range all {
		out = append(out, runJSON(r))
	}
	return answer(v, http.StatusOK, paged("runs", out, page, total))
}

// apiRun answers a run with a page of what it found: ?held=true narrows it.
func (s *server) apiRun(v *visit) error {
	r, err := s.Records.RunByID(v.ctx(), v.r.PathValue("id"))
	if err != nil {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	changes, total, err := s.Records.RunChanges(v.ctx(), r.ID, v.r.URL.Query().Get("held") == "true", page)
	if err != nil {
		return err
	}
	rows := make([]object, 0, len(changes))
	for i := range changes {
		rows = append(rows, changeJSON(&changes[i]))
	}
	out := paged("changes", rows, page, total)
	for k, value := range runJSON(r) {
		out[k] = value
	}
	return answer(v, http.StatusOK, out)
}

// --- snapshot, verdicts

func (s *server) apiSnapshot(v *visit) error {
	acks := s.Truths.Acks()
	commit, _ := s.Truths.Desired()
	version, live := s.Truths.Live()
	out := object{"snapshot": nil, "services": 0, "quotas": 0, "desired": object{"snapshot": commit.Version.String(), "commit": orNull(commit.Hash)}, "enforcers": list(acks)}
	if live != nil {
		quotas := 0
		for _, q := range live.Quotas {
			quotas += len(q)
		}
		out["snapshot"], out["services"], out["quotas"] = version.String(), len(live.Services), quotas
	}
	return answer(v, http.StatusOK, out)
}

func (s *server) apiVerdicts(v *visit) error {
	name := v.r.URL.Query().Get("service")
	if name == "" {
		return invalid("name a service: ?service=")
	}
	if _, err := s.known(name); err != nil {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	all, err := s.Records.Verdicts(v.ctx(), name)
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b rlc.Verdict) int { return b.At.Compare(a.At) })
	return answer(v, http.StatusOK, paged("verdicts", list(cut(all, page)), page, len(all)))
}
