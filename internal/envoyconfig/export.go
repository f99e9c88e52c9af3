package envoyconfig

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
)

// The kinds of export.
const (
	Ratelimit = "envoy-ratelimit"
	Gateway   = "envoy-gateway"
	Istio     = "istio"
)

// Kinds lists them.
func Kinds() []string { return []string{Ratelimit, Gateway, Istio} }

// Options are for the kinds that match headers.
type Options struct {
	Headers   map[string]string // header by attribute; x-<attribute> by default
	Instances int               // Istio: that share a limit; 0 or 1 gives each the whole
}

// Export writes a service's limits for another limiter, the same bytes for the
// same input, with what got lost, in the order it was found.
func Export(kind string, src Source, o Options) ([]byte, []Loss, error) {
	x := &exporter{src: src}
	x.flatten()
	var out string
	switch kind {
	case Ratelimit:
		out = x.ratelimit()
	case Gateway:
		out = x.gateway(o)
	case Istio:
		out = x.istio(o)
	default:
		return nil, nil, fmt.Errorf("%w: export %q: want one of %s", rlc.ErrInvalid, kind, strings.Join(Kinds(), ", "))
	}
	return []byte(out), x.losses, nil
}

// node is a descriptor of the ratelimit service's tree.
type node struct {
	entry
	limit    []string // lines of rate_limit; nil for none
	shadow   bool
	children []*node
}

var ratelimitUnits = []unit{{"second", 1}, {"minute", 60}, {"hour", 3600}, {"day", 86400}, {"week", 7 * 86400}, {"month", 30 * 86400}, {"year", 365 * 86400}}

func (x *exporter) ratelimit() string {
	root := &node{}
	for i := range x.flats {
		f := &x.flats[i]
		var limit []string
		if f.unlimited {
			limit = []string{"unlimited: true"}
		} else {
			n, u, ok := x.counted(f, ratelimitUnits)
			if !ok {
				continue
			}
			limit = []string{"name: " + scalar(f.bucket.Name), "unit: " + u.name, fmt.Sprintf("requests_per_unit: %d", n)}
			if names := x.replaced(f.bucket); len(names) > 0 {
				limit = append(limit, "replaces: ["+strings.Join(names, ", ")+"]")
			}
		}
		at := root
		for _, e := range x.entries(f) {
			at = at.child(e)
		}
		if at.limit != nil {
			x.lose("overlap", "bucket %s: another bucket has the same descriptor; left out", f.bucket.Name)
			continue
		}
		at.limit, at.shadow = limit, f.shadow && !f.unlimited
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by rlc. Envoy must send these descriptors of a request: %s.\ndomain: %s\n", x.descriptors(), scalar(x.src.Service.Name))
	if len(root.children) == 0 {
		return b.String() + "descriptors: []\n"
	}
	b.WriteString("descriptors:\n")
	root.write(&b, "  ")
	return b.String()
}

func (n *node) child(e entry) *node {
	i := slices.IndexFunc(n.children, func(c *node) bool { return c.entry == e })
	if i < 0 {
		n.children = append(n.children, &node{entry: e})
		i = len(n.children) - 1
	}
	return n.children[i]
}

func (n *node) write(b *strings.Builder, indent string) {
	for _, c := range n.children {
		fmt.Fprintf(b, "%s- key: %s\n", indent, scalar(c.key))
		if c.value != "" {
			fmt.Fprintf(b, "%s  value: %s\n", indent, scalar(c.value))
		}
		if c.shadow {
			fmt.Fprintf(b, "%s  shadow_mode: true\n", indent)
		}
		if c.limit != nil {
			fmt.Fprintf(b, "%s  rate_limit:\n", indent)
			for _, l := range c.limit {
				fmt.Fprintf(b, "%s    %s\n", indent, l)
			}
		}
		if len(c.children) > 0 {
			fmt.Fprintf(b, "%s  descriptors:\n", indent)
			c.write(b, indent+"    ")
		}
	}
}

// entries are a limit's descriptor. One that matches everything has the generic
// key that Envoy can send with every request.
func (x *exporter) entries(f *flat) []entry {
	if len(f.on) == 0 {
		return []entry{{"generic_key", x.src.Service.Name}}
	}
	var all []entry
	for _, c := range f.on {
		all = append(all, entry{x.descriptor(c.attribute), c.value})
	}
	return all
}

func (x *exporter) descriptor(attribute string) string {
	if p := x.src.Profile; p != nil && p.Attributes[attribute].Descriptor != "" {
		return p.Attributes[attribute].Descriptor
	}
	return attribute
}

// descriptors are the sequences of keys that the limits have, for people.
func (x *exporter) descriptors() string {
	var all []string
	for i := range x.flats {
		var keys []string
		for _, e := range x.entries(&x.flats[i]) {
			keys = append(keys, scalar(e.key))
		}
		if s := "[" + strings.Join(keys, ", ") + "]"; !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// replaced names the less specific quota buckets whose requests a quota bucket
// takes: there they would count, too.
func (x *exporter) replaced(b *rlc.Bucket) (names []string) {
	if b.Role == rlc.CapRole {
		return nil
	}
	own := attributesOf(b)
	for i := range x.src.Service.Buckets {
		o := &x.src.Service.Buckets[i]
		if o == b || o.Role == rlc.CapRole || o.InFlight != nil || !x.overlap(b, o) {
			continue
		}
		less := attributesOf(o)
		switch inside := !slices.ContainsFunc(less, func(a string) bool { return !slices.Contains(own, a) }); {
		case inside && len(less) < len(own):
			names = append(names, "{name: "+scalar(o.Name)+"}")
		case !inside && slices.ContainsFunc(own, func(a string) bool { return !slices.Contains(less, a) }):
			x.lose("overlap", "buckets %s and %s match by different attributes: a request of both counts in both", min(b.Name, o.Name), max(b.Name, o.Name))
		}
	}
	return names
}

// overlap reports whether a request may match both buckets.
func (x *exporter) overlap(a, b *rlc.Bucket) bool {
	for name, p := range a.Match {
		q, both := b.Match[name]
		if both && p.Kind == rlc.Absent != (q.Kind == rlc.Absent) {
			return false
		}
		if both && !meet(p, q) {
			return false
		}
	}
	return true
}

// meet reports whether some value fits both patterns.
func meet(p, q rlc.Pattern) bool {
	fits := func(p rlc.Pattern, v string) bool {
		return p.Kind == rlc.Present || p.Kind == rlc.Prefix && strings.HasPrefix(v, p.Values[0]) || slices.Contains(p.Values, v)
	}
	one := func(p, q rlc.Pattern) bool {
		return p.Kind == rlc.Present || slices.ContainsFunc(p.Values, func(v string) bool { return fits(q, v) })
	}
	return one(p, q) || one(q, p)
}

// header is the request header that carries an attribute.
func (o Options) header(attribute string) string {
	if h := o.Headers[attribute]; h != "" {
		return h
	}
	return "x-" + strings.ToLower(attribute)
}

// headed are the limits that kinds without shadow can hold, with the losses that
// they share.
func (x *exporter) headed(kind string) (all []*flat) {
	for i := range x.flats {
		f := &x.flats[i]
		switch {
		case f.unlimited:
		case f.shadow:
			x.lose("shadow", "bucket %s is in shadow, which %s does not have: left out, so that nothing is dropped unseen", f.bucket.Name, kind)
		default:
			all = append(all, f)
		}
	}
	if len(all) > 1 {
		x.lose("partition", "every rule that matches counts: the most specific bucket does not take a request from the others")
	}
	return all
}

// kubeName is a service's name as Kubernetes takes it.
func kubeName(service string) string {
	name := strings.Trim(strings.NewReplacer(".", "-", "_", "-").Replace(notWord.ReplaceAllString(strings.ToLower(service), "-")), "-")
	if name = strings.TrimRight(name[:min(len(name), 50)], "-"); name == "" {
		return "service"
	}
	return name
}

// perFill is a token bucket of Envoy's local limiter: tokens every so many whole
// seconds.
func perFill(rate float64) (tokens int64, seconds int, off float64) {
	n, u, off := fit(rate, []unit{{"", 1}, {"", 10}, {"", 60}, {"", 600}, {"", 3600}, {"", 86400}})
	return max(n, 1), int(math.Max(u.seconds, 1)), off
}
