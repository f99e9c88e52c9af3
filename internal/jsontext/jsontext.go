// Package jsontext says in a client's words why a JSON body cannot be read into what a
// handler takes.
package jsontext

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// Of is the text of a decoder's error: which field must be what, and what stands
// there. Nothing of how this program is written stands in it.
func Of(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var moment *time.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return "the body is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the body ends in the middle of the JSON"
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is not JSON: %v at byte %d", syntax, syntax.Offset)
	case errors.As(err, &kind):
		field := kind.Field
		if field == "" {
			field = "the body"
		}
		return fmt.Sprintf("%s must be %s, not %s", field, wanted(kind.Type), given(kind.Value))
	case errors.As(err, &moment):
		return fmt.Sprintf("%.60s is no time such as 2026-12-02T06:00:00Z", moment.Value)
	case strings.HasPrefix(err.Error(), "Time.UnmarshalJSON"):
		return `a time is text such as "2026-12-02T06:00:00Z"`
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// wanted names what a field takes.
func wanted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number of 0 or more"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	}
	return "an object"
}

// given names what stands there, by the decoder's word for it.
func given(value string) string {
	switch value {
	case "string":
		return "text"
	case "bool":
		return "true or false"
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "number":
		return "a number"
	}
	return strings.TrimPrefix(value, "number ")
}
