package config

import "strings"

// From says in a word where the value came from, without naming a file:
// default, program, file, environment or flag.
func (v Value) From() string {
	switch {
	case v.Source == "default" || v.Source == "program":
		return v.Source
	case strings.Contains(v.Source, ":"): // FILE:LINE:COL
		return "file"
	case strings.HasPrefix(v.Source, "--"):
		return "flag"
	}
	return "environment"
}

// Values shows a completed server that no file, environment or flag made: what
// differs from the default came from the program. Load's Settings know better.
func (c *Server) Values() []Value {
	plain := Server{Data: c.Data}
	plain.complete()
	var all []Value
	for _, k := range Keys() {
		v := Value{Key: k.Name, Value: k.show(c), Source: "default"}
		if k.Name == "data" || v.Value != k.show(&plain) {
			v.Source = "program"
		}
		all = append(all, v)
	}
	return all
}
