package quotafile_test

import (
	"os"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// The examples of docs/config.md, put together, are valid.
func TestTheDocumentedExamplesAreValid(t *testing.T) {
	page, err := os.ReadFile("../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")
	var found []string
	for _, b := range blocks[1:] {
		text, _, _ := strings.Cut(b, "```")
		found = append(found, text)
	}
	if len(found) != 5 {
		t.Fatalf("%d examples, want 5", len(found))
	}
	first, policy, buckets, profile, quotas := found[0], found[1], found[2], found[3], found[4]
	policy = "apiVersion: rlc/v1\nkind: ServicePolicy\n" + strings.Replace(policy, "buckets: […]                     # required\n", buckets, 1)
	for _, key := range []string{"refused", "healthy", "complete", "peaks"} {
		profile = strings.Replace(profile, key+": …", key+`: x{service="${service}"}`, 1)
	}
	for name, files := range map[string]rlc.Files{
		"first": {"services/checkout/policy.yaml": []byte(first)},
		"all": {
			"services/checkout/policy.yaml": []byte(policy), "services/checkout/quotas.yaml": []byte(quotas),
			"profiles/grpc.yaml": []byte(profile), "contracts/acme-2026.yaml": []byte(acme),
		},
	} {
		c := quotafile.Parse(files, nil)
		if err := c.Valid(); err != nil || c.Service("checkout") == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
