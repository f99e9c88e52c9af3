package quotafile

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
	"github.com/openrlc/rlc/internal/spell"
)

// policy reads a policy.yaml and resolves it over defaults.yaml. The service
// is nil when an error was found; its name is returned where it was readable.
func (p *parser) policy(file string, data []byte, base layer) (*rlc.Service, string, []rlc.Problem) {
	d, o := open(file, kindPolicy, data, MaxFile)
	if o == nil {
		return nil, "", d.problems
	}
	s := &rlc.Service{}
	s.Name = p.serviceName(d, o)
	if n := o.get("owners"); n != nil {
		s.Owners = d.names(n, "owners")
	}
	l := p.layer(d, o).over(base).over(builtin())
	s.Profile, s.Timezone, s.Mode = l.profile, l.timezone, l.mode
	s.MaxQuotas, s.Counters, s.MaxSeries, s.Exclude = l.maxQuotas, l.counters, l.maxSeries, l.exclude
	s.Unmatched = *l.unmatched
	if s.Unmatched.Mode == "" {
		s.Unmatched.Mode = s.Mode
	}
	if n := o.get("capacity"); n != nil {
		s.Capacity = d.capacity(n)
	}
	s.Events, s.Freeze, s.AutoMerge = l.events, l.freeze, l.autoMerge
	raw := p.buckets(d, o.need("buckets"), s, l)
	o.read("aliases", func(n *yaml.Node) { s.Aliases = d.aliases(n) })
	o.read("failover", func(n *yaml.Node) { s.Failover = d.failover(n) })
	o.read("sensitive", func(n *yaml.Node) { s.Sensitive = d.sensitive(n) })
	o.read("targets", func(n *yaml.Node) { s.Targets = d.targets(n) })
	o.done()

	profile := p.useProfile(d, l, s.Profile)
	if profile != nil {
		s.Unknown = profile.Unknown
	}
	if !d.bad() {
		p.checkBuckets(d, s, profile, raw)
	}
	if d.bad() {
		return nil, s.Name, d.problems
	}
	return s, s.Name, d.problems
}

// serviceName reads the key service and holds it against the folder.
func (p *parser) serviceName(d *doc, o *object) string {
	n := o.need("service")
	name, ok := d.name(n, "service", MaxName)
	if !ok {
		return ""
	}
	if reserved(name) {
		d.refuse(n, "* is every service in an override, and . and .. are folders in an address", "a service cannot be named %s", show(name))
		return ""
	}
	if !p.inPlace(d.file, name) {
		d.refuse(n, "its folder is "+path.Join(servicesDir, PathSegment(name)), "service %s does not belong in folder %s", show(name), show(path.Base(path.Dir(d.file))))
		return ""
	}
	return name
}

// inPlace reports whether a file stands in its service's folder, where folders
// count.
func (p *parser) inPlace(file, service string) bool {
	return !p.folders || path.Base(path.Dir(file)) == PathSegment(service)
}

// useProfile finds the profile a service builds on; nil where there is none
// that is valid, which is an error unless profiles are out of sight.
func (p *parser) useProfile(d *doc, l layer, name string) *rlc.Profile {
	profile := p.config.Profiles[name]
	if profile != nil || name == "" || p.alone && !p.profiles[name] {
		return profile
	}
	line, column := 1, 1
	if l.profileAt != nil {
		line, column = l.profileAt.Line, l.profileAt.Column
	}
	if p.profiles[name] {
		d.at(line, column, "see profiles/"+name+".yaml", "profile %s is not valid", show(name))
	} else {
		d.at(line, column, "add profiles/"+clip(name)+".yaml, or use one of "+strings.Join(builtinNames(), ", "), "there is no profile %s", show(name))
	}
	return nil
}

// capacity reads {rate, burst, reserve, evidence}, or {per_instance, instances}
// for rate and burst. Burst may be left out.
func (d *doc) capacity(n *yaml.Node) *rlc.Capacity {
	o := d.object(n, "capacity")
	if o == nil {
		return nil
	}
	rate := func(key string) rlc.Rate {
		r, ok := d.within(o.need(key), "capacity "+key, 0, rlc.MaxRate)
		if ok && r == 0 {
			d.refuse(o.get(key), "leave capacity out where it is not known", "capacity %s is 0", key)
		}
		return rlc.Rate(r)
	}
	c := &rlc.Capacity{}
	perInstance := has(n, "per_instance", "instances")
	if perInstance {
		c.PerInstance = rate("per_instance")
		c.Instances, _ = d.str(o.need("instances"), "instances")
	} else {
		c.Rate = rate("rate")
		burst, _ := d.integer(o.get("burst"), "capacity burst", 1, rlc.MaxRate)
		c.Burst = rlc.Burst(burst)
	}
	reserve, _ := d.within(o.get("reserve"), "capacity reserve", 0, 0.99)
	c.Reserve = rlc.Ratio(reserve)
	if e := o.get("evidence"); e != nil {
		c.Evidence, _ = d.str(e, "evidence")
	}
	o.done()
	return c
}

// rawBucket is where a bucket stands and what it says itself.
type rawBucket struct {
	node  *yaml.Node
	each  map[string]*yaml.Node
	match map[string]*yaml.Node
}

// names is where the bucket names an attribute.
func (r rawBucket) names(attribute string) *yaml.Node {
	return cmp.Or(r.match[attribute], r.each[attribute], r.node)
}

// buckets reads the list of buckets into s.
func (p *parser) buckets(d *doc, n *yaml.Node, s *rlc.Service, l layer) []rawBucket {
	nodes := d.list(n, "buckets")
	if n != nil && n.Kind == yaml.SequenceNode && len(nodes) == 0 {
		d.refuse(n, "a service without limits has no policy.yaml", "buckets is an empty list")
	}
	if len(nodes) > MaxBuckets {
		d.refuse(nodes[MaxBuckets], "", "more than %d buckets", MaxBuckets)
		return nil
	}
	var raw []rawBucket
	lines := map[string]int{}
	for _, item := range nodes {
		b, r := p.bucket(d, item, s.Mode, l)
		if b == nil {
			continue
		}
		if first := lines[b.Name]; first > 0 {
			d.refuse(item, "give it another name", "bucket %s is defined twice: first at line %d", show(b.Name), first)
		}
		if b.Name != "" {
			lines[b.Name] = b.Line
		}
		s.Buckets = append(s.Buckets, *b)
		raw = append(raw, r)
	}
	return raw
}

// checkBuckets checks the buckets of a service against each other and warns of
// what is valid and probably not meant.
func (p *parser) checkBuckets(d *doc, s *rlc.Service, profile *rlc.Profile, raw []rawBucket) {
	matcher, problems := match.Compile(s)
	if matcher == nil {
		for _, found := range problems {
			found.File, found.Column = d.file, 1
			for i := range raw {
				if raw[i].node.Line == found.Line {
					found.Column = raw[i].node.Column
				}
			}
			d.add(found)
		}
		return
	}
	hasCap := slices.ContainsFunc(s.Buckets, func(b rlc.Bucket) bool { return b.Role == rlc.CapRole })
	warned, learns := false, false
	for i := range s.Buckets {
		b, at := &s.Buckets[i], raw[i].node
		if b.Policy != nil && b.Policy.Kind == "capacity" && s.Capacity == nil {
			d.refuse(at, "declare it: capacity: {rate: 1000}", "bucket %q takes its limit from the service's capacity, and none is declared", b.Name)
		}
		if len(b.Each) > 0 && !b.ByHand() && b.NewKey.Limit == nil && !hasCap && !warned {
			warned = true
			d.warn(at.Line, at.Column, "add {name: whole-service, role: cap, policy: {kind: capacity}} with the service's capacity: {rate: …}, or a new_key limit",
				"bucket %q admits new keys and no cap bounds their sum", b.Name)
		}
		if b.Mode == rlc.Enforce && !b.ByHand() && profile != nil && !profile.CountsRefused() && !learns {
			learns = true
			d.warn(at.Line, at.Column, "add refused to profile "+profile.Name+", or read the enforcers' own counters with profile rlc",
				"bucket %q is in enforce and profile %s does not count what is refused: its quota learns from its own drops", b.Name, profile.Name)
		}
		for _, name := range sortedAttributes(b.Match) {
			if profile != nil {
				d.checkAttribute(b, raw[i], profile, name)
			}
			pattern, node := b.Match[name], raw[i].match[name]
			if node == nil {
				continue
			}
			if name == "caller" && pattern.Kind == rlc.Present && !slices.Contains(b.Each, name) {
				d.warn(node.Line, node.Column, "write each: [caller] for one counter per caller", `bucket %q: caller: "*" without each is one counter for all callers`, b.Name)
			}
			if pattern.Kind == rlc.Exact || pattern.Kind == rlc.List {
				for _, v := range pattern.Values {
					if slices.Contains(s.Unknown[name], v) {
						d.warn(node.Line, node.Column, "write absent for requests without identity", "bucket %q: %s never matches %s, which profile %s counts as absent", b.Name, name, show(v), s.Profile)
					}
				}
			}
		}
	}
}

// checkAttribute warns of an attribute that the profile does not have: where a
// policy decides no quota is computed, and where the name is nearly one of the
// profile's that one is named. It is no error: requests may carry anything.
func (d *doc) checkAttribute(b *rlc.Bucket, raw rawBucket, profile *rlc.Profile, name string) {
	if _, known := profile.Attributes[name]; known {
		return
	}
	has, at, then := slices.Sorted(maps.Keys(profile.Attributes)), raw.names(name), ""
	if b.Policy != nil {
		then = ", so no quota can be computed"
	}
	if near := spell.Nearest(name, has, 2); near != "" {
		d.warn(at.Line, at.Column, "did you mean "+near+"? If requests do carry it, add it to the profile's attributes",
			"bucket %q: profile %s has no attribute %s%s", b.Name, profile.Name, show(name), then)
	} else if then != "" {
		d.warn(at.Line, at.Column, "it has "+strings.Join(has, ", "),
			"bucket %q: profile %s has no attribute %s%s", b.Name, profile.Name, show(name), then)
	}
}

// orphans warns of quotas that nothing uses. They are no error: a person who
// removes a bucket leaves its lines to rlc, which takes them out with the next
// proposal.
func orphans(file string, s *rlc.Service, lines []line) []rlc.Problem {
	var problems []rlc.Problem
	for i := range lines {
		q := &lines[i]
		message := ""
		switch b := s.Bucket(q.Bucket); {
		case b == nil:
			message = fmt.Sprintf("quota for bucket %q, which policy.yaml does not have", q.Bucket)
		case b.ByHand():
			message = fmt.Sprintf("quota for bucket %q, whose limit is written in policy.yaml", q.Bucket)
		case !sameKeys(q.Key, b.Each):
			message = fmt.Sprintf("quota for bucket %q has the key %q, but the bucket counts each [%s]", q.Bucket, q.Key.String(), strings.Join(b.Each, ", "))
		case q.Region != "" && b.Scope != rlc.ScopeRegion, q.Zone != "" && b.Scope != rlc.ScopeZone:
			message = fmt.Sprintf("quota of %s for bucket %q, whose scope is %s", q.Region+q.Zone, q.Bucket, b.Scope)
		default:
			continue
		}
		if len(problems) == maxProblems {
			problems = append(problems, rlc.Problem{File: file, Line: q.line, Column: q.column, Warning: true, Message: "more quotas that nothing uses follow"})
			break
		}
		problems = append(problems, rlc.Problem{File: file, Line: q.line, Column: q.column, Warning: true, Message: message, Hint: "nothing uses it; the next proposal removes it"})
	}
	return problems
}

func sameKeys(key rlc.Key, each []string) bool {
	if len(key) != len(each) {
		return false
	}
	for _, name := range each {
		if _, ok := key[name]; !ok {
			return false
		}
	}
	return true
}
