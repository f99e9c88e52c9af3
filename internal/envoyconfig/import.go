package envoyconfig

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

// Imported is a file of the ratelimit service as a policy.
type Imported struct {
	Service string // the domain
	Policy  []byte // a policy.yaml; whoever writes it validates it first
	Losses  []Loss
}

// Import reads a file of Envoy's ratelimit service. Descriptors become hand-
// written buckets that enforce as they do there; problems are errors with their
// place, and then nothing is imported.
//
// In Envoy the rules of one sequence of keys exclude each other, the most
// specific value first, and those of different sequences all count. So the
// rules of the sequence that has most become quota buckets, together with those
// that replace them or are replaced; all others become caps.
func Import(file string, data []byte) (Imported, []rlc.Problem) {
	r := &reader{file: file}
	domain := r.read(data)
	if len(r.problems) > 0 {
		return Imported{}, r.problems
	}
	w := &writer{reader: r, taken: map[string]bool{}, matches: map[string]bool{}}
	quota := quotaGroups(r.rules)
	w.caps(quota)
	for i := range r.rules {
		w.bucket(&r.rules[i], quota[group(&r.rules[i])])
	}
	out := "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: " + scalar(domain) + "\ndefaults: {mode: enforce, on_failure: open}\nbuckets:"
	if len(w.lines) == 0 {
		r.refuse(&yaml.Node{}, "", "no descriptor could be imported: %s", lossText(r.losses))
		return Imported{}, r.problems
	}
	for _, l := range w.lines {
		out += "\n  - {" + l + "}"
	}
	return Imported{Service: domain, Policy: []byte(out + "\n"), Losses: r.losses}, nil
}

// group is what rules exclude each other in: their keys, whatever the order.
func group(r *rule) string {
	var keys []string
	for _, e := range r.path {
		keys = append(keys, e.key)
	}
	slices.Sort(keys)
	return strings.Join(keys, "\x00")
}

// quotaGroups are the groups whose rules become quota buckets.
func quotaGroups(rules []rule) map[string]bool {
	count, order, named := map[string]int{}, []string{}, map[string][]string{}
	for i := range rules {
		g := group(&rules[i])
		if count[g]++; count[g] == 1 {
			order = append(order, g)
		}
		if n := rules[i].name; n != "" {
			named[n] = append(named[n], g)
		}
	}
	quota := map[string]bool{}
	if len(order) == 0 {
		return quota
	}
	most := order[0]
	for _, g := range order {
		if count[g] > count[most] {
			most = g
		}
	}
	quota[most] = true
	for grown := true; grown; {
		grown = false
		for i := range rules {
			for _, n := range rules[i].replaces {
				for _, other := range named[n] {
					g := group(&rules[i])
					if quota[g] != quota[other] {
						quota[g], quota[other], grown = true, true, true
					}
				}
			}
		}
	}
	return quota
}

// writer makes buckets.
type writer struct {
	*reader
	lines   []string
	taken   map[string]bool // bucket names
	matches map[string]bool // what quota buckets and caps match, as text
}

// caps tells of what rules that exclude each other lose as caps, which all count.
func (w *writer) caps(quota map[string]bool) {
	rules := map[string][]*rule{}
	for i := range w.rules {
		if g := group(&w.rules[i]); !quota[g] {
			rules[g] = append(rules[g], &w.rules[i])
		}
	}
	for i := range w.rules {
		all := rules[group(&w.rules[i])]
		if len(all) > 1 && all[0] == &w.rules[i] && slices.ContainsFunc(all, func(r *rule) bool { return wide(r) }) {
			w.lose(w.rules[i].line, "overlap", "%d rules beside %s become caps, which all count: the more general one counts what a more specific one does, too", len(all)-1, w.rules[i].where())
		}
	}
}

// wide reports whether a rule takes more than one value somewhere.
func wide(r *rule) bool {
	return slices.ContainsFunc(r.path, func(e entry) bool { return e.value == "" || strings.HasSuffix(e.value, "*") })
}

func (w *writer) bucket(r *rule, quota bool) {
	var match, each []string
	seen := map[string]bool{}
	for _, e := range r.path {
		attribute := attributeName(e.key)
		switch {
		case seen[attribute]:
			w.lose(r.line, "twice", "%s names %s twice: a request has an attribute once; left out", r.where(), e.key)
			return
		case e.value == "absent" || strings.Contains(strings.TrimSuffix(e.value, "*"), "*") || e.value == "*":
			w.lose(r.line, "value", "%s: the value %q cannot be written in a match; left out", r.where(), e.value)
			return
		}
		if seen[attribute] = true; attribute != e.key {
			w.lose(r.line, "descriptor", "key %q is no attribute's name: declare {%s: {descriptor: %s}} in the profile", e.key, attribute, scalar(e.key))
		}
		if e.value != "" {
			match = append(match, attribute+": "+scalar(e.value))
		}
		if e.value == "" || strings.HasSuffix(e.value, "*") && !r.shared {
			each = append(each, attribute)
		}
	}
	sorted, counted := slices.Sorted(slices.Values(match)), slices.Sorted(slices.Values(each))
	id := fmt.Sprintf("%q %q %t", sorted, counted, quota)
	if w.matches[id] {
		w.lose(r.line, "order", "%s has the keys of another descriptor in another order: requests have no order; left out", r.where())
		return
	}
	w.matches[id] = true
	line := "name: " + scalar(w.bucketName(r))
	if !quota {
		if !r.limited() {
			w.lose(r.line, "unlimited", "%s has no limit and excludes none of another sequence of keys; left out", r.where())
			return
		}
		line += ", role: cap"
	}
	if len(each) > 0 {
		line += ", each: [" + strings.Join(each, ", ") + "]"
	}
	if len(match) > 0 {
		line += ", match: {" + strings.Join(match, ", ") + "}"
	}
	if r.limited() {
		if r.shadow {
			line += ", mode: shadow"
		}
		line += fmt.Sprintf(", algorithm: fixed_window, limit: {requests: %d, %s}", r.requests, units[r.unit])
	} else {
		line += ", mode: shadow" // counted, and never refused
		w.lose(r.line, "unlimited", "%s has no limit: its bucket is in shadow, and RLC computes a quota that drops nothing", r.where())
	}
	w.lines = append(w.lines, line)
}

var (
	attributeWord = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9._-]{0,62}$`)
	plainWord     = regexp.MustCompile(`^[a-z][a-z0-9._/-]*$`)
	notWord       = regexp.MustCompile(`[^a-z0-9._-]+`)
)

// attributeName is a descriptor's key as an attribute: itself, where it can be.
func attributeName(key string) string {
	if attributeWord.MatchString(key) && plain(key) {
		return key
	}
	word := strings.Trim(notWord.ReplaceAllString(strings.ToLower(key), "-"), "-.")
	return "_" + word[:min(len(word), 60)]
}

// bucketName is the rule's own name or one made of its path, told apart from
// those before it.
func (w *writer) bucketName(r *rule) string {
	name := r.name
	if name == "" {
		var parts []string
		for _, e := range r.path {
			if e.value == "" {
				parts = append(parts, "each", e.key)
			} else {
				parts = append(parts, e.key, e.value)
			}
		}
		name = strings.Join(parts, "-")
	}
	name = strings.Trim(notWord.ReplaceAllString(strings.ToLower(name), "-"), "-._")
	name = strings.TrimRight(name[:min(len(name), 56)], "-._")
	if name == "" {
		name = "rule"
	}
	base := name
	for n := 2; w.taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	w.taken[name] = true
	return name
}

// plain reports whether a word means itself in YAML without quotes.
func plain(s string) bool {
	return !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s))
}

// scalar writes text so that YAML reads it back as the same text.
func scalar(s string) string {
	if plainWord.MatchString(s) && plain(s) && !strings.HasSuffix(s, ".") {
		return s
	}
	b, _ := json.Marshal(s) // a string cannot fail; JSON's strings are YAML's
	return string(b)
}

func lossText(all []Loss) string {
	if len(all) == 0 {
		return "the file has none"
	}
	return all[0].Text
}
