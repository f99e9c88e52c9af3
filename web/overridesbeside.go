package web

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// scraping is where people read how enforcers come to be scraped.
const scraping = "docs/enforcer.md, Metrics"

// uncounted is why nothing is known of a service of which enforcers counted nothing
// in the last hour: "nothing is sent" would be a guess.
func (s *server) uncounted(ctx context.Context, service string) string {
	switch any, err := s.History.Counts(ctx, "", time.Hour, s.Now()); {
	case err != nil:
		return "history is unreachable now; the override works all the same"
	case len(any) == 0:
		return "no enforcer's counters are in Prometheus: let it scrape their /metrics (" + scraping + "); the override works all the same"
	}
	return "no enforcer has counted a request of " + service + " in the last hour; the override works all the same"
}

// standsBeside is an override that stands and drops some of another's requests.
type standsBeside struct {
	ID      string    `json:"id"`
	Subject string    `json:"subject"`
	Does    string    `json:"does"`
	Expires time.Time `json:"expires_at"`
}

// othersOn are the other overrides that stand and drop some of an override's
// requests, the one that decides before the others; none while All to shadow is
// thrown.
func (s *server) othersOn(o rlc.Override) []rlc.Override {
	if !s.applied() {
		return nil
	}
	return s.decisive(func(x rlc.Override) bool { return x.ID != o.ID && x.Action != "lift" && x.Meets(o) })
}

func besides(others []rlc.Override) []standsBeside {
	out := []standsBeside{}
	for _, x := range others {
		out = append(out, standsBeside{x.ID, x.Subject(), x.Does(), x.Until.UTC()})
	}
	return out
}

// lifted is how many of the requests per second that are dropped now would be
// admitted if the verdicts of an override's quotas were virtual: those that quotas
// which enforce drop, as far as the caps and the other overrides have room.
func (s *server) lifted(svc *rlc.Service, o rlc.Override, others []rlc.Override, counted []rlc.Count) (sum float64) {
	back := make([]float64, len(counted)) // of each
	for i, c := range counted {
		if some, _ := touches(svc, o, c); some && s.enforces(svc, c) {
			back[i] = c.Drops / recent.Seconds()
		}
	}
	for _, x := range others {
		switch {
		case x.Action == "limit" && x.Rate != nil:
			room(svc, x, float64(*x.Rate), counted, back)
			continue
		case x.Action == "block":
			x.DropRatio = 1
		}
		for i, c := range counted {
			if some, _ := touches(svc, x, c); some {
				back[i] = math.Max(0, math.Min(back[i], (c.Offered*float64(1-x.DropRatio)-(c.Offered-c.Drops))/recent.Seconds()))
			}
		}
	}
	for i := range svc.Buckets {
		b := &svc.Buckets[i]
		if b.Role == rlc.CapRole && b.Mode == rlc.Enforce && len(b.Each) == 0 {
			if limit := s.limitOf(svc, b.Name, nil); limit != nil {
				room(svc, rlc.Override{Match: writtenAs(b.Match)}, float64(limit.Rate), counted, back)
			}
		}
	}
	for _, n := range back {
		sum += n
	}
	return sum
}

// room lets no more come back of what x matches than fits below a rate.
func room(svc *rlc.Service, x rlc.Override, rate float64, counted []rlc.Count, back []float64) {
	admitted, returning := 0.0, 0.0
	for i, c := range counted {
		if some, _ := touches(svc, x, c); some {
			admitted += (c.Offered - c.Drops) / recent.Seconds()
			returning += back[i]
		}
	}
	if returning <= 0 {
		return
	}
	share := math.Min(1, math.Max(0, rate-admitted)/returning)
	for i, c := range counted {
		if some, _ := touches(svc, x, c); some {
			back[i] *= share
		}
	}
}

// enforces reports whether what counts a service's requests drops those above its
// limit.
func (s *server) enforces(svc *rlc.Service, c rlc.Count) bool {
	b := svc.Bucket(c.Bucket)
	if b == nil {
		return svc.Unmatched.Mode == rlc.Enforce
	}
	q := s.quotaOf(svc, c.Bucket, c.Key)
	return b.Mode == rlc.Enforce && (q == nil || q.Mode != rlc.Shadow)
}

// limitOf is what limits a bucket's key now; nil for nothing.
func (s *server) limitOf(svc *rlc.Service, bucket string, key rlc.Key) *rlc.Limit {
	if q := s.quotaOf(svc, bucket, key); q != nil {
		limit := q.At(s.Now())
		return &limit
	}
	return svc.Bucket(bucket).Limit
}

// quotaOf is the approved quota of a bucket's key; nil for none.
func (s *server) quotaOf(svc *rlc.Service, bucket string, key rlc.Key) *rlc.Quota {
	_, desired := s.Truths.Desired()
	if desired == nil {
		return nil
	}
	all, id := desired.Quotas[svc.Name], rlc.QuotaID(bucket, key)
	if i := slices.IndexFunc(all, func(q rlc.Quota) bool { return rlc.QuotaID(q.Bucket, q.Key) == id }); i >= 0 {
		return &all[i]
	}
	return nil
}

// writtenAs is a bucket's match as an override writes it.
func writtenAs(match map[string]rlc.Pattern) map[string][]string {
	out := make(map[string][]string, len(match))
	for name, p := range match {
		switch p.Kind {
		case rlc.Absent:
			out[name] = []string{"absent"}
		case rlc.Present:
			out[name] = []string{"*"}
		case rlc.Prefix:
			out[name] = []string{p.Values[0] + "*"}
		default:
			out[name] = p.Values
		}
	}
	return out
}

// goesOn names the overrides that go on dropping, and what ends the first; nothing
// where there are none.
func goesOn(others []standsBeside) (say []ui.Part) {
	if len(others) == 0 {
		return nil
	}
	x := others[0]
	say = append(say, ui.Part{Text: "The override " + x.Subject + ", "}, ui.Part{Text: x.Does, Bold: true},
		ui.Part{Text: ", stands until " + x.Expires.Format("2 Jan 15:04 MST") + " and goes on dropping; it ends with "}, ui.Part{Text: "rlc lift " + x.ID, Bold: true}, ui.Part{Text: ". "})
	if more := len(others) - 1; more > 0 {
		say = append(say, ui.Part{Text: plural(more, "more override drops", "more overrides drop") + " of it. "})
	}
	return say
}
