package planner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
)

// How long the quota of a caller that is gone is kept before its removal is
// proposed: of one that goes on under another name, and of any other.
const (
	keptRenamed  = 14 * day
	keptVanished = 28 * day
)

// renamed lets a caller's new name inherit the old one's quota: as declared by
// the service's aliases, and, with a word to a person, where a handover within
// hours was seen. The old quota stays where it is; in the capacity fit it takes
// no room.
func (j *job) renamed(ctx context.Context, changes *[]rlc.Change) {
	at := make(map[string]int, len(*changes))
	for i := range *changes {
		at[(*changes)[i].ID()] = i
	}
	inherit := func(t *target, old rlc.Quota, key rlc.Key, look string) {
		id := rlc.QuotaID(t.bucket.Name, key)
		i, ok := at[id]
		if !ok {
			// Declared before its first request.
			i = len(*changes)
			*changes = append(*changes, j.change(ctx, t, key, j.nothing(rlc.HistoryProblem{Rule: "no_data", Detail: "no request yet"})))
			at[id] = i
		}
		c := &(*changes)[i]
		if look == "" || c.Old == nil && c.Held != "quotas_max" {
			j.retired[old.ID()] = true
		}
		if c.Old == nil {
			take(c, old, look)
		}
	}
	declared := map[string]bool{}
	for _, a := range j.service.Aliases {
		for _, id := range sortedKeys(j.current) {
			q := j.current[id]
			if t := j.targets[q.Bucket]; t != nil && q.Key["caller"] == a.Was {
				key := maps.Clone(q.Key)
				key["caller"] = a.Caller
				declared[id] = true
				inherit(t, q, key, "")
			}
		}
	}
	for _, r := range policies.Renames(j.lives, j.run.Now.Add(-j.lookback()), j.run.Now) {
		q, inForce := j.current[r.Old]
		i, ok := at[r.New]
		if !inForce || !ok || declared[r.Old] {
			continue
		}
		c := (*changes)[i]
		was, is := q.Key["caller"], c.Key["caller"]
		if was == "" || was == is || j.run.Now.Sub(r.At) > keptRenamed {
			continue
		}
		inherit(j.targets[q.Bucket], q, c.Key, fmt.Sprintf("%s fell silent as %s began at %s: if it was renamed, declare aliases: [{caller: %s, was: %s}]", was, is, stat.TimeText(r.At), is, was))
	}
}

// take gives a quota that is new the larger of its own limit and the one it
// inherits, with the mode of that.
func take(c *rlc.Change, old rlc.Quota, look string) {
	detail := fmt.Sprintf("inherits the quota of %s: %s, burst %s", old.Key["caller"], stat.RateText(old.Rate), rlc.Number(old.Burst))
	switch {
	case c.Held != "" && c.Held != "abstained" && c.Held != "no_data":
		return
	case c.New == nil || c.New.Rate < old.Rate:
		limit := old.Limit
		c.New, c.Why = &limit, fmt.Sprintf("inherits %s of %s", stat.RateText(old.Rate), old.Key["caller"])
	default:
		detail = fmt.Sprintf("asks for more than the quota of %s, %s", old.Key["caller"], stat.RateText(old.Rate))
	}
	c.Held, c.HeldWhy = "", ""
	c.NewMode = old.Mode
	c.Reasons = append(c.Reasons, rlc.Reason{Rule: "alias", Detail: detail, Rate: c.New.Rate, Acted: true})
	c.Look = joined(c.Look, look)
	c.Backtest.New = nil // of another limit
}

// vanished proposes the removal of quotas whose callers are gone, never a 0:
// for 28 days without a request, or 14 where the caller goes on under another
// name. It waits until nothing else of the service moves, so that it has a review
// of its own, but no longer than until Monday; and it is put up only while other keys of the service have
// traffic, because then the metric is not what is gone.
func (j *job) vanished(changes []rlc.Change) {
	ends := make(map[string]time.Time, len(j.lives)) // of the last hour with a request
	for _, l := range j.lives {
		if !l.Last.IsZero() {
			ends[l.ID] = l.Last.Add(time.Hour)
		}
	}
	gone := map[int]string{}
	moves, alive := false, false
	for i := range changes {
		c := &changes[i]
		moves = moves || c.Moves()
		alive = alive || c.LastHour != nil && *c.LastHour > 0
		if why := j.gone(c, ends[c.ID()]); why != "" {
			gone[i] = why
		}
	}
	if !alive {
		return
	}
	for _, i := range slices.Sorted(maps.Keys(gone)) {
		c := &changes[i]
		r := rlc.Reason{Rule: "vanished", Detail: gone[i] + ": its removal is proposed", Rate: c.Old.Rate}
		if moves && j.run.Now.In(j.location).Weekday() != time.Monday {
			r.Detail = gone[i] + ": its removal waits for a review of its own, or for Monday"
		} else {
			c.Remove, c.Held, c.HeldWhy, c.Look = true, "", "", r.Detail
			r.Acted = true
		}
		c.Reasons = append(c.Reasons, r)
	}
}

// gone says why the caller of a quota is taken for gone, "" where it is not.
// last is the end of its last hour with a request, zero for none.
func (j *job) gone(c *rlc.Change, last time.Time) string {
	if c.Old == nil || len(c.Key) == 0 || c.Region != "" || c.Moves() || c.Failed {
		return ""
	}
	if c.Held == "human_edit" || c.Held == "conflict" {
		return ""
	}
	id := c.ID()
	switch now := j.run.Now; {
	case last.IsZero():
		if _, ok := j.past.month[id]; ok {
			return fmt.Sprintf("no request in %d days", int(j.lookback()/day))
		}
	case j.retired[id] && now.Sub(last) >= keptRenamed:
		return "no request since " + stat.TimeText(last) + ", and its caller goes on under another name"
	case now.Sub(last) >= keptVanished:
		return "no request since " + stat.TimeText(last)
	}
	return ""
}
