package web

import (
	"context"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// didWait bounds how long a page waits for what overrides have done: in an incident
// the page itself matters more.
const didWait = time.Second

// did is what overrides did in the last minutes, as enforcers count it, or why that
// is not known. It is measured where an override stands; its zero value says nothing.
type did struct {
	counts  map[string]rlc.OverrideCount // by ID
	unknown string
}

// overridesDid measures what the overrides among these that stand did over the time
// recent.
func (s *server) overridesDid(ctx context.Context, all []rlc.Override) did {
	now := s.Now()
	switch {
	case !slices.ContainsFunc(all, func(o rlc.Override) bool { return o.Stands(now) }):
		return did{}
	case !s.applied():
		return did{unknown: "It does nothing while all is to shadow."}
	}
	ctx, cancel := context.WithTimeout(ctx, didWait)
	defer cancel()
	counts, err := s.History.OverrideCounts(ctx, recent, now)
	if err != nil {
		return did{unknown: "What it does is not known: Prometheus does not answer."}
	}
	return did{counts: counts}
}

// cells are an override's judged and dropped requests for a sheet; empty where they
// are not known.
func (d did) cells(o rlc.Override) (judged, drops string) {
	if c, ok := d.counts[o.ID]; ok {
		return whole(c.Judged), whole(c.Drops)
	}
	return "", ""
}

// says tells what an override did: "Dropped 8,760 of 12,300 requests in the last
// 5 min, 71 %."
func (d did) says(o rlc.Override) []ui.Part {
	c, ok := d.counts[o.ID]
	over := " in the last " + span(recent) + "."
	switch {
	case d.counts == nil && d.unknown == "":
		return nil
	case d.counts == nil:
		return []ui.Part{{Text: d.unknown}}
	case !ok:
		return []ui.Part{{Text: "Not counted yet: its first count comes with the next scrape of the enforcers."}}
	case c.Judged < 1:
		return []ui.Part{{Text: "No request has met it" + over}}
	case o.Action == "lift" && c.Drops < 1:
		return []ui.Part{{Text: "Admitted "}, {Text: "all " + plural(int(c.Judged), "request", "requests"), Bold: true}, {Text: " that met it" + over}}
	case o.Action == "lift":
		return []ui.Part{{Text: "Let go of "}, {Text: plural(int(c.Judged), "request", "requests"), Bold: true}, {Text: over[:len(over)-1] + "; something else dropped " + count(c.Drops) + " of them."}}
	case c.Drops < 1:
		return []ui.Part{{Text: "Dropped "}, {Text: "none", Bold: true}, {Text: " of " + plural(int(c.Judged), "request", "requests") + over}}
	}
	return []ui.Part{{Text: "Dropped "}, {Text: count(c.Drops) + " of " + plural(int(c.Judged), "request", "requests") + ", " + percent(c.Drops/c.Judged), Bold: true}, {Text: "," + over}}
}
