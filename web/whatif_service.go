package web

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/web/ui"
)

// fleets keeps what service-wide what-ifs need, made once per run: a frontier
// and the statistics of each series. It holds at most mostFleetKeys series, the
// services that were asked last.
type fleets struct {
	mu      sync.Mutex
	byID    map[string]*fleet
	order   []string                 // the oldest question first
	reading map[string]chan struct{} // services that somebody reads now; closed at its end
}

// A frontier of four weeks of minutes takes about 65 KB.
const mostFleetKeys = 1000

type fleet struct {
	keys    []fleetKey
	run     time.Time // the newest change's run
	hour    time.Time // when it was read
	left    int       // quotas beyond mostFleetKeys
	without int       // quotas without stored history
}

type fleetKey struct {
	name   string
	key    rlc.Key
	f      *backtest.Frontier
	values map[string]backtest.Prepared // by stat and window
}

// fleetOf finds a service's prepared series, or reads them. Who asks while
// another reads the same service waits for that; other services do not.
func (s *server) fleetOf(ctx context.Context, t *truth, out leftOut) (*fleet, error) {
	now := s.Now().UTC()
	run, hour := newestRun(t), now.Truncate(time.Hour)
	f, id := &s.fleets, t.name+out.id()
	for {
		f.mu.Lock()
		if one := f.byID[id]; one != nil && one.run.Equal(run) && one.hour.Equal(hour) {
			f.mu.Unlock()
			return one, nil
		}
		wait := f.reading[id]
		if wait == nil {
			break
		}
		f.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	done := make(chan struct{})
	if f.reading == nil {
		f.reading = map[string]chan struct{}{}
	}
	f.reading[id] = done
	f.mu.Unlock()

	one, err := s.readFleet(ctx, t, out, now)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reading, id)
	close(done)
	if err != nil {
		return nil, err
	}
	one.run, one.hour = run, hour
	f.keep(id, one)
	return one, nil
}

func newestRun(t *truth) (at time.Time) {
	for i := range t.rows {
		if c := t.rows[i].change; c != nil && c.At.After(at) {
			at = c.At
		}
	}
	return at
}

// readFleet reads and prepares a service's series.
func (s *server) readFleet(ctx context.Context, t *truth, out leftOut, now time.Time) (*fleet, error) {
	f := &fleet{}
	byID := map[string]*row{}
	var ids []string
	for i := range t.rows {
		r := &t.rows[i]
		switch {
		case r.bucket == nil || r.bucket.Role == rlc.CapRole:
		case len(ids) >= mostFleetKeys:
			f.left++
		default:
			byID[r.seriesID()] = r
			ids = append(ids, r.seriesID())
		}
	}
	ready := map[string]fleetKey{}
	err := s.History.StoredEach(ctx, t.name, ids, now.Add(-window).Truncate(time.Hour), now, func(id string, h rlc.History) error {
		if len(h.Hours) > 0 {
			ready[id] = prepareKey(byID[id], h, out)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if k, ok := ready[id]; ok {
			f.keys = append(f.keys, k)
		} else {
			f.without++
		}
	}
	return f, nil
}

func prepareKey(r *row, h rlc.History, out leftOut) fleetKey {
	k := fleetKey{name: r.name, key: r.key, f: backtest.NewFrontier(h), values: map[string]backtest.Prepared{}}
	for _, w := range whatIfWindows {
		n, _ := positive(strings.TrimSuffix(w, "d"))
		c := policyChoice(r)
		if !out.flagged {
			c.Exclude = nil
		}
		c.Exclude = append(slices.Clip(c.Exclude), out.windows...)
		c.Window = time.Duration(n) * day
		for stat, v := range backtest.Statistics(h, c) {
			k.values[stat+w] = backtest.Prepared{Bucket: r.name, Key: r.key, Value: v.Rate, AtMost: v.AtMost, Frontier: k.f}
		}
	}
	return k
}

// keep stores f and drops the services that were read longest ago.
func (f *fleets) keep(name string, one *fleet) {
	if f.byID == nil {
		f.byID = map[string]*fleet{}
	}
	order := f.order[:0]
	for _, n := range f.order {
		if n != name {
			order = append(order, n)
		}
	}
	f.order = append(order, name)
	f.byID[name] = one
	total := 0
	for _, x := range f.byID {
		total += len(x.keys)
	}
	for total > mostFleetKeys && len(f.order) > 1 {
		total -= len(f.byID[f.order[0]].keys)
		delete(f.byID, f.order[0])
		f.order = f.order[1:]
	}
}

// prepared are the series of a fleet under a choice.
func (f *fleet) prepared(a asked) []backtest.Prepared {
	out := make([]backtest.Prepared, 0, len(f.keys))
	for _, k := range f.keys {
		if p, ok := k.values[a.Stat+a.windowText]; ok {
			out = append(out, p)
		}
	}
	return out
}

// empty reports whether a choice leaves no sample of any stored series.
func (f *fleet) empty(a asked) bool { return len(f.keys) > 0 && len(f.prepared(a)) == 0 }

// leftOut is what a service-wide what-if leaves out of each key's statistic: the
// windows that the last run flagged for that very key, and any others.
type leftOut struct {
	flagged bool
	windows []rlc.Window
}

// flaggedWindows is the word that stands for them in an address.
const flaggedWindows = "flagged"

// leftOutIn reads exclude from a query. Where it is absent, flagged windows are
// left out; a form sends an empty one beside those that are ticked.
func leftOutIn(q url.Values) (out leftOut, err error) {
	if !q.Has("exclude") {
		return leftOut{flagged: true}, nil
	}
	if len(q["exclude"]) > 100 {
		return out, invalid("at most 100 windows may be left out")
	}
	for _, text := range q["exclude"] {
		switch text {
		case "":
		case flaggedWindows:
			out.flagged = true
		default:
			w, err := windowOf(text)
			if err != nil {
				return out, err
			}
			out.windows = append(out.windows, w)
		}
	}
	return out, nil
}

// id tells one from another, "" for what stands without a word.
func (o leftOut) id() string {
	if o.flagged && len(o.windows) == 0 {
		return ""
	}
	id := "\x00" + strconv.FormatBool(o.flagged)
	for _, w := range o.windows {
		id += " " + windowText(w)
	}
	return id
}

// windowText is a window as an address holds it.
func windowText(w rlc.Window) string {
	return w.From.UTC().Format(time.RFC3339) + "/" + w.Until.UTC().Format(time.RFC3339)
}

// fleetPicks are what may be left out of a whole service: what was flagged, the
// windows that its policy declares, and others that the address names.
func fleetPicks(v *visit, t *truth, out leftOut) []ui.Pick {
	picks := []ui.Pick{{Value: flaggedWindows, Label: "leave out what the last run flagged, for each key its own", On: out.flagged}}
	on := func(w rlc.Window) bool {
		return slices.ContainsFunc(out.windows, func(x rlc.Window) bool { return x.From.Equal(w.From) && x.Until.Equal(w.Until) })
	}
	var all []rlc.Window
	if t.service != nil {
		all = slices.Clone(t.service.Exclude)
	}
	seen := map[string]bool{}
	for _, w := range append(all, out.windows...) {
		value := windowText(w)
		if seen[value] || len(picks) > 20 {
			continue
		}
		seen[value] = true
		label := "leave out " + v.time(w.From).Text + " – " + v.timeAs(w.Until, "15:04").Text
		if w.Reason != "" {
			label += ", " + clip(w.Reason, 60)
		}
		picks = append(picks, ui.Pick{Value: value, Label: label, On: on(w)})
	}
	return picks
}

// fleetChoice reads a service-wide choice: the windows are those of the form.
// What is not asked for is as most of the service's policies have it.
func fleetChoice(t *truth, q url.Values) (a asked, out leftOut, err error) {
	if out, err = leftOutIn(q); err != nil {
		return a, out, err
	}
	q = maps.Clone(q)
	q.Del("exclude") // it is not of the choice: each key has its own
	if a, err = choiceOf(q, commonChoice(t)); err != nil {
		return a, out, err
	}
	if slices.Contains(whatIfWindows, a.windowText) {
		return a, out, nil
	}
	return a, out, invalid("window must be one of %s for a whole service", strings.Join(whatIfWindows, ", "))
}

// commonChoice is the statistic and the headroom of most quotas of a service.
func commonChoice(t *truth) backtest.Choice {
	type pair struct {
		stat     string
		headroom float64
	}
	seen := map[pair]int{}
	best := pair{backtest.StatMax, defaultHeadroom}
	for i := range t.rows {
		r := &t.rows[i]
		if r.bucket == nil || r.bucket.Role == rlc.CapRole || r.bucket.Policy == nil {
			continue
		}
		c := policyChoice(r)
		p := pair{c.Stat, c.Headroom}
		if seen[p]++; seen[p] > seen[best] {
			best = p
		}
	}
	return backtest.Choice{Stat: best.stat, Headroom: best.headroom, Floor: 1, Seconds: 2}
}

// serviceWhatIf is /services/{service}/whatif, with its endings.
func (s *server) serviceWhatIf(v *visit) error { return s.fleetWhatIf(v, "") }

func (s *server) serviceWhatIfJSON(v *visit) error { return s.fleetWhatIf(v, ".json") }

func (s *server) serviceWhatIfCSV(v *visit) error { return s.fleetWhatIf(v, ".csv") }

func (s *server) fleetWhatIf(v *visit, ending string) error {
	t, err := s.truth(v.ctx(), v.r.PathValue("service"))
	if err != nil {
		return err
	}
	a, out, err := fleetChoice(t, v.r.URL.Query())
	if err != nil {
		return err
	}
	fl, err := s.fleetOf(v.ctx(), t, out)
	if err != nil {
		return err
	}
	if ending != "" && fl.empty(a) {
		return nothingLeft()
	}
	switch ending {
	case ".json":
		return answer(v, http.StatusOK, fleetJSON(t, fl, a))
	case ".csv":
		var rows [][]string
		switch v.r.URL.Query().Get("table") {
		case "":
		case "keys":
			for _, k := range fleetKeys(fl.prepared(a), a) {
				force := ""
				if l := k.force(t); l != nil {
					force = float(float64(l.Rate))
				}
				rows = append(rows, []string{k.p.Bucket, k.p.Key.String(), force, float(float64(k.limit.Rate)), whole(k.above), float(share(k.above, k.p.Requests))})
			}
			return sheet(v, t.name+"-whatif-keys", []string{"bucket", "key", "force_rate", "limit_rate", "above", "share"}, rows)
		default:
			return invalid("table must be keys, or be left out for the curve")
		}
		for _, p := range backtest.Fleet(fl.prepared(a), a.Choice, curveAt) {
			rows = append(rows, []string{float(p.Headroom), float(float64(p.Rate)), whole(p.Drops), float(float64(p.Share)), strconv.FormatBool(p.AtLeast)})
		}
		return sheet(v, t.name+"-whatif", []string{"headroom", "limits_rate", "drops", "share", "at_least"}, rows)
	}
	f, err := s.frame(v, t.name+" / what if", "services")
	if err != nil {
		return err
	}
	view := ui.ServiceWhatIf{Head: s.serviceHead(t, "Service", ui.Link{Text: t.name, URL: serviceURL(t.name)}, "what if"), WhatIf: whatIfForm(a)}
	view.WhatIf.Exclude, view.WhatIf.Hidden = fleetPicks(v, t, out), []ui.Field{{Name: "exclude"}}
	view.WhatIf.Sheets = ui.Pager{CSV: v.as(".csv"), JSON: v.as(".json")}
	view.WhatIf.KeysCSV = withTable(view.WhatIf.Sheets.CSV, "keys")
	fillFleet(t, fl, a, view.WhatIf)
	return s.render(v, http.StatusOK, ui.ServiceWhatIfPage(f, view))
}

func fillFleet(t *truth, fl *fleet, a asked, view *ui.WhatIf) {
	ready := fl.prepared(a)
	if fl.empty(a) {
		view.Empty = &ui.Empty{Title: "Nothing is left to ask about", Reason: "No hour of the window has a sample that is not left out.", Fix: ui.Link{Text: "The service's own choice", URL: serviceURL(t.name) + "/whatif"}}
		return
	}
	if len(ready) == 0 {
		view.Empty = &ui.Empty{Title: "No history is stored for this service", Reason: "A run stores what it reads; none has read a quota of this service yet.", Query: "service " + t.name, Fix: ui.Link{Text: "Runs", URL: "/runs"}}
		return
	}
	point := backtest.Fleet(ready, a.Choice, []float64{a.Headroom})[0]
	view.Answer = []ui.Part{{Text: "Limits of "}, {Text: rate(float64(point.Rate)) + " req/s", Bold: true}, {Text: " together, one per key, would have dropped "}}
	switch {
	case point.Drops < 0.5:
		view.Answer = append(view.Answer, ui.Part{Text: "nothing", Bold: true}, ui.Part{Text: " in four weeks."})
	case point.AtLeast:
		view.Answer = append(view.Answer, ui.Part{Text: "about "}, ui.Part{Text: count(point.Drops), Bold: true}, ui.Part{Text: " requests (" + percent(float64(point.Share)) + ") of four weeks."})
	default:
		view.Answer = append(view.Answer, ui.Part{Text: count(point.Drops), Bold: true}, ui.Part{Text: " requests (" + percent(float64(point.Share)) + ") of four weeks, or fewer: a burst lets some through."})
	}
	if t.service != nil && t.service.Capacity != nil && t.service.Capacity.Rate > 0 {
		c := t.service.Capacity
		view.Answer = append(view.Answer, ui.Part{Text: " That is " + percent(float64(point.Rate/c.Rate)) + " of the declared capacity of " + rate(float64(c.Rate)) + "."})
	}
	view.Notes = []string{"Bursts are not counted: a quota's own page replays them. What is left out is left out of the statistics; the curve counts everything."}
	if fl.without > 0 {
		view.Notes = append(view.Notes, plural(fl.without, "quota has", "quotas have")+" no stored history.")
	}
	if fl.left > 0 {
		view.Notes = append(view.Notes, plural(fl.left, "quota is", "quotas are")+" beyond the "+count(mostFleetKeys)+" that one page reads.")
	}
	view.Curve = frontier(backtest.Fleet(ready, a.Choice, curveAt), a.Headroom, point.Share, true)
	view.Keys, view.KeysOf = fleetRows(t, ready, a), plural(len(fl.keys), "quota", "quotas")
	if n := len(view.Keys); n < len(ready) {
		view.KeysOf = plural(n, "quota", "quotas") + " of " + count(float64(len(ready)))
	}
}

// choiceKey is a key of a service under a choice.
type choiceKey struct {
	p     *backtest.Prepared
	limit rlc.Limit
	above float64 // requests above the limit
}

// force is the limit that holds; nil for none.
func (k *choiceKey) force(t *truth) *rlc.Limit {
	if r := t.row(k.p.Bucket, k.p.Key); r != nil {
		return r.force()
	}
	return nil
}

// fleetKeys are the keys of a service, those first that would lose most.
func fleetKeys(ready []backtest.Prepared, a asked) []choiceKey {
	out := make([]choiceKey, 0, len(ready))
	for i := range ready {
		l := a.Limit(ready[i].Value)
		d, _ := ready[i].Above(l.Rate)
		out = append(out, choiceKey{&ready[i], l, d})
	}
	slices.SortStableFunc(out, func(x, y choiceKey) int {
		return cmpOr(cmpFloat(y.above, x.above), cmpFloat(float64(y.limit.Rate), float64(x.limit.Rate)))
	})
	return out
}

// fleetRows are those that a page shows, at most 50.
func fleetRows(t *truth, ready []backtest.Prepared, a asked) []ui.FleetRow {
	var out []ui.FleetRow
	all := fleetKeys(ready, a)
	for _, x := range all[:min(len(all), 50)] {
		row := ui.FleetRow{
			Quota: ui.Link{Text: quotaName(x.p.Bucket, x.p.Key), URL: bucketURL(t.name, x.p.Bucket, x.p.Key)},
			Limit: limitText(&x.limit), Now: "—", Drops: digits(x.above), Some: x.above >= 0.5, Share: percent(share(x.above, x.p.Requests)),
		}
		if t.row(x.p.Bucket, x.p.Key) != nil {
			row.Now, row.Delta = limitText(x.force(t)), delta(x.force(t), &x.limit)
		}
		out = append(out, row)
	}
	return out
}

func fleetJSON(t *truth, fl *fleet, a asked) object {
	ready := fl.prepared(a)
	out := object{"service": t.name, "stat": a.Stat, "window": a.windowText, "headroom": a.Headroom, "quotas": len(ready), "without_history": fl.without, "omitted": fl.left,
		"frontier": list(backtest.Fleet(ready, a.Choice, curveAt))}
	p := backtest.Fleet(ready, a.Choice, []float64{a.Headroom})[0]
	out["limits_rate"], out["drops"], out["share"], out["at_least"] = p.Rate, p.Drops, p.Share, p.AtLeast
	keys := []object{}
	for _, k := range fleetKeys(ready, a) {
		keys = append(keys, object{"bucket": k.p.Bucket, "key": k.p.Key, "in_force": k.force(t), "limit": k.limit, "above": k.above, "share": share(k.above, k.p.Requests)})
	}
	out["keys"] = keys
	return out
}

// apiFleet answers it for all keys of a service.
func (s *server) apiFleet(v *visit, service string, in choiceIn) error {
	q, err := in.query()
	if err != nil {
		return err
	}
	t, err := s.truth(v.ctx(), service)
	if err != nil {
		return err
	}
	a, out, err := fleetChoice(t, q)
	if err != nil {
		return err
	}
	fl, err := s.fleetOf(v.ctx(), t, out)
	if err != nil {
		return err
	}
	if fl.empty(a) {
		return nothingLeft()
	}
	return answer(v, http.StatusOK, fleetJSON(t, fl, a))
}
