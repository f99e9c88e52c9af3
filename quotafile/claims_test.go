package quotafile_test

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// Two services that render to one file would take turns at it.
func TestATargetBelongsToOneService(t *testing.T) {
	policy := func(service string) []byte {
		return []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: " + service + "\nbuckets: [{name: b}]\ntargets: [{kind: envoy-ratelimit, path: gateway/limits.yaml}]\n")
	}
	c := quotafile.Parse(rlc.Files{"services/a/policy.yaml": policy("a"), "services/b/policy.yaml": policy("b")}, nil)
	want := `services/b/policy.yaml:1:1: target "gateway/limits.yaml" is written for service "a" already; give each service a file of its own`
	if got := strings.Join(lines(errorsOf(c.Problems)), "|"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(c.Services) != 1 || c.Services[0].Name != "a" || len(c.Broken["b"]) != 1 {
		t.Errorf("services %v, broken %v; want a, and b broken", c.Services, c.Broken)
	}
}
