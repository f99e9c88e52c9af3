package web

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/web/ui"
)

// shadowed is what shadow mode would have done to a service: episodes from the
// backtest of the last run, and counters from enforcers.
type shadowed struct {
	truth    *truth
	quotas   []shadowQuota
	episodes []rlc.Episode // newest first
	total    float64       // replayed virtual drops
	replayed []rlc.Change  // the limits in force of its quotas, as New
	live     rlc.Count     // over the last 24 h
	age      counting      // how far back they reach
	counted  []rlc.Count   // of it, each quota in shadow, the most virtual drops first
	now      time.Time     // when the counters were read
	liveErr  error
	at       time.Time // the last run's now
}

// shadowQuota sets one quota's backtest beside its live counter, over the same
// 24 h that end at the last run's now.
type shadowQuota struct {
	row      *row
	backtest float64
	counted  rlc.Count
	offered  float64 // replayed requests of a mean day
}

// most quotas whose episodes one page reads.
const mostQuotas = 50

func (s *server) gatherShadow(ctx context.Context, name string) (*shadowed, error) {
	t, err := s.truth(ctx, name)
	if err != nil {
		return nil, err
	}
	out := &shadowed{truth: t, now: s.Now()}
	now, err2 := s.History.Counts(ctx, name, day, out.now)
	seen := countsOf(now)
	out.live, out.liveErr = seen.total(), err2
	modes := map[string]rlc.Mode{}
	for i := range t.rows {
		modes[t.rows[i].id()] = t.rows[i].mode
	}
	for id, c := range seen {
		mode, own := modes[id]
		if !own && t.service != nil && t.service.Bucket(c.Bucket) != nil {
			mode = t.service.Bucket(c.Bucket).Mode // a key without a quota of its own
		}
		if c.VirtualDrops >= 0.5 || c.Offered > 0 && mode == rlc.Shadow {
			out.counted = append(out.counted, c)
		}
	}
	slices.SortFunc(out.counted, func(a, b rlc.Count) int {
		return cmpOr(cmpFloat(b.VirtualDrops, a.VirtualDrops), cmpFloat(b.Offered, a.Offered), strings.Compare(rlc.QuotaID(a.Bucket, a.Key), rlc.QuotaID(b.Bucket, b.Key)))
	})
	var candidates []*row
	for i := range t.rows {
		r := &t.rows[i]
		if r.mode != rlc.Shadow || r.change == nil {
			continue
		}
		if r.change.At.After(out.at) {
			out.at = r.change.At
		}
		candidates = append(candidates, r)
	}
	slices.SortStableFunc(candidates, func(a, b *row) int { return cmpFloat(dropsOf(b), dropsOf(a)) })
	if err := s.readEpisodes(ctx, candidates); err != nil {
		return nil, err
	}
	for _, r := range candidates {
		b := r.inForce()
		if b == nil {
			continue
		}
		out.total += b.Drops
		out.replayed = append(out.replayed, rlc.Change{Backtest: rlc.ChangeBacktest{New: b}})
		q := shadowQuota{row: r, offered: r.change.Offered / (float64(window) / float64(day))}
		for _, e := range b.Episodes {
			e.Bucket, e.Key = r.name, r.key
			out.episodes = append(out.episodes, e)
			if e.Until.After(r.change.At.Add(-day)) {
				q.backtest += e.Drops
			}
		}
		out.quotas = append(out.quotas, q)
	}
	slices.SortStableFunc(out.episodes, func(a, b rlc.Episode) int { return b.From.Compare(a.From) })
	return out, nil
}

// readEpisodes reads the episodes of the first quotas that have any.
func (s *server) readEpisodes(ctx context.Context, candidates []*row) error {
	var light []rlc.Change
	var of []*row
	for _, r := range candidates {
		if dropsOf(r) > 0 && len(of) < mostQuotas {
			light, of = append(light, *r.change), append(of, r)
		}
	}
	whole, err := s.Records.WithEpisodes(ctx, light)
	for i := range whole {
		of[i].change = &whole[i]
	}
	return err
}

func dropsOf(r *row) float64 {
	if b := r.inForce(); b != nil {
		return b.Drops
	}
	return 0
}

// compare reads the counters of the last run's own 24 h.
func (s *server) compare(ctx context.Context, sh *shadowed) error {
	if sh.at.IsZero() {
		return nil
	}
	counted, err := s.History.Counts(ctx, sh.truth.name, day, sh.at)
	if err != nil {
		return err
	}
	seen := countsOf(counted)
	for i := range sh.quotas {
		sh.quotas[i].counted = seen[sh.quotas[i].row.id()]
	}
	return nil
}

// reading judges how far a backtest and a counter lie apart. tooYoung: the
// counters have not seen half a mean day, so nothing can be said.
func (q shadowQuota) reading() (apart float64, tooYoung bool) {
	if q.counted.Offered < q.offered/2 {
		return 0, true
	}
	most := max(q.backtest, q.counted.VirtualDrops)
	if most == 0 {
		return 0, false
	}
	return (q.counted.VirtualDrops - q.backtest) / most, false
}

// shadow is /services/{service}/shadow.
func (s *server) shadow(v *visit) error {
	name := v.r.PathValue("service")
	sh, err := s.gatherShadow(v.ctx(), name)
	if err != nil {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	compareErr := s.compare(v.ctx(), sh)
	f, err := s.frame(v, name+" / shadow", "services")
	if err != nil {
		return err
	}
	tri, err := s.triage(v.ctx(), sh)
	if err != nil {
		return err
	}
	all := tri.shown(v)
	asleep := len(sh.episodes) - len(tri.awake())
	t := sh.truth
	sh.age = s.counting(v, name)
	view := ui.Shadow{
		Head: s.tabbed(t, "shadow"), Name: name,
		Pager: v.pager(page, len(cut(all, page)), len(all)), Sight: policies.BurstsText(sh.replayed),
		Ways: checklists(t),
		More: "Shadow has no retries: a caller that is really refused may call again, so enforced drops can be higher.",
	}
	for _, e := range cut(all, page) {
		view.Rows = append(view.Rows, tri.row(v, name, e))
	}
	if asleep > 0 {
		view.Asleep = plural(asleep, "episode is snoozed", "episodes are snoozed")
	}
	sum, err := s.Records.Summary(v.ctx(), name)
	if err != nil && !errors.Is(err, rlc.ErrNotFound) {
		return err
	}
	var diverging, compared int
	view.Compare, diverging, compared = shadowRows(name, sh)
	view.CompareRest = compareRest(len(sh.quotas), len(view.Compare))
	view.Verdict = append(append(shadowVerdict(sh, diverging), waitingSay(tri.waiting())...), readySay(name, sum.Ready)...)
	view.Until, view.Compared = v.timeAs(sh.now, "15:04:05"), v.time(sh.at)
	view.Live, view.NoLive = liveRows(name, sh), noLive(name, sh)
	view.Counted, view.Offered = "Counted by enforcers "+sh.age.text+", until now, ", "Offered "+sh.age.label
	view.LiveCSV, view.CompareCSV = serviceURL(name)+"/shadow.csv?table=live", serviceURL(name)+"/shadow.csv?table=compare"
	view.CompareJSON = serviceURL(name) + "/shadow.json?table=compare"
	if rest := len(sh.counted) - len(view.Live); rest > 0 {
		view.LiveRest = "and " + plural(rest, "quota", "quotas") + " with fewer"
	}
	if silent := silentQuotas(sh); silent > 0 && sh.liveErr == nil && len(view.Live) > 0 {
		view.LiveRest = strings.TrimPrefix(view.LiveRest+"; "+plural(silent, "quota", "quotas")+" in shadow without a request "+sh.age.text+" not listed", "; ")
	}
	view.Tiles = []ui.Tile{
		{Label: "Live, would have dropped", Figure: count(sh.live.VirtualDrops), From: "of " + count(sh.live.Offered) + " requests counted " + sh.age.text},
		{Label: "Backtest", Figure: count(sh.total), From: plural(len(sh.quotas), "quota", "quotas") + " in shadow, replayed over four weeks until " + v.time(sh.at).Text + ", the last run's now"},
		waitingTile(tri, asleep),
		{Label: "Diverging", Figure: count(float64(diverging)), Unit: "of " + count(float64(compared)), From: "quotas that can be compared: live counter more than 10 % off the backtest"},
		readyTile(t, sum.Ready),
	}
	if compared == 0 {
		view.Tiles[3] = ui.Tile{Label: "Diverging", Figure: "—", From: "no quota can be compared yet: enforcers have not counted half of a mean day"}
	}
	if diverging > 0 {
		view.Tiles[3].Level = "bad"
	}
	if sh.live.Offered == 0 {
		view.Tiles[0].Figure, view.Tiles[0].From = "—", "no enforcer has counted a request in 24 h"
	}
	if sh.liveErr != nil || t.broken && sh.live.Offered == 0 {
		view.Tiles[0].Figure, view.Tiles[0].From = unknown, "no count of the last 24 h is at hand"
	}
	if len(sh.quotas) == 0 {
		for i := 1; i < len(view.Tiles)-1; i++ {
			view.Tiles[i].Figure, view.Tiles[i].Unit, view.Tiles[i].From = unknown, "", "no run has replayed a quota in shadow yet"
		}
	}
	for _, e := range []error{sh.liveErr, compareErr} {
		if e != nil {
			view.More = "What enforcers counted cannot be read: " + plain(e) + ". " + view.More
			break
		}
	}
	if len(all) == 0 && asleep > 0 {
		view.Empty = &ui.Empty{Title: "Every episode is snoozed", Reason: "They come back by themselves.", Fix: ui.Link{Text: "Show them", URL: "?snoozed=show"}}
	}
	if len(sh.episodes) == 0 {
		view.Empty = noEpisodes(name, sh, view.Compared)
	}
	return s.render(v, http.StatusOK, ui.ShadowPage(f, view))
}

// readySay names the buckets whose checklist lacks only an owner's word.
func readySay(name string, ready []rlc.ReadyBucket) []ui.Part {
	if len(ready) == 0 {
		return nil
	}
	say := []ui.Part{{Text: " Ready to enforce: "}}
	for i, b := range ready {
		if i > 0 {
			say = append(say, ui.Part{Text: ", "})
		}
		say = append(say, ui.Part{Text: b.Bucket, URL: serviceURL(name) + "/buckets/" + segment(b.Bucket) + "/promote"})
	}
	return append(say, ui.Part{Text: "."})
}

// readyTile counts the buckets in shadow whose checklist lacks only an owner's word.
func readyTile(t *truth, ready []rlc.ReadyBucket) ui.Tile {
	tile := ui.Tile{Label: "Ready to enforce", Figure: count(float64(len(ready))), From: "every check is passed but an owner's word"}
	shadows := 0
	if t.service != nil {
		for _, b := range t.service.Buckets {
			if b.Mode == rlc.Shadow {
				shadows++
			}
		}
	}
	tile.Unit = "of " + plural(shadows, "bucket", "buckets")
	if t.broken || shadows == 0 {
		return ui.Tile{Label: tile.Label, Figure: "—", From: "no bucket that can be read is in shadow"}
	}
	if len(ready) == 0 {
		tile.From = "each bucket's checklist says what it lacks"
	}
	return tile
}

// noEpisodes tells why there is nothing to judge.
func noEpisodes(name string, sh *shadowed, at ui.Time) *ui.Empty {
	t := sh.truth
	shadows := t.service != nil && slices.ContainsFunc(t.service.Buckets, func(b rlc.Bucket) bool { return b.Mode == rlc.Shadow }) ||
		slices.ContainsFunc(t.rows, func(r row) bool { return r.mode == rlc.Shadow })
	switch {
	case !shadows:
		return &ui.Empty{
			Title: "No quota is in shadow", Reason: "Every limit of " + name + " drops what lies above it. A bucket is tried with mode: shadow in its policy.",
			Query: "buckets:\n  - {name: callers, each: [caller], mode: shadow}", Fix: ui.Link{Text: "Policy of " + name, URL: serviceURL(name) + "/policy"},
		}
	case len(sh.quotas) == 0:
		return &ui.Empty{Title: "Nothing has been replayed yet", Reason: "Episodes come from the backtest of a run that read history for a quota in shadow. No run has yet.", Fix: ui.Link{Text: "Runs", URL: "/runs"}}
	case sh.live.VirtualDrops >= 0.5:
		return &ui.Empty{
			Title:  "No episodes in the past",
			Reason: plural(len(sh.quotas), "quota", "quotas") + " in shadow replayed over four weeks until " + at.Text + ": nothing lies above their limits. What enforcers count above them since is in the table above; the next run that reads it makes episodes of it.",
			Query:  virtualQuery(name), Fix: ui.Link{Text: "Runs", URL: "/runs"},
		}
	}
	return &ui.Empty{
		Title:  "No episodes",
		Reason: plural(len(sh.quotas), "quota", "quotas") + " in shadow replayed over four weeks until " + at.Text + ": nothing lies above their limits.",
		Fix:    ui.Link{Text: "Try lower limits", URL: serviceURL(name) + "/whatif"},
	}
}

// waitingTile counts the episodes that wait for a verdict, of all.
func waitingTile(tri *triage, asleep int) ui.Tile {
	n, waiting := len(tri.episodes), tri.waiting()
	t := ui.Tile{Label: "Waiting for a verdict", Figure: count(float64(waiting)), Unit: "of " + plural(n, "episode", "episodes"), From: "nobody has judged any yet"}
	if done := n - waiting - asleep; done > 0 || asleep > 0 {
		t.From = count(float64(done)) + " judged, " + count(float64(asleep)) + " snoozed"
	}
	return t
}

func waitingSay(n int) []ui.Part {
	if n == 0 {
		return nil
	}
	return []ui.Part{{Text: " "}, {Text: plural(n, "episode waits", "episodes wait"), Bold: true}, {Text: " for a verdict."}}
}

// shadowRows is the comparison, the most drops first; diverging counts all
// quotas that are more than 10 % off, compared those that are old enough to be.
func shadowRows(name string, sh *shadowed) (rows []ui.CompareRow, diverging, compared int) {
	quotas := slices.Clone(sh.quotas)
	slices.SortStableFunc(quotas, func(a, b shadowQuota) int {
		return cmpFloat(max(b.backtest, b.counted.VirtualDrops), max(a.backtest, a.counted.VirtualDrops))
	})
	for _, q := range quotas {
		apart, young := q.reading()
		if !young {
			compared++
		}
		if math.Abs(apart) > 0.1 && !young {
			diverging++
		}
		if len(rows) >= 20 || (q.backtest == 0 && q.counted.VirtualDrops == 0) {
			continue
		}
		row := ui.CompareRow{
			Quota:    ui.Link{Text: quotaName(q.row.name, q.row.key), URL: bucketURL(name, q.row.name, q.row.key)},
			Backtest: digits(q.backtest), Live: digits(q.counted.VirtualDrops), Off: signed(apart), Level: "good", Note: "within 10 %",
		}
		switch {
		case young:
			row.Off, row.Level = "—", "note"
			row.Note = "too young to compare: enforcers counted " + count(q.counted.Offered) + " of about " + count(q.offered) + " requests a day"
		case apart > 0.1:
			row.Level, row.Note = "warn", "enforcers count more: bursts shorter than a step, or more traffic than history knows"
		case apart < -0.1:
			row.Level, row.Note = "warn", "enforcers count less: some traffic does not pass them"
		}
		rows = append(rows, row)
	}
	return rows, diverging, compared
}

// compareRest says why a comparison lists fewer quotas than were replayed.
func compareRest(replayed, listed int) string {
	if rest := replayed - listed; rest > 0 && listed > 0 {
		return plural(rest, "more quota", "more quotas") + " in shadow, with fewer drops or none in both, not listed"
	}
	return ""
}

// silentQuotas counts the replayed quotas in shadow that enforcers have counted
// nothing of.
func silentQuotas(sh *shadowed) int {
	counted := map[string]bool{}
	for _, c := range sh.counted {
		counted[rlc.QuotaID(c.Bucket, c.Key)] = true
	}
	n := 0
	for _, q := range sh.quotas {
		if !counted[q.row.id()] {
			n++
		}
	}
	return n
}

// mostLive quotas are listed with their live counters.
const mostLive = 20

func liveRows(name string, sh *shadowed) []ui.LiveRow {
	var out []ui.LiveRow
	for _, c := range sh.counted[:min(len(sh.counted), mostLive)] {
		out = append(out, ui.LiveRow{
			Quota:   ui.Link{Text: quotaName(c.Bucket, c.Key), URL: bucketURL(name, c.Bucket, c.Key)},
			Offered: digits(c.Offered), Virtual: digits(c.VirtualDrops), Some: c.VirtualDrops > 0, Share: percent(share(c.VirtualDrops, c.Offered)),
		})
		if sh.truth.row(c.Bucket, c.Key) == nil {
			out[len(out)-1].Quota.URL = serviceURL(name) // without a quota of its own
		}
	}
	return out
}

func noLive(name string, sh *shadowed) *ui.Empty {
	if len(sh.counted) > 0 {
		return nil
	}
	e := &ui.Empty{
		Title: "Nothing is counted live", Reason: "No enforcer has counted a request of a quota in shadow in the last 24 h. Counters arrive with the next scrape.",
		Query: virtualQuery(name), Fix: ui.Link{Text: "Quotas of " + name, URL: serviceURL(name)},
	}
	if sh.liveErr != nil {
		e.Title, e.Reason = "The live counters cannot be read", capital(plain(sh.liveErr))+"."
	}
	return e
}

// virtualQuery asks Prometheus for what shadow would have dropped in 24 h.
func virtualQuery(name string) string {
	return `sum(increase(rlc_enforcer_requests_total{service=` + strconv.Quote(name) + `,outcome="virtual_drop"}[24h]))`
}

// shadowVerdict speaks of now first, then of the past weeks.
func shadowVerdict(sh *shadowed, diverging int) []ui.Part {
	say := sh.truth.invalid()
	switch {
	case sh.liveErr != nil:
		say = append(say, ui.Part{Text: "What is counted live is unknown. "})
	case len(sh.counted) > 0 && sh.counted[0].VirtualDrops >= 1:
		c := sh.counted[0]
		say = append(say, ui.Part{Text: "Live " + sh.age.text + " "}, ui.Part{Text: count(sh.live.VirtualDrops), Bold: true},
			ui.Part{Text: " of " + count(sh.live.Offered) + " requests (" + percent(share(sh.live.VirtualDrops, sh.live.Offered)) + ") would have been dropped, most of "},
			ui.Part{Text: quotaName(c.Bucket, c.Key), URL: liveRows(sh.truth.name, sh)[0].Quota.URL},
			ui.Part{Text: ": " + count(c.VirtualDrops) + ", " + percent(share(c.VirtualDrops, c.Offered)) + " of what it was offered. "})
	case sh.live.Offered > 0:
		say = append(say, ui.Part{Text: "Live " + sh.age.text + " nothing would have been dropped. "})
	}
	if len(sh.quotas) == 0 {
		if sh.truth.service == nil {
			return say
		}
		return append(say, ui.Part{Text: "No quota of " + sh.truth.name + " in shadow has been replayed yet."})
	}
	if len(sh.episodes) == 0 {
		return append(say, ui.Part{Text: "In the past four weeks nothing would have been dropped: " + plural(len(sh.quotas), "quota", "quotas") + " replayed without an episode."})
	}
	byQuota := map[string]int{}
	worst := sh.episodes[0]
	for _, e := range sh.episodes {
		byQuota[rlc.QuotaID(e.Bucket, e.Key)]++
		if e.Drops > worst.Drops {
			worst = e
		}
	}
	say = append(say,
		ui.Part{Text: "Replayed over four weeks, " + plural(len(sh.episodes), "episode", "episodes") + " of " + plural(len(byQuota), "quota", "quotas") + " would have dropped "}, ui.Part{Text: count(sh.total), Bold: true},
		ui.Part{Text: " requests; the largest hit "}, ui.Part{Text: quotaName(worst.Bucket, worst.Key), URL: bucketURL(sh.truth.name, worst.Bucket, worst.Key)},
		ui.Part{Text: ", " + rate(float64(worst.Peak)) + " req/s against " + rate(float64(worst.Limit)) + "."})
	if diverging > 0 {
		say = append(say, ui.Part{Text: " Live counters disagree with the replay for " + plural(diverging, "quota", "quotas") + "."})
	}
	return say
}

// shadowCSV is /services/{service}/shadow.csv: the episodes that the page
// lists, or with ?table=live or ?table=compare one of the tables above them,
// whole.
func (s *server) shadowCSV(v *visit) error {
	name := v.r.PathValue("service")
	sh, err := s.gatherShadow(v.ctx(), name)
	if err != nil {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	var rows [][]string
	switch v.r.URL.Query().Get("table") {
	case "live":
		if sh.liveErr != nil {
			return sh.liveErr
		}
		for _, c := range sh.counted {
			rows = append(rows, []string{c.Bucket, c.Key.String(), whole(c.Offered), whole(c.VirtualDrops), float(share(c.VirtualDrops, c.Offered))})
		}
		return sheet(v, name+"-shadow-live", []string{"bucket", "key", "offered_24h", "virtual_drops_24h", "share"}, rows)
	case "compare":
		if err := s.compare(v.ctx(), sh); err != nil {
			return err
		}
		for _, q := range sh.quotas {
			apart, young := q.reading()
			off := float(apart)
			if young {
				off = ""
			}
			rows = append(rows, []string{q.row.name, q.row.key.String(), whole(q.backtest), whole(q.counted.VirtualDrops), whole(q.counted.Offered), off})
		}
		return sheet(v, name+"-shadow-compare", []string{"bucket", "key", "backtest_drops", "counted_virtual_drops", "counted_offered", "apart"}, rows)
	case "":
	default:
		return invalid("table must be live or compare, or be left out")
	}
	tri, err := s.triage(v.ctx(), sh)
	if err != nil {
		return err
	}
	for _, e := range cut(tri.shown(v), page) {
		rows = append(rows, []string{e.Bucket, e.Key.String(), stamp(e.From), stamp(e.Until), float(float64(e.Peak)), float(float64(e.Limit)), whole(e.Drops), float(float64(e.Share)), tri.cause(e), tri.word(v, e)})
	}
	return sheet(v, name+"-shadow", []string{"bucket", "key", "from", "until", "peak", "limit", "virtual_drops", "share", "likely_cause", "verdict"}, rows)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
