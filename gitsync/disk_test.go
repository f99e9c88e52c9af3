package gitsync_test

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/disktest"
)

// within tries f until it succeeds: after a failure the server is not asked
// again at once.
func within(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for err := f(); err != nil; err = f() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal(err)
		}
	}
}

// large is text that does not compress below half of so many bytes.
func large(bytes int) string {
	b := make([]byte, bytes/2)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// D8: the disk under the repository is full, on the server and where RLC keeps
// it itself. Nothing of the proposal is there, the error says why, and with room
// again it is published.
func TestAFullDiskUnderTheRepositoryTakesNothingByHalf(t *testing.T) {
	for _, far := range []bool{true, false} {
		t.Run(map[bool]string{true: "on the server", false: "by its path"}[far], func(t *testing.T) {
			w := newWorld(t)
			w.Close()
			disk := disktest.Small(t, 1<<20)
			path := filepath.Join(disk, "config.git")
			w.git(w.path, "clone", "-q", "--mirror", w.path, path)
			if w.path = path; far {
				w.remote = newWebServer(t, path).config(t)
			}
			w.Repo = w.open(gitsync.Config{})
			was := w.rev("main")
			ballast := disktest.Fill(t, disk)
			p := proposal("checkout", "cron-1", set("checkout", "search", 0, 420))
			_, err := w.Publish(t.Context(), p)
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), "no space left") || strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "\n") {
				t.Errorf("published to a full disk: %v, want one line that says that there is no space", err)
			}
			if at := w.rev("rlc/checkout"); at != "" || w.rev("main") != was {
				t.Errorf("the review is at %q, main moved %t", at, w.rev("main") != was)
			}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			w.fsck()
			var out rlc.Proposal
			within(t, func() (err error) { out, err = w.Publish(t.Context(), p); return err })
			if out.State != rlc.Open || out.Commit != w.rev("rlc/checkout") {
				t.Errorf("with room again: %+v", out)
			}
			w.fsck()
		})
	}
}

// D8: the disk of the mirror is full. What was known stays, nothing is left
// behind, and with room again the mirror follows.
func TestAFullDiskUnderTheMirrorKeepsWhatIsKnown(t *testing.T) {
	for name, files := range map[string]int{"few objects": 1, "a pack": 150} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Close()
			s := newWebServer(t, w.path)
			w.remote = s.config(t)
			w.remote.Dir = disktest.Small(t, 1<<20)
			w.Repo = w.open(gitsync.Config{})
			known, _, err := w.Head(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			for n := range files {
				paths = append(paths, "notes/"+strings.Repeat("x", n+1))
			}
			w.pushEach(paths, func(int) string { return large(200_000 / files) })
			ballast := disktest.Fill(t, w.remote.Dir)
			_, _, err = w.Head(t.Context())
			if err == nil || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("followed onto a full disk: %v, want it to say that there is no space", err)
			}
			for _, left := range []string{"*.tmp", "packed-refs.new", "objects/pack/tmp*", "objects/pack/.tmp*"} {
				if all, _ := filepath.Glob(filepath.Join(w.remote.Dir, "mirror.git", left)); all != nil {
					t.Errorf("left behind: %v", all)
				}
			}
			if _, err := w.At(t.Context(), time.Now()); err != nil {
				t.Errorf("what was known: %v", err)
			}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			within(t, func() error {
				now, _, err := w.Head(t.Context())
				if err == nil && (now.Hash == known.Hash || now.Hash != w.rev("main")) {
					t.Errorf("with room again the head is %s, want %s", now.Hash, w.rev("main"))
				}
				return err
			})
		})
	}
}
