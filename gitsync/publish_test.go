package gitsync_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/quotafile"
)

const quotas = "services/checkout/quotas.yaml"

func TestPublishPutsOneValidCommitOnTheBaseTip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	base := w.rev("main")
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420), set("checkout", "web", 0, 60)))

	want := proposal("checkout", "cron-1", p.Changes...)
	want.State, want.Branch, want.Commit, want.Base, want.Content = rlc.Open, "rlc/checkout", w.rev("rlc/checkout"), base, p.Content
	if !reflect.DeepEqual(p, want) {
		t.Errorf("published %+v, want %+v", p, want)
	}
	if got := w.rev("rlc/checkout^"); got != base {
		t.Errorf("the commit's parent is %s, want the base tip %s", got, base)
	}
	if w.rev("main") != base {
		t.Error("publishing moved the base branch")
	}
	if got, want := w.rates("rlc/checkout", "checkout"), (map[string]float64{"search": 420, "web": 60}); !maps.Equal(got, want) {
		t.Errorf("quotas %v, want %v", got, want)
	}
	if got := w.git(w.path, "diff", "--name-only", "main", "rlc/checkout"); got != quotas {
		t.Errorf("changed files %q, want %q only", got, quotas)
	}
	_, qs, _ := quotafile.ParseQuotas("", []byte(w.show("rlc/checkout", quotas)+"\n"))
	if p.Content != quotafile.Hash(qs) {
		t.Error("Content is not the hash of what the branch holds")
	}
	for trailer, want := range map[string]string{"RLC-Run": "cron-1", "RLC-Service": "checkout", "RLC-Epoch": "0"} {
		if got := w.git(w.path, "log", "-1", "--format=%(trailers:key="+trailer+",valueonly)", "rlc/checkout"); got != want {
			t.Errorf("git reads trailer %s as %q, want %q", trailer, got, want)
		}
	}
	w.fsck()
}

func TestPublishTwiceIsPublishOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask := proposal("checkout", "cron-1", set("checkout", "search", 0, 420))
	first := w.publish(ask)
	// As after a crash: the proposal as the records know it, a new process.
	w.Close()
	w.Repo = w.open(gitsync.Config{})
	second := w.publish(ask)
	if !reflect.DeepEqual(first, second) {
		t.Errorf("second call: %+v, first: %+v", second, first)
	}
	if n := w.git(w.path, "rev-list", "--count", "main..rlc/checkout"); n != "1" {
		t.Errorf("%s commits on the branch, want 1", n)
	}
}

func TestANewRunRebuildsTheReviewOnTheMovedBase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.push("a note", map[string]string{"README.md": "hello"})
	p := w.publish(proposal("checkout", "cron-2", set("checkout", "search", 0, 500)))
	if p.Base != w.rev("main") || w.rev("rlc/checkout^") != w.rev("main") {
		t.Error("the review was not rebuilt on the base tip")
	}
	if got := w.rates("rlc/checkout", "checkout"); !maps.Equal(got, map[string]float64{"search": 500}) {
		t.Errorf("quotas %v, want search 500", got)
	}
	if got := w.show("rlc/checkout", "README.md"); got != "hello" {
		t.Errorf("the person's file reads %q", got)
	}
}

func TestAnEmptyDifferenceClosesTheReview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	still := set("checkout", "search", 0, 420)
	still.New = nil // nothing moves
	p := w.publish(proposal("checkout", "cron-2", still))
	if p.State != rlc.Superseded || w.rev("rlc/checkout") != "" {
		t.Errorf("state %s, branch %q; want superseded and none", p.State, w.rev("rlc/checkout"))
	}
}

func TestTheSameQuotasMakeNoCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	main := w.rev("main")
	p := w.publish(proposal("checkout", "cron-2", set("checkout", "search", 300, 420)))
	if p.State != rlc.Superseded || w.rev("rlc/checkout") != "" || w.rev("main") != main {
		t.Errorf("state %s; want superseded without a commit", p.State)
	}
}

func TestAPersonsCommitOnTheReviewMeansHandsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	dir := w.clone()
	w.git(dir, "checkout", "-q", "rlc/checkout")
	w.commit(dir, "a bit more for search", map[string]string{quotas: w.edited("rlc/checkout", "checkout", "search", 450)})
	w.git(dir, "push", "-q", "origin", "rlc/checkout")
	tip := w.rev("rlc/checkout")

	for _, run := range []string{"cron-1", "cron-2"} {
		p := w.publish(proposal("checkout", run, set("checkout", "search", 0, 500)))
		if !p.Human || p.State != rlc.Open || p.Commit != tip {
			t.Errorf("%s: %+v, want open, human, at %s", run, p, tip)
		}
	}
	if w.rev("rlc/checkout") != tip {
		t.Error("a person's commit was overwritten")
	}
}

// An amended commit keeps RLC's message and author; only its committer tells.
func TestAnAmendedReviewIsAPersons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	dir := w.clone()
	w.git(dir, "checkout", "-q", "rlc/checkout")
	w.git(dir, "commit", "-q", "--amend", "--no-edit")
	w.git(dir, "push", "-q", "-f", "origin", "rlc/checkout")
	if p := w.publish(proposal("checkout", "cron-2", set("checkout", "search", 0, 500))); !p.Human {
		t.Error("an amended commit was taken for rlc's")
	}
}

// D2: the edited line keeps the person's value and is reported, the rest goes on.
func TestAPersonsEditOfALineSurvivesTheNextProposal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420), set("checkout", "web", 0, 60), set("checkout", "batch", 0, 10)))
	w.push("search needs more", map[string]string{quotas: w.edited("main", "checkout", "search", 999)})

	if got, want := edits(t, w, "checkout"), (map[string]string{"callers/caller=search": "Bob"}); !maps.Equal(got, want) {
		t.Fatalf("edited %v, want %v", got, want)
	}
	p := w.inForce(proposal("checkout", "cron-2", set("checkout", "search", 420, 500), set("checkout", "web", 60, 70)))
	if got, want := w.rates("main", "checkout"), (map[string]float64{"search": 999, "web": 70, "batch": 10}); !maps.Equal(got, want) {
		t.Errorf("quotas %v, want %v", got, want)
	}
	if c := p.Changes[0]; c.Held != "human_edit" || c.HeldWhy != "edited by Bob" || c.Moves() || *c.Old != *limitOf(999) {
		t.Errorf("the kept change is reported as %+v", c)
	}
	// RLC has committed to the file since; the hold stays until it is lifted.
	if got, want := edits(t, w, "checkout"), (map[string]string{"callers/caller=search": "Bob"}); !maps.Equal(got, want) {
		t.Errorf("after rlc's next commit edited %v, want %v", got, want)
	}
	// Removing the line gives it back.
	w.push("let rlc decide", map[string]string{quotas: strings.Replace(w.edited("main", "checkout", "", 0), "caller: search", "caller: gone", 1)})
	if got := edits(t, w, "checkout"); got["callers/caller=search"] != "" {
		t.Errorf("after the line was removed edited %v", got)
	}
}

// D4: an edit of another line of the same file, and of another file.
func TestEditsElsewhereSurviveAnOpenReview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420), set("checkout", "web", 0, 60)))
	p := w.publish(proposal("checkout", "cron-2", set("checkout", "web", 60, 70)))
	w.push("search needs more", map[string]string{quotas: w.edited("main", "checkout", "search", 999), "README.md": "hello"})
	if _, err := w.Accept(t.Context(), p, "Ada"); err != nil {
		t.Fatal(err)
	}
	if got, want := w.rates("main", "checkout"), (map[string]float64{"search": 999, "web": 70}); !maps.Equal(got, want) {
		t.Errorf("quotas %v, want %v", got, want)
	}
	if w.show("main", "README.md") != "hello" {
		t.Error("the other file is lost")
	}
	if got, want := edits(t, w, "checkout"), (map[string]string{"callers/caller=search": "Bob"}); !maps.Equal(got, want) {
		t.Errorf("edited %v, want %v", got, want)
	}
}

// The run read one value, a person wrote another before it was published.
func TestALineThatChangedSinceTheRunIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.inForce(proposal("checkout", "cron-2", set("checkout", "search", 420, 600)))
	p := w.publish(proposal("checkout", "cron-3", set("checkout", "search", 420, 500)))
	if p.State != rlc.Superseded || p.Changes[0].Held != "human_edit" {
		t.Errorf("state %s, change %+v; want superseded and kept", p.State, p.Changes[0])
	}
}

// Windows, hours and a region are part of a line: they are written, noticed when
// they change alone, and a removal takes its line away.
func TestALineCarriesItsWindowsHoursAndRegionAndGoesWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	from := time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC)
	timed := rlc.Timed{Windows: []rlc.QuotaWindow{{From: from, Until: from.Add(24 * time.Hour), Limit: rlc.Limit{Rate: 840, Burst: 1680}}}}
	plain, event := set("checkout", "search", 0, 420), set("checkout", "search", 420, 420)
	w.publish(proposal("checkout", "cron-1", plain, set("checkout", "web", 0, 60)))
	w.git(w.path, "update-ref", "refs/heads/main", "rlc/checkout")

	event.NewTimed = timed
	p := w.publish(proposal("checkout", "cron-2", event))
	if p.State != rlc.Open || !strings.Contains(w.show("rlc/checkout", quotas), "windows: [{from: 2026-12-24T00:00:00Z") {
		t.Fatalf("a window alone: %s\n%s", p.State, w.show("rlc/checkout", quotas))
	}
	w.git(w.path, "update-ref", "refs/heads/main", "rlc/checkout")
	event.OldTimed = timed
	if p := w.publish(proposal("checkout", "cron-3", event)); p.State == rlc.Open {
		t.Error("the same window is put up again")
	}

	gone := set("checkout", "web", 60, 60)
	gone.Remove = true
	w.publish(proposal("checkout", "cron-4", gone))
	if got, want := w.rates("rlc/checkout", "checkout"), (map[string]float64{"search": 420}); !maps.Equal(got, want) {
		t.Errorf("quotas %v, want %v", got, want)
	}
}

func TestBytesThatDoNotValidateAreNeverCommitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := set("checkout", "search", 0, 420)
	bad.New = &rlc.Limit{Rate: -1, Burst: 5}
	if _, err := w.Publish(t.Context(), proposal("checkout", "cron-1", bad)); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
	if w.rev("rlc/checkout") != "" {
		t.Error("an invalid file was put up")
	}
}

func TestABrokenFileOnTheBaseBranchIsNamedAndKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.push("oops", map[string]string{quotas: "<<<<<<< ours\n"})
	_, err := w.Publish(t.Context(), proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	if !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), quotas+":1:1") {
		t.Errorf("error %v, want ErrInvalid with the place", err)
	}
}

func TestAServiceThatLeftIsSuperseded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "checkout", "search")
	w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.push("retired", map[string]string{"services/checkout/policy.yaml": ""})
	p := w.publish(proposal("checkout", "cron-2", set("checkout", "search", 0, 420)))
	if p.State != rlc.Superseded || w.rev("rlc/checkout") != "" {
		t.Errorf("state %s, branch %q; want superseded and none", p.State, w.rev("rlc/checkout"))
	}
}

// D6: the repository's owner said no.
func TestAHookThatRefusesStopsThePublishAndIsQuoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hooks := filepath.Join(w.path, "hooks")
	if err := os.MkdirAll(hooks, 0o777); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nread old new ref\nprintf 'frozen: %s\\033[31m\\n' \"$ref\" >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(hooks, "pre-receive"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := w.Publish(t.Context(), proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	if !errors.Is(err, rlc.ErrRefused) || !strings.Contains(err.Error(), `frozen: refs/heads/rlc/checkout\u{1b}[31m`) {
		t.Errorf("error %v, want ErrRefused with the hook's escaped text", err)
	}
	if w.rev("rlc/checkout") != "" {
		t.Error("published in spite of the hook")
	}
}

func TestAStaleLeaderIsFenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Close()
	epoch := uint64(7)
	w.Repo = w.open(gitsync.Config{Epoch: func() uint64 { return epoch }})
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	c, _, err := w.Head(t.Context())
	if err != nil || c.Version != (rlc.Version{Epoch: 7, Number: 2}) {
		t.Errorf("version %v (%v), want 7.2", c.Version, err)
	}
	open := w.publish(proposal("checkout", "cron-2", set("checkout", "search", 420, 500)))
	epoch = 6
	main := w.rev("main")
	if _, err := w.Publish(t.Context(), proposal("checkout", "cron-3", set("checkout", "search", 420, 510))); !errors.Is(err, rlc.ErrFenced) {
		t.Errorf("publish: %v, want ErrFenced", err)
	}
	if _, err := w.Accept(t.Context(), open, "Ada"); !errors.Is(err, rlc.ErrFenced) {
		t.Errorf("accept: %v, want ErrFenced", err)
	}
	if err := w.Reject(t.Context(), open, "Ada", "no"); !errors.Is(err, rlc.ErrFenced) {
		t.Errorf("reject: %v, want ErrFenced", err)
	}
	if w.rev("main") != main || w.rev("rlc/checkout") != open.Commit {
		t.Error("a stale leader's write went through")
	}
	// The epoch is the highest, whatever an older review carried in.
	epoch = 8
	w.inForce(proposal("checkout", "cron-4", set("checkout", "search", 420, 520)))
	if c, _, _ := w.Head(t.Context()); c.Version != (rlc.Version{Epoch: 8, Number: 3}) {
		t.Errorf("version %v, want 8.3", c.Version)
	}
}

func edits(t *testing.T, w *world, service string) map[string]string {
	t.Helper()
	got, err := w.Edited(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
