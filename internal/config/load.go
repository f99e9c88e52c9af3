package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/spell"
)

// maxFile bounds the configuration file, in bytes.
const maxFile = 1 << 20

// Input is where values may come from. Flags win over the environment, the
// environment over the file, the file over defaults.
type Input struct {
	File  string                           // "": no file
	Flags map[string]string                // of flags that were given, by Key.Flag
	Env   func(name string) (string, bool) // nil: os.LookupEnv
}

// Value is one setting's effective value and where it came from.
type Value struct {
	Key    string `json:"key"`
	Value  string `json:"value"`  // of a secret: whether it is set
	Source string `json:"source"` // default, FILE:LINE:COL, RLC_NAME or --name
}

// Settings are what Load found.
type Settings struct {
	Server   Server
	Values   []Value       // one for each key, in the table's order
	Problems []rlc.Problem // warnings among them; anything else forbids a start
}

// Err is nil where only warnings were found, and rlc.ErrInvalid otherwise.
func (s *Settings) Err() error {
	n := 0
	for _, p := range s.Problems {
		if !p.Warning {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w configuration: 1 problem", rlc.ErrInvalid)
	}
	return fmt.Errorf("%w configuration: %d problems", rlc.ErrInvalid, n)
}

// Load reads every source and reports everything that is wrong at once. The
// settings are whole, with defaults in place of what is wrong: to be shown, and
// to be used where Err is nil.
func Load(in Input) *Settings {
	if in.Env == nil {
		in.Env = os.LookupEnv
	}
	l := &loader{file: in.File, from: map[string]origin{}, inline: map[string]bool{}}
	if in.File != "" {
		l.readFile()
	}
	for _, k := range Keys() {
		l.environment(k, in.Env)
		l.flag(k, in.Flags)
	}
	for _, f := range l.server.complete() {
		if l.from[f.key.Name].wrong { // said before
			continue
		}
		l.at(l.from[f.key.Name], f.key.Name+": "+f.err.Error(), "")
	}
	if l.server.Data == "" {
		l.server.Data = "rlc-data"
	}
	l.secrecy()
	slices.SortStableFunc(l.problems, func(a, b rlc.Problem) int {
		return cmp.Or(cmp.Compare(b.File, a.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Settings{Server: l.server, Values: l.values(), Problems: l.problems}
}

// origin is where a value came from. The zero value is the default.
type origin struct {
	name         string // --flag or RLC_NAME; "" for the file
	line, column int    // in the file
	wrong        bool   // the value was refused
}

type loader struct {
	file     string
	server   Server
	from     map[string]origin // by key
	inline   map[string]bool   // secrets that stand in the file itself
	problems []rlc.Problem
}

func (l *loader) at(o origin, message, hint string) {
	p := rlc.Problem{Message: message, Hint: hint}
	switch {
	case o.line > 0:
		p.File, p.Line, p.Column = l.file, o.line, o.column
	case o.name != "":
		p.Message = o.name + ": " + p.Message
	}
	l.problems = append(l.problems, p)
}

// take puts a value where it belongs. A secret's text is a file's name where
// asFile says so; a refused secret is not repeated.
func (l *loader) take(k Key, text string, asFile bool, o origin) {
	s, secret := k.field(&l.server).(*Secret)
	var err error
	if secret && asFile && text != "" {
		*s = FromFile(text)
	} else {
		err = k.set(&l.server, text)
	}
	if err != nil {
		o.wrong = true
		l.at(o, k.Name+": "+err.Error(), "")
	}
	l.from[k.Name] = o
	l.inline[k.Name] = secret && !asFile && o.line > 0
}

func (l *loader) environment(k Key, env func(string) (string, bool)) {
	// An empty variable is one that was not given: a shell cannot tell them apart.
	text, _ := env(k.Env())
	plain := text != ""
	if plain {
		l.take(k, text, false, origin{name: k.Env()})
	}
	if !k.Secret() {
		return
	}
	if file, _ := env(k.Env() + "_FILE"); file != "" {
		o := origin{name: k.Env() + "_FILE"}
		if plain {
			o.wrong = true
			l.at(o, "given beside "+k.Env(), "give one of them")
			return
		}
		l.take(k, file, true, o)
	}
}

func (l *loader) flag(k Key, flags map[string]string) {
	if text, ok := flags[k.Flag()]; ok {
		l.take(k, text, true, origin{name: "--" + k.Flag()})
	}
}

// placed finds the line in an error text of the YAML library.
var placed = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?(?:line (\d+): )?`)

func (l *loader) readFile() {
	b, err := readBounded(l.file)
	if err != nil {
		l.at(origin{name: "--config"}, err.Error(), "")
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return // nothing but comments: all defaults
	case err != nil:
		l.syntax(err)
		return
	}
	if err := dec.Decode(&second); err == nil {
		l.at(origin{line: second.Line, column: second.Column}, "a second document", "one file holds one document: remove what follows ---")
	} else if !errors.Is(err, io.EOF) {
		l.syntax(err)
	}
	root := doc.Content[0]
	if isNull(root) {
		return
	}
	l.mapping(root, "")
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return b, err
}

func (l *loader) syntax(err error) {
	o := origin{line: 1, column: 1}
	text := err.Error()
	m := placed.FindStringSubmatch(text)
	if n, err := strconv.Atoi(m[1]); err == nil {
		o.line = n
	}
	l.at(o, "not YAML: "+strings.TrimPrefix(text, m[0]), "")
}

// mapping reads the keys of one level; prefix is "" or ends with a dot.
func (l *loader) mapping(n *yaml.Node, prefix string) {
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		what := "the file"
		if prefix != "" {
			what = strings.TrimSuffix(prefix, ".")
		}
		l.at(place(n), what+": want a mapping (key: value)", "")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		full := prefix + name.Value
		if name.Kind != yaml.ScalarNode || name.ShortTag() != "!!str" {
			l.at(place(name), "a key that is not a name", "")
			continue
		}
		if line, twice := seen[name.Value]; twice {
			l.at(place(name), fmt.Sprintf("%s: given twice, first in line %d", full, line), "")
			continue
		}
		seen[name.Value] = name.Line
		l.entry(name, value, full)
	}
}

func (l *loader) entry(name, value *yaml.Node, full string) {
	for _, k := range Keys() {
		asFile := k.Secret() && full == k.Name+"_file"
		switch {
		case full == k.Name || asFile:
			if o, both := l.from[k.Name]; both {
				l.at(place(name), fmt.Sprintf("%s: given beside its other form in line %d", full, o.line), "give one of them")
				return
			}
			if f, ok := k.field(&l.server).(*map[string]string); ok {
				l.texts(k, f, value)
				return
			}
			text, why := scalar(value, k)
			if why != "" {
				o := place(value)
				o.wrong = true
				l.from[k.Name] = o
				l.at(o, full+": "+why, "")
				return
			}
			l.take(k, text, asFile, place(value))
			return
		case strings.HasPrefix(k.Name, full+"."):
			if !isNull(value) {
				l.mapping(value, full+".")
			}
			return
		}
	}
	hint := "rlc config example lists all keys"
	if near := nearest(full); near != "" {
		hint = "did you mean " + near + "?"
	}
	if groups := groupsWith(full); len(groups) > 0 {
		hint = "it stands below " + strings.Join(groups, " or ") + ": write that line above it, too (where it is commented out, uncomment both)"
	}
	l.at(place(name), fmt.Sprintf("unknown key %q", full), hint)
}

// scalar is a value's text, or why it is none.
func scalar(n *yaml.Node, k Key) (text, why string) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return "", "anchors and aliases are not read: write the value out"
	case n.Kind != yaml.ScalarNode:
		return "", "want one value"
	case isNull(n):
		return "", "no value: leave the key out for its default"
	}
	switch tag := n.ShortTag(); k.field(&Server{}).(type) {
	case *int:
		if tag != "!!int" {
			return "", "want a whole number"
		}
	case *bool:
		if tag != "!!bool" {
			return "", "want true or false"
		}
	default:
		if tag != "!!str" && !(tag == "!!int" && k.Form() != "text") {
			return "", "want text: write the value in quotes"
		}
	}
	return n.Value, ""
}

// texts reads a mapping of names to texts.
func (l *loader) texts(k Key, f *map[string]string, n *yaml.Node) {
	o := place(n)
	all, why := texts(n)
	if why != "" {
		o.wrong = true
		l.at(o, k.Name+": "+why, "")
	}
	*f, l.from[k.Name] = all, o
}

func texts(n *yaml.Node) (all map[string]string, why string) {
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		return nil, "want a mapping (name: text)"
	}
	all = map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		switch _, twice := all[name.Value]; {
		case name.ShortTag() != "!!str" || value.ShortTag() != "!!str" || value.Anchor != "":
			return nil, "want a mapping (name: text); write numbers in quotes"
		case twice:
			return nil, name.Value + " is given twice"
		}
		all[name.Value] = value.Value
	}
	return all, ""
}

// parseTexts reads such a mapping from a flag or a variable: {name: text}.
func parseTexts(f *map[string]string, text string) error {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 {
		return errors.New("want {name: text, name: text}")
	}
	all, why := texts(doc.Content[0])
	if why != "" {
		return errors.New(why)
	}
	*f = all
	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func place(n *yaml.Node) origin { return origin{line: max(n.Line, 1), column: max(n.Column, 1)} }

// groupsWith are the groups, as their lines in the file, that have a key which was
// written without one; nil for none.
func groupsWith(typed string) (all []string) {
	for _, k := range Keys() {
		group, rest, grouped := strings.Cut(k.Name, ".")
		if grouped && (rest == typed || k.Secret() && rest+"_file" == typed) && !slices.Contains(all, group+":") {
			all = append(all, group+":")
		}
	}
	return all
}

// nearest is the key that a mistyped one is two letters or fewer away from, or
// whose last part it is; "" where there is none.
func nearest(typed string) string {
	var names []string
	for _, k := range Keys() {
		names = append(names, k.Name)
		if k.Secret() {
			names = append(names, k.Name+"_file")
		}
	}
	if near := spell.Nearest(typed, names, 2); near != "" {
		return near
	}
	for _, name := range names {
		if strings.HasSuffix(name, "."+typed) {
			return name
		}
	}
	return ""
}

// secretive reports whether a value is worth hiding: an address is without a
// password in it, and a file's path never is.
func secretive(key, value string) bool {
	switch key {
	case "store.dsn":
		return strings.HasPrefix(value, "postgres")
	case "redis.url":
		u, err := url.Parse(value)
		if err != nil {
			return true
		}
		_, has := u.User.Password()
		return has
	}
	return true
}

// secrecy warns of what everybody on the machine may read.
func (l *loader) secrecy() {
	warn := func(file, message, hint string) {
		l.problems = append(l.problems, rlc.Problem{File: file, Message: message, Hint: hint, Warning: true})
	}
	var named []string
	for _, k := range Keys() {
		if path, ok := k.field(&l.server).(*string); ok && k.private && exposed(*path) {
			warn(*path, "everybody on this machine can read "+k.Name, "chmod o-r "+*path)
		}
		s, ok := k.field(&l.server).(*Secret)
		if !ok {
			continue
		}
		if l.inline[k.Name] && secretive(k.Name, s.value) {
			named = append(named, k.Name)
		}
		if s.file != "" && exposed(s.file) {
			warn(s.file, "everybody on this machine can read "+k.Name, "chmod o-r "+s.file)
		}
	}
	if len(named) > 0 && exposed(l.file) {
		warn(l.file, "everybody on this machine can read "+strings.Join(named, ", "), "chmod o-r "+l.file+", or keep the secret in a file of its own")
	}
}

func (l *loader) values() []Value {
	var all []Value
	for _, k := range Keys() {
		v := Value{Key: k.Name, Value: k.show(&l.server), Source: "default"}
		if o, given := l.from[k.Name]; given {
			v.Source = o.name
			if o.name == "" {
				v.Source = fmt.Sprintf("%s:%d:%d", l.file, o.line, o.column)
			}
		}
		all = append(all, v)
	}
	return all
}
