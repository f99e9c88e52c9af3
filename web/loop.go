package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// Loop is what pages read of the drop-ratio loop. The error wraps
// rlc.ErrNotFound where there is no controller to ask, and rlc.ErrUnavailable
// where it does not answer.
type Loop interface {
	LoopState(ctx context.Context) (LoopState, error)
}

// LoopState is a controller's word, in the fields of its /v1/loop.
type LoopState struct {
	Buckets []LoopBucket `json:"buckets"`
	Zones   []LoopZone   `json:"zones"`
	// Doubted counts the claims of single nodes that were not believed whole;
	// nil where only the aggregators can say.
	Doubted *uint64 `json:"claims_clipped"`
}

// LoopBucket is one counter of the loop. Rates are requests/s.
type LoopBucket struct {
	Service  string   `json:"service"`
	Bucket   string   `json:"bucket"`
	Key      string   `json:"key,omitempty"`
	AsIf     bool     `json:"as_if,omitempty"` // in the world in which every bucket enforces
	Scope    string   `json:"scope"`
	Zone     string   `json:"zone,omitempty"`
	Region   string   `json:"region,omitempty"`
	Limit    *float64 `json:"limit"` // of the scope; nil: none
	Offered  float64  `json:"offered"`
	Admitted float64  `json:"admitted"`
	Ratio    float64  `json:"drop_ratio"` // of normal requests, 0 to 1
	Peak     float64  `json:"peak_rate"`  // of the last closed clock minute
	Nodes    int      `json:"nodes"`
	Zones    int      `json:"zones"`
}

// LoopZone is a source that the controller has heard of: a zone's only
// aggregator, one of several, or, without a zone, the controller of a region.
type LoopZone struct {
	Zone    string   `json:"zone"`
	Region  string   `json:"region,omitempty"`
	Name    string   `json:"aggregator,omitempty"` // where the zone has several
	Age     float64  `json:"age_seconds"`          // of its last sum
	Flagged []string `json:"flagged,omitempty"`    // nodes whose claims were not believed in the last minute
	Doubted bool     `json:"doubted,omitempty"`    // a claim of its own was not believed in the last minute
}

// text names the source.
func (z *LoopZone) text() string {
	switch {
	case z.Zone == "":
		return "Region " + z.Region
	case z.Name != "":
		return "Aggregator " + z.Name + " of zone " + area(z.Zone, z.Region)
	}
	return "Zone " + area(z.Zone, z.Region)
}

// silentAfter is how old a zone's sum is when the zone closes the loop by
// itself, in seconds.
const silentAfter = 2

// age is that of the oldest sum which the bucket's number is made of.
func (s *LoopState) age(b *LoopBucket) (oldest float64) {
	for _, z := range s.Zones {
		if (b.Scope == rlc.ScopeZone && z.Zone != b.Zone) || (b.Scope != rlc.ScopeGlobal && z.Region != b.Region) {
			continue
		}
		oldest = max(oldest, z.Age)
	}
	return oldest
}

// noLoop reports whether err says that there is no loop to ask.
func noLoop(err error) bool { return errors.Is(err, rlc.ErrNotFound) }

// loopState asks the controller and keeps the buckets of one service, or of
// all for "", the largest drop ratio first.
func (s *server) loopState(v *visit) (LoopState, error) {
	if s.Loop == nil {
		return LoopState{}, rlc.ErrNotFound
	}
	state, err := s.Loop.LoopState(v.ctx())
	if err != nil {
		return LoopState{}, err
	}
	if service := v.r.URL.Query().Get("service"); service != "" {
		state.Buckets = slices.DeleteFunc(state.Buckets, func(b LoopBucket) bool { return b.Service != service })
	}
	slices.SortStableFunc(state.Buckets, func(a, b LoopBucket) int {
		return cmp.Or(cmp.Compare(b.Ratio, a.Ratio), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.Key, b.Key))
	})
	return state, nil
}

// loop is /loop.
func (s *server) loop(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	f, err := s.frame(v, "Drop-ratio loop", "services")
	if err != nil {
		return err
	}
	state, err := s.loopState(v)
	view := ui.Loop{Service: v.r.URL.Query().Get("service")}
	switch {
	case noLoop(err):
		view.Verdict = []ui.Part{{Text: "This server knows no controller of a loop."}}
		view.Empty = &ui.Empty{Title: "No controller is configured", Reason: "Buckets with algorithm drop_ratio are held by a loop of enforcers, aggregators and a controller. rlc serve shows what the controller knows once it is told where that is.", Query: "loop:\n  controller: http://127.0.0.1:8086/v1/loop", Fix: ui.Link{Text: "Add it to the configuration of rlc serve, and start it anew."}}
	case err != nil:
		view.Verdict = []ui.Part{{Text: "What the loop does is unknown. "}, {Text: "Enforcers go on by themselves: their zones hold the last share of each limit."}}
		view.Empty = &ui.Empty{Title: "The controller does not answer", Reason: capital(plain(err)) + ".", Fix: ui.Link{Text: "See whether enforcer controller runs, and whether loop.controller names its --http address."}}
	default:
		s.loopView(v, &view, &state, page)
	}
	return s.render(v, http.StatusOK, ui.LoopPage(f, view))
}

func (s *server) loopView(v *visit, view *ui.Loop, state *LoopState, page rlc.Page) {
	dropping, virtual := 0, 0
	for _, b := range state.Buckets {
		switch {
		case !(b.Ratio > 0):
		case b.AsIf:
			virtual++
		default:
			dropping++
		}
	}
	view.Verdict = loopVerdict(len(state.Buckets), dropping, virtual)
	shown := cut(state.Buckets, page)
	for i := range shown {
		view.Rows = append(view.Rows, s.loopRow(state, &shown[i]))
	}
	view.Pager = v.pager(page, len(shown), len(state.Buckets))
	for _, z := range state.Zones {
		sign := ui.Sign{Level: "good", Before: z.text() + " reported " + ago(z.Age) + " ago."}
		if z.Age > silentAfter {
			sign.Level, sign.Soft = "warn", "It closes the loop by itself, on its last share of each limit; the others count its last load."
		}
		view.Zones = append(view.Zones, sign)
		if z.Doubted {
			view.Zones = append(view.Zones, ui.Sign{Level: "warn", Before: z.text() + " claims more than the controller believes.",
				Soft: "It is more than twenty times the limit and the other zones; it is let through what is believed and what nobody else uses."})
		}
		if len(z.Flagged) > 0 {
			view.Zones = append(view.Zones, ui.Sign{Level: "warn", Before: z.text() + " does not believe all that it is told by " + strings.Join(z.Flagged, ", ") + ".",
				Soft: "Each claims far more than the others; it is let through what is believed and what nobody else uses."})
		}
	}
	switch {
	case state.Doubted == nil:
		view.Zones = append(view.Zones, ui.Sign{Level: "note", Before: "Nodes that claim far more than the others are flagged by their aggregator, in rlc_loop_claims_clipped_total."})
	case *state.Doubted > 0:
		view.Zones = append(view.Zones, ui.Sign{Level: "warn", Before: plural(int(min(*state.Doubted, 1<<30)), "claim of a node was", "claims of nodes were") + " far above the others' and not believed whole."}) //nolint:gosec // bounded
	default:
		view.Zones = append(view.Zones, ui.Sign{Level: "good", Before: "No node is flagged: none has claimed far more than the others."})
	}
	if len(state.Buckets) > 0 {
		return
	}
	view.Empty = &ui.Empty{Title: "No bucket is on the loop", Reason: "The controller has heard of no request to a bucket with algorithm drop_ratio. It hears of one some tenths of a second after its first request.", Query: "buckets:\n  - {name: callers, each: [caller], algorithm: drop_ratio}", Fix: ui.Link{Text: "Services", URL: "/services"}}
	if view.Service != "" {
		view.Empty.Title, view.Empty.Fix = "No bucket of "+view.Service+" is on the loop", ui.Link{Text: "Show all", URL: "/loop"}
	}
}

func loopVerdict(all, dropping, virtual int) []ui.Part {
	if all == 0 {
		return []ui.Part{{Text: "The controller answers and knows no bucket here."}}
	}
	out := []ui.Part{{Text: plural(all, "counter", "counters"), Bold: true}, {Text: " on the loop. "}}
	switch {
	case dropping == 0 && virtual == 0:
		return append(out, ui.Part{Text: "Each is offered less than its limit: nothing is dropped."})
	case dropping == 0:
		return append(out, ui.Part{Text: "Nothing is dropped. "}, ui.Part{Text: plural(virtual, "counter", "counters"), Bold: true}, ui.Part{Text: " would drop a share if every bucket enforced."})
	}
	return append(out, ui.Part{Text: plural(dropping, "counter", "counters"), Bold: true}, ui.Part{Text: " above the limit: a share of the requests is dropped at random, so that the rest fits."})
}

func (s *server) loopRow(state *LoopState, b *LoopBucket) ui.LoopRow {
	key, err := rlc.ParseKey(b.Key)
	if err != nil {
		key = nil
	}
	row := ui.LoopRow{
		Quota: ui.Link{Text: quotaName(b.Bucket, key)}, Service: ui.Link{Text: b.Service},
		World: ui.Chip{Mode: "enforce", Text: "live"}, Scope: scopeText(b),
		Offered: rate(b.Offered), Limit: "—", Admitted: rate(b.Admitted), Ratio: percent(b.Ratio), Some: b.Ratio > 0, Real: !b.AsIf,
		Nodes: count(float64(b.Nodes)), Zones: count(float64(b.Zones)), Age: ago(state.age(b)), Old: state.age(b) > silentAfter,
	}
	if b.AsIf {
		row.World = ui.Chip{Mode: "shadow", Text: "as if"}
	}
	if b.Limit != nil {
		row.Limit = rate(*b.Limit)
		row.Gauge = gauge(b.Offered, *b.Limit, !b.AsIf)
	}
	// Only what the config repository holds has a page of its own.
	if _, c := s.Truths.Desired(); c != nil {
		if found := c.Service(b.Service); found != nil {
			row.Service.URL = serviceURL(b.Service)
			if found.Bucket(b.Bucket) != nil && s.hasQuota(b.Service, b.Bucket, key) {
				row.Quota.URL = bucketURL(b.Service, b.Bucket, key)
			}
		}
	}
	return row
}

// hasQuota reports whether a quota stands on the base branch: callers without
// one are counted, too, and have no page.
func (s *server) hasQuota(service, bucket string, key rlc.Key) bool {
	_, c := s.Truths.Desired()
	id := rlc.QuotaID(bucket, key)
	return slices.ContainsFunc(c.Quotas[service], func(q rlc.Quota) bool { return q.ID() == id })
}

func scopeText(b *LoopBucket) string {
	if b.Scope == rlc.ScopeGlobal {
		return b.Scope
	}
	return b.Scope + " " + area(b.Zone, b.Region)
}

// area names a zone with its region.
func area(zone, region string) string { return strings.Trim(region+"/"+zone, "/") }

// ago says an age in seconds as people do.
func ago(seconds float64) string {
	d := time.Duration(min(max(seconds, 0), 1e6) * float64(time.Second))
	if d < 10*time.Second {
		return trim(d.Seconds(), 1) + "\u00a0s"
	}
	return span(d.Round(time.Second))
}

// loopOf leads to what the loop does with a bucket of a service.
func loopOf(service string, b *rlc.Bucket) (ui.Link, bool) {
	if b == nil || b.Algorithm != rlc.DropRatio {
		return ui.Link{}, false
	}
	return ui.Link{Text: "on the loop", URL: "/loop?service=" + query(service)}, true
}

// apiLoop answers with the controller's word; 404 where there is none to ask.
func (s *server) apiLoop(v *visit) error {
	state, page, err := s.askedLoop(v)
	if err != nil {
		return err
	}
	total := len(state.Buckets)
	out := paged("buckets", append([]LoopBucket{}, cut(state.Buckets, page)...), page, total)
	out["zones"] = append([]LoopZone{}, state.Zones...)
	out["claims_clipped"] = state.Doubted
	return answer(v, http.StatusOK, out)
}

// askedLoop is the state with the page of the address. Its errors speak of the
// loop.
func (s *server) askedLoop(v *visit) (LoopState, rlc.Page, error) {
	page, err := v.page()
	if err != nil {
		return LoopState{}, page, err
	}
	state, err := s.loopState(v)
	switch {
	case err == nil:
	case noLoop(err):
		err = fault{status: http.StatusNotFound, detail: "No controller of a loop is configured: set loop.controller."}
	case errors.Is(err, rlc.ErrUnavailable):
		err = fault{status: http.StatusServiceUnavailable, detail: "The loop's controller does not answer: " + plain(err) + "."}
	}
	return state, page, err
}

func (s *server) loopCSV(v *visit) error {
	state, page, err := s.askedLoop(v)
	if err != nil {
		return err
	}
	shown := cut(state.Buckets, page)
	var rows [][]string
	for i := range shown {
		b := &shown[i]
		limit, world := "", "live"
		if b.Limit != nil {
			limit = float(*b.Limit)
		}
		if b.AsIf {
			world = "as_if"
		}
		rows = append(rows, []string{b.Service, b.Bucket, b.Key, world, b.Scope, b.Zone, b.Region, float(b.Offered), limit, float(b.Admitted), float(b.Ratio), float(b.Peak),
			whole(float64(b.Nodes)), whole(float64(b.Zones)), float(state.age(b))})
	}
	return sheet(v, "loop", []string{"service", "bucket", "key", "world", "scope", "zone", "region", "offered", "limit", "admitted", "drop_ratio", "peak_rate", "nodes", "zones", "age_seconds"}, rows)
}
