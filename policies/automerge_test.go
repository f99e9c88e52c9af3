package policies

import (
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// merging is a proposal of one change of an enforcing bucket from 100/s.
func merging(change func(*rlc.Change), service func(*rlc.Service)) Merging {
	svc := &rlc.Service{Name: "checkout", Timezone: "Europe/Paris", AutoMerge: &rlc.AutoMerge{MaxChange: 0.2},
		Buckets: []rlc.Bucket{{Name: "callers", Mode: rlc.Enforce}}}
	c := rlc.Change{Service: "checkout", Bucket: "callers", Old: &rlc.Limit{Rate: 100, Burst: 200}, New: &rlc.Limit{Rate: 120, Burst: 240},
		Coverage: 0.95, Backtest: rlc.ChangeBacktest{New: &rlc.Backtest{Requests: 1e6}}}
	if change != nil {
		change(&c)
	}
	if service != nil {
		service(svc)
	}
	return Merging{Service: svc, Changes: []rlc.Change{c}, Now: monday}
}

func TestOnlySmallProvenChangesMergeByThemselves(t *testing.T) {
	year := time.Date(2026, 12, 20, 12, 0, 0, 0, time.UTC)
	frozen := func(allow string) func(*rlc.Service) {
		return func(s *rlc.Service) {
			s.Freeze = []rlc.Freeze{{Cron: "0 0 20 12 *", For: 14 * day, Allow: allow}}
		}
	}
	lowered := func(c *rlc.Change) { c.New = &rlc.Limit{Rate: 90, Burst: 180} }
	// One hour's second is not held by what is proposed, and in so many by what is in force.
	short := func(change func(*rlc.Change), before int) func(*rlc.Change) {
		return func(c *rlc.Change) {
			if change != nil {
				change(c)
			}
			c.Backtest.New.Bursts = &rlc.Bursts{Hours: 600, Over: 1}
			c.Backtest.Old = &rlc.Backtest{Bursts: &rlc.Bursts{Hours: 600, Over: before}}
		}
	}
	for name, x := range map[string]struct {
		m       Merging
		at      time.Time
		ago     rlc.Rate
		ok      bool
		because string
	}{
		"20 %":                               {m: merging(nil, nil), ok: true, because: "no quota moves by more than 20 %, 20 % are allowed"},
		"nobody allowed it":                  {m: merging(nil, func(s *rlc.Service) { s.AutoMerge = nil }), because: "the service merges nothing by itself"},
		"21 %":                               {m: merging(func(c *rlc.Change) { c.New.Rate = 121 }, nil), because: "callers: moves by 21 %, more than 20 %"},
		"the burst by 25 %":                  {m: merging(func(c *rlc.Change) { c.New.Burst = 250 }, nil), because: "callers: moves by 25 %, more than 20 %"},
		"the month's budget":                 {m: merging(nil, nil), ago: 79, because: "callers: would be 120/s against 79/s 30 days ago, more than +50 %"},
		"within the budget":                  {m: merging(nil, nil), ago: 80, ok: true, because: "no quota moves by"},
		"a decrease spends none":             {m: merging(lowered, nil), ago: 10, ok: true, because: "no quota moves by more than 10 %"},
		"a guard asks for a look":            {m: merging(func(c *rlc.Change) { c.Look = "targets unknown" }, nil), because: "callers: targets unknown"},
		"a gap in history":                   {m: merging(func(c *rlc.Change) { c.Coverage = 0.9499 }, nil), because: "callers: history covers 94 % of its time, less than 95 %"},
		"a decrease that was not replayed":   {m: merging(func(c *rlc.Change) { lowered(c); c.Backtest.New = nil }, nil), because: "callers: nothing was replayed"},
		"a decrease that would have dropped": {m: merging(func(c *rlc.Change) { lowered(c); c.Backtest.New.Drops = 0.5 }, nil), because: "callers: its decrease would have dropped 1 requests"},
		"a decrease whose burst is short":    {m: merging(short(lowered, 0), nil), because: "callers: its burst would not hold the highest second that was counted"},
		"one that was as short before":       {m: merging(short(lowered, 1), nil), ok: true, because: "no quota moves by more than 10 %"},
		"an increase that is short":          {m: merging(short(nil, 0), nil), ok: true, because: "no quota moves"},
		"an increase that still would have":  {m: merging(func(c *rlc.Change) { c.Backtest.New.Drops = 5 }, nil), ok: true, because: "no quota moves"},
		"a new quota":                        {m: merging(func(c *rlc.Change) { c.Old = nil }, nil), because: "callers: it would begin to enforce"},
		"a new one in shadow":                {m: merging(func(c *rlc.Change) { c.Old, c.NewMode = nil, rlc.Shadow }, nil), ok: true, because: "no quota moves"},
		"in a shadow bucket":                 {m: merging(func(c *rlc.Change) { c.Old = nil }, func(s *rlc.Service) { s.Buckets[0].Mode = rlc.Shadow }), ok: true, because: "no quota moves"},
		"leaving shadow":                     {m: merging(func(c *rlc.Change) { c.OldMode = rlc.Shadow }, nil), because: "callers: it would begin to enforce"},
		"a removal":                          {m: merging(func(c *rlc.Change) { c.New, c.Remove = nil, true }, nil), because: "callers: a person removes quotas"},
		"an event": {m: merging(func(c *rlc.Change) {
			c.NewTimed.Windows = []rlc.QuotaWindow{{From: monday, Until: monday.Add(day), Limit: rlc.Limit{Rate: 300, Burst: 600}}}
		}, nil), because: "callers: an event is reviewed when it is declared"},
		"a freeze":                        {m: merging(nil, frozen("")), at: year, because: "frozen until 2027-01-02 23:00 UTC"},
		"a freeze that allows increases":  {m: merging(nil, frozen("increases")), at: year, ok: true, because: "no quota moves"},
		"a decrease in such a freeze":     {m: merging(lowered, frozen("increases")), at: year, because: "frozen until"},
		"the freeze's last moment":        {m: merging(nil, frozen("")), at: time.Date(2027, 1, 2, 22, 59, 59, 0, time.UTC), because: "frozen until"},
		"after the freeze":                {m: merging(nil, frozen("")), at: time.Date(2027, 1, 2, 23, 0, 0, 0, time.UTC), ok: true, because: "no quota moves"},
		"midnight in Paris begins it":     {m: merging(nil, frozen("")), at: time.Date(2026, 12, 19, 23, 0, 0, 0, time.UTC), because: "frozen until"},
		"an hour before":                  {m: merging(nil, frozen("")), at: time.Date(2026, 12, 19, 22, 59, 0, 0, time.UTC), ok: true, because: "no quota moves"},
		"a freeze that cannot be read":    {m: merging(nil, func(s *rlc.Service) { s.Freeze = []rlc.Freeze{{Cron: "TZ=", For: day}} }), because: "frozen until"},
		"every minute, the end is rolled": {m: merging(nil, func(s *rlc.Service) { s.Freeze = []rlc.Freeze{{Cron: "* * * * *", For: time.Hour}} }), because: "frozen until 2026-11-23 03:00 UTC"},
	} {
		if !x.at.IsZero() {
			x.m.Now = x.at
		}
		if x.ago > 0 {
			x.m.MonthAgo = map[string]rlc.Limit{"callers": {Rate: x.ago, Burst: 200}}
		}
		if ok, because := AutoMerge(x.m); ok != x.ok || !strings.HasPrefix(because, x.because) {
			t.Errorf("%s: %v, %q; want %v, %q", name, ok, because, x.ok, x.because)
		}
	}
}
