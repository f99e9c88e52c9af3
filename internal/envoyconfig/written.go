package envoyconfig

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mark is how a rendered file begins. A file that lacks it is a person's.
const mark = "# Written by rlc"

// Written reports whether a file is one that Export wrote.
func Written(data []byte) bool { return bytes.HasPrefix(data, []byte(mark)) }

// WrittenFor reports whether Export wrote a file of the ratelimit service for the
// service whose path segment is given.
func WrittenFor(data []byte, segment string, segmentOf func(service string) string) bool {
	if !Written(data) {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "domain: "); ok {
			var domain string
			return yaml.Unmarshal([]byte(rest), &domain) == nil && segmentOf(domain) == segment
		}
	}
	return false
}
