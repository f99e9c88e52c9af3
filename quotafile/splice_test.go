package quotafile_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

func TestAModeIsSplicedInAndNothingElseMoves(t *testing.T) {
	const head = "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: checkout # é the till\nbuckets:\n"
	for _, c := range []struct {
		name, before string
		zones        []string
		after        string
	}{
		{"a block without either", "  # ours\n  - name: a # first\n    each: [caller]\n  - name: b\n", []string{"z1"},
			"  # ours\n  - name: a # first\n    rollout: {zones: [\"z1\"]}\n    mode: enforce\n    each: [caller]\n  - name: b\n"},
		{"a block with both", "  - name: a\n    mode: shadow   # for now\n    rollout:\n      zones:\n        - z1\n    each: [caller] # k\n", []string{"z1", "z 2"},
			"  - name: a\n    mode: enforce   # for now\n    rollout: {zones: [\"z1\", \"z 2\"]}\n    each: [caller] # k\n"},
		{"everywhere", "  - name: a\n    mode: enforce\n    # zones so far\n    rollout: {zones: [z1]}\n    each: [caller]\n", nil,
			"  - name: a\n    mode: enforce\n    # zones so far\n    each: [caller]\n"},
		{"braces", "  - {each: [caller], name: \"a\", mode: 'shadow', match: {procedure: Get}}\n", []string{"z1"},
			"  - {each: [caller], name: \"a\", rollout: {zones: [\"z1\"]}, mode: enforce, match: {procedure: Get}}\n"},
		{"braces, everywhere", "  - {name: a, rollout: {zones: [z1, z2]}, mode: enforce}\n", nil, "  - {name: a, mode: enforce}\n"},
		{"the first entry goes", "  - rollout: {zones: [z1]}\n    name: a\n", nil, "  - name: a\n    mode: enforce\n"},
		{"no newline at the end", "  - name: a", nil, "  - name: a\n    mode: enforce\n"},
	} {
		got, err := quotafile.SetRollout([]byte(head+c.before), "a", rlc.Enforce, c.zones)
		if err != nil || string(got) != head+c.after {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.name, err, got, head+c.after)
		}
	}
	if _, err := quotafile.SetRollout([]byte(head+"  - name: b\n"), "a", rlc.Enforce, nil); !errors.Is(err, rlc.ErrNotFound) {
		t.Errorf("a bucket that is not there: %v", err)
	}
}

// Whatever the file looks like, a splice changes the two keys alone or is
// refused, and the file stays valid.
func TestASpliceIsRightOrRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.Permutation([]string{"name: a", "each: [caller]", "mode: shadow", "rollout: {zones: [x, y]}", "algorithm: leaky_bucket"}).Draw(t, "entries")
		comment := rapid.SampledFrom([]string{"", " # c", "  # rollout: no"}).Draw(t, "comment")
		var text string
		if rapid.Bool().Draw(t, "braces") {
			text = "  - {" + strings.Join(entries, ", ") + "}" + comment + "\n"
		} else {
			text = "  - " + strings.Join(entries, comment+"\n    ") + comment + "\n"
		}
		var zones []string
		if rapid.Bool().Draw(t, "zones") {
			zones = rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9-]{0,6}`), 1, 3, rapid.ID).Draw(t, "list")
		}
		file := "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: checkout\nbuckets:\n" + text
		got, err := quotafile.SetRollout([]byte(file), "a", rlc.Enforce, zones)
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		c := quotafile.Parse(rlc.Files{"services/checkout/policy.yaml": got}, nil)
		svc := c.Service("checkout")
		if svc == nil {
			t.Fatalf("%v\n%s", c.Problems, got)
		}
		if b := svc.Buckets[0]; b.Mode != rlc.Enforce || strings.Join(b.Rollout, ",") != strings.Join(zones, ",") || b.Algorithm != rlc.LeakyBucket {
			t.Fatalf("%+v\n%s", b, got)
		}
		if strings.Count(string(got), "#") != strings.Count(file, "#") && zones != nil {
			t.Fatalf("a comment was lost:\n%s\n%s", file, got)
		}
	})
}
