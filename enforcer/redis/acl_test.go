package redis

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// The users that are shipped can do what RLC does, and nothing to others.
func TestTheShippedUsersCanDoTheirWorkAndNoMore(t *testing.T) {
	shipped, err := os.ReadFile("../../deploy/redis-users.acl")
	if err != nil {
		t.Fatal(err)
	}
	hash := func(password string) string {
		sum := sha256.Sum256([]byte(password))
		return hex.EncodeToString(sum[:])
	}
	text := strings.NewReplacer("<sha256-of-the-enforcers-password>", hash("enf"), "<sha256-of-the-servers-password>", hash("srv")).Replace(string(shipped))
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t, "--aclfile", file)

	c := counter(t, "redis://rlc-enforcer:enf@"+server.Addr(), Config{Prefix: "rlc:", LeaseFrom: 1})
	for _, l := range []gcra.Limit{compile(t, 10, 10), window(t, rlc.FixedWindow, false), window(t, rlc.FixedWindow, true), window(t, rlc.SlidingWindow, false), window(t, rlc.SlidingLog, false)} {
		s := c.Set([]gcra.Charge{{Bucket: l.String(), Limit: l}}).(*Set)
		for range 30 {
			take(t, s, time.Now().UnixMicro(), 1)
		}
		if err := s.Settle(t.Context(), time.Now().UnixMicro(), -2); err != nil {
			t.Error(err)
		}
	}
	c.watch(t.Context())
	if c.restarts.looked.Load() == 0 {
		t.Error("an enforcer cannot see the server's run id")
	}
	if _, err := counter(t, "redis://rlc-enforcer:enf@"+server.Addr(), Config{Prefix: "other:"}).Set([]gcra.Charge{{Bucket: "b", Limit: compile(t, 1, 1)}}).Take(t.Context(), 0, 1); reason(err) != NoScript {
		t.Errorf("another's keys: %v", err)
	}
	if _, err := counter(t, server.URL(), Config{}).Set([]gcra.Charge{{Bucket: "b", Limit: compile(t, 1, 1)}}).Take(t.Context(), 0, 1); err == nil {
		t.Error("somebody without a password got in")
	}

	for _, user := range []string{"rlc-enforcer:enf", "rlc-server:srv"} {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, ForceSingleClient: true,
			Username: strings.Split(user, ":")[0], Password: strings.Split(user, ":")[1]})
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"FLUSHALL", "FLUSHDB", "KEYS *", "SCAN 0", "RANDOMKEY", "CONFIG GET *", "SCRIPT FLUSH", "SCRIPT LOAD x", "FUNCTION FLUSH", "SHUTDOWN", "ACL LIST", "MONITOR", "REPLICAOF NO ONE", "GET other", "SET other x", "DUMP rlc:b:x", "SWAPDB 0 1", "CLIENT LIST"} {
			words := strings.Fields(command)
			err := client.Do(context.Background(), client.B().Arbitrary(words...).Build()).Error()
			if r, ok := rueidis.IsRedisErr(err); !ok || !strings.HasPrefix(r.Error(), "NOPERM") {
				t.Errorf("%s may %s: %v", user, command, err)
			}
		}
		client.Close()
	}
}
