// Package envoyconfig translates between RLC's buckets and the configuration of
// Envoy's ratelimit service, Envoy Gateway and Istio, and tells what gets lost.
package envoyconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

// The bounds of a file that is read. They keep work and answer proportional to
// the file's size, whatever it holds.
const (
	maxBytes = 4 << 20
	maxDepth = 10
	// maxRules is how many buckets a policy has at most: more could not be
	// imported.
	maxRules = 1_000
	// maxText bounds a key, a value or a name in bytes, as a policy does: the
	// value of a parent is written again for each of its children.
	maxText = 1_024
	// maxPlace bounds the name of a rule's place in a message, in bytes.
	maxPlace = 200
)

// MaxProblems is how many problems of a file Import tells; one more says how
// many follow.
const MaxProblems = 50

// Loss is something that the other side cannot say, or says otherwise. Kind is a
// stable word.
type Loss struct {
	Line int    `json:"line,omitempty"` // of what was read; 0 where it has none
	Kind string `json:"kind"`
	Text string `json:"text"`
}

func (l Loss) String() string { return l.Kind + ": " + l.Text }

// entry is a key of a descriptor; an empty value is any, one that ends in * a
// prefix, and each value then has a counter of its own.
type entry struct{ key, value string }

// rule is a descriptor of the ratelimit service's tree with its whole path.
type rule struct {
	path      []entry
	name      string
	unit      string // "" for none: the descriptor stands there without a limit
	requests  int64
	unlimited bool
	shadow    bool
	shared    bool // share_threshold: one counter for all values of a prefix
	replaces  []string
	line      int
}

// limited reports whether the rule refuses anything.
func (r *rule) limited() bool { return r.unit != "" && !r.unlimited }

// where names the rule's place in the tree, as Envoy's own errors do.
func (r *rule) where() string {
	var parts []string
	for _, e := range r.path {
		if e.value == "" {
			parts = append(parts, e.key)
		} else {
			parts = append(parts, e.key+"_"+e.value)
		}
	}
	place := strings.Join(parts, ".")
	if len(place) > maxPlace {
		place = strings.ToValidUTF8(place[:maxPlace], "") + "…"
	}
	return strconv.Quote(place)
}

// reader gathers the rules of a file.
type reader struct {
	file     string
	rules    []rule
	losses   []Loss
	problems []rlc.Problem // the first MaxProblems
	more     int           // problems beside those
	tooMany  bool          // there are more than maxRules rules
}

func (r *reader) refuse(n *yaml.Node, hint, format string, args ...any) {
	if len(r.problems) == MaxProblems {
		r.more++
		return
	}
	r.problems = append(r.problems, rlc.Problem{File: r.file, Line: max(n.Line, 1), Column: max(n.Column, 1), Message: fmt.Sprintf(format, args...), Hint: hint})
}

// told are the problems, with how many are not told.
func (r *reader) told() []rlc.Problem {
	if r.more > 0 {
		noun := "problems"
		if r.more == 1 {
			noun = "problem"
		}
		return append(r.problems, rlc.Problem{File: r.file, Line: 1, Column: 1, Message: fmt.Sprintf("and %d more %s", r.more, noun)})
	}
	return r.problems
}

func (r *reader) lose(line int, kind, format string, args ...any) {
	r.losses = append(r.losses, Loss{line, kind, fmt.Sprintf(format, args...)})
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// read parses a file into its domain and rules, in file order.
func (r *reader) read(data []byte) (domain string) {
	top := &yaml.Node{Line: 1, Column: 1}
	if len(data) > maxBytes {
		r.refuse(top, "", "the file has more than %d bytes", maxBytes)
		return ""
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := dec.Decode(&document); err != nil || len(document.Content) != 1 {
		if m := yamlLine.FindStringSubmatch(fmt.Sprint(err)); m != nil {
			top.Line, _ = strconv.Atoi(m[1])
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		r.refuse(top, "", "%s", strings.TrimPrefix(fmt.Sprint(err), "yaml: "))
		return ""
	}
	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		r.refuse(top, "write one domain in each file", "a second document")
	}
	fields := r.fields(document.Content[0], "the file", "domain", "descriptors")
	if n := fields["domain"]; n != nil {
		domain = r.text(n, "domain")
	}
	if domain == "" && len(r.problems) == 0 {
		r.refuse(document.Content[0], "", "no domain")
	}
	r.descriptors(fields["descriptors"], nil)
	return domain
}

// fields reads a mapping with these keys and no others.
func (r *reader) fields(n *yaml.Node, what string, known ...string) map[string]*yaml.Node {
	if n.Kind != yaml.MappingNode {
		r.refuse(n, "", "%s is no mapping", what)
		return nil
	}
	out := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Kind != yaml.ScalarNode || !slices.Contains(known, k.Value):
			r.refuse(k, "", "unknown key %.60q in %s", k.Value, what)
		case out[k.Value] != nil:
			r.refuse(k, "remove one", "%s stands twice in %s", k.Value, what)
		case v.Kind == yaml.AliasNode || v.Anchor != "":
			r.refuse(v, "write it out", "%s: anchors and aliases are not read", k.Value)
		default:
			out[k.Value] = v
		}
	}
	return out
}

func (r *reader) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.refuse(n, "", "%s is no text", what)
		return ""
	}
	if len(n.Value) > maxText {
		r.refuse(n, "", "%s is longer than %d bytes", what, maxText)
		return ""
	}
	return n.Value
}

func (r *reader) flag(n *yaml.Node, what string) bool {
	if n == nil {
		return false
	}
	var b bool
	if n.Kind != yaml.ScalarNode || n.Decode(&b) != nil {
		r.refuse(n, "", "%s is neither true nor false", what)
	}
	return b
}

func (r *reader) descriptors(list *yaml.Node, above []entry) {
	switch {
	case list == nil || list.Tag == "!!null":
		return
	case list.Kind != yaml.SequenceNode:
		r.refuse(list, "", "descriptors is no list")
		return
	case len(above) >= maxDepth:
		r.refuse(list, "", "descriptors lie more than %d deep", maxDepth)
		return
	}
	seen := map[entry]bool{}
	for _, n := range list.Content {
		if len(r.rules) >= maxRules && !r.tooMany {
			r.tooMany = true
			r.refuse(n, "split the domain, or use descriptors without a value, which count each value by itself", "more than %d descriptors with a limit: a service has at most as many buckets", maxRules)
		}
		if r.tooMany {
			return
		}
		r.descriptor(n, above, seen)
	}
}

func (r *reader) descriptor(n *yaml.Node, above []entry, seen map[entry]bool) {
	f := r.fields(n, "a descriptor", "key", "value", "rate_limit", "shadow_mode", "detailed_metric", "descriptors", "value_to_metric", "share_threshold", "quota_mode")
	if f == nil {
		return
	}
	var e entry
	if f["key"] != nil {
		e.key = r.text(f["key"], "key")
	}
	if f["value"] != nil && f["value"].Tag != "!!null" {
		e.value = r.text(f["value"], "value")
	}
	if e.key == "" {
		if f["key"] == nil || f["key"].Value == "" {
			r.refuse(n, "", "a descriptor without a key")
		}
		return
	}
	if seen[e] {
		r.refuse(n, "remove one", "key %q with value %q stands twice", e.key, e.value)
		return
	}
	seen[e] = true
	x := rule{path: append(slices.Clip(above), e), line: n.Line, shadow: r.flag(f["shadow_mode"], "shadow_mode"), shared: r.flag(f["share_threshold"], "share_threshold")}
	for _, name := range []string{"detailed_metric", "value_to_metric"} {
		if r.flag(f[name], name) {
			r.lose(f[name].Line, "metrics", "%s of %s: RLC's metrics have their own labels (series.max)", name, x.where())
		}
	}
	if r.flag(f["quota_mode"], "quota_mode") {
		r.lose(f["quota_mode"].Line, "quota_mode", "%s is imported as an ordinary limit", x.where())
	}
	if l := f["rate_limit"]; l != nil && l.Tag != "!!null" {
		r.limit(l, &x)
	}
	if leaf := f["descriptors"] == nil; x.unit != "" || x.unlimited || leaf {
		r.rules = append(r.rules, x)
	}
	r.descriptors(f["descriptors"], x.path)
}

func (r *reader) limit(n *yaml.Node, x *rule) {
	f := r.fields(n, "rate_limit", "unit", "requests_per_unit", "unlimited", "name", "replaces", "shadow_mode")
	if s := f["shadow_mode"]; s != nil {
		r.refuse(s, "write it beside rate_limit, one level up", "shadow_mode inside rate_limit: the ratelimit service does not see it there and enforces")
	}
	if f["name"] != nil {
		x.name = r.text(f["name"], "name")
	}
	if list := f["replaces"]; list != nil {
		for _, item := range list.Content {
			if name := r.fields(item, "replaces", "name")["name"]; name != nil {
				x.replaces = append(x.replaces, r.text(name, "name"))
			}
		}
	}
	x.unlimited = r.flag(f["unlimited"], "unlimited")
	if x.unlimited {
		if f["unit"] != nil || f["requests_per_unit"] != nil {
			r.refuse(n, "remove unit and requests_per_unit, or unlimited", "unlimited beside a number")
		}
		return
	}
	if f["unit"] == nil || f["requests_per_unit"] == nil {
		r.refuse(n, "", "rate_limit needs unit and requests_per_unit")
		return
	}
	unit := strings.ToLower(r.text(f["unit"], "unit"))
	if _, ok := units[unit]; !ok {
		r.refuse(f["unit"], "write second, minute, hour, day, week, month or year", "unit %.60q is unknown", unit)
	}
	count := r.text(f["requests_per_unit"], "requests_per_unit")
	requests, err := strconv.ParseUint(count, 10, 32)
	if err != nil || f["requests_per_unit"].Tag != "!!int" || count != "0" && strings.HasPrefix(count, "0") {
		r.refuse(f["requests_per_unit"], "", "requests_per_unit %.60q is no whole number from 0 to 4294967295", count)
	}
	x.unit, x.requests = unit, int64(requests)
}

// units are the ratelimit service's, in the words of a bucket's limit. All start
// at multiples of their length since 1970 in UTC: a week on Thursday, a month is
// 30 days and a year 365.
var units = map[string]string{
	"second": "per: second", "minute": "per: minute", "hour": "per: hour", "day": "per: day",
	"week": "window: 168h, align: calendar", "month": "window: 720h, align: calendar", "year": "window: 8760h, align: calendar",
}
