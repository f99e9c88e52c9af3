package quotafile

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/spell"
)

// object is a mapping being read key by key. Every key that is asked for
// becomes known; done refuses the others. The nil object has no keys, so that
// a caller can read on after a refused shape.
type object struct {
	d     *doc
	node  *yaml.Node
	what  string
	known []string
}

// object reads n as a mapping, or refuses it and returns nil. A nil node is a
// nil object.
func (d *doc) object(n *yaml.Node, what string) *object {
	if !d.shape(n, yaml.MappingNode, what, "keys and values") {
		return nil
	}
	return &object{d: d, node: n, what: what}
}

// get returns a key's value, or nil where the key is not there.
func (o *object) get(key string) *yaml.Node {
	if o == nil {
		return nil
	}
	o.known = append(o.known, key)
	for i := 0; i < len(o.node.Content); i += 2 {
		if o.node.Content[i].Value == key {
			return o.node.Content[i+1]
		}
	}
	return nil
}

// need is get for a required key: it refuses the object without it.
func (o *object) need(key string) *yaml.Node {
	n := o.get(key)
	if n == nil && o != nil {
		o.d.refuse(o.node, "", "%s lacks the key %s", o.what, key)
	}
	return n
}

// read reads a key that may be left out.
func (o *object) read(key string, read func(n *yaml.Node)) {
	if n := o.get(key); n != nil {
		read(n)
	}
}

// done refuses every key that was not asked for.
func (o *object) done() {
	if o == nil {
		return
	}
	for i := 0; i < len(o.node.Content); i += 2 {
		k := o.node.Content[i]
		if k.Kind != yaml.ScalarNode || k.Tag != "!!str" || k.Value == "<<" || contains(o.known, k.Value) {
			continue // or refused before
		}
		hint := o.elsewhere(k.Value)
		if near := spell.Nearest(k.Value, o.known, 2); near != "" {
			hint = "did you mean " + near + "?"
		}
		o.d.refuse(k, hint, "unknown key %s in %s", show(k.Value), o.what)
	}
}

// elsewhere says where a key of a policy belongs that stands in the wrong place
// of it; "" for any other key or object.
func (o *object) elsewhere(key string) string {
	if o.what != "bucket" && o.what != "guards" && !contains(o.known, "defaults") && !contains(o.known, "guards") {
		return ""
	}
	switch key {
	case "headroom", "window", "horizon", "schedule", "planned", "contract":
		return "it belongs under policy, of a bucket or of defaults"
	case "floor", "deadband", "step_up", "step_down", "week_up", "week_down", "min_coverage", "min_valid_days":
		return "it belongs under guards, of a bucket or of defaults"
	case "mode", "algorithm", "on_failure", "policy", "guards":
		return "it belongs to a bucket or under defaults"
	case "each", "match", "role", "limit", "new_key", "scope", "tier", "cost", "rollout":
		return "it belongs to a bucket"
	case "owners", "profile", "timezone", "unmatched", "exclude", "events", "freeze", "auto_merge", "capacity", "aliases", "failover", "sensitive", "targets":
		return "it belongs at the top of the file"
	}
	return ""
}

// shape checks a node's kind. A nil node is false without a problem, and so is
// an alias, which has been refused before.
func (d *doc) shape(n *yaml.Node, kind yaml.Kind, what, want string) bool {
	switch {
	case n == nil || n.Kind == yaml.AliasNode:
		return false
	case null(n):
		d.refuse(n, "give it a value, or remove the key", "%s is blank", what)
		return false
	case n.Kind != kind:
		hint := ""
		if kind == yaml.SequenceNode && n.Kind == yaml.ScalarNode {
			hint = "write [" + clip(n.Value) + "]"
		}
		d.refuse(n, hint, "%s: want %s", what, want)
		return false
	}
	return true
}

// str reads a string that is not empty.
func (d *doc) str(n *yaml.Node, what string) (string, bool) {
	s, ok := d.text(n, what)
	if ok && s == "" {
		d.refuse(n, "give it a value, or remove the key", "%s is empty", what)
		return "", false
	}
	return s, ok
}

// text reads a string that may be empty.
func (d *doc) text(n *yaml.Node, what string) (string, bool) {
	if !d.shape(n, yaml.ScalarNode, what, "a word") {
		return "", false
	}
	if n.Tag != "!!str" {
		d.refuse(n, "put it in quotes", "%s: %s is not a string", what, show(n.Value))
		return "", false
	}
	return n.Value, true
}

// name reads a string of at most limit bytes without control characters.
func (d *doc) name(n *yaml.Node, what string, limit int) (string, bool) {
	s, ok := d.str(n, what)
	if ok && !d.checkName(n, what, s, limit) {
		return "", false
	}
	return s, ok
}

func (d *doc) checkName(n *yaml.Node, what, s string, limit int) bool {
	switch {
	case len(s) > limit:
		d.refuse(n, "", "%s is longer than %d bytes", what, limit)
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		d.refuse(n, "", "%s contains a control character", what)
	default:
		return true
	}
	return false
}

// validName reports whether s can be a service's name.
func validName(s string) bool {
	return s != "" && len(s) <= MaxName && strings.IndexFunc(s, unicode.IsControl) < 0 && !reserved(s)
}

// reserved reports whether a name means something else where services are
// named: every service in an override, a folder in an address.
func reserved(s string) bool { return s == "*" || s == "." || s == ".." }

// word reads a name that people give to a thing in a file: letters, digits,
// dots, dashes and underscores, at most 63, starting with a letter or digit.
func (d *doc) word(n *yaml.Node, what string) (string, bool) {
	s, ok := d.str(n, what)
	if ok && !plainSegment(strings.ToLower(s)) {
		d.refuse(n, "use up to 63 letters, digits, dots, dashes and underscores, a letter or digit first", "%s: %s is not a name", what, show(s))
		return "", false
	}
	return s, ok
}

// attribute checks an attribute's name.
func (d *doc) attribute(n *yaml.Node, s string) bool {
	ok := validAttribute(s)
	if !ok {
		d.refuse(n, "use up to 63 letters, digits, dots, dashes and underscores, a letter or underscore first", "%s is not an attribute's name", show(s))
	}
	return ok
}

func validAttribute(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '.' && c != '-') {
			return false
		}
	}
	return true
}

// choice reads one of a closed set of words.
func (d *doc) choice(n *yaml.Node, what string, words ...string) (string, bool) {
	s, ok := d.str(n, what)
	if ok && !contains(words, s) {
		d.refuse(n, "one of "+strings.Join(words, ", "), "%s: %s is not known", what, show(s))
		return "", false
	}
	return s, ok
}

// choiceOr is choice for a key that may be left out: missing where n is nil or
// was refused.
func (d *doc) choiceOr(n *yaml.Node, what, missing string, words ...string) string {
	if n == nil {
		return missing
	}
	if s, ok := d.choice(n, what, words...); ok {
		return s
	}
	return missing
}

// has reports whether a mapping has one of these keys.
func has(n *yaml.Node, keys ...string) bool {
	if n == nil || n.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i < len(n.Content); i += 2 {
		if contains(keys, n.Content[i].Value) {
			return true
		}
	}
	return false
}

// number reads a plain decimal number that is not negative: digits, at most
// one dot, no leading zero, no sign, no exponent. Everything else that YAML
// takes for a number (.nan, 0100, 1_000, 1:30, 0x1f) is refused, because
// readers disagree on what it means.
func (d *doc) number(n *yaml.Node, what string) (float64, bool) {
	if !d.shape(n, yaml.ScalarNode, what, "a number") {
		return 0, false
	}
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		d.refuse(n, "remove the quotes", "%s: %s is a string, not a number", what, show(n.Value))
		return 0, false
	}
	if !decimal(n.Value) {
		d.refuse(n, "write a plain decimal such as 1500 or 0.5", "%s: %s is not a plain decimal number", what, show(n.Value))
		return 0, false
	}
	f, err := strconv.ParseFloat(n.Value, 64)
	if err != nil || math.IsInf(f, 0) || f == 0 && strings.Trim(n.Value, "0.") != "" {
		d.refuse(n, "", "%s: %s is out of range", what, show(n.Value))
		return 0, false
	}
	return f, true
}

// within is number between low and high, both included.
func (d *doc) within(n *yaml.Node, what string, low, high float64) (float64, bool) {
	f, ok := d.number(n, what)
	if ok && (f < low || f > high) {
		d.refuse(n, "", "%s: %s is outside %s to %s", what, clip(n.Value), decimalText(low), decimalText(high))
		return 0, false
	}
	return f, ok
}

// integer is within for whole numbers.
func (d *doc) integer(n *yaml.Node, what string, low, high int64) (int64, bool) {
	f, ok := d.within(n, what, float64(low), float64(high))
	if ok && strings.Contains(n.Value, ".") {
		d.refuse(n, "", "%s: %s is not a whole number", what, clip(n.Value))
		return 0, false
	}
	return int64(f), ok
}

// decimal reports whether s matches (0|[1-9][0-9]*)(\.[0-9]+)?.
func decimal(s string) bool {
	whole, fraction, dot := strings.Cut(s, ".")
	digits := func(s string) bool {
		for i := range len(s) {
			if s[i] < '0' || s[i] > '9' {
				return false
			}
		}
		return s != ""
	}
	return digits(whole) && (whole == "0" || whole[0] != '0') && (!dot || digits(fraction))
}

// decimalText is the shortest decimal that reads back as f, without exponent.
func decimalText(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// instant reads an RFC 3339 time, as UTC.
func (d *doc) instant(n *yaml.Node, what string) (time.Time, bool) {
	if !d.shape(n, yaml.ScalarNode, what, "a time") {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, n.Value)
	if err != nil {
		d.refuse(n, "write it as 2026-11-27T00:00:00Z", "%s: %s is not a time", what, show(n.Value))
		return time.Time{}, false
	}
	return t.UTC(), true
}

// duration reads a whole number with one unit: ms, s, m, h, d or w.
func (d *doc) duration(n *yaml.Node, what string) (time.Duration, bool) {
	if !d.shape(n, yaml.ScalarNode, what, "a duration") {
		return 0, false
	}
	s, i := n.Value, 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	unit := map[string]time.Duration{
		"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
	}[s[i:]]
	v, err := strconv.ParseInt(s[:i], 10, 64)
	if err != nil || unit == 0 || v <= 0 || v > int64(10*365*24*time.Hour/unit) {
		d.refuse(n, "write a number and a unit (ms, s, m, h, d, w), as 90s or 7d", "%s: %s is not a duration", what, show(s))
		return 0, false
	}
	return time.Duration(v) * unit, true
}

// list reads a sequence; nil for any other.
func (d *doc) list(n *yaml.Node, what string) []*yaml.Node {
	if !d.shape(n, yaml.SequenceNode, what, "a list") {
		return nil
	}
	return n.Content
}

// names reads a list of distinct names that is not empty.
func (d *doc) names(n *yaml.Node, what string) []string {
	var all []string
	seen := map[string]bool{}
	nodes := d.list(n, what)
	if n != nil && n.Kind == yaml.SequenceNode && len(nodes) == 0 {
		d.refuse(n, "", "%s is an empty list", what)
	}
	for _, item := range nodes {
		s, ok := d.name(item, what, MaxName)
		if ok && seen[s] {
			d.refuse(item, "remove one", "%s lists %s twice", what, show(s))
			ok = false
		}
		if ok {
			seen[s] = true
			all = append(all, s)
		}
	}
	return all
}

// limit reads {rate, burst}. Both may be 0, which a person writes to admit
// nothing; one alone may not.
func (d *doc) limit(n *yaml.Node, what string) *rlc.Limit {
	o := d.object(n, what)
	if o == nil {
		return nil
	}
	l := d.rateAndBurst(o)
	o.done()
	return l
}

// rateAndBurst reads the keys rate and burst of an object.
func (d *doc) rateAndBurst(o *object) *rlc.Limit {
	rateNode := o.need("rate")
	rate, ok1 := d.within(rateNode, "rate", 0, rlc.MaxRate)
	burst, ok2 := d.integer(o.need("burst"), "burst", 0, rlc.MaxRate)
	if !ok1 || !ok2 {
		return nil
	}
	l := rlc.Limit{Rate: rlc.Rate(rate), Burst: rlc.Burst(burst)}
	if err := l.Valid(); err != nil || (rate == 0) != (burst == 0) {
		d.refuse(rateNode, "to admit nothing write 0 for both", "rate %s beside burst %d: both must be above 0", decimalText(rate), burst)
		return nil
	}
	return &l
}

func contains(words []string, s string) bool {
	for _, w := range words {
		if w == s {
			return true
		}
	}
	return false
}
