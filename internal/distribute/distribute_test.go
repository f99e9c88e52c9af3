package distribute

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

func snapshot(epoch, number uint64) *rlc.Snapshot {
	return &rlc.Snapshot{Version: rlc.Version{Epoch: epoch, Number: number}, Files: rlc.Files{"f": fmt.Appendf(nil, "%d.%d", epoch, number)}}
}

func hub(t *testing.T, c Config) *Hub {
	t.Helper()
	if c.Check == nil {
		c.Check = func(*rlc.Snapshot, rlc.Snapshot) error { return nil }
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// follower keeps what it was given, as an enforcer does.
type follower struct {
	newest Message
	got    []string
}

func (f *follower) apply(m Message) rlc.Ack {
	f.newest.Merge(m)
	f.got = append(f.got, m.Snapshot.Version.String())
	return rlc.Ack{Enforcer: "e1", Version: f.newest.Snapshot.Version}
}

func TestAHubWithoutACheckIsNotMade(t *testing.T) {
	if _, err := New(Config{}); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

func TestFollowersGetWhatIsPublishedBeforeAndAfterTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var acks []string
		h := hub(t, Config{Repeat: time.Hour, OnAck: func(a rlc.Ack) { acks = append(acks, a.Version.String()) }})
		if err := h.Publish(ctx, Message{Snapshot: snapshot(1, 1)}); err != nil {
			t.Fatal(err)
		}
		var f follower
		done := make(chan error)
		go func() { done <- h.Follow(ctx, f.apply) }()
		synctest.Wait()
		if err := h.Publish(ctx, Message{Snapshot: snapshot(1, 2)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if want := []string{"1.1", "1.2"}; !slices.Equal(f.got, want) || !slices.Equal(acks, want) {
			t.Errorf("got %v acknowledged %v, want %v", f.got, acks, want)
		}
		if a, _ := h.Acks(t.Context()); len(a) != 1 || a[0].Version != (rlc.Version{Epoch: 1, Number: 2}) {
			t.Errorf("acks %+v", a)
		}
	})
}

func TestTheNewestMessageIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		h := hub(t, Config{})
		if err := h.Publish(ctx, Message{Snapshot: snapshot(1, 1)}); err != nil {
			t.Fatal(err)
		}
		var f follower
		if err := h.Follow(ctx, f.apply); err != nil {
			t.Fatal(err)
		}
		// At 0, 10 and 20 seconds.
		if want := []string{"1.1", "1.1", "1.1"}; !slices.Equal(f.got, want) {
			t.Errorf("got %v, want %v", f.got, want)
		}
	})
}

func TestLateDoubledAndReorderedMessagesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.Custom(func(t *rapid.T) rlc.Version {
			return rlc.Version{Epoch: rapid.Uint64Range(0, 3).Draw(t, "epoch"), Number: rapid.Uint64Range(0, 9).Draw(t, "number")}
		})
		var newest Message
		var top, topOverrides rlc.Version
		for range rapid.IntRange(1, 60).Draw(t, "deliveries") {
			var m Message
			if rapid.Bool().Draw(t, "snapshot") {
				v := version.Draw(t, "v")
				m.Snapshot = snapshot(v.Epoch, v.Number)
			}
			if rapid.Bool().Draw(t, "overrides") {
				m.Overrides = &Overrides{Version: version.Draw(t, "o")}
			}
			before := newest
			changed := newest.Merge(m)
			if changed != (newest != before) {
				t.Fatalf("reported %v for %+v after %+v", changed, newest, before)
			}
			if m.Snapshot != nil && m.Snapshot.Version.Compare(top) > 0 {
				top = m.Snapshot.Version
			}
			if m.Overrides != nil && m.Overrides.Version.Compare(topOverrides) > 0 {
				topOverrides = m.Overrides.Version
			}
			if newest.Snapshot != nil && newest.Snapshot.Version != top || newest.Overrides != nil && newest.Overrides.Version != topOverrides {
				t.Fatalf("at %+v, want %s and %s", newest, top, topOverrides)
			}
		}
	})
}

func TestAnEnforcerThatGoesBackIsReported(t *testing.T) {
	var log strings.Builder
	h := hub(t, Config{Log: textLog(&log)})
	h.acknowledge(rlc.Ack{Enforcer: "e1", Version: rlc.Version{Number: 2}})
	h.acknowledge(rlc.Ack{Enforcer: "e1", Version: rlc.Version{Number: 1}, Refused: "half a file"})
	for _, want := range []string{"older snapshot", "half a file"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log lacks %q:\n%s", want, &log)
		}
	}
}

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
