package spell

import (
	"fmt"
	"slices"
	"strings"
)

// Variables says of each variable of an environment (name=value) that begins with
// prefix, is none of those that are read, and is spelt like one of them within most
// edits, what was meant: sorted. An empty variable is one that was not given.
func Variables(prefix string, environ, read []string, most int) (all []string) {
	bare := make([]string, len(read))
	for i, name := range read {
		bare[i] = strings.TrimPrefix(name, prefix)
	}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours || value == "" || slices.Contains(bare, rest) {
			continue
		}
		if near := Nearest(rest, bare, most); near != "" {
			all = append(all, fmt.Sprintf("nothing reads the variable %s; did you mean %s?", name, prefix+near))
		}
	}
	slices.Sort(all)
	return all
}
