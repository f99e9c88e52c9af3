package loopstate

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/openrlc/rlc/enforcer/loop"
)

func TestAStateInWords(t *testing.T) {
	got, err := json.Marshal(Of([]loop.BucketState{
		{Bucket: "s\x00callers\x00callers/caller=web", Scope: loop.Global, Limit: 100, Offered: [loop.Classes]float64{10, 150, 40}, Admitted: 100,
			Keep: loop.Keep{1, 0.6, 0}, Nodes: 4, Zones: 2, Peak: 250},
		{Bucket: "s\x00cap", Scope: loop.Zone, Area: loop.Place{Zone: "z", Region: "r"}, None: true, Keep: loop.Keep{1, 1, 1}},
	}, []loop.ZoneState{{Source: loop.Source{Place: loop.Place{Zone: "z", Region: "r"}, Name: "a"}, Age: 250 * time.Millisecond, Members: 4, Flagged: []string{"liar"}, Left: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"buckets":[` +
		`{"service":"s","bucket":"callers","key":"caller=web","scope":"global","limit":100,"offered":200,"admitted":100,"drop_ratio":0.4,"peak_rate":250,"nodes":4,"zones":2},` +
		`{"service":"s","bucket":"cap","scope":"zone","zone":"z","region":"r","limit":null,"offered":0,"admitted":0,"drop_ratio":0,"peak_rate":0,"nodes":0,"zones":0}],` +
		`"zones":[{"zone":"z","region":"r","aggregator":"a","age_seconds":0.25,"flagged":["liar"]}]}`
	if string(got) != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}
