package web

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/openrlc/rlc"
)

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

func changeJSON(c *rlc.Change) object {
	return object{
		"service": c.Service, "bucket": c.Bucket, "key": keyJSON(c.Key), "old": c.Old, "new": c.New, "old_mode": orNull(string(c.OldMode)), "new_mode": orNull(string(c.NewMode)),
		"old_timed": timedJSON(c.OldTimed), "new_timed": timedJSON(c.NewTimed), "forecast": c.Forecast,
		"reasons": list(c.Reasons), "backtest": backtestsJSON(c), "why": c.Why, "held": orNull(c.Held), "held_why": orNull(c.HeldWhy), "failed": c.Failed,
		"look": orNull(c.Look), "estimate": c.Estimate, "policy": c.Policy, "policy_hash": c.PolicyID, "input_hash": c.InputID,
		"peak": c.Peak, "valid_days": c.ValidDays, "coverage": c.Coverage, "flags": list(c.Flags), "at": timeJSON(c.At),
	}
}

func backtestsJSON(c *rlc.Change) object {
	return object{"old": backtestJSON(named(c.Backtest.Old, c.Bucket, c.Key)), "new": backtestJSON(named(c.Backtest.New, c.Bucket, c.Key))}
}

// named is a backtest, nil for none, whose episodes say which quota they are of.
func named(b *rlc.Backtest, bucket string, key rlc.Key) *rlc.Backtest {
	if b == nil {
		return nil
	}
	out := *b
	out.Episodes = slices.Clone(b.Episodes)
	for i := range out.Episodes {
		out.Episodes[i].Bucket, out.Episodes[i].Key = bucket, key
	}
	return &out
}

func backtestJSON(b *rlc.Backtest) any {
	if b == nil {
		return nil
	}
	episodes := make([]object, 0, len(b.Episodes))
	for _, e := range b.Episodes {
		episodes = append(episodes, episodeJSON(e))
	}
	return object{"requests": b.Requests, "drops": b.Drops, "share": b.Share, "step_seconds": b.Step, "at_least": b.AtLeast, "episodes": episodes, "worst": b.Worst, "bursts": b.Bursts}
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

func (s *server) apiProposal(v *visit) error {
	p, err := s.Records.ProposalByID(v.ctx(), v.r.PathValue("id"))
	if err != nil {
		return err
	}
	p, _ = s.asItStands(v.ctx(), p)
	return answer(v, http.StatusOK, proposalJSON(p))
}
