package web_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// regional adds the service edge: 1000/s in eu and 200/s in us, each region with
// a quota of its own beside the one over both.
func regional(t *testing.T) (*fixture, http.Handler) {
	f := newFixture(t)
	f.files["services/edge/policy.yaml"] = []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: edge\nfailover: [{lose: us, to: {eu: 1.0}}]\nbuckets:\n  - {name: all, scope: region}\n")
	quota := func(region string, rate rlc.Rate) rlc.Quota {
		return rlc.Quota{Bucket: "all", Region: region, Limit: rlc.Limit{Rate: rate, Burst: rlc.Burst(2 * rate)}, Why: "of " + region}
	}
	f.files[quotafile.QuotasPath("edge")] = quotafile.MarshalQuotas("edge", []rlc.Quota{quota("", 1560), quota("eu", 1560), quota("us", 190)})
	f.desired, f.live = quotafile.Parse(f.files, policies.Builtin().Check), quotafile.Parse(f.files, nil)
	if f.desired.Service("edge") == nil {
		t.Fatal(f.desired.Problems)
	}
	steady := func(rate float64) rlc.History {
		return stat.Summarise(time.Minute, runAt.Add(-28*24*time.Hour), slices.Repeat([]float64{rate}, 28*24*60))
	}
	f.history["edge|all"], f.history["edge|all/region=eu"], f.history["edge|all/region=us"] = steady(1200), steady(1000), steady(200)
	return f, f.handler(t)
}

func TestEachRegionsQuotaIsARowOfItsOwn(t *testing.T) {
	_, h := regional(t)
	var answer struct {
		Buckets []struct {
			Bucket string
			Region any
			Live   rlc.Limit
		}
	}
	if err := json.Unmarshal(get(h, "/api/v1/services/edge/buckets").Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	got := map[string][2]any{}
	for _, b := range answer.Buckets {
		got[b.Bucket] = [2]any{float64(b.Live.Rate), b.Region}
	}
	want := map[string][2]any{"all": {1560.0, nil}, "all@eu": {1560.0, "eu"}, "all@us": {190.0, "us"}}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for path, holds := range map[string]string{
		"/services/edge/buckets/all":    "1,560",
		"/services/edge/buckets/all@us": "190",
	} {
		if w := get(h, path); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), holds) {
			t.Errorf("%s: %d, without %s", path, w.Code, holds)
		}
	}
}

// us asks for 200/s of its 190/s; eu fits, and the traffic of both together is
// charged against neither.
func TestAReplayChargesEachRegionItsOwnTraffic(t *testing.T) {
	_, h := regional(t)
	out := asked(t, h, "/api/v1/replay", `{"service":"edge","from":"2026-12-01T06:00:00Z","until":"2026-12-02T06:00:00Z"}`)
	refused := map[string]bool{}
	for _, c := range out["callers"].([]any) {
		c := c.(map[string]any)
		refused[c["bucket"].(string)] = c["refused"].(float64) > 0
	}
	if len(refused) != 2 || refused["all@eu"] || !refused["all@us"] {
		t.Errorf("%v", refused)
	}
}

func TestABacktestOfARegionIsOfItsTraffic(t *testing.T) {
	_, h := regional(t)
	out := asked(t, h, "/api/v1/backtest", `{"service":"edge","bucket":"all@us","rate":100,"burst":1,"from":"2026-12-01T06:00:00Z","until":"2026-12-02T06:00:00Z"}`)
	if requests := out["requests"].(float64); requests != 200*86400 {
		t.Errorf("%v requests, want %v", requests, 200*86400)
	}
}

// A request from us is counted by the quota of us; from a region without one, and
// where nobody says from which, by the one over all.
func TestARequestsRegionDecidesWhichQuotaCountsIt(t *testing.T) {
	_, h := regional(t)
	for query, want := range map[string]string{"&region=us": "all@us", "&region=ap": "all", "": "all"} {
		var out struct{ Bucket string }
		if err := json.Unmarshal(get(h, "/api/v1/why?service=edge"+query).Body.Bytes(), &out); err != nil || out.Bucket != want {
			t.Errorf("%q: %q, %v, want %s", query, out.Bucket, err, want)
		}
	}
}

// What rlc explain edge all@us asks for.
func TestARegionsExplanationIsOfItsOwnSteps(t *testing.T) {
	f, h := regional(t)
	change := func(region string, rate rlc.Rate) rlc.Change {
		l := &rlc.Limit{Rate: rate, Burst: rlc.Burst(2 * rate)}
		return rlc.Change{RunID: "regions", Service: "edge", Bucket: "all", Region: region, At: runAt, Old: l, New: l, Why: "w",
			Reasons: []rlc.Reason{{Rule: "weekly_peak", Detail: "peak of <" + region + ">", Rate: rate, Acted: true}}}
	}
	f.run(t, rlc.Run{ID: "regions", Trigger: rlc.ByPerson, Service: "edge", Now: runAt, Commit: f.commit.Hash, Stage: rlc.Finished, Result: rlc.ResultOK, Started: runAt.Add(time.Second), Finished: runAt.Add(time.Minute), Total: 3},
		[]rlc.Change{change("", 1560), change("eu", 1560), change("us", 190)}, nil)
	for bucket, want := range map[string]string{"all": "peak of <>", "all@eu": "peak of <eu>", "all@us": "peak of <us>"} {
		var out struct{ Explanation struct{ Text string } }
		if err := json.Unmarshal(get(h, "/api/v1/services/edge/buckets/"+bucket).Body.Bytes(), &out); err != nil || !strings.Contains(out.Explanation.Text, want) {
			t.Errorf("%s: %v\n%s", bucket, err, out.Explanation.Text)
		}
	}
}
