package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/distribute"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// publisher is what rlc does: it leads, publishes, and hears enforcers.
func publisher(t *testing.T, url, prefix string) *distribute.Redis {
	t.Helper()
	b, err := distribute.NewRedis(distribute.RedisConfig{
		URL: url, Prefix: prefix, Epoch: func() uint64 { return 7 }, Check: enforcer.Check,
		Poll: 100 * time.Millisecond, Repeat: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.Close()
	})
	return b
}

func busSnapshot(number uint64, burst int) distribute.Message {
	return distribute.Message{Snapshot: &rlc.Snapshot{
		Version: rlc.Version{Epoch: 7, Number: number}, Commit: fmt.Sprint("c", number),
		Files: rlc.Files{"services/s/policy.yaml": []byte(policy("s", burst))},
	}}
}

// acknowledged waits until exactly these words stand, each "name zone version".
func acknowledged(t *testing.T, b *distribute.Redis, want ...string) {
	t.Helper()
	deadline := time.After(90 * time.Second)
	for {
		acks, err := b.Acks(t.Context())
		var got []string
		for _, a := range acks {
			got = append(got, fmt.Sprintf("%s %s %s%s", a.Enforcer, a.Zone, a.Version, a.Refused))
		}
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("acknowledged %q (%v), want %q", got, err, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestTwoEnforcersFollowOneBusAndOutliveIt(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "s3cret")
	secret, state := t.TempDir(), t.TempDir()
	write(t, secret, "password", "s3cret\n")
	write(t, secret, "url", "redis://:s3cret@"+redis.Addr()+"/0\n")
	rlcSide := publisher(t, "redis://:s3cret@"+redis.Addr(), "")

	one := launchEnv(t, []string{"RLC_REDIS_FILE=" + filepath.Join(secret, "password")}, "--local-counters", "--redis", redis.URL(), "--name", "e1", "--zone", "z1", "--state", state)
	two := launchEnv(t, []string{"RLC_REDIS_FILE=" + filepath.Join(secret, "url")}, "--local-counters", "--name", "e2", "--zone", "z2")
	one.until("/readyz", func(status int, body string) bool {
		return status == 503 && strings.Contains(body, "none is published yet")
	})
	if err := rlcSide.Publish(t.Context(), busSnapshot(1, 2)); err != nil {
		t.Fatal(err)
	}
	acknowledged(t, rlcSide, "e1 z1 7.1", "e2 z2 7.1")
	for _, p := range []*process{one, two} {
		p.snapshot("7.1")
		if got := p.outcomes(3); got != "admit admit drop" {
			t.Errorf("burst 2: %s", got)
		}
		p.until("/readyz", func(status int, body string) bool { return status == 200 && strings.Contains(body, `"notes":[]`) })
	}

	// Redis goes: both go on, one of them over a restart.
	redis.Stop()
	for _, p := range []*process{one, two} {
		p.until("/readyz", func(status int, body string) bool {
			return status == 200 && strings.Contains(body, "the source of snapshots cannot be read: redis at "+redis.Addr())
		})
	}
	if code := one.stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, one.logged())
	}
	again := launchEnv(t, []string{"RLC_REDIS_FILE=" + filepath.Join(secret, "password")}, "--local-counters", "--redis", redis.URL(), "--name", "e1", "--zone", "z1", "--state", state)
	again.snapshot("7.1")
	if got := again.outcomes(3) + ", " + two.outcomes(1); got != "admit admit drop, drop" {
		t.Errorf("with Redis away, burst 2 full anew and used up: %s", got)
	}
	if err := rlcSide.Publish(t.Context(), busSnapshot(2, 5)); err == nil {
		t.Error("published without Redis")
	}

	// Redis comes back, empty: what was to be published arrives by itself.
	redis.Start()
	acknowledged(t, rlcSide, "e1 z1 7.2", "e2 z2 7.2")
	again.snapshot("7.2")
	two.snapshot("7.2")

	for _, p := range []*process{one, again, two} {
		p.stop()
		if strings.Contains(p.logged(), "s3cret") {
			t.Errorf("the password is in the log:\n%s", p.logged())
		}
	}
}

// Two installations share a Redis by different prefixes: each enforcer follows
// its own, and its counters are named so too.
func TestAnEnforcerFollowsThePrefixItIsGiven(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	ours, others := publisher(t, redis.URL(), "ours:"), publisher(t, redis.URL(), "others:")
	if err := others.Publish(t.Context(), busSnapshot(9, 50)); err != nil {
		t.Fatal(err)
	}
	if err := ours.Publish(t.Context(), busSnapshot(1, 2)); err != nil {
		t.Fatal(err)
	}
	one := launch(t, "--redis", redis.URL(), "--redis-prefix", "ours:", "--strict", "--redis-timeout", "1s", "--name", "e1")
	acknowledged(t, ours, "e1  7.1")
	one.snapshot("7.1")
	if got := one.outcomes(3); got != "admit admit drop" {
		t.Errorf("burst 2: %s", got)
	}
	for _, key := range redis.Do("KEYS", "*") {
		if !strings.HasPrefix(key, "ours:") && !strings.HasPrefix(key, "others:") {
			t.Errorf("key %q bears no prefix", key)
		}
	}
}

func TestEnforcersThatShareARedisShareTheirLimits(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	config := t.TempDir()
	write(t, config, "services/s/policy.yaml", policy("s", 5))
	one := launch(t, "--config-dir", config, "--redis", redis.URL(), "--strict", "--redis-timeout", "1s")
	two := launch(t, "--config-dir", config, "--redis", redis.URL(), "--strict", "--redis-timeout", "1s")
	one.snapshot("0.1")
	two.snapshot("0.1")
	if got := one.outcomes(2) + ", " + two.outcomes(2) + ", " + one.outcomes(2) + ", " + two.outcomes(1); got != "admit admit, admit admit, admit drop, drop" {
		t.Errorf("burst 5 between two: %s", got)
	}
	// Redis goes: each has a limit of its own, of which the other knows nothing.
	redis.Stop()
	if got := two.outcomes(7); got != "admit admit admit admit admit drop drop" {
		t.Errorf("with Redis away: %s", got)
	}
	two.until("/metrics", func(_ int, body string) bool {
		return strings.Contains(body, "rlc_enforcer_redis_breaker_open 1") && strings.Contains(body, `rlc_enforcer_fallbacks_total{bucket="callers",reason=`)
	})
}
