package distribute

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// bus is what Hub and Redis have in common.
type bus interface {
	Publish(ctx context.Context, m Message) error
	Follow(ctx context.Context, apply func(Message) rlc.Ack) error
	Acks(ctx context.Context) ([]rlc.Ack, error)
}

// patience bounds what a test waits for; nothing is asserted about time.
const patience = 30 * time.Second

// following runs a follower until the test ends and returns what it is given.
// Its acknowledgements are named by name.
func following(t *testing.T, b bus, name string) <-chan Message {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	got, done := make(chan Message), make(chan error, 1)
	go func() {
		var f follower
		done <- b.Follow(ctx, func(m Message) rlc.Ack {
			f.newest.Merge(m)
			select {
			case got <- m:
			case <-ctx.Done():
			}
			return rlc.Ack{Enforcer: name, Zone: "z " + name, Version: f.newest.version(snapshotDoc), Refused: "r " + name}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Follow: %v", err)
		}
	})
	return got
}

// await takes messages until one is as wanted.
func await(t *testing.T, got <-chan Message, what string, ok func(Message) bool) Message {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case m := <-got:
			if ok(m) {
				return m
			}
		case <-deadline:
			t.Fatalf("no message: %s", what)
		}
	}
}

func has(v rlc.Version) func(Message) bool {
	return func(m Message) bool { return m.Snapshot != nil && m.Snapshot.Version == v }
}

// eventually asks again until the answer is as wanted.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func v(epoch, number uint64) rlc.Version { return rlc.Version{Epoch: epoch, Number: number} }

var errRefusal = errors.New("lacks half")

func TestBuses(t *testing.T) {
	check := func(prev *rlc.Snapshot, next rlc.Snapshot) error {
		if next.Commit == "bad" || prev != nil && prev.Commit == "last" {
			return errRefusal
		}
		return nil
	}
	t.Run("hub", func(t *testing.T) {
		conform(t, func(t *testing.T) bus { return hub(t, Config{Check: check, Repeat: 20 * time.Millisecond}) })
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t)
		n := 0
		conform(t, func(t *testing.T) bus {
			n++
			return redis(t, server, RedisConfig{Prefix: fmt.Sprintf("test%d:", n), Check: check})
		})
	})
}

// conform is the suite that every bus passes; open makes one with nothing
// published, whose check refuses a commit "bad" and anything after "last".
func conform(t *testing.T, open func(t *testing.T) bus) {
	publish := func(t *testing.T, b bus, m Message) {
		t.Helper()
		if err := b.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("followers get what is published before and after they come, and get it again", func(t *testing.T) {
		b := open(t)
		early := following(t, b, "early")
		publish(t, b, Message{Snapshot: snapshot(1, 1)})
		await(t, early, "1.1", has(v(1, 1)))
		late := following(t, b, "late")
		await(t, late, "1.1", has(v(1, 1)))
		publish(t, b, Message{Snapshot: snapshot(1, 2)})
		for _, f := range []<-chan Message{early, late} {
			await(t, f, "1.2", has(v(1, 2)))
			await(t, f, "1.2 again", has(v(1, 2)))
		}
	})
	t.Run("documents arrive byte for byte", func(t *testing.T) {
		b := open(t)
		noise := make([]byte, 300<<10)
		for i := range noise {
			noise[i] = byte(rand.Uint32())
		}
		want := Message{
			Snapshot: &rlc.Snapshot{Version: v(3, 1<<63+7), Commit: "c0ffee", RemovedBy: "ann, bob", Files: rlc.Files{
				"": {}, "a/ü\n{}": noise, "b": bytes.Repeat([]byte("text\r\n"), 50_000), "c": []byte("\x00\n"),
			}},
			Overrides: &Overrides{Version: v(1<<63, 1), Content: json.RawMessage(" {\"a\":\n1}\n")},
		}
		publish(t, b, want)
		if m := await(t, following(t, b, "e"), "both", func(Message) bool { return true }); !reflect.DeepEqual(m, want) {
			t.Error("what arrived is not what was published")
		}
	})
	t.Run("what does not follow is not published", func(t *testing.T) {
		b := open(t)
		publish(t, b, Message{Snapshot: snapshot(2, 9), Overrides: &Overrides{Version: v(0, 3)}})
		f := following(t, b, "e")
		other, bad := snapshot(2, 9), snapshot(2, 10)
		other.Files = rlc.Files{"f": []byte("other")}
		bad.Commit = "bad"
		again := snapshot(2, 9)
		again.RemovedBy = "somebody else's word" // the same files are the same snapshot
		for _, c := range []struct {
			name string
			m    Message
			want error
		}{
			{"the same again", Message{Snapshot: again}, nil},
			{"nothing", Message{}, nil},
			{"an older number", Message{Snapshot: snapshot(2, 8)}, rlc.ErrConflict},
			{"an older epoch with a higher number", Message{Snapshot: snapshot(1, 99)}, rlc.ErrConflict},
			{"other files under the same version", Message{Snapshot: other}, rlc.ErrConflict},
			{"what enforcers would refuse", Message{Snapshot: bad}, errRefusal},
			{"older overrides beside a newer snapshot", Message{Snapshot: snapshot(2, 11), Overrides: &Overrides{Version: v(0, 2)}}, rlc.ErrConflict},
			{"other overrides under the same version", Message{Overrides: &Overrides{Version: v(0, 3), Content: json.RawMessage(`{}`)}}, rlc.ErrConflict},
		} {
			if err := b.Publish(t.Context(), c.m); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			}
		}
		// Overrides change apart from the snapshot, and are the next thing heard.
		publish(t, b, Message{Overrides: &Overrides{Version: v(0, 4)}})
		await(t, f, "new overrides", func(m Message) bool {
			if m.Snapshot.Version != v(2, 9) || m.Snapshot.RemovedBy != "" || m.Overrides.Version.Number == 3 && len(m.Overrides.Content) > 0 {
				t.Fatalf("published %+v %+v", m.Snapshot, m.Overrides)
			}
			return m.Overrides.Version == v(0, 4)
		})
	})
	t.Run("a snapshot is checked against the one before", func(t *testing.T) {
		b := open(t)
		last := snapshot(1, 1)
		last.Commit = "last"
		publish(t, b, Message{Snapshot: last})
		if err := b.Publish(t.Context(), Message{Snapshot: snapshot(1, 2)}); !errors.Is(err, errRefusal) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("each follower's last word is kept", func(t *testing.T) {
		b := open(t)
		if a, err := b.Acks(t.Context()); err != nil || len(a) != 0 {
			t.Errorf("before any: %v %v", a, err)
		}
		publish(t, b, Message{Snapshot: snapshot(1, 1)})
		names := []string{"", "a\r\nSET x 1", "a{b}", "e1"} // the first has none, and only listens
		for _, name := range names {
			await(t, following(t, b, name), name, has(v(1, 1)))
		}
		eventually(t, "three acknowledgements", func() bool {
			acks, err := b.Acks(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range acks {
				got = append(got, a.Enforcer)
				if want := (rlc.Ack{Enforcer: a.Enforcer, Zone: "z " + a.Enforcer, Version: v(1, 1), Refused: "r " + a.Enforcer, At: a.At}); a != want {
					t.Fatalf("got %+v, want %+v", a, want)
				}
			}
			return slices.Equal(got, names[1:])
		})
	})
	t.Run("an ended context publishes nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b := open(t)
		if err := b.Publish(ctx, Message{Snapshot: snapshot(1, 1)}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		publish(t, b, Message{Snapshot: snapshot(1, 1)})
	})
}
