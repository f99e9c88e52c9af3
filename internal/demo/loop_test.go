package demo

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/web"
)

// At any hour the surge is above the limit that its past leads to: the loop has
// something to drop.
func TestTheSurgeIsAboveItsLimitAtAnyHour(t *testing.T) {
	all := Series(testNow)
	surge := Surge()
	past := perMinute(all, testNow.Truncate(time.Minute).Add(-history), testNow, surge.Service, surge.Caller)
	limit := 1.3 * 1.15 * slices.Max(past) // headroom and the most growth
	live := perMinute(all, testNow.Truncate(time.Minute), testNow.Add(week), surge.Service, surge.Caller)
	if least := surge.Factor * slices.Min(live); least < 1.3*limit {
		t.Errorf("the surge offers %g/s at least, beside a limit of %g/s: want a ratio of a quarter or more", least, limit)
	}
}

// The three tiers in one process, over gRPC: what is offered above the limit
// becomes a drop ratio that the pages show, and in shadow virtual drops by it.
// They end with their context and leave nothing behind.
func TestTheLoopTellsARatioForTheSurge(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	hot := loop.NewClient(loop.ClientConfig{Node: node})
	a, err := app.Open(ctx, config.Server{Listen: "127.0.0.1:0", Data: t.TempDir()}, app.Options{Loop: hot})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	tiers, err := openRatios(a, hot, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tiers.Close()
	const quota = "apiVersion: rlc/v1\nkind: ServiceQuotas\nservice: recommend\nquotas:\n  - {bucket: callers, key: {caller: feature-builder}, rate: 200, burst: 400}\n"
	files := rlc.Files{"services/recommend/policy.yaml": ConfigFiles()["services/recommend/policy.yaml"], "services/recommend/quotas.yaml": []byte(quota)}
	if err := a.Enforcer.Load(rlc.Snapshot{Version: rlc.Version{Epoch: 1, Number: 1}, Files: files}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- tiers.run(running) }()

	surge := Surge()
	ask := enforcer.Request{Service: surge.Service, Attributes: rlc.Attributes{"caller": surge.Caller, "procedure": "Batch"}, Cost: 1}
	var told web.LoopBucket
	virtual := 0
	tick := time.NewTicker(10 * time.Millisecond) // 30 requests each: 3,000/s
	defer tick.Stop()
	for told.Ratio == 0 || virtual == 0 {
		select {
		case <-ctx.Done():
			t.Fatalf("no drop ratio within 20 s; the loop knows %+v, %d virtual drops", told, virtual)
		case <-tick.C:
		}
		for range 30 {
			d := a.Enforcer.Decide(ask)
			if d.Outcome == enforcer.Drop {
				t.Fatal("shadow drops")
			}
			if d.Outcome == enforcer.VirtualDrop && told.Ratio > 0 {
				virtual++
			}
		}
		state, err := a.LoopState(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range state.Buckets {
			if b.AsIf && b.Service == surge.Service && b.Ratio > told.Ratio {
				told = b
			}
		}
	}
	if told.Key != "caller=feature-builder" || told.Limit == nil || *told.Limit != 200 || told.Nodes != 1 || told.Zones != 1 || !(told.Offered > 200) {
		t.Errorf("the page is told %+v", told)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the tiers end with %v", err)
	}
}
