package looppb

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// fields are "message.field = number repeated type", of every message, and
// "service.method".
func generated() (list []string) {
	messages := File_loop_proto.Messages()
	for i := range messages.Len() {
		m := messages.Get(i)
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			kind := f.Kind().String()
			if f.Message() != nil {
				kind = string(f.Message().Name())
			}
			if f.Enum() != nil {
				kind = string(f.Enum().Name())
			}
			list = append(list, fmt.Sprintf("%s.%s = %d %v %s", m.Name(), f.Name(), f.Number(), f.Cardinality() == protoreflect.Repeated, kind))
		}
	}
	services := File_loop_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			list = append(list, string(services.Get(i).Name())+"."+string(services.Get(i).Methods().Get(j).Name()))
		}
	}
	return list
}

var (
	opening = regexp.MustCompile(`^(message|service|  enum) (\w+) \{`)
	field   = regexp.MustCompile(`^  (repeated )?(\w+) (\w+) = (\d+);`)
	method  = regexp.MustCompile(`^  rpc (\w+)\(`)
)

// The contract that people read is the one that is compiled: a field that is
// changed in loop.proto alone is found.
func TestTheGeneratedCodeIsThatOfTheContract(t *testing.T) {
	text, err := os.ReadFile("loop.proto")
	if err != nil {
		t.Fatal(err)
	}
	written, in := map[string]bool{}, ""
	for _, line := range regexp.MustCompile(`\n`).Split(string(text), -1) {
		if m := opening.FindStringSubmatch(line); m != nil && m[1] != "  enum" {
			in = m[2]
		} else if m := field.FindStringSubmatch(line); m != nil {
			written[fmt.Sprintf("%s.%s = %s %v %s", in, m[3], m[4], m[1] != "", m[2])] = true
		} else if m := method.FindStringSubmatch(line); m != nil {
			written[in+"."+m[1]] = true
		}
	}
	got := generated()
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys(written)); !slices.Equal(got, want) {
		t.Errorf("generated are\n%q\nin loop.proto stand\n%q\nrun what looppb's package comment says", got, want)
	}
}
