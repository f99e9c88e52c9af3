package web

import (
	"net/http"
	"strconv"

	"github.com/openrlc/rlc"
)

func rowJSON(r *row) object {
	out := object{
		"bucket": r.name, "region": orNull(r.region), "key": keyJSON(r.key), "mode": r.mode, "algorithm": nil, "policy": nil, "role": nil,
		"live": r.live, "desired": r.desired, "proposed": r.proposed,
		"live_timed": timedJSON(r.timed.live), "desired_timed": timedJSON(r.timed.desired), "proposed_timed": timedJSON(r.timed.proposed), "why": r.why, "held": orNull(r.held()), "held_why": nil, "peak": nil, "highest_step": nil, "read_at": nil, "headroom": nil, "proposal": orNull(r.proposal),
	}
	if r.bucket != nil {
		out["algorithm"], out["role"] = r.bucket.Algorithm, r.bucket.Role
		if r.bucket.Policy != nil {
			out["policy"] = r.bucket.Policy.Kind
		}
	}
	if r.change != nil {
		out["held_why"] = orNull(r.change.HeldWhy)
		if seen := r.seen(); seen.Peak.Rate > 0 {
			out["peak"], out["highest_step"], out["read_at"] = seen.Peak, seen.Highest(), timeJSON(seen.At)
		}
	}
	if h, ok := r.headroom(); ok {
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

var bucketHeader = []string{"bucket", "key", "mode", "algorithm", "policy", "live_rate", "live_burst", "desired_rate", "desired_burst", "proposed_rate", "proposed_burst", "peak", "headroom", "drops_24h", "virtual_drops_24h", "held", "why", "live_lowest_hour", "desired_lowest_hour", "proposed_lowest_hour"}

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
		if h, ok := r.headroom(); ok {
			head = float(h)
		}
		drops, virtual := "", ""
		if seen != nil {
			drops, virtual = whole(seen[r.id()].Drops), whole(seen[r.id()].VirtualDrops)
		}
		line = append(line, peak, head, drops, virtual, r.held(), r.why)
		out = append(out, append(line, lowestHour(r.timed.live), lowestHour(r.timed.desired), lowestHour(r.timed.proposed)))
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
	if err := s.complete(v.ctx(), t, r); err != nil {
		return err
	}
	out := rowJSON(r)
	out["service"] = t.name
	out["reasons"], out["flags"], out["backtest"], out["estimate"], out["run"] = []rlc.Reason{}, []rlc.Flag{}, nil, nil, nil
	out["forecast"] = nil
	out["explanation"] = explanationOf(t, r)
	if c := r.change; c != nil {
		out["reasons"], out["flags"], out["estimate"], out["run"] = list(c.Reasons), list(c.Flags), c.Estimate, c.RunID
		out["backtest"], out["coverage"], out["valid_days"] = backtestsJSON(c), c.Coverage, c.ValidDays
		out["forecast"] = c.Forecast
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
