package quotafile

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// unsupported are the keys and values of config.md that this version reads and
// checks, but does not act on: each is refused by name. Whoever builds one
// deletes its line.
func unsupported() []string {
	return nil
}

// gate refuses what stands at n where this version does not act on it. Before
// is how many problems there were before n was read: of a value that is not
// valid nothing else is said. A nil n passes.
func (d *doc) gate(n *yaml.Node, what string, before int) {
	if n != nil && len(d.problems) == before && slices.Contains(d.gates, what) {
		d.refuse(n, "", "%s: not supported by this version", what)
	}
}

// choiceOf is choice for a key whose words are gated one by one. It is missing
// where n is nil.
func (d *doc) choiceOf(n *yaml.Node, what, missing string, words ...string) string {
	if n == nil {
		return missing
	}
	before := len(d.problems)
	s, ok := d.choice(n, what, words...)
	if !ok {
		return missing
	}
	d.gate(n, what+" "+s, before)
	return s
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
