package quotafile

import (
	"errors"
	"slices"
	"strconv"
	"time"
	_ "time/tzdata" // a time zone must mean the same on every machine that validates

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

// layer is what defaults.yaml and policy.yaml have in common. A zero field is
// silent: the layer below speaks.
type layer struct {
	profile   string
	timezone  string
	mode      rlc.Mode
	algorithm string
	onFailure string
	policy    *rlc.PolicySpec
	guards    rlc.Guards
	unmatched *rlc.Unmatched // an empty mode is silent
	maxQuotas int
	counters  rlc.Counters
	maxSeries int
	exclude   []rlc.Window
	events    []rlc.Event
	freeze    []rlc.Freeze
	autoMerge *rlc.AutoMerge
	merges    bool // auto_merge was written, if only as false

	profileAt *yaml.Node
}

// defaults reads defaults.yaml.
func (p *parser) defaults(file string, data []byte) (layer, []rlc.Problem) {
	d, o := open(file, kindDefaults, data, MaxFile)
	if o == nil {
		return layer{}, d.problems
	}
	l := p.layer(d, o)
	o.done()
	return l, d.problems
}

// layer reads the keys that both files know.
func (p *parser) layer(d *doc, o *object) layer {
	var l layer
	if n := o.get("profile"); n != nil {
		l.profile, _ = d.word(n, "profile")
		l.profileAt = n
	}
	if n := o.get("timezone"); n != nil {
		l.timezone = d.timezone(n)
	}
	if n := o.get("defaults"); n != nil {
		p.bucketDefaults(d, n, &l)
	}
	if n := o.get("unmatched"); n != nil {
		l.unmatched = d.unmatched(n)
	}
	if q := d.object(o.get("quotas"), "quotas"); q != nil {
		l.maxQuotas = d.count(q.need("max"), "quotas max", MaxQuotas)
		q.done()
	}
	if c := d.object(o.get("counters"), "counters"); c != nil {
		l.counters.Max = d.count(c.get("max"), "counters max", 10_000_000)
		if n := c.get("on_full"); n != nil {
			l.counters.OnFull, _ = d.choice(n, "on_full", "admit", "share")
		}
		c.done()
	}
	if s := d.object(o.get("series"), "series"); s != nil {
		l.maxSeries = d.count(s.need("max"), "series max", 100_000)
		s.done()
	}
	if n := o.get("exclude"); n != nil {
		l.exclude = d.exclude(n)
	}
	o.read("events", func(n *yaml.Node) { l.events = d.events(n) })
	o.read("freeze", func(n *yaml.Node) { l.freeze = d.freeze(n) })
	if n := o.get("auto_merge"); n != nil {
		l.autoMerge, l.merges = d.autoMerge(n), true
	}
	return l
}

// bucketDefaults reads the key defaults.
func (p *parser) bucketDefaults(d *doc, n *yaml.Node, l *layer) {
	o := d.object(n, "defaults")
	if o == nil {
		return
	}
	l.mode = d.mode(o.get("mode"))
	l.algorithm = d.choiceOr(o.get("algorithm"), "algorithm", "", rlc.Algorithms()...)
	l.onFailure = d.choiceOr(o.get("on_failure"), "on_failure", "", rlc.FailLocal, rlc.FailOpen, rlc.FailClosed)
	l.policy = p.policySpec(d, o.get("policy"))
	l.guards = d.guards(o.get("guards"))
	o.done()
}

// over resolves l over the layer below it.
func (l layer) over(base layer) layer {
	first := func(a, b string) string {
		if a != "" {
			return a
		}
		return b
	}
	positive := func(a, b int) int {
		if a > 0 {
			return a
		}
		return b
	}
	r := layer{
		profile:   first(l.profile, base.profile),
		timezone:  first(l.timezone, base.timezone),
		mode:      rlc.Mode(first(string(l.mode), string(base.mode))),
		algorithm: first(l.algorithm, base.algorithm),
		onFailure: first(l.onFailure, base.onFailure),
		policy:    l.policy,
		guards:    guardsOver(l.guards, base.guards),
		unmatched: l.unmatched,
		maxQuotas: positive(l.maxQuotas, base.maxQuotas),
		counters:  rlc.Counters{Max: positive(l.counters.Max, base.counters.Max), OnFull: first(l.counters.OnFull, base.counters.OnFull)},
		maxSeries: positive(l.maxSeries, base.maxSeries),
		// Incidents, events and freezes add up: the organisation's stays one for
		// a service that declares its own.
		exclude:   append(slices.Clone(base.exclude), l.exclude...),
		events:    append(slices.Clone(base.events), l.events...),
		freeze:    append(slices.Clone(base.freeze), l.freeze...),
		autoMerge: l.autoMerge,
		merges:    l.merges,
		profileAt: l.profileAt,
	}
	if r.policy == nil {
		r.policy = base.policy
	}
	if r.unmatched == nil {
		r.unmatched = base.unmatched
	}
	if !r.merges {
		r.autoMerge, r.merges = base.autoMerge, base.merges
	}
	return r
}

// builtin is the layer below defaults.yaml.
func builtin() layer {
	return layer{
		profile:   "rlc",
		timezone:  "UTC",
		mode:      rlc.Shadow,
		algorithm: rlc.TokenBucket,
		onFailure: rlc.FailLocal,
		policy:    &rlc.PolicySpec{Kind: "historical", Params: rlc.Params{}},
		guards:    rlc.DefaultGuards(),
		unmatched: &rlc.Unmatched{},
		maxQuotas: 2000,
		counters:  rlc.Counters{Max: 100_000, OnFull: "admit"},
		maxSeries: 200,
	}
}

// guardsOver takes each guard from a where it is set, else from b.
func guardsOver(a, b rlc.Guards) rlc.Guards {
	if a.Floor == 0 {
		a.Floor = b.Floor
	}
	if a.MinCoverage == 0 {
		a.MinCoverage = b.MinCoverage
	}
	if a.MinValidDays == 0 {
		a.MinValidDays = b.MinValidDays
	}
	for _, f := range []struct{ a, b *float64 }{
		{&a.Deadband, &b.Deadband}, {&a.StepUp, &b.StepUp}, {&a.StepDown, &b.StepDown}, {&a.WeekUp, &b.WeekUp}, {&a.WeekDown, &b.WeekDown},
	} {
		if *f.a == 0 {
			*f.a = *f.b
		}
	}
	return a
}

// guards reads {floor, deadband, step_up, step_down, week_up, week_down,
// min_coverage, min_valid_days}. Rates of change are relative: 0.1 is 10 %. A
// guard cannot be switched off, so none may be 0.
func (d *doc) guards(n *yaml.Node) rlc.Guards {
	o := d.object(n, "guards")
	if o == nil {
		return rlc.Guards{}
	}
	number := func(key string, low, high float64) float64 {
		f, _ := d.within(o.get(key), "guards "+key, low, high)
		return f
	}
	const least = 0.001
	g := rlc.Guards{
		Floor:       rlc.Rate(number("floor", 1, rlc.MaxRate)),
		Deadband:    number("deadband", least, 1),
		StepUp:      number("step_up", least, 100),
		StepDown:    number("step_down", least, 1),
		WeekUp:      number("week_up", least, 100),
		WeekDown:    number("week_down", least, 1),
		MinCoverage: rlc.Ratio(number("min_coverage", least, 1)),
	}
	days, _ := d.integer(o.get("min_valid_days"), "guards min_valid_days", 1, 365)
	g.MinValidDays = int(days)
	o.done()
	return g
}

// policySpec reads {kind, …parameters} and has them checked. It is nil where n
// is nil or refused.
func (p *parser) policySpec(d *doc, n *yaml.Node) *rlc.PolicySpec {
	o := d.object(n, "policy")
	if o == nil {
		return nil
	}
	kind, ok := d.name(o.need("kind"), "policy kind", MaxName)
	spec := &rlc.PolicySpec{Kind: kind, Params: rlc.Params{}}
	at := map[string]*yaml.Node{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		if key == "kind" || n.Content[i].Tag != "!!str" {
			continue
		}
		v, fine := d.param(value, key)
		ok = ok && fine
		spec.Params[key], at[key] = v, value
	}
	if !ok {
		return nil
	}
	// A parameter called contract, of whatever kind, names one of contracts/.
	if name, isName := spec.Params["contract"].(string); isName && !p.alone && !p.contracts[name] {
		d.refuse(at["contract"], "add contracts/"+clip(name)+".yaml", "there is no contract %s", show(name))
	}
	if p.check == nil {
		return spec
	}
	for _, found := range p.check(kind, spec.Params) {
		place := n
		for key, value := range at {
			if rest, ok := cutWord(found.Message, key); ok && rest {
				place = value
			}
		}
		d.add(rlc.Problem{File: d.file, Line: place.Line, Column: place.Column, Message: found.Message, Hint: found.Hint, Warning: found.Warning})
	}
	return spec
}

// cutWord reports whether a message starts with a parameter's name.
func cutWord(message, word string) (bool, bool) {
	if len(message) <= len(word) || message[:len(word)] != word {
		return false, false
	}
	c := message[len(word)]
	return c == ' ' || c == ':', true
}

// param reads a policy's parameter: a string, number, boolean, list or mapping.
func (d *doc) param(n *yaml.Node, what string) (any, bool) {
	switch n.Kind {
	case yaml.SequenceNode:
		list, ok := []any{}, true
		for _, c := range n.Content {
			v, fine := d.param(c, what)
			list, ok = append(list, v), ok && fine
		}
		return list, ok
	case yaml.MappingNode:
		m, ok := map[string]any{}, true
		for i := 0; i < len(n.Content); i += 2 {
			v, fine := d.param(n.Content[i+1], what+" "+clip(n.Content[i].Value))
			m[n.Content[i].Value], ok = v, ok && fine
		}
		return m, ok
	case yaml.ScalarNode:
		switch n.Tag {
		case "!!int", "!!float":
			f, ok := d.number(n, what)
			return f, ok
		case "!!bool":
			if n.Value != "true" && n.Value != "false" {
				d.refuse(n, "write true or false", "%s: %s", what, show(n.Value))
				return nil, false
			}
			return n.Value == "true", true
		case "!!timestamp":
			return n.Value, true
		}
		if _, err := strconv.ParseFloat(n.Value, 64); n.Style == 0 && errors.Is(err, strconv.ErrRange) {
			// The parser takes a number too large for it for a string.
			d.refuse(n, "", "%s: %s is out of range", what, show(n.Value))
			return nil, false
		}
		return d.text(n, what)
	}
	return nil, false
}

func (d *doc) mode(n *yaml.Node) rlc.Mode {
	if n == nil {
		return ""
	}
	m, _ := d.choice(n, "mode", string(rlc.Shadow), string(rlc.Enforce))
	return rlc.Mode(m)
}

// unmatched reads the word admit, or {mode, limit}.
func (d *doc) unmatched(n *yaml.Node) *rlc.Unmatched {
	if n.Kind == yaml.ScalarNode && n.Value == "admit" {
		return &rlc.Unmatched{}
	}
	if n.Kind == yaml.ScalarNode && !null(n) {
		d.refuse(n, "write admit, or {mode, limit}", "unmatched: %s is not known", show(n.Value))
		return nil
	}
	o := d.object(n, "unmatched")
	if o == nil {
		return nil
	}
	u := &rlc.Unmatched{Mode: d.mode(o.get("mode"))}
	if l := o.get("limit"); l != nil {
		u.Limit = d.limit(l, "limit")
	}
	o.done()
	return u
}

// count reads a maximum of at least 1; 0 where n is nil or refused.
func (d *doc) count(n *yaml.Node, what string, high int64) int {
	v, _ := d.integer(n, what, 1, high)
	return int(v)
}

// exclude reads incidents.
func (d *doc) exclude(n *yaml.Node) []rlc.Window {
	var all []rlc.Window
	for _, item := range d.list(n, "exclude") {
		o := d.object(item, "exclude")
		if o == nil {
			continue
		}
		var w rlc.Window
		var fine bool
		w.From, w.Until, fine = d.span(o.need("from"), o.need("until"))
		if r := o.get("reason"); r != nil {
			w.Reason, _ = d.str(r, "reason")
		}
		o.done()
		if fine {
			all = append(all, w)
		}
	}
	return all
}

// span reads a start and a later end.
func (d *doc) span(from, until *yaml.Node) (time.Time, time.Time, bool) {
	f, ok1 := d.instant(from, "from")
	u, ok2 := d.instant(until, "until")
	if ok1 && ok2 && !f.Before(u) {
		d.refuse(until, "", "until is not after from")
		return f, u, false
	}
	return f, u, ok1 && ok2
}

// timezone reads an IANA name.
func (d *doc) timezone(n *yaml.Node) string {
	s, ok := d.str(n, "timezone")
	if !ok {
		return ""
	}
	if !knownZone(s) {
		d.refuse(n, "write an IANA name such as Europe/Paris", "timezone: %s is not known", show(s))
		return ""
	}
	return s
}

// knownZone reports whether s is an IANA time zone's name.
func knownZone(s string) bool {
	if s == "" || s == "Local" || len(s) > 63 {
		return false
	}
	_, err := time.LoadLocation(s)
	return err == nil
}
