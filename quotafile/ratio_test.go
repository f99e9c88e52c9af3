package quotafile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

func TestASmallDropRatioIsAdvisedAgainst(t *testing.T) {
	for _, c := range []struct {
		algorithm string
		rate      int
		warned    bool
	}{{"drop_ratio", 99, true}, {"drop_ratio", 100, false}, {"token_bucket", 5, false}} {
		policy := fmt.Sprintf("apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\nbuckets:\n  - {name: b, algorithm: %s, limit: {rate: %d, burst: 10}}\n", c.algorithm, c.rate)
		set := quotafile.Parse(rlc.Files{"services/s/policy.yaml": []byte(policy)}, nil)
		warned := false
		for _, p := range set.Problems {
			warned = warned || p.Warning && strings.Contains(p.Message, "drop_ratio below 100 requests/s")
		}
		if err := set.Valid(); err != nil || warned != c.warned {
			t.Errorf("%s at %d: warned %v, %v; want %v\n%v", c.algorithm, c.rate, warned, err, c.warned, set.Problems)
		}
	}
}
