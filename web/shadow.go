package web

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// shadowed is what shadow mode would have done to a service: episodes from the
// backtest of the last run, and counters from enforcers.
type shadowed struct {
	truth    *truth
	quotas   []shadowQuota
	episodes []rlc.Episode // newest first
	total    float64       // replayed virtual drops
	step     float64
	live     rlc.Count // over the last 24 h
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
	out := &shadowed{truth: t}
	now, err2 := s.History.Counts(ctx, name, day, s.Now())
	out.live, out.liveErr = countsOf(now).total(), err2
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
	read := 0
	for _, r := range candidates {
		b := r.inForce()
		if b == nil {
			continue
		}
		out.total += b.Drops
		out.step = b.Step
		if b.Drops > 0 && len(b.Episodes) == 0 && read < mostQuotas {
			read++
			full, err := s.Records.LatestChange(ctx, name, r.name, r.key)
			if err != nil && !errors.Is(err, rlc.ErrNotFound) {
				return nil, err
			}
			if err == nil {
				r.change = &full
				if fresh := r.inForce(); fresh != nil {
					b = fresh
				}
			}
		}
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
	t := sh.truth
	view := ui.Shadow{
		Head: s.serviceHead(t, "Service", ui.Link{Text: name, URL: serviceURL(name)}, "shadow"), Name: name, Tabs: s.tabs(t, "shadow"),
		Pager: v.pager(page, len(cut(sh.episodes, page)), len(sh.episodes)), Sight: sight(time.Duration(sh.step * float64(time.Second))),
		More: "Shadow has no retries: a caller that is really refused may call again, so enforced drops can be higher.",
	}
	for _, e := range cut(sh.episodes, page) {
		view.Rows = append(view.Rows, episodeRow(v, name, e, rlc.Shadow, e.Bucket, e.Key))
	}
	var diverging int
	view.Compare, diverging = shadowRows(name, sh)
	view.Verdict = shadowVerdict(sh, diverging)
	compared := "no run has replayed a quota in shadow yet"
	if !sh.at.IsZero() {
		compared = "until " + v.time(sh.at).Text + ", the last run's now"
	}
	view.Tiles = []ui.Tile{
		{Label: "Backtest", Figure: count(sh.total), From: plural(len(sh.quotas), "quota", "quotas") + " in shadow, replayed over four weeks " + compared},
		{Label: "Live shadow counter", Figure: count(sh.live.VirtualDrops), From: "of " + count(sh.live.Offered) + " requests counted in the last 24 h"},
		{Label: "Episodes", Figure: count(float64(len(sh.episodes))), From: "in the backtest"},
		{Label: "Diverging", Figure: count(float64(diverging)), From: "quotas whose live counter is more than 10 % off the backtest"},
	}
	if diverging > 0 {
		view.Tiles[3].Level = "bad"
	}
	for _, e := range []error{sh.liveErr, compareErr} {
		if e != nil {
			view.More = "What enforcers counted cannot be read: " + plain(e) + ". " + view.More
			break
		}
	}
	if len(sh.episodes) == 0 {
		view.Empty = &ui.Empty{
			Title: "No episodes", Reason: "Either no quota is in shadow, or none of their limits lies below past traffic. Live counters arrive with the next scrape.",
			Query: `sum(increase(rlc_enforcer_requests_total{service=` + strconv.Quote(name) + `,outcome="virtual_drop"}[24h]))`, Fix: ui.Link{Text: "Quotas of " + name, URL: serviceURL(name)},
		}
	}
	return s.render(v, http.StatusOK, ui.ShadowPage(f, view))
}

// shadowRows is the comparison, the most drops first; diverging counts all
// quotas that are more than 10 % off.
func shadowRows(name string, sh *shadowed) (rows []ui.CompareRow, diverging int) {
	quotas := slices.Clone(sh.quotas)
	slices.SortStableFunc(quotas, func(a, b shadowQuota) int {
		return cmpFloat(max(b.backtest, b.counted.VirtualDrops), max(a.backtest, a.counted.VirtualDrops))
	})
	for _, q := range quotas {
		apart, young := q.reading()
		if math.Abs(apart) > 0.1 && !young {
			diverging++
		}
		if len(rows) >= 20 || (q.backtest == 0 && q.counted.VirtualDrops == 0) {
			continue
		}
		row := ui.CompareRow{
			Quota:    ui.Link{Text: quotaName(q.row.name, q.row.key), URL: bucketURL(name, q.row.name, q.row.key)},
			Backtest: count(q.backtest), Live: count(q.counted.VirtualDrops), Off: signed(apart), Level: "good", Note: "within 10 %",
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
	return rows, diverging
}

func shadowVerdict(sh *shadowed, diverging int) []ui.Part {
	if len(sh.quotas) == 0 {
		return []ui.Part{{Text: "No quota of " + sh.truth.name + " in shadow has been replayed yet."}}
	}
	if len(sh.episodes) == 0 {
		return []ui.Part{{Text: "In shadow, and nothing would have been dropped: " + plural(len(sh.quotas), "quota", "quotas") + " replayed without an episode."}}
	}
	byQuota := map[string]int{}
	worst := sh.episodes[0]
	for _, e := range sh.episodes {
		byQuota[rlc.QuotaID(e.Bucket, e.Key)]++
		if e.Drops > worst.Drops {
			worst = e
		}
	}
	say := []ui.Part{
		{Text: plural(len(sh.episodes), "episode", "episodes") + " of " + plural(len(byQuota), "quota", "quotas") + " would have dropped "}, {Text: count(sh.total), Bold: true},
		{Text: " requests in four weeks; the largest hit "}, {Text: quotaName(worst.Bucket, worst.Key), URL: bucketURL(sh.truth.name, worst.Bucket, worst.Key)},
		{Text: ", " + rate(float64(worst.Peak)) + " req/s against " + rate(float64(worst.Limit)) + "."},
	}
	if diverging > 0 {
		say = append(say, ui.Part{Text: " Live counters disagree with the replay for " + plural(diverging, "quota", "quotas") + "."})
	}
	return say
}

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
	for _, e := range cut(sh.episodes, page) {
		rows = append(rows, []string{e.Bucket, e.Key.String(), stamp(e.From), stamp(e.Until), float(float64(e.Peak)), float(float64(e.Limit)), float(e.Drops), float(float64(e.Share))})
	}
	return sheet(v, name+"-shadow", []string{"bucket", "key", "from", "until", "peak", "limit", "virtual_drops", "share"}, rows)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
