package quotafile

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

// defaultTimeout is when a request in flight that nobody reported done is
// forgotten, where a policy does not say.
const defaultTimeout = time.Minute

// smallRatio is the rate, requests/s, below which a share dropped at random is
// mostly noise: one second of 100 requests has a deviation of 10 %.
const smallRatio = 100

// bucketLimit reads a bucket's limit in the form that its algorithm takes:
// {rate, burst}, {requests, per|window, …} or {concurrent, timeout}.
func (d *doc) bucketLimit(n *yaml.Node, b *rlc.Bucket, timezone string) {
	windowed := b.Algorithm == rlc.FixedWindow || b.Algorithm == rlc.SlidingWindow || b.Algorithm == rlc.SlidingLog
	switch {
	case has(n, "requests", "per", "reset", "window", "align"):
		b.Window = d.window(n, b.Algorithm == rlc.FixedWindow || !windowed, timezone)
		if b.Window != nil && !windowed {
			d.refuse(n, "write algorithm: fixed_window, sliding_window or sliding_log, or {rate, burst}", "limit requests beside algorithm %s", b.Algorithm)
		}
	case has(n, "concurrent", "timeout"):
		b.InFlight = d.inFlight(n)
		if b.InFlight != nil && b.Algorithm != rlc.Concurrency {
			d.refuse(n, "write algorithm: concurrency, or {rate, burst}", "limit concurrent beside algorithm %s", b.Algorithm)
		}
	default:
		b.Limit = d.limit(n, "limit")
		if b.Limit != nil && b.Algorithm == rlc.Concurrency {
			d.refuse(n, "write {concurrent, timeout}", "limit rate beside algorithm concurrency")
		}
		if b.Limit != nil && b.Algorithm == rlc.DropRatio && b.Limit.Rate > 0 && b.Limit.Rate < smallRatio {
			d.warn(n.Line, n.Column, "write algorithm: token_bucket, which counts each request in the shared store",
				"bucket %q: drop_ratio below %d requests/s is right only in the mean over some ten seconds", b.Name, smallRatio)
		}
	}
}

// window reads {requests, per} or {requests, window}. Only a fixed window has
// edges: align and reset.
func (d *doc) window(n *yaml.Node, fixed bool, timezone string) *rlc.WindowLimit {
	o := d.object(n, "limit")
	if o == nil {
		return nil
	}
	before := len(d.problems)
	w := &rlc.WindowLimit{}
	w.Requests, _ = d.integer(o.need("requests"), "requests", 0, rlc.MaxRate)
	per, length, align, reset := o.get("per"), o.get("window"), o.get("align"), o.get("reset")
	o.done()
	switch {
	case per == nil && length == nil:
		d.refuse(n, "add per: day, or window: 24h", "limit requests lacks its window")
	case per != nil && length != nil:
		d.refuse(length, "remove one of the two", "per excludes window")
	case per != nil:
		w.Per, _ = d.choice(per, "per", rlc.PerSecond, rlc.PerMinute, rlc.PerHour, rlc.PerDay, rlc.PerWeek, rlc.PerMonth)
	default:
		var ok bool
		if w.Length, ok = d.duration(length, "window"); ok && w.Length > rlc.MaxWindow {
			d.refuse(length, "", "window: %s is longer than 366d", clip(length.Value))
		}
	}
	for _, edge := range []struct {
		node *yaml.Node
		name string
	}{{align, "align"}, {reset, "reset"}} {
		if edge.node != nil && !fixed {
			d.refuse(edge.node, "remove it, or write algorithm: fixed_window", "%s: the window slides and has no edges", edge.name)
			return nil
		}
	}
	w.Calendar = fixed && per != nil
	if align != nil {
		word, _ := d.choice(align, "align", "calendar", "rolling")
		w.Calendar = word == "calendar"
	}
	if w.Per == rlc.PerMonth && !w.Calendar {
		d.refuse(per, "write window: 30d", "per month is counted by the calendar only")
	}
	daily := w.Calendar && (w.Per == rlc.PerDay || w.Per == rlc.PerWeek || w.Per == rlc.PerMonth)
	if daily {
		w.Location = timezone
	}
	if reset != nil {
		w.Reset, w.Location = d.reset(reset, timezone)
		if !daily && len(d.problems) == before {
			d.refuse(reset, "remove it", "reset: only a day, week or month of the calendar starts at a time of day")
		}
	}
	if len(d.problems) > before {
		return nil
	}
	return w
}

// reset reads "00:00 Europe/Paris"; the zone may be left out.
func (d *doc) reset(n *yaml.Node, timezone string) (time.Duration, string) {
	s, ok := d.str(n, "reset")
	if !ok {
		return 0, ""
	}
	clock, zone, named := strings.Cut(s, " ")
	at, err := time.Parse("15:04", clock)
	if !named {
		zone = timezone
	}
	if err != nil || len(clock) != 5 || !knownZone(zone) {
		d.refuse(n, `write "00:00", or "00:00 Europe/Paris"`, "reset: %s is no time of day", show(s))
		return 0, ""
	}
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, zone
}

// inFlight reads {concurrent, timeout}.
func (d *doc) inFlight(n *yaml.Node) *rlc.InFlight {
	o := d.object(n, "limit")
	if o == nil {
		return nil
	}
	before := len(d.problems)
	f := &rlc.InFlight{Timeout: defaultTimeout}
	f.Max, _ = d.integer(o.need("concurrent"), "concurrent", 0, 1e9)
	if t := o.get("timeout"); t != nil {
		var ok bool
		if f.Timeout, ok = d.duration(t, "timeout"); ok && f.Timeout > 24*time.Hour {
			d.refuse(t, "", "timeout: %s is longer than 24h", clip(t.Value))
		}
	}
	o.done()
	if len(d.problems) > before {
		return nil
	}
	return f
}

// maxCost bounds what one request may take.
const maxCost = 1_000_000

// cost reads tokens by procedure, or {from: response_header, name, reserve}.
func (d *doc) cost(n *yaml.Node) (c rlc.Cost) {
	o := d.object(n, "cost")
	if o == nil {
		return c
	}
	if from := o.get("from"); from != nil && (from.Kind != yaml.ScalarNode || from.Tag != "!!int") {
		d.choice(from, "from", "response_header")
		if c.Header, _ = d.name(o.need("name"), "name", 63); c.Header != "" && !validAttribute(c.Header) {
			d.refuse(o.get("name"), "letters, digits and dashes", "name: %s is not the name of a header", show(c.Header))
		}
		c.Reserve = 1
		if r := o.get("reserve"); r != nil {
			c.Reserve, _ = d.integer(r, "reserve", 1, maxCost)
		}
		o.done()
		return c
	}
	if len(n.Content) == 0 {
		d.refuse(n, "leave it out where every request costs 1", "cost is empty")
	}
	c.Procedures = make(map[string]int64, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		procedure := n.Content[i].Value
		if d.checkName(n.Content[i], "procedure", procedure, MaxValue) {
			c.Procedures[procedure], _ = d.integer(n.Content[i+1], "cost "+clip(procedure), 1, maxCost)
		}
	}
	return c
}

// tier reads {critical, batch}: lists of callers, exact or prefixes.
func (d *doc) tier(n *yaml.Node) (t rlc.Tier) {
	o := d.object(n, "tier")
	if o == nil {
		return t
	}
	if len(n.Content) == 0 {
		d.refuse(n, "write {critical: […], batch: […]}", "tier is empty")
	}
	seen := map[string]bool{}
	read := func(key string) (patterns []string) {
		list := o.get(key)
		for _, item := range d.list(list, "tier "+key) {
			v, ok := d.name(item, "tier "+key, MaxValue)
			switch star := strings.IndexByte(v, '*'); {
			case !ok:
			case star >= 0 && star < len(v)-1:
				d.refuse(item, "a star may only end a pattern", "tier %s: %s is not a pattern", key, show(v))
			case seen[v]:
				d.refuse(item, "remove one", "tier lists %s twice", show(v))
			default:
				seen[v] = true
				patterns = append(patterns, v)
			}
		}
		return patterns
	}
	t.Critical, t.Batch = read("critical"), read("batch")
	o.done()
	return t
}
