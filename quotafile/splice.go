package quotafile

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

// SetRollout returns a policy.yaml in which a bucket has this mode, in these
// zones (nil: everywhere), and not a byte else is another one: comments, order
// and blank lines stay. A bucket that is not there is rlc.ErrNotFound; a file
// whose form it cannot be sure of is rlc.ErrInvalid, and a person edits it.
func SetRollout(data []byte, bucket string, mode rlc.Mode, zones []string) ([]byte, error) {
	out, err := setKey(data, bucket, "mode", string(mode))
	if err != nil {
		return nil, err
	}
	value := ""
	if zones != nil {
		quoted := make([]string, len(zones))
		for i, z := range zones {
			quoted[i] = strconv.QuoteToASCII(z)
		}
		value = "{zones: [" + strings.Join(quoted, ", ") + "]}"
	}
	if out, err = setKey(out, bucket, "rollout", value); err != nil {
		return nil, err
	}
	return out, onlyRollout(data, out, bucket, mode, zones)
}

// onlyRollout proves a splice: but for the two keys, before and after are the
// same values.
func onlyRollout(before, after []byte, bucket string, mode rlc.Mode, zones []string) error {
	var was, is map[string]any
	if yaml.Unmarshal(before, &was) != nil || yaml.Unmarshal(after, &is) != nil {
		return fmt.Errorf("%w: policy.yaml is no longer YAML once bucket %q is changed; edit it by hand", rlc.ErrInvalid, bucket)
	}
	buckets, _ := was["buckets"].([]any)
	for _, b := range buckets {
		if m, ok := b.(map[string]any); ok && m["name"] == bucket {
			m["mode"] = string(mode)
			delete(m, "rollout")
			if zones != nil {
				list := make([]any, len(zones))
				for i, z := range zones {
					list[i] = z
				}
				m["rollout"] = map[string]any{"zones": list}
			}
		}
	}
	if !reflect.DeepEqual(was, is) {
		return fmt.Errorf("%w: mode and rollout of bucket %q cannot be changed alone in this policy.yaml; edit it by hand", rlc.ErrInvalid, bucket)
	}
	return nil
}

// setKey gives a bucket's key a value of one line, "" for none.
func setKey(data []byte, bucket, key, value string) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) == 0 {
		return nil, fmt.Errorf("%w: policy.yaml is not YAML", rlc.ErrInvalid)
	}
	m := bucketNode(doc.Content[0], bucket)
	if m == nil {
		return nil, fmt.Errorf("%w: no bucket %q in policy.yaml", rlc.ErrNotFound, bucket)
	}
	s := source{data, lineStarts(data)}
	at := slices.IndexFunc(keysOf(m), func(n *yaml.Node) bool { return n.Value == key })
	switch {
	case at < 0 && value == "":
		return data, nil
	case at < 0:
		return s.insert(m, key+": "+value), nil
	case value == "":
		return s.remove(m, at), nil
	}
	k, v := m.Content[2*at], m.Content[2*at+1]
	return s.replace(s.offset(k), s.end(v), key+": "+value), nil
}

func bucketNode(root *yaml.Node, name string) *yaml.Node {
	list := valueOf(root, "buckets")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	for _, b := range list.Content {
		if n := valueOf(b, "name"); n != nil && n.Value == name {
			return b
		}
	}
	return nil
}

func valueOf(m *yaml.Node, key string) *yaml.Node {
	for i, k := range keysOf(m) {
		if k.Value == key {
			return m.Content[2*i+1]
		}
	}
	return nil
}

func keysOf(m *yaml.Node) (keys []*yaml.Node) {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		keys = append(keys, m.Content[i])
	}
	return keys
}

// source is a file's bytes with where its lines begin.
type source struct {
	data  []byte
	lines []int
}

func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, c := range data {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// offset is where a node begins. The parser counts columns in characters.
func (s source) offset(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(s.lines) {
		return len(s.data)
	}
	at := s.lines[n.Line-1]
	for range n.Column - 1 {
		if at >= len(s.data) {
			break
		}
		for at++; at < len(s.data) && s.data[at]&0xC0 == 0x80; at++ {
		}
	}
	return at
}

// end is where a node's last byte is followed by what is not part of it.
func (s source) end(n *yaml.Node) int {
	at := s.offset(n)
	switch {
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		return s.closing(at)
	case n.Kind == yaml.ScalarNode:
		return min(at+len(n.Value), len(s.data))
	case n.Style&yaml.FlowStyle != 0:
		return s.closing(at)
	case len(n.Content) > 0:
		return s.end(n.Content[len(n.Content)-1])
	}
	return at
}

// closing is behind the bracket or quote that closes the one at a place.
func (s source) closing(at int) int {
	depth := 0
	for i := at; i < len(s.data); i++ {
		switch c := s.data[i]; c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '#':
			if i > 0 && (s.data[i-1] == ' ' || s.data[i-1] == '\n') {
				for i+1 < len(s.data) && s.data[i+1] != '\n' {
					i++
				}
			}
		case '"', '\'':
			for i++; i < len(s.data) && s.data[i] != c; i++ {
				if c == '"' && s.data[i] == '\\' {
					i++
				}
			}
		}
		if depth == 0 {
			return min(i+1, len(s.data))
		}
	}
	return len(s.data)
}

func (s source) replace(from, until int, text string) []byte {
	return slices.Concat(s.data[:from], []byte(text), s.data[until:])
}

// insert puts an entry behind the bucket's name.
func (s source) insert(m *yaml.Node, entry string) []byte {
	name := valueOf(m, "name")
	end := s.end(name)
	if m.Style&yaml.FlowStyle != 0 {
		return s.replace(end, end, ", "+entry)
	}
	indent := strings.Repeat(" ", m.Content[0].Column-1)
	line := bytes.IndexByte(s.data[end:], '\n')
	if line < 0 {
		return s.replace(len(s.data), len(s.data), "\n"+indent+entry+"\n")
	}
	return s.replace(end+line+1, end+line+1, indent+entry+"\n")
}

// remove takes an entry out: its line, or in braces what separates it too.
func (s source) remove(m *yaml.Node, at int) []byte {
	k, v := m.Content[2*at], m.Content[2*at+1]
	from, until := s.offset(k), s.end(v)
	switch {
	case at == 0 && len(m.Content) > 2:
		return s.replace(from, s.offset(m.Content[2]), "")
	case m.Style&yaml.FlowStyle != 0:
		return s.replace(bytes.LastIndexByte(s.data[:from], ','), until, "")
	}
	if line := bytes.IndexByte(s.data[until:], '\n'); line >= 0 {
		until += line + 1
	} else {
		until = len(s.data)
	}
	return s.replace(s.lines[k.Line-1], until, "")
}
