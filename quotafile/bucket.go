package quotafile

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

// maxEach bounds the attributes that a bucket counts by.
const maxEach = 4

// bucket reads one bucket. It is nil where n is no mapping.
func (p *parser) bucket(d *doc, n *yaml.Node, mode rlc.Mode, l layer) (*rlc.Bucket, rawBucket) {
	o := d.object(n, "bucket")
	if o == nil {
		return nil, rawBucket{}
	}
	b := &rlc.Bucket{Role: rlc.QuotaRole, Mode: mode, Guards: l.guards, Line: n.Line}
	raw := rawBucket{node: n}
	b.Name, _ = d.word(o.need("name"), "bucket name")
	if e := o.get("each"); e != nil {
		b.Each = d.each(e)
		raw.each = map[string]*yaml.Node{}
		for _, item := range e.Content {
			raw.each[item.Value] = item
		}
	}
	b.Match, raw.match = d.match(o.get("match"))
	for _, name := range b.Each {
		pattern, ok := b.Match[name]
		switch {
		case !ok:
			if b.Match == nil {
				b.Match = map[string]rlc.Pattern{}
			}
			b.Match[name] = rlc.Pattern{Kind: rlc.Present}
		case pattern.Kind == rlc.Absent:
			d.refuse(raw.match[name], "", "each %s: a request without it has no value to count by", name)
		}
	}
	if r := o.get("role"); r != nil {
		role, _ := d.choice(r, "role", string(rlc.QuotaRole), string(rlc.CapRole))
		b.Role = rlc.Role(role)
	}
	if m := d.mode(o.get("mode")); m != "" {
		b.Mode = m
	}
	b.Algorithm = d.choiceOr(o.get("algorithm"), "algorithm", l.algorithm, rlc.Algorithms()...)
	b.OnFailure = d.choiceOr(o.get("on_failure"), "on_failure", l.onFailure, rlc.FailLocal, rlc.FailOpen, rlc.FailClosed)
	b.Scope = d.choiceOr(o.get("scope"), "scope", rlc.ScopeGlobal, rlc.ScopeGlobal, rlc.ScopeZone, rlc.ScopeRegion)
	o.read("tier", func(n *yaml.Node) { b.Tier = d.tier(n) })
	o.read("cost", func(n *yaml.Node) { b.Cost = d.cost(n) })
	o.read("rollout", func(n *yaml.Node) {
		if r := d.object(n, "rollout"); r != nil {
			b.Rollout = d.names(r.need("zones"), "zones")
			r.done()
		}
	})

	p.bucketNumbers(d, o, b, l)
	o.done()
	return b, raw
}

// bucketNumbers reads what a bucket's limit comes from: a policy with its
// guards, or a person's hand.
func (p *parser) bucketNumbers(d *doc, o *object, b *rlc.Bucket, l layer) {
	policy, limit, newKey := o.get("policy"), o.get("limit"), o.get("new_key")
	b.Policy = p.policySpec(d, policy)
	if limit != nil {
		d.bucketLimit(limit, b, l.timezone)
	}
	if newKey != nil {
		b.NewKey = d.newKey(newKey)
	}
	switch {
	case limit == nil && b.Algorithm == rlc.Concurrency:
		d.refuse(o.node, "write limit: {concurrent: 100, timeout: 30s}", "algorithm concurrency without a limit: no policy computes one")
	case limit != nil && policy != nil:
		d.refuse(policy, "remove one of the two", "limit excludes policy")
	case limit != nil && newKey != nil:
		d.refuse(newKey, "limit already is each key's own", "new_key beside limit")
	case newKey != nil && len(b.Each) == 0:
		d.refuse(newKey, "add each, or remove it", "new_key without each")
	}
	if g := o.get("guards"); g != nil {
		b.Guards = guardsOver(d.guards(g), l.guards)
		if limit != nil {
			d.refuse(g, "remove it", "guards beside limit: a limit written by hand is never moved")
		}
	}
	if limit == nil && b.Policy == nil {
		// Buckets do not share the parameters' map.
		b.Policy = &rlc.PolicySpec{Kind: l.policy.Kind, Params: maps.Clone(l.policy.Params)}
	}
}

// each reads the attributes that a bucket counts by, in matching order.
func (d *doc) each(n *yaml.Node) []string {
	names := d.names(n, "each")
	for _, item := range n.Content {
		if contains(names, item.Value) && !d.attribute(item, item.Value) {
			return nil
		}
	}
	if len(names) > maxEach {
		d.refuse(n, "", "each names more than %d attributes", maxEach)
	}
	rlc.SortAttributes(names)
	return names
}

// match reads patterns by attribute, and where they stand.
func (d *doc) match(n *yaml.Node) (map[string]rlc.Pattern, map[string]*yaml.Node) {
	o := d.object(n, "match")
	if o == nil {
		return nil, nil
	}
	if len(n.Content) == 0 {
		d.refuse(n, "leave match out to match everything", "match is empty")
	}
	if len(n.Content) > 2*16 {
		d.refuse(n, "", "match names more than 16 attributes")
		return nil, nil
	}
	patterns, at := map[string]rlc.Pattern{}, map[string]*yaml.Node{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag != "!!str" || key.Value == "<<" || !d.attribute(key, key.Value) {
			continue
		}
		if p, ok := d.pattern(value, key.Value); ok {
			patterns[key.Value], at[key.Value] = p, value
		}
	}
	return patterns, at
}

// pattern reads an exact value, a prefix that ends in a star, "*", the word
// absent, or a list of exact values.
func (d *doc) pattern(n *yaml.Node, name string) (rlc.Pattern, bool) {
	if n.Kind == yaml.SequenceNode {
		p := rlc.Pattern{Kind: rlc.List}
		if len(n.Content) == 0 {
			d.refuse(n, "", "%s is an empty list", name)
			return p, false
		}
		seen := make(map[string]bool, len(n.Content))
		for _, item := range n.Content {
			v, ok := d.name(item, name, MaxValue)
			switch {
			case !ok:
				return p, false
			case v == "absent" || strings.Contains(v, "*"):
				d.refuse(item, "a list holds exact values; write a bucket of its own for the rest", "%s: %s in a list", name, show(v))
				return p, false
			case seen[v]:
				d.refuse(item, "remove one", "%s lists %s twice", name, show(v))
				return p, false
			}
			seen[v] = true
			p.Values = append(p.Values, v)
		}
		return p, true
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Value == "" {
		d.refuse(n, "write absent for requests without it", "%s is empty", name)
		return rlc.Pattern{}, false
	}
	v, ok := d.name(n, name, MaxValue)
	if !ok {
		return rlc.Pattern{}, false
	}
	switch star := strings.IndexByte(v, '*'); {
	case v == "absent":
		return rlc.Pattern{Kind: rlc.Absent}, true
	case v == "*":
		return rlc.Pattern{Kind: rlc.Present}, true
	case star >= 0 && star == len(v)-1:
		return rlc.Pattern{Kind: rlc.Prefix, Values: []string{v[:star]}}, true
	case star >= 0:
		d.refuse(n, "a star may only end a pattern", "%s: %s is not a pattern", name, show(v))
		return rlc.Pattern{}, false
	}
	return rlc.Pattern{Kind: rlc.Exact, Values: []string{v}}, true
}

// newKey reads {admit: true} or {limit: {rate, burst}}.
func (d *doc) newKey(n *yaml.Node) rlc.NewKey {
	o := d.object(n, "new_key")
	if o == nil {
		return rlc.NewKey{}
	}
	admit, limit := o.get("admit"), o.get("limit")
	o.done()
	if admit != nil && (admit.Kind != yaml.ScalarNode || admit.Tag != "!!bool" || admit.Value != "true") {
		d.refuse(admit, "write admit: true, or limit: {rate, burst}", "admit can only be true")
	}
	switch {
	case admit == nil && limit == nil:
		d.refuse(n, "write admit: true, or limit: {rate, burst}", "new_key is empty")
	case admit != nil && limit != nil:
		d.refuse(limit, "remove one of the two", "admit excludes limit")
	case limit != nil:
		return rlc.NewKey{Limit: d.limit(limit, "limit")}
	}
	return rlc.NewKey{}
}

func sortedAttributes[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), rlc.CompareAttributes)
}
