package quotafile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

const (
	// maxItems bounds the keys and list items of a file, and with them the
	// parser's time and memory: an item costs up to a microsecond and 0.5 kB,
	// so that a megabyte made of nothing else would cost a second and 250 MB.
	maxItems = 30_000
	// commentItems is what a comment counts: the parser spends five times as
	// long on one as on a key.
	commentItems = 4
	// maxDepth bounds nesting; the deepest key of config.md lies at 6.
	maxDepth = 16
	// maxProblems bounds what is reported of one file.
	maxProblems = 100
)

// doc is one file being read, with what was found in it.
type doc struct {
	file     string
	problems []rlc.Problem
}

// open checks a file's bytes, parses them and returns the top mapping after
// checking apiVersion and kind. It is nil when nothing further can be read.
func open(file, kind string, data []byte, limit int) (*doc, *object) {
	d := &doc{file: file}
	d.scan(data, limit, kind == kindQuotas)
	if len(d.problems) > 0 {
		return d, nil
	}
	root := d.parse(data)
	if root == nil {
		return d, nil
	}
	if !d.tidy(root, 1) {
		return d, nil
	}
	o := d.object(root, "the file")
	if o == nil || !d.header(o, kind) {
		return d, nil
	}
	return d, o
}

// header checks apiVersion and kind. Of a newer version nothing else is said:
// its keys are unknown to this one.
func (d *doc) header(o *object, kind string) bool {
	version, ok := d.str(o.need("apiVersion"), "apiVersion")
	if ok && version != "rlc/v1" {
		if strings.HasPrefix(version, "rlc/v") {
			d.refuse(o.get("apiVersion"), "this version reads rlc/v1", "needs a newer rlc: apiVersion is %s", show(version))
			return false
		}
		d.refuse(o.get("apiVersion"), "write rlc/v1", "apiVersion is %s", show(version))
	}
	k, ok := d.str(o.need("kind"), "kind")
	if ok && k != kind {
		d.refuse(o.get("kind"), "write "+kind, "kind is %s, but this place holds a %s", show(k), kind)
		return false
	}
	return true
}

// notPlain stands for what is no plain file. No file that is one parses with it.
var notPlain = []byte("\x00not a plain file\x00")

// NotPlain is the content to parse in place of a file that is no plain file where one
// is read: it is refused by name. Left out, it would read as a file that was removed,
// and its limits would go.
func NotPlain() []byte { return bytes.Clone(notPlain) }

// scan refuses what must never reach the parser. Of each kind of fault the
// first place is reported.
func (d *doc) scan(data []byte, limit int, quotas bool) {
	if bytes.Equal(data, notPlain) {
		d.at(1, 1, "put the file itself in its place", "this is a symbolic link, a submodule or a folder, and none of them is followed")
		return
	}
	if len(data) > limit {
		d.at(1, 1, "split the service, or narrow what generates the file", "the file is larger than %d MiB", limit>>20)
		return
	}
	if len(bytes.TrimSpace(data)) == 0 {
		d.at(1, 1, "an empty file is never an empty configuration: remove it instead", "the file is empty")
		return
	}
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		d.at(1, 1, "save as UTF-8 without BOM", "the file starts with a byte order mark")
		return
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		d.at(1, 1, "save as UTF-8", "the file is UTF-16")
		return
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		d.offset(data, i, "", "the file contains a NUL byte")
	}
	if !utf8.Valid(data) {
		i := 0
		for i < len(data) {
			r, n := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			i += n
		}
		d.offset(data, i, "save as UTF-8", "the file is not valid UTF-8")
	}
	if i := bytes.IndexByte(data, '\t'); i >= 0 {
		d.offset(data, i, `indent with spaces; write \t in double quotes for a tab in a value`, "the file contains a tab")
	}
	for _, marker := range []string{"<<<<<<<", "|||||||", "=======", ">>>>>>>"} {
		if i := lineStart(data, marker); i >= 0 {
			d.offset(data, i, "resolve the merge conflict", "the file contains a conflict marker")
			break
		}
	}
	if n := bytes.Count(data, []byte("\n"+bucketPrefix)); quotas && n > MaxQuotas {
		d.at(1, 1, "lower quotas.max in policy.yaml", "more than %d quotas", MaxQuotas)
		return
	}
	if items(data, quotas) > maxItems {
		d.at(1, 1, "", "the file has more than %d keys, list items and lines", maxItems)
	}
}

// items is an upper bound of the nodes that the parser will make of data, with
// comments at what they cost. In a quotas.yaml the lines of a quota in the form
// that MarshalQuotas writes are free: the number of quotas bounds them.
func items(data []byte, quotas bool) int {
	if quotas {
		n, before := 0, 0
		for len(data) > 0 {
			l, rest, _ := bytes.Cut(data, []byte("\n"))
			rank := generatedRank(l)
			if rank != 1 && (rank == 0 || rank <= before) {
				n += items(l, false) + 1
			}
			before, data = rank, rest
		}
		return n
	}
	n := 0
	for i, c := range data {
		switch c {
		case '\n', '\r', ',', ':', '[', '{', '?':
			n++
		case '-': // a list item unless a word goes on
			if i+1 == len(data) || data[i+1] <= ' ' || data[i+1] >= utf8.RuneSelf {
				n++
			}
		case '#':
			n += commentItems
		}
	}
	return n
}

// lineStart is where a line starts with this conflict marker, or -1.
func lineStart(data []byte, marker string) int {
	for at := 0; ; {
		i := bytes.Index(data[at:], []byte(marker))
		if i < 0 {
			return -1
		}
		i += at
		end := i + len(marker)
		if (i == 0 || data[i-1] == '\n') && (end == len(data) || bytes.IndexByte([]byte(" \r\n"), data[end]) >= 0) {
			return i
		}
		at = end
	}
}

// parse runs the YAML parser and returns the only document's content, or nil.
func (d *doc) parse(data []byte) (root *yaml.Node) {
	defer func() {
		// The library is known to panic on some inputs; for us such a file is
		// one more that does not parse.
		if r := recover(); r != nil {
			d.at(1, 1, "", "the YAML parser gave up: %v", r)
			root = nil
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	switch err := decoder.Decode(&first); {
	case errors.Is(err, io.EOF):
		d.at(1, 1, "an empty file is never an empty configuration: remove it instead", "the file holds only comments")
		return nil
	case err != nil:
		d.syntax(data, err)
		return nil
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.syntax(data, err)
		return nil
	default:
		d.at(max(second.Line, 1), max(second.Column, 1), "one file holds one document: remove what follows ---", "the file holds a second document")
		return nil
	}
	if len(first.Content) != 1 {
		d.at(1, 1, "", "the file holds no document")
		return nil
	}
	root = first.Content[0]
	if null(root) {
		d.at(1, 1, "an empty file is never an empty configuration: remove it instead", "the document is empty")
		return nil
	}
	return root
}

// syntax turns the parser's error, "yaml: line 3: message", into a problem at
// the line's first character, or at 1:1 where the error names no line.
func (d *doc) syntax(data []byte, err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	number := 1
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if digits, text, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(digits); err == nil && n > 0 {
				number, message = n, text
			}
		}
	}
	column := 1
	lines := data
	for range number - 1 {
		_, rest, ok := bytes.Cut(lines, []byte("\n"))
		if !ok {
			break
		}
		lines = rest
	}
	for column <= len(lines) && lines[column-1] == ' ' {
		column++
	}
	d.at(number, column, "", "not valid YAML: %s", message)
}

// tidy refuses what YAML has and config files must not: anchors, aliases,
// merge keys, tags, keys that are no words, keys given twice, deep nesting. It
// returns false where the tree must not be read further.
func (d *doc) tidy(n *yaml.Node, depth int) bool {
	if d.full() {
		return false
	}
	if depth > maxDepth {
		d.refuse(n, "", "nested deeper than %d levels", maxDepth)
		return false
	}
	if n.Anchor != "" {
		d.refuse(n, "write the value out", "anchor &%s: anchors are not read", clip(n.Anchor))
	}
	if n.Kind == yaml.AliasNode {
		d.refuse(n, "write the value out", "alias *%s: aliases are not read", clip(n.Value))
		return true
	}
	if n.Style&yaml.TaggedStyle != 0 {
		d.refuse(n, "remove it", "tag %s: tags are not read", clip(n.Tag))
	}
	ok := true
	if n.Kind == yaml.MappingNode {
		first := firstKeys(n)
		for i := 0; i < len(n.Content); i += 2 {
			k := n.Content[i]
			switch {
			case k.Kind == yaml.AliasNode: // refused below
			case k.Tag == "!!merge" || k.Value == "<<" && k.Kind == yaml.ScalarNode:
				d.refuse(k, "write the keys out", "merge key <<: merge keys are not read")
			case k.Kind != yaml.ScalarNode:
				d.refuse(k, "", "a key must be a word")
			case k.Tag != "!!str":
				d.refuse(k, "put it in quotes", "key %s: a key must be a word", show(k.Value))
			default:
				if before := first(i); before != nil {
					d.refuse(k, "remove one", "key %s is given twice: first at line %d", show(k.Value), before.Line)
				}
			}
		}
	}
	for _, c := range n.Content {
		ok = d.tidy(c, depth+1) && ok
	}
	return ok
}

// firstKeys returns a function that finds an earlier key of the mapping with
// the same text as the key at i, or nil. Asked in ascending order it costs the
// same for every key.
func firstKeys(n *yaml.Node) func(i int) *yaml.Node {
	if len(n.Content) <= 16 {
		return func(i int) *yaml.Node {
			for j := 0; j < i; j += 2 {
				if n.Content[j].Value == n.Content[i].Value {
					return n.Content[j]
				}
			}
			return nil
		}
	}
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	return func(i int) *yaml.Node {
		k := n.Content[i]
		before := seen[k.Value]
		if before == nil {
			seen[k.Value] = k
		}
		return before
	}
}

// refuse reports an error at a node.
func (d *doc) refuse(n *yaml.Node, hint, format string, args ...any) {
	d.at(n.Line, n.Column, hint, format, args...)
}

// warn reports a warning at a place.
func (d *doc) warn(line, column int, hint, format string, args ...any) {
	if d.full() {
		return
	}
	d.add(rlc.Problem{File: d.file, Line: line, Column: column, Hint: hint, Warning: true, Message: fmt.Sprintf(format, args...)})
}

// at reports an error at a place.
func (d *doc) at(line, column int, hint, format string, args ...any) {
	if d.full() {
		return
	}
	d.add(rlc.Problem{File: d.file, Line: line, Column: column, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// offset reports an error at a byte.
func (d *doc) offset(data []byte, i int, hint, message string) {
	line := bytes.Count(data[:i], []byte("\n")) + 1
	start := bytes.LastIndexByte(data[:i], '\n') + 1
	d.at(line, utf8.RuneCount(data[start:i])+1, hint, "%s", message)
}

// add keeps the first maxProblems and says that there are more.
func (d *doc) add(p rlc.Problem) {
	switch {
	case len(d.problems) < maxProblems:
		d.problems = append(d.problems, p)
	case len(d.problems) == maxProblems:
		p.Message, p.Hint, p.Warning = fmt.Sprintf("more than %d problems in this file; the rest is not shown", maxProblems), "", false
		d.problems = append(d.problems, p)
	}
}

// full reports whether nothing more is kept.
func (d *doc) full() bool { return len(d.problems) > maxProblems }

// bad reports whether an error was found.
func (d *doc) bad() bool { return len(errorsOf(d.problems)) > 0 }

// null reports whether n is blank, ~ or null.
func null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// show quotes a value for a message, shortened.
func show(s string) string { return strconv.Quote(clip(s)) }

// clip shortens to 60 characters.
func clip(s string) string {
	if utf8.RuneCountInString(s) <= 60 {
		return s
	}
	return string([]rune(s)[:59]) + "…"
}
