package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// scoreEvery is how often the day's scores are computed, and scoreSoon how
// often in the first half hour, when somebody waits to see the first.
const (
	scoreEvery = 5 * time.Minute
	scoreSoon  = 30 * time.Second
)

// scoreDay is a day's midnight, UTC.
func scoreDay(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

// score keeps today's scores, where this replica leads and they are due. The
// first of a new day closes the one before with all of its hours, so that a
// day's counts are whole.
func (a *App) score(ctx context.Context, now time.Time) error {
	s := &a.summaries
	s.mu.Lock()
	var rows []rlc.ServiceSummary
	for _, r := range s.rows {
		rows = append(rows, *r)
	}
	s.mu.Unlock()
	every := scoreEvery
	if a.firstScore.IsZero() || now.Sub(a.firstScore) < 30*time.Minute {
		every = scoreSoon
	}
	if !a.leads.Load() || len(rows) == 0 || now.Sub(a.scored) < every {
		return nil
	}
	today := scoreDay(now)
	if !scoreDay(a.scored).Equal(today) {
		yesterday := today.AddDate(0, 0, -1)
		kept, err := a.Records.Scores(ctx, yesterday)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(kept, func(x rlc.Score) bool { return x.Day.Equal(yesterday) && x.At.Before(today) }) {
			if err := a.scoreOf(ctx, rows, yesterday, today); err != nil {
				return err
			}
		}
	}
	if err := a.scoreOf(ctx, rows, today, now); err != nil {
		return err
	}
	a.scored = now
	if a.firstScore.IsZero() {
		a.firstScore = now
	}
	return nil
}

// scoreOf stores the scores of a day as of a time in it, or of its end. Where
// counters cannot be read nothing is stored.
func (a *App) scoreOf(ctx context.Context, rows []rlc.ServiceSummary, day, until time.Time) error {
	counts, err := a.History.Counts(ctx, "", max(until.Sub(day), time.Minute), until)
	if err != nil {
		return fmt.Errorf("score of %s: %w", day.Format(time.DateOnly), err)
	}
	return a.Records.Fenced(a.epoch.Load()).SaveScores(ctx, day, scoresOf(rows, counts, until))
}

// scoresOf adds up what the rows of all services say, and what enforcers
// counted of them, for the fleet and for each owner.
func scoresOf(rows []rlc.ServiceSummary, counts []rlc.Count, at time.Time) []rlc.Score {
	counted := map[string]rlc.Score{}
	for _, c := range counts {
		n := counted[c.Service]
		n.Counted += c.Offered
		n.Drops += c.Drops
		n.VirtualDrops += c.VirtualDrops
		if c.Bucket == enforcer.Unmatched {
			n.Unmatched += c.Offered
		}
		counted[c.Service] = n
	}
	fleet := &tally{Score: rlc.Score{Fleet: true}}
	owners := map[string]*tally{}
	for _, r := range rows {
		fleet.add(r, counted[r.Name])
		of := slices.Compact(slices.Sorted(slices.Values(r.Owners)))
		if len(of) == 0 {
			of = []string{""}
		}
		for _, o := range of {
			if owners[o] == nil {
				owners[o] = &tally{Score: rlc.Score{Owner: o}}
			}
			owners[o].add(r, counted[r.Name])
		}
	}
	all := []rlc.Score{fleet.done(at)}
	for _, t := range owners {
		all = append(all, t.done(at))
	}
	return all
}

// tally is a score that is being added up.
type tally struct {
	rlc.Score
	since []time.Time // of open proposals
}

func (t *tally) add(r rlc.ServiceSummary, n rlc.Score) {
	t.Services++
	t.Requests += r.Requests
	t.Limited += r.Limited
	t.Known += r.Known
	t.Fitting += r.Fitting
	t.Spread = rlc.AddSpread(t.Spread, r.Spread)
	t.Counted += n.Counted
	t.Drops += n.Drops
	t.VirtualDrops += n.VirtualDrops
	t.Unmatched += n.Unmatched
	if r.OpenReview != "" {
		t.since = append(t.since, r.ReviewSince)
	}
}

func (t *tally) done(at time.Time) rlc.Score {
	t.At = at.UTC()
	slices.SortFunc(t.since, time.Time.Compare)
	if t.Open = len(t.since); t.Open > 0 {
		t.Oldest, t.Median = t.since[0], t.since[t.Open/2]
	}
	return t.Score
}
