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
		return Imported{}, r.told()
	}
	w := &writer{reader: r, names: map[string]int{}, matches: map[string]bool{}, described: map[string]bool{}}
	w.policy.WriteString("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: " + scalar(domain) + "\ndefaults: {mode: enforce, on_failure: open}\nbuckets:\n")
	empty := w.policy.Len()
	quota := quotaGroups(r.rules)
	w.caps(quota)
	for i := range r.rules {
		w.bucket(&r.rules[i], quota[group(&r.rules[i])])
		if w.policy.Len() > maxPolicy {
			r.refuse(&yaml.Node{Line: r.rules[i].line}, "split the domain", "the policy is larger than %d bytes from this descriptor on", maxPolicy)
			return Imported{}, r.told()
		}
	}
	if w.policy.Len() == empty {
		r.refuse(&yaml.Node{}, "", "no descriptor could be imported: %s", lossText(r.losses))
		return Imported{}, r.told()
	}
	return Imported{Service: domain, Policy: []byte(w.policy.String()), Losses: r.losses}, nil
}

// maxPolicy is how large a policy that is written may become, in bytes: what a
// policy.yaml may have. A parent's values are written again for each child, so
// the file's own size does not bound it.
const maxPolicy = 1 << 20

// group is what rules exclude each other in: their keys, whatever the order.
func group(r *rule) string {
	var keys []string
	for _, e := range r.path {
		keys = append(keys, e.key)
	}
	slices.Sort(keys)
	return strings.Join(keys, "\x00")
}

// quotaGroups are the groups whose rules become quota buckets: the one with the
// most rules, the first of several, and those that replacing ties to it.
func quotaGroups(rules []rule) map[string]bool {
	count := map[string]int{}
	names := map[string][]string{}                                   // by group: what its rules are called or replace
	named, replacing := map[string][]string{}, map[string][]string{} // by name: groups
	for i := range rules {
		r, g := &rules[i], group(&rules[i])
		count[g]++
		if r.name != "" {
			names[g], named[r.name] = append(names[g], r.name), append(named[r.name], g)
		}
		for _, n := range r.replaces {
			names[g], replacing[n] = append(names[g], n), append(replacing[n], g)
		}
	}
	most := ""
	for i := range rules {
		if g := group(&rules[i]); count[g] > count[most] {
			most = g
		}
	}
	quota := map[string]bool{most: true}
	for todo := []string{most}; len(todo) > 0; todo = todo[1:] {
		for _, n := range names[todo[0]] {
			if len(named[n]) == 0 || len(replacing[n]) == 0 {
				continue
			}
			for _, g := range slices.Concat(named[n], replacing[n]) {
				if !quota[g] {
					quota[g], todo = true, append(todo, g)
				}
			}
			delete(named, n) // a name ties its groups once
		}
	}
	return quota
}

// writer makes buckets.
type writer struct {
	*reader
	policy    strings.Builder
	names     map[string]int  // bucket names, each with the highest number tried behind it
	matches   map[string]bool // what quota buckets and caps match, as text
	described map[string]bool // keys that were told to be no attribute's name
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
		if seen[attribute] = true; attribute != e.key && !w.described[e.key] {
			w.described[e.key] = true
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
	w.policy.WriteString("  - {" + line + "}\n")
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
	for w.names[name] > 0 { // the next rule of this base goes on where this one stops
		w.names[base]++
		name = fmt.Sprintf("%s-%d", base, w.names[base])
	}
	w.names[name] = 1
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
