package web

import (
	_ "embed"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/openrlc/rlc"
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

// --- one service

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

// --- shadow

func (s *server) apiShadow(v *visit) error {
	sh, err := s.gatherShadow(v.ctx(), v.r.PathValue("service"))
	if err != nil {
		return err
	}
	switch v.r.URL.Query().Get("table") {
	case "":
	case "compare":
		return s.comparedJSON(v, sh)
	default:
		return invalid("table must be compare, or be left out")
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

// comparedJSON is the backtest beside the counters of enforcers, over the same 24
// hours, for each quota in shadow that was replayed. What is apart is null where
// enforcers have not counted long enough.
func (s *server) comparedJSON(v *visit, sh *shadowed) error {
	if err := s.compare(v.ctx(), sh); err != nil {
		return err
	}
	quotas := make([]object, 0, len(sh.quotas))
	for _, q := range sh.quotas {
		line := object{"bucket": q.row.name, "key": keyJSON(q.row.key), "backtest_drops": q.backtest, "counted_virtual_drops": q.counted.VirtualDrops, "counted_offered": q.counted.Offered, "apart": nil}
		if apart, young := q.reading(); !young {
			line["apart"] = apart
		}
		quotas = append(quotas, line)
	}
	return answer(v, http.StatusOK, object{"at": timeJSON(sh.at), "quotas": quotas})
}

func episodeJSON(e rlc.Episode) object {
	return object{"bucket": e.Bucket, "key": keyJSON(e.Key), "from": e.From.UTC(), "until": e.Until.UTC(), "peak": e.Peak, "limit": e.Limit, "virtual_drops": e.Drops, "share": e.Share}
}

func scrub(text string) string {
	if text == "" {
		return ""
	}
	return plain(errors.New(text))
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
