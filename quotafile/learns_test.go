package quotafile_test

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// A quota that drops and does not see what it dropped falls with its own drops:
// the validator says so where a person reads it, before it happens.
func TestAnEnforcingBucketThatDoesNotSeeItsDropsIsAWarning(t *testing.T) {
	const byHand, computed = ", limit: {rate: 5, burst: 10}", ""
	for name, c := range map[string]struct {
		profile, mode, limit string
		warned               bool
	}{
		"counts behind the limiter": {"grpc", "enforce", computed, true},
		"in shadow":                 {"grpc", "shadow", computed, false},
		"written by hand":           {"grpc", "enforce", byHand, false},
		"the enforcers' counters":   {"rlc", "enforce", computed, false},
	} {
		text := "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: s\nprofile: " + c.profile + "\nbuckets:\n  - {name: b, match: {procedure: Pay}, mode: " + c.mode + c.limit + "}\n"
		warned := false
		for _, p := range quotafile.Parse(rlc.Files{"services/s/policy.yaml": []byte(text)}, nil).Problems {
			if !p.Warning {
				t.Errorf("%s: %s", name, p)
			}
			warned = warned || strings.Contains(p.Message, "its quota learns from its own drops")
		}
		if warned != c.warned {
			t.Errorf("%s: warned %v, want %v", name, warned, c.warned)
		}
	}
}
