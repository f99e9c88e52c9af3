package web

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/web/ui"
)

// mostReplayed bounds the keys of one replay, and longestReplay its window.
const (
	mostReplayed  = 1000
	longestReplay = 28 * day
)

// replayed is what all callers of a service met together.
type replayed struct {
	truth       *truth
	from, until time.Time
	result      backtest.Together
	rows        []*row         // of each stream
	names       []string       // of each counter
	modes       []rlc.Mode     // of each counter
	caps        int            // index of the first cap among the counters
	without     int            // quotas without stored history in the window
	limits      map[string]int // counters by quota ID
}

// replayAll reads all series of a service and replays them against its quotas
// and caps, every one as if it enforced. own replaces the limits in force by
// quota ID; nil for none.
func (s *server) replayAll(ctx context.Context, t *truth, from, until time.Time, own map[string]backtest.Counter) (*replayed, error) {
	if t.service == nil {
		return nil, fault{status: http.StatusConflict, detail: "The policy of this service cannot be read: " + firstProblem(t.problems)}
	}
	matcher, problems := match.Compile(t.service)
	if matcher == nil {
		return nil, fault{status: http.StatusConflict, detail: "The buckets of this service cannot be told apart: " + firstProblem(problems)}
	}
	out := &replayed{truth: t, from: from, until: until, limits: map[string]int{}}
	histories, err := s.streams(ctx, out)
	if err != nil {
		return nil, err
	}
	if len(out.rows) == 0 {
		return nil, fault{status: http.StatusNotFound, detail: "No history is stored for this service and time. A run stores what it reads."}
	}
	histories = out.ownRegions(histories)
	streams, counters := out.wire(matcher, histories, own)
	if err := out.unknown(own); err != nil {
		return nil, err
	}
	out.result = backtest.ReplayTogether(histories[0].Step, from, until, streams, counters)
	return out, nil
}

// unknown is an error that names a quota of own that nothing of the service
// counts: a replay that left it out would say that it refuses nothing.
func (x *replayed) unknown(own map[string]backtest.Counter) error {
	ids := map[string]bool{}
	var names []string
	for i := range x.truth.rows {
		ids[x.truth.rows[i].id()] = true
		names = append(names, x.truth.rows[i].id())
	}
	for _, id := range slices.Sorted(maps.Keys(own)) {
		if _, counts := x.limits[id]; !counts && !ids[id] {
			return invalid("quotas: %s has no quota %s%s", x.truth.name, id, meant(id, names))
		}
	}
	return nil
}

// ownRegions leaves out the traffic of all regions where each region's is there
// with a quota of its own: nobody is charged for both.
func (x *replayed) ownRegions(histories []rlc.History) []rlc.History {
	own := map[string]bool{}
	for _, r := range x.rows {
		if r.region != "" {
			own[rlc.QuotaID(r.plain(), r.key)] = true
		}
	}
	rows, kept := x.rows[:0], histories[:0]
	for i, r := range x.rows {
		if r.region != "" || !own[r.id()] {
			rows, kept = append(rows, r), append(kept, histories[i])
		}
	}
	x.rows = rows
	return kept
}

// streams reads the histories of a service's quotas, all of one step, and notes
// whose they are.
func (s *server) streams(ctx context.Context, x *replayed) ([]rlc.History, error) {
	var ids []string
	for i := range x.truth.rows {
		if r := &x.truth.rows[i]; r.bucket != nil && r.bucket.Role != rlc.CapRole {
			ids = append(ids, r.seriesID())
		}
	}
	stored := map[string]rlc.History{}
	err := s.History.StoredEach(ctx, x.truth.name, ids, x.from.Truncate(time.Hour), x.until, func(id string, h rlc.History) error {
		if len(stored) >= mostReplayed {
			return invalid("more than %d keys have a history: replay a service with fewer", mostReplayed)
		}
		stored[id] = h
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []rlc.History
	for i := range x.truth.rows {
		r := &x.truth.rows[i]
		if r.bucket == nil || r.bucket.Role == rlc.CapRole {
			continue
		}
		h := stored[r.seriesID()]
		if len(h.Hours) == 0 || h.Step <= 0 || len(out) > 0 && h.Step != out[0].Step {
			x.without++
			continue
		}
		x.rows, out = append(x.rows, r), append(out, h)
	}
	return out, nil
}

// wire gives each stream its counters: its quota's first, then its caps'.
func (x *replayed) wire(matcher *match.Matcher, histories []rlc.History, own map[string]backtest.Counter) ([]backtest.Stream, []backtest.Counter) {
	streams := make([]backtest.Stream, len(x.rows))
	var counters []backtest.Counter
	count := func(r *row) (int, bool) {
		id := r.id()
		if c, ok := x.limits[id]; ok {
			return c, true
		}
		by, ok := own[id]
		if !ok {
			l := r.counter()
			if l == nil && r.bucket != nil && r.bucket.Window != nil {
				l = &backtest.Counter{Limit: r.bucket.Window.Limit()}
			}
			if l == nil {
				return 0, false
			}
			by = *l
		}
		x.limits[id] = len(counters)
		counters = append(counters, by)
		x.names, x.modes = append(x.names, quotaName(r.name, r.key)), append(x.modes, r.mode)
		return x.limits[id], true
	}
	for i, r := range x.rows {
		streams[i].History = histories[i]
		if c, ok := count(r); ok {
			streams[i].Counters = append(streams[i].Counters, c)
		}
	}
	x.caps = len(counters)
	for i, r := range x.rows {
		for _, hit := range matcher.Match(attributesOf(r)).Caps {
			b := &x.truth.service.Buckets[hit.Bucket]
			c := x.truth.row(b.Name, hit.Key)
			if c == nil {
				c = &row{bucket: b, name: b.Name, key: hit.Key, mode: b.Mode, desired: b.Limit}
			}
			if n, ok := count(c); ok {
				streams[i].Counters = append(streams[i].Counters, n)
			}
		}
	}
	return streams, counters
}

// attributesOf are what is known of every request of a quota: its key, and the
// attributes that its bucket wants exactly.
func attributesOf(r *row) rlc.Attributes {
	a := rlc.Attributes{}
	if r.bucket != nil {
		for name, p := range r.bucket.Match {
			if p.Kind == rlc.Exact && len(p.Values) == 1 {
				a[name] = p.Values[0]
			}
		}
	}
	for name, v := range r.key {
		a[name] = v
	}
	if r.region != "" {
		a["region"] = r.region
	}
	return a
}

// replayWindow reads from and until; without them, the last 24 h.
func (s *server) replayWindow(from, until string) (a, b time.Time, err error) {
	b = s.Now().UTC()
	if until != "" && until != "now" {
		if b, err = time.Parse(time.RFC3339, until); err != nil {
			return a, b, invalid("from and until must be RFC 3339 times such as 2026-12-02T06:00:00Z")
		}
	}
	a = b.Add(-day)
	if from != "" {
		if a, err = time.Parse(time.RFC3339, from); err != nil {
			return a, b, invalid("from and until must be RFC 3339 times such as 2026-12-02T06:00:00Z")
		}
	}
	if !a.Before(b) || b.Sub(a) > longestReplay {
		return a, b, invalid("from must lie before until, at most 28 days")
	}
	return a.UTC(), b.UTC(), nil
}

// apiReplay is POST /api/v1/replay.
func (s *server) apiReplay(v *visit) error {
	var in struct {
		Service string `json:"service"`
		From    string `json:"from"`
		Until   string `json:"until"`
		Quotas  []struct {
			Bucket    string    `json:"bucket"`
			Key       rlc.Key   `json:"key"`
			Rate      rlc.Rate  `json:"rate"`
			Burst     rlc.Burst `json:"burst"`
			rlc.Timed           // hours and windows as in quotas.yaml; without them one rate for all
		} `json:"quotas"`
		Unseen bool `json:"unseen"` // keys without traffic are named in the answer, and no error
	}
	if err := read(v, &in); err != nil {
		return err
	}
	if in.Service == "" {
		return invalid("service is required")
	}
	if in.Quotas != nil && len(in.Quotas) == 0 {
		return invalid("quotas is empty: leave it out to replay those in force")
	}
	var own map[string]backtest.Counter
	for _, q := range in.Quotas {
		l := backtest.Counter{Limit: rlc.Limit{Rate: q.Rate, Burst: q.Burst}, Timed: q.Timed}
		if err := l.Valid(); err != nil {
			return err
		}
		if err := validTimed(q.Timed); err != nil {
			return err
		}
		if own == nil {
			own = map[string]backtest.Counter{}
		}
		id := rlc.QuotaID(q.Bucket, q.Key)
		if _, twice := own[id]; twice {
			return invalid("quotas: %s is given twice", id)
		}
		own[id] = l
	}
	from, until, err := s.replayWindow(in.From, in.Until)
	if err != nil {
		return err
	}
	t, err := s.truth(v.ctx(), in.Service)
	if err != nil {
		return err
	}
	unseen := []string{}
	if in.Unseen {
		for _, q := range in.Quotas {
			if id := rlc.QuotaID(q.Bucket, q.Key); t.mayComeToBe(q.Bucket, q.Key) {
				delete(own, id)
				unseen = append(unseen, id)
			}
		}
	}
	x, err := s.replayAll(v.ctx(), t, from, until, own)
	if err != nil {
		return err
	}
	out := replayJSON(x)
	out["unseen"] = unseen
	return answer(v, http.StatusOK, out)
}

// mayComeToBe reports whether a key names one value of each attribute that its bucket
// counts by, and nothing is known by it yet: a caller that is new, or one misspelt.
func (t *truth) mayComeToBe(bucket string, key rlc.Key) bool {
	var b *rlc.Bucket
	if t.service != nil {
		b = t.service.Bucket(bucket)
	}
	if b == nil || b.ByHand() || len(b.Each) == 0 || len(key) != len(b.Each) {
		return false
	}
	for _, name := range b.Each {
		if key[name] == "" {
			return false
		}
	}
	return !slices.ContainsFunc(t.rows, func(r row) bool { return r.name == bucket && r.key.Equal(key) })
}

// order is the streams, those that lost most first.
func (x *replayed) order() []int {
	all := make([]int, len(x.rows))
	for i := range all {
		all[i] = i
	}
	slices.SortStableFunc(all, func(a, b int) int {
		r := x.result.Streams
		return cmpOr(cmpFloat(r[b].Refused, r[a].Refused), cmpFloat(r[b].Offered, r[a].Offered))
	})
	return all
}

// split is what a stream lost by its quota and by its caps.
func (x *replayed) split(i int) (quota, caps float64) {
	by := x.result.Streams[i].By
	for place, n := range by {
		if _, own := x.limits[x.rows[i].id()]; own && place == 0 {
			quota = n
		} else {
			caps += n
		}
	}
	return quota, caps
}

func replayJSON(x *replayed) object {
	r := &x.result
	callers := make([]object, 0, len(x.rows))
	for _, i := range x.order() {
		one := r.Streams[i]
		quota, caps := x.split(i)
		callers = append(callers, object{"bucket": x.rows[i].name, "key": keyJSON(x.rows[i].key), "mode": x.rows[i].mode, "offered": one.Offered, "refused": one.Refused, "share": share(one.Refused, one.Offered),
			"by_quota": quota, "by_caps": caps, "first": timeJSON(one.First), "last": timeJSON(one.Last), "steps": one.Steps, "worst": one.Worst})
	}
	caps := []object{}
	for c := x.caps; c < len(x.names); c++ {
		one := r.Counters[c]
		caps = append(caps, object{"cap": x.names[c], "mode": x.modes[c], "arrived": one.Offered, "refused": one.Refused, "share": share(one.Refused, one.Offered), "first": timeJSON(one.First), "last": timeJSON(one.Last)})
	}
	hours := make([]object, 0, len(r.Hours))
	for _, h := range r.Hours {
		hours = append(hours, object{"start": h.Start, "offered": h.Offered, "admitted": h.Admitted, "highest_admitted": h.Highest})
	}
	out := object{"service": x.truth.name, "from": x.from, "until": x.until, "step_seconds": r.Step.Seconds(), "offered": r.Offered, "refused": r.Refused, "share": share(r.Refused, r.Offered),
		"highest_admitted": r.Highest, "capacity": nil, "callers": callers, "caps": caps, "hours": hours, "without_history": x.without}
	if c := x.truth.service.Capacity; c != nil && c.Rate > 0 {
		out["capacity"] = c.Rate
	}
	return out
}

// replay is /services/{service}/replay, with its endings.
func (s *server) replay(v *visit) error { return s.replayAs(v, "") }

func (s *server) replayJSON(v *visit) error { return s.replayAs(v, ".json") }

func (s *server) replayCSV(v *visit) error { return s.replayAs(v, ".csv") }

func (s *server) replayAs(v *visit, ending string) error {
	q := v.r.URL.Query()
	from, until, err := s.replayWindow(q.Get("from"), q.Get("until"))
	if err != nil {
		return err
	}
	t, err := s.truth(v.ctx(), v.r.PathValue("service"))
	if err != nil {
		return err
	}
	x, err := s.replayAll(v.ctx(), t, from, until, nil)
	var none fault
	if err != nil && (ending != "" || !errors.As(err, &none)) {
		return err
	}
	switch ending {
	case ".json":
		return answer(v, http.StatusOK, replayJSON(x))
	case ".csv":
		return sheet(v, t.name+"-replay", []string{"bucket", "key", "offered", "refused", "by_quota", "by_caps", "first", "last"}, replayLines(x))
	}
	f, ferr := s.frame(v, t.name+" / replay", "services")
	if ferr != nil {
		return ferr
	}
	view := ui.Replay{Head: s.serviceHead(t, "Service", ui.Link{Text: t.name, URL: serviceURL(t.name)}, "replay"), From: from.Format(time.RFC3339), Until: until.Format(time.RFC3339)}
	if err != nil {
		view.Empty = &ui.Empty{Title: "Nothing can be replayed", Reason: none.detail, Query: "service " + t.name + ", " + view.From + " to " + view.Until, Fix: ui.Link{Text: "Runs", URL: "/runs"}}
		return s.render(v, http.StatusOK, ui.ReplayPage(f, view))
	}
	s.fillReplay(v, x, &view)
	return s.render(v, http.StatusOK, ui.ReplayPage(f, view))
}

func replayLines(x *replayed) [][]string {
	var rows [][]string
	for _, i := range x.order() {
		one := x.result.Streams[i]
		quota, caps := x.split(i)
		rows = append(rows, []string{x.rows[i].name, x.rows[i].key.String(), whole(one.Offered), whole(one.Refused), whole(quota), whole(caps), stamp(one.First), stamp(one.Last)})
	}
	return rows
}

func (s *server) fillReplay(v *visit, x *replayed, view *ui.Replay) {
	r := &x.result
	refused := 0
	for _, one := range r.Streams {
		if one.Refused >= 0.5 {
			refused++
		}
	}
	view.Verdict = []ui.Part{{Text: "Nobody would have been refused: all "}, {Text: count(r.Offered), Bold: true}, {Text: " requests pass."}}
	if refused > 0 {
		view.Verdict = []ui.Part{{Text: plural(refused, "key", "keys"), Bold: true}, {Text: " of " + count(float64(len(x.rows))) + " would have been refused "}, {Text: count(r.Refused), Bold: true}, {Text: " of " + count(r.Offered) + " requests (" + percent(share(r.Refused, r.Offered)) + "), were every bucket and cap enforced."}}
	}
	if r.Highest != nil {
		text := " At most " + rate(float64(r.Highest.Rate)) + " req/s are admitted together, at " + v.time(r.Highest.At).Text
		if c := x.truth.service.Capacity; c != nil && c.Rate > 0 {
			text += ": " + percent(float64(r.Highest.Rate/c.Rate)) + " of the declared capacity of " + rate(float64(c.Rate))
		}
		view.Verdict = append(view.Verdict, ui.Part{Text: text + "."})
	}
	view.Notes = []string{"A shared cap refuses all callers the same share of a step. Steps below the stored detail pass at their hour's mean."}
	if x.without > 0 {
		view.Notes = append(view.Notes, plural(x.without, "quota has", "quotas have")+" no stored history here.")
	}
	if t := policies.Blind(r.Step); t != "" {
		view.Notes = append(view.Notes, "A replay of all together goes by steps: "+t+". A quota’s own page says what its burst held.")
	}
	order := x.order()
	for _, i := range order[:min(len(order), 100)] {
		one := r.Streams[i]
		quota, caps := x.split(i)
		view.Rows = append(view.Rows, ui.ReplayRow{
			Quota: ui.Link{Text: quotaName(x.rows[i].name, x.rows[i].key), URL: bucketURL(x.truth.name, x.rows[i].name, x.rows[i].key)}, Chip: modeChip(x.rows[i].mode),
			Offered: digits(one.Offered), Refused: digits(one.Refused), Some: one.Refused >= 0.5, Share: percent(share(one.Refused, one.Offered)),
			Quotas: count(quota), Caps: count(caps), First: v.time(one.First), Last: v.time(one.Last),
		})
	}
	for c := x.caps; c < len(x.names); c++ {
		one := r.Counters[c]
		view.Caps = append(view.Caps, strings.Join([]string{x.names[c], count(one.Offered) + " came", count(one.Refused) + " refused (" + percent(share(one.Refused, one.Offered)) + ")"}, ": "))
	}
	view.Pager = ui.Pager{Range: count(float64(len(view.Rows))) + " of " + count(float64(len(order))), CSV: v.as(".csv"), JSON: v.as(".json")}
}
