package quotafile_test

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

func rendering(service, path string) []byte {
	return []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: " + service + "\nbuckets: [{name: b}]\ntargets: [{kind: envoy-ratelimit, path: " + path + "}]\n")
}

// Two services that render to one file would take turns at it.
func TestATargetBelongsToOneService(t *testing.T) {
	for name, paths := range map[string][2]string{
		"one file":                {"gateway/limits.yaml", "gateway/limits.yaml"},
		"case":                    {"gateway/limits.yaml", "Gateway/Limits.yaml"},
		"a folder for a file":     {"gateway/limits.yaml", "gateway/limits.yaml/b.yaml"},
		"a file for a folder":     {"gateway/limits.yaml/b.yaml", "gateway/limits.yaml"},
		"a folder, letters apart": {"gateway/limits.yaml", "gateway/LIMITS.yaml/b.yaml"},
	} {
		c := quotafile.Parse(rlc.Files{"services/a/policy.yaml": rendering("a", paths[0]), "services/b/policy.yaml": rendering("b", paths[1])}, nil)
		want := `services/b/policy.yaml:1:1: target "` + paths[1] + `" stands where one is written for service "a" already; give each service a file of its own`
		if got := strings.Join(lines(errorsOf(c.Problems)), "|"); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if len(c.Services) != 1 || c.Services[0].Name != "a" || len(c.Broken["b"]) != 1 {
			t.Errorf("%s: services %v, broken %v; want a, and b broken", name, c.Services, c.Broken)
		}
	}
	c := quotafile.Parse(rlc.Files{"services/a/policy.yaml": rendering("a", "gateway/a.yaml"), "services/b/policy.yaml": rendering("b", "gateway/b.yaml")}, nil)
	if len(c.Services) != 2 {
		t.Errorf("files of one folder: %v", c.Problems)
	}
}

func TestATargetsNameIsOneThatEveryFileSystemKeeps(t *testing.T) {
	for path, ok := range map[string]bool{
		"platform/ratelimit/checkout.yaml": true, "a.yaml": true, "x/A_b-1.c.yaml": true,
		"SERVICES/x.yaml": false, "Services/checkout/p.yaml": false, "Defaults.yaml": false, "CON.yaml": false, "x/nul.a.yaml": false,
		`"e\u0301.yaml"`: false, `"\u202egpj.yaml"`: false, "GIT~1/x.yaml": false, ".git/x.yaml": false, "x/.y.yaml": false, "a b.yaml": false,
		"x./y.yaml": false, "x//y.yaml": false, "./y.yaml": false, "../y.yaml": false, "/y.yaml": false, "y.yml": false, "-x.yaml": false,
		strings.Repeat("x", 101) + "/y.yaml": false,
	} {
		c := quotafile.Parse(rlc.Files{"services/a/policy.yaml": rendering("a", path)}, nil)
		if got := len(errorsOf(c.Problems)) == 0; got != ok {
			t.Errorf("%s: taken %v, want %v: %v", path, got, ok, lines(c.Problems))
		}
	}
}
