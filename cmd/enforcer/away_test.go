package main

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// Counters and snapshots both come from a Redis that is away when the enforcer
// starts: it runs and is not ready, or serves what it kept, and needs no second
// start when Redis comes.
func TestItStartsWithoutRedisAndServesTheLastGood(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Stop()
	state := t.TempDir()
	p := launch(t, "--redis", redis.URL(), "--state", state)
	p.until("/readyz", func(status int, body string) bool {
		return status == 503 && strings.Contains(body, "no snapshot yet") && strings.Contains(body, "redis at "+redis.Addr())
	})
	if status, _ := p.get("/healthz"); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	if got := p.outcomes(3); got != "admit admit admit" {
		t.Errorf("without a snapshot: %s", got)
	}
	redis.Start()
	rlcSide := publisher(t, redis.URL(), "")
	if err := rlcSide.Publish(t.Context(), busSnapshot(1, 2)); err != nil {
		t.Fatal(err)
	}
	p.snapshot("7.1")
	if code := p.stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.logged())
	}
	redis.Stop()

	again := launch(t, "--redis", redis.URL(), "--state", state)
	if _, body := again.get("/v1/config"); !strings.Contains(body, `"snapshot":"7.1"`) {
		t.Errorf("the first answer of a restart: %s", body)
	}
	// Its counters are away, too: the bucket's limit holds in this process.
	if got := again.outcomes(3); got != "admit admit drop" {
		t.Errorf("the last good one, burst 2: %s", got)
	}
	again.until("/readyz", func(status int, body string) bool {
		return status == 200 && strings.Contains(body, "the source of snapshots cannot be read: redis at "+redis.Addr())
	})
	redis.Start()
	again.snapshot("7.1")
	if err := rlcSide.Publish(t.Context(), busSnapshot(2, 5)); err != nil {
		t.Fatal(err)
	}
	again.snapshot("7.2")
	if code := again.stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, again.logged())
	}
}
