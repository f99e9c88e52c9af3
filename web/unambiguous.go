package web

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// unambiguous refuses what the decoder lets pass in a document for a value of type t:
// a name that is given twice, of which the last would win, and a field's name in
// another case, which would stand for the field. content is valid JSON for t.
func unambiguous(content []byte, t reflect.Type) error {
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	return unambiguousValue(d, t)
}

// unambiguousValue reads one value. t is nil where names are people's own.
func unambiguousValue(d *json.Decoder, t reflect.Type) error {
	first, err := d.Token()
	if err != nil {
		return err
	}
	open, ok := first.(json.Delim)
	if !ok {
		return nil
	}
	fields, inner := shape(t)
	seen := map[string]bool{}
	for d.More() {
		within := inner
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return err
			}
			text, _ := name.(string)
			if seen[text] {
				return invalid("The JSON cannot be read: %.100q is given twice.", text)
			}
			seen[text] = true
			if fields != nil {
				if within, ok = fields[text]; !ok {
					return invalid("The JSON cannot be read: unknown field %.100q%s.", text, inLowerCase(text, fields))
				}
			}
		}
		if err := unambiguousValue(d, within); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

func inLowerCase(name string, fields map[string]reflect.Type) string {
	for _, known := range slices.Sorted(maps.Keys(fields)) {
		if strings.EqualFold(known, name) {
			return "; it is " + known
		}
	}
	return ""
}

// shape is what a type says of the names within it: the fields of a struct, or
// what a map or a list holds. Types that read themselves, and nil, say nothing.
func shape(t reflect.Type) (fields map[string]reflect.Type, inner reflect.Type) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || readsItself(t) {
		return nil, nil
	}
	switch t.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array:
		return nil, t.Elem()
	case reflect.Struct:
		fields = map[string]reflect.Type{}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || f.Anonymous && name == "" || !f.IsExported():
				continue
			case name == "":
				name = f.Name
			}
			fields[name] = f.Type
		}
		return fields, nil
	}
	return nil, nil
}

func readsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
