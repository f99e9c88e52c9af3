package quotafile

import (
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

// BuiltinProfiles are those that need no file, by name. A file of the same
// name takes a built in one's place. The caller owns the map.
func BuiltinProfiles() map[string]*rlc.Profile {
	label := func(descriptor string, labels ...string) rlc.AttributeSource {
		return rlc.AttributeSource{Metric: labels, Join: "/", Descriptor: descriptor}
	}
	all := map[string]*rlc.Profile{}
	for _, p := range []*rlc.Profile{
		{
			// The enforcers' own counters: every outcome together is offered load.
			Name: "rlc",
			Attributes: map[string]rlc.AttributeSource{
				"caller":    label("caller", "caller"),
				"procedure": label("procedure", "procedure"),
			},
			Unknown: map[string][]string{
				"caller":    {"", "unknown", "__other__"}, // __other__: beyond series.max
				"procedure": {"", "__other__"},
			},
			Sources: []string{
				`rlc:enforcer_requests:rate1m{service="${service}"}`,
				`sum by (caller, procedure) (rate(rlc_enforcer_requests_total{service="${service}"}[1m]))`,
			},
			// Where the loop counts the whole fleet, it is the witness. Else each
			// enforcer shows its own: together they were never above the sum.
			Peaks: `sum by (caller, procedure) (sum by (bucket, caller, procedure) (rlc_loop_peak_rate{service="${service}"}) or sum by (bucket, caller, procedure) (rlc_enforcer_peak_rate{service="${service}"}))`,
		},
		{
			Name: "grpc",
			Attributes: map[string]rlc.AttributeSource{
				"caller":    label("caller", "client_service"),
				"procedure": label("procedure", "grpc_method"),
			},
			Unknown: map[string][]string{"caller": {"", "unknown"}},
			Sources: []string{
				`grpc:server_started:rate1m{service="${service}"}`,
				`sum by (client_service, grpc_method) (rate(grpc_server_started_total{service="${service}"}[1m]))`,
			},
			Healthy:  `sum(rate(grpc_server_handled_total{service="${service}",grpc_code=~"Internal|Unavailable"}[5m])) / sum(rate(grpc_server_handled_total{service="${service}"}[5m])) < 0.02`,
			Complete: `count(up{job="${service}"} == 1) / count(up{job="${service}"})`,
		},
		{
			Name: "http",
			Attributes: map[string]rlc.AttributeSource{
				"caller":    label("caller", "client_service"),
				"procedure": label("procedure", "handler"),
			},
			Unknown: map[string][]string{"caller": {"", "unknown"}},
			Sources: []string{
				`http:requests:rate1m{service="${service}"}`,
				`sum by (client_service, handler) (rate(http_requests_total{service="${service}"}[1m]))`,
			},
			Healthy:  `sum(rate(http_requests_total{service="${service}",code=~"5.."}[5m])) / sum(rate(http_requests_total{service="${service}"}[5m])) < 0.02`,
			Complete: `count(up{job="${service}"} == 1) / count(up{job="${service}"})`,
		},
		{
			// Envoy counts by virtual cluster; who called stands in no metric
			// of its own, so that only a request carries it.
			Name: "envoy",
			Attributes: map[string]rlc.AttributeSource{
				"caller":    {Descriptor: "caller"},
				"procedure": label("procedure", "envoy_virtual_cluster"),
			},
			Unknown: map[string][]string{"caller": {"", "unknown"}, "procedure": {"", "other"}},
			Sources: []string{
				`envoy:requests:rate1m{envoy_virtual_host="${service}"}`,
				`sum by (envoy_virtual_cluster) (rate(envoy_vhost_vcluster_upstream_rq_total{envoy_virtual_host="${service}"}[1m]))`,
			},
			Healthy: `sum(rate(envoy_cluster_upstream_rq_xx{envoy_cluster_name="${service}",envoy_response_code_class="5"}[5m])) / sum(rate(envoy_cluster_upstream_rq_total{envoy_cluster_name="${service}"}[5m])) < 0.02`,
		},
		{
			Name: "istio",
			Attributes: map[string]rlc.AttributeSource{
				"caller":    label("caller", "source_workload_namespace", "source_workload"),
				"procedure": label("procedure", "request_operation"),
			},
			Unknown: map[string][]string{"caller": {"", "/", "unknown", "unknown/unknown"}, "procedure": {"", "unknown"}},
			Sources: []string{
				`istio:requests:rate1m{destination_service_name="${service}"}`,
				`sum by (source_workload_namespace, source_workload, request_operation) (rate(istio_requests_total{reporter="destination",destination_service_name="${service}"}[1m]))`,
			},
			Healthy: `sum(rate(istio_requests_total{reporter="destination",destination_service_name="${service}",response_code=~"5.."}[5m])) / sum(rate(istio_requests_total{reporter="destination",destination_service_name="${service}"}[5m])) < 0.02`,
		},
	} {
		p.Step = time.Minute
		all[p.Name] = p
	}
	return all
}

func builtinNames() []string { return slices.Sorted(maps.Keys(BuiltinProfiles())) }

// profile reads profiles/<name>.yaml; nil when an error was found.
func (p *parser) profile(file string, data []byte) (*rlc.Profile, []rlc.Problem) {
	d, o := open(file, kindProfile, data, MaxFile)
	if o == nil {
		return nil, d.problems
	}
	profile := &rlc.Profile{Name: p.fileName(d, o), Attributes: map[string]rlc.AttributeSource{}, Step: time.Minute}
	if a := o.need("attributes"); d.shape(a, yaml.MappingNode, "attributes", "keys and values") {
		for i := 0; i < len(a.Content); i += 2 {
			key := a.Content[i]
			if d.attribute(key, key.Value) {
				profile.Attributes[key.Value] = d.attributeSource(a.Content[i+1], key.Value)
			}
		}
	}
	if u := o.get("unknown"); d.shape(u, yaml.MappingNode, "unknown", "keys and values") {
		profile.Unknown = map[string][]string{}
		for i := 0; i < len(u.Content); i += 2 {
			key := u.Content[i]
			if _, ok := profile.Attributes[key.Value]; !ok {
				d.refuse(key, "", "unknown names %s, which is no attribute of this profile", show(key.Value))
				continue
			}
			for _, item := range d.list(u.Content[i+1], "unknown "+key.Value) {
				if v, ok := d.text(item, "unknown "+key.Value); ok {
					profile.Unknown[key.Value] = append(profile.Unknown[key.Value], v)
				}
			}
		}
	}
	d.history(o.need("history"), profile)
	o.done()
	if d.bad() {
		return nil, d.problems
	}
	return profile, d.problems
}

// fileName reads the key name and holds it against the file's.
func (p *parser) fileName(d *doc, o *object) string {
	n := o.need("name")
	name, ok := d.word(n, "name")
	if stem := strings.TrimSuffix(path.Base(d.file), ".yaml"); ok && p.folders && name != stem {
		d.refuse(n, "", "name is %s, but the file is %s", show(name), show(path.Base(d.file)))
	}
	return name
}

// attributeSource reads {metric, join, descriptor}. Without metric the
// attribute stands in requests only and history does not carry it; the
// descriptor is the attribute's own name by default.
func (d *doc) attributeSource(n *yaml.Node, name string) rlc.AttributeSource {
	a := rlc.AttributeSource{Join: "/", Descriptor: name}
	o := d.object(n, "attribute "+name)
	metric, join := o.get("metric"), o.get("join")
	switch {
	case metric == nil:
	case metric.Kind == yaml.SequenceNode:
		for _, label := range d.names(metric, "metric") {
			if d.label(metric, label) {
				a.Metric = append(a.Metric, label)
			}
		}
	default:
		if label, ok := d.str(metric, "metric"); ok && d.label(metric, label) {
			a.Metric = []string{label}
		}
	}
	if join != nil {
		a.Join, _ = d.text(join, "join")
		if len(a.Metric) < 2 && !d.bad() {
			d.refuse(join, "list two labels or more in metric", "join without anything to join")
		}
	}
	descriptor := o.get("descriptor")
	if descriptor != nil {
		a.Descriptor, _ = d.name(descriptor, "descriptor", MaxName)
	}
	if o != nil && metric == nil && descriptor == nil {
		d.refuse(n, "write metric, descriptor or both", "attribute %s has no source", show(name))
	}
	o.done()
	return a
}

// label checks the name of a metric's label.
func (d *doc) label(n *yaml.Node, s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || i > 0 && '0' <= c && c <= '9') {
			d.refuse(n, "", "%s is not the name of a metric's label", show(s))
			return false
		}
	}
	return true
}

// history reads where samples come from.
func (d *doc) history(n *yaml.Node, profile *rlc.Profile) {
	o := d.object(n, "history")
	if o == nil {
		return
	}
	if step := o.get("step"); step != nil {
		if v, ok := d.duration(step, "step"); ok {
			if v < time.Second || v > time.Hour || time.Hour%v != 0 {
				d.refuse(step, "as 15s, 30s, 1m or 5m", "step must be 1s to 1h and divide an hour")
			}
			profile.Step = v
		}
	}
	sources := o.need("sources")
	items := d.list(sources, "sources")
	if sources != nil && sources.Kind == yaml.SequenceNode && len(items) == 0 {
		d.refuse(sources, "", "sources is an empty list")
	}
	if len(items) > 16 {
		d.refuse(sources, "", "more than 16 sources")
		items = nil
	}
	for _, item := range items {
		if q := d.query(item, "source"); q != "" {
			profile.Sources = append(profile.Sources, q)
		}
	}
	profile.Refused = d.query(o.get("refused"), "refused")
	profile.Healthy = d.query(o.get("healthy"), "healthy")
	profile.Complete = d.query(o.get("complete"), "complete")
	profile.Peaks = d.query(o.get("peaks"), "peaks")
	o.done()
}

// query reads PromQL with ${service} as its only placeholder; "" where n is
// nil or refused. The language itself is checked by the server that runs it.
func (d *doc) query(n *yaml.Node, what string) string {
	if n == nil {
		return ""
	}
	q, ok := d.str(n, what)
	if !ok {
		return ""
	}
	if len(q) > 10_000 {
		d.refuse(n, "", "%s is longer than 10000 bytes", what)
		return ""
	}
	rest := strings.ReplaceAll(q, "${service}", "")
	if _, after, found := strings.Cut(rest, "${"); found {
		after, _, _ = strings.Cut(after, "}")
		d.refuse(n, "the only placeholder is ${service}", "%s: unknown placeholder ${%s}", what, clip(after))
		return ""
	}
	// The targets may be the same for all services: enforcers, a gateway.
	if len(rest) == len(q) && what != "complete" {
		d.warn(n.Line, n.Column, `add a matcher such as service="${service}"`, "%s does not name ${service}: every service reads the same", what)
	}
	return strings.TrimSpace(q)
}

// contract reads contracts/<name>.yaml; nil when an error was found.
func (p *parser) contract(file string, data []byte) (*rlc.Contract, []rlc.Problem) {
	d, o := open(file, kindContract, data, MaxFile)
	if o == nil {
		return nil, d.problems
	}
	c := &rlc.Contract{Name: p.fileName(d, o)}
	c.Caller, _ = d.name(o.need("caller"), "caller", MaxValue)
	if l := d.rateAndBurst(o); l != nil {
		c.Limit = *l
	}
	from, until := o.get("from"), o.get("until")
	switch {
	case from != nil && until != nil:
		c.From, c.Until, _ = d.span(from, until)
	case from != nil:
		c.From, _ = d.instant(from, "from")
	case until != nil:
		c.Until, _ = d.instant(until, "until")
	}
	if r := o.get("reference"); r != nil {
		c.Reference, _ = d.str(r, "reference")
	}
	o.done()
	if d.bad() {
		return nil, d.problems
	}
	return c, d.problems
}
