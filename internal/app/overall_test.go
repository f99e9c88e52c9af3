package app

import (
	"testing"

	"github.com/openrlc/rlc"
)

func TestARegionsQuotaIsPartOfTheOneOverAllWhereThereIsOne(t *testing.T) {
	t.Parallel()
	key := rlc.Key{"caller": "search"}
	o := overallOf([]rlc.Quota{{Bucket: "all"}, {Bucket: "all", Region: "eu"}, {Bucket: "callers", Key: key, Region: "eu"}, {Bucket: "zoned"}})
	for _, c := range []struct {
		q    rlc.Quota
		want bool
	}{
		{rlc.Quota{Bucket: "all"}, false},
		{rlc.Quota{Bucket: "all", Region: "eu"}, true},
		{rlc.Quota{Bucket: "zoned", Zone: "eu-1"}, true},
		{rlc.Quota{Bucket: "callers", Key: key, Region: "eu"}, false}, // nothing over all
	} {
		if got := o.part(c.q); got != c.want {
			t.Errorf("%s: part %v, want %v", c.q.ID(), got, c.want)
		}
	}
}
