package distribute

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// Five hundred enforcers come at once, and once more when Redis has dropped
// every connection: all have the newest snapshot, each has loaded each version
// once, and the leader lists them all.
func TestFiveHundredFollowersThatComeAtOnceConverge(t *testing.T) {
	const n = 500
	server := redistest.Start(t)
	leader := redis(t, server, RedisConfig{})
	running(t, leader)
	publish(t, leader, 1, 1)

	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	var loads [n]atomic.Int64 // of another version than the one before
	began, used := time.Now(), processor(t)
	for i := range n {
		b, err := NewRedis(RedisConfig{URL: server.URL(), Poll: 10 * time.Second, Repeat: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		following.Go(func() {
			defer b.Close()
			var have rlc.Version
			_ = b.Follow(ctx, func(m Message) rlc.Ack { // it ends with the test
				if m.Snapshot != nil && m.Snapshot.Version != have {
					have = m.Snapshot.Version
					loads[i].Add(1)
				}
				return rlc.Ack{Enforcer: fmt.Sprintf("e%03d", i), Zone: fmt.Sprintf("z%d", i%5), Version: have}
			})
		})
	}
	t.Cleanup(func() { cancel(); following.Wait() })
	converged := func(want rlc.Version) {
		t.Helper()
		deadline, tick := time.After(2*time.Minute), time.NewTicker(20*time.Millisecond)
		defer tick.Stop()
		for have := 0; have < n; {
			select {
			case <-deadline:
				t.Fatalf("%d of %d have %s", have, n, want)
			case <-tick.C:
			}
			acks, err := leader.Acks(t.Context())
			if err != nil {
				continue // it was dropped, too
			}
			have = 0
			for _, a := range acks {
				if a.Version == want {
					have++
				}
			}
		}
		t.Logf("%d followers have %s and say so after %s, %s of processor time, theirs included", n, want, time.Since(began).Round(time.Millisecond), (processor(t) - used).Round(10*time.Millisecond))
	}
	converged(v(1, 1))

	began, used = time.Now(), processor(t)
	server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	server.Do("CLIENT", "KILL", "TYPE", "normal")
	eventually(t, "the leader, whose connection was dropped as well, publishes", func() bool {
		return leader.Publish(t.Context(), Message{Snapshot: snapshot(1, 2)}) == nil
	})
	converged(v(1, 2))
	for i := range n {
		if got := loads[i].Load(); got != 2 {
			t.Errorf("follower %d loaded %d times, want each of two versions once", i, got)
		}
	}
}

// processor is the time that this process has computed.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// A fleet on its way from one version of the programs to the next: what a newer
// one adds to a document or an acknowledgement is passed over by an older one,
// what an older one does not say is absent, and what cannot be read is refused
// by name.
func TestProgramsOfDifferentAgeReadEachOther(t *testing.T) {
	newer := `{"version":"1.2","commit":"c","signed_by":"k","files":[{"name":"f","size":3,"mode":"0644"}]}` + "\nnew"
	d := document{head: head{version: v(1, 2)}, sum: digest([]byte(newer)), encoding: "plain", body: []byte(newer)}
	var m Message
	want := Message{Snapshot: &rlc.Snapshot{Version: v(1, 2), Commit: "c", Files: rlc.Files{"f": []byte("new")}}}
	if err := d.unpack(snapshotDoc, &m); err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("a newer publisher's snapshot: %+v, %v", m.Snapshot, err)
	}
	d.encoding = "zstd"
	if err := d.unpack(snapshotDoc, &m); !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), `encoding "zstd" is not known to this version`) {
		t.Errorf("an encoding of tomorrow: %v", err)
	}
	for text, want := range map[string]rlc.Ack{
		`{"enforcer":"old","version":"1.1"}`:                                             {Enforcer: "old", Version: v(1, 1)},
		`{"enforcer":"new","version":"1.2","overrides":"1.7","load":0.5,"features":[1]}`: {Enforcer: "new", Version: v(1, 2), Overrides: v(1, 7)},
	} {
		want.At = time.UnixMicro(5).UTC()
		if got, err := decodeAck("5 " + text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
