package forgetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forge"
)

const token = "canary-5d1f20-token"

// world is a config repository on a fake forge, and RLC's reviews on it.
type world struct {
	testing.TB
	*Server
	forge.Forge
	repo    *gitsync.Repo
	reviews *forge.Reviews
	now     time.Time

	open func(readWait time.Duration) (forge.Forge, error) // one more client
}

// Run holds an adapter to the suite. open makes the adapter for a server.
func Run(t *testing.T, kind Kind, open func(forge.Server) (forge.Forge, error)) {
	fresh := func(t *testing.T) *world { return newWorld(t, kind, open) }
	t.Run("one review is opened and updated", func(t *testing.T) { opened(t, fresh(t)) })
	t.Run("a closed review is a rejection", func(t *testing.T) { closed(t, fresh(t)) })
	t.Run("a merged review is accepted, a merge is pinned to its commit", func(t *testing.T) { merged(t, fresh(t)) })
	t.Run("merged with edits is the truth", func(t *testing.T) { edited(t, fresh(t)) })
	t.Run("a branch with a person's commit is left alone", func(t *testing.T) { handsOff(t, fresh(t)) })
	t.Run("nothing left to change closes the review", func(t *testing.T) { emptied(t, fresh(t)) })
	t.Run("one comment, one status", func(t *testing.T) { commented(t, fresh(t)) })
	t.Run("all pages are read", func(t *testing.T) { paged(t, fresh(t)) })
	t.Run("a rotated token, and none in an error", func(t *testing.T) { rotated(t, fresh(t)) })
	t.Run("a rate limit is kept", func(t *testing.T) { limited(t, fresh(t)) })
	t.Run("no token leaves for another host", func(t *testing.T) { redirected(t, fresh(t)) })
	t.Run("what is forbidden is asked ever more rarely", func(t *testing.T) { forbidden(t, fresh(t)) })
	t.Run("a forge that hangs is waited for once", func(t *testing.T) { hung(t, fresh(t)) })
	t.Run("nothing is ordered to merge later", func(t *testing.T) { pending(t, fresh(t)) })
	t.Run("a review that is behind is put on the tip", func(t *testing.T) { behind(t, fresh(t)) })
	t.Run("labels and reviewers are people's once it is open", func(t *testing.T) { takenOff(t, fresh(t)) })
	t.Run("a comment that quotes RLC's is its writer's", func(t *testing.T) { quoted(t, fresh(t)) })
	t.Run("a review that could not be closed is closed later", func(t *testing.T) { leftOpen(t, fresh(t)) })
	t.Run("a withdrawn branch's review is closed", func(t *testing.T) { withdrawn(t, fresh(t)) })
}

func newWorld(t *testing.T, kind Kind, open func(forge.Server) (forge.Forge, error)) *world {
	t.Helper()
	bare := filepath.Join(t.TempDir(), "acme", "config.git")
	if err := os.MkdirAll(filepath.Dir(bare), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := gitsync.Init(t.Context(), bare, "main", rlc.Files{
		"defaults.yaml":                 []byte("apiVersion: rlc/v1\nkind: Defaults\nprofile: rlc\n"),
		"services/checkout/policy.yaml": policy("checkout"), "services/cart/policy.yaml": policy("cart"),
	}, gitsync.Person{Name: "ann", Email: "ann@example.com"}, "First configuration"); err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, Server: NewServer(t, kind, bare, token), now: time.Now()}
	var err error
	w.open = func(wait time.Duration) (forge.Forge, error) {
		return open(forge.Server{URL: w.URL, CAFile: w.CAFile(), TokenFile: w.TokenFile(), Now: func() time.Time { return w.now }, ReadWait: wait})
	}
	if w.Forge, err = w.open(2 * time.Minute); err != nil { // busy machines
		t.Fatal(err)
	}
	if w.repo, err = gitsync.Open(t.Context(), gitsync.Config{URL: w.GitURL(), Dir: filepath.Join(t.TempDir(), "mirror"), User: "rlc", TokenFile: w.TokenFile(), CAFile: w.CAFile()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.repo.Close() })
	if w.reviews, err = forge.New(forge.Config{
		Repository: w.repo, Forge: w.Forge, Labels: []string{"rlc"}, Now: func() time.Time { return w.now },
		Title: func(p rlc.Proposal) string { return "rlc(" + p.Service + "): " + p.RunID },
		Body:  func(p rlc.Proposal) string { return "body of " + p.RunID },
		Reviewers: func(context.Context, rlc.Proposal) ([]string, error) {
			return []string{"ann", "nobody-knows-me", "acme/payments"}, nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	return w
}

func policy(service string) []byte {
	return []byte("apiVersion: rlc/v1\nkind: Service\nservice: " + service + "\nbuckets:\n  - id: per-caller\n    key: [caller]\n    policy: {kind: historical}\n")
}

func proposal(service, run string, rate float64) rlc.Proposal {
	return rlc.Proposal{ID: run + "-" + service, RunID: run, Service: service, State: rlc.Pending, Changes: []rlc.Change{{
		Service: service, Bucket: "per-caller", Key: rlc.Key{"caller": "search"}, New: &rlc.Limit{Rate: rlc.Rate(rate), Burst: rlc.Burst(2 * rate)}, NewMode: rlc.Shadow, Why: "test"}}}
}

func (w *world) publish(p rlc.Proposal) rlc.Proposal {
	w.Helper()
	out, err := w.reviews.Publish(w.Context(), p)
	if err != nil {
		w.Fatalf("publish: %v", err)
	}
	return out
}

func (w *world) settle(p rlc.Proposal) rlc.Proposal {
	w.Helper()
	w.reviews.Wake()
	out, err := w.reviews.Settle(w.Context(), p)
	if err != nil {
		w.Fatalf("settle: %v", err)
	}
	return out
}

func (w *world) want(what string, got, want any) {
	w.Helper()
	if !reflect.DeepEqual(got, want) {
		w.Fatalf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// decided is what a proposal says of its end.
func decided(p rlc.Proposal) string { return fmt.Sprintf("%s by %q: %s", p.State, p.Actor, p.Reason) }

func opened(t *testing.T, w *world) {
	p := w.publish(proposal("checkout", "run-1", 100))
	v, err := w.Find(t.Context(), "rlc/checkout")
	w.want("the review", []any{err, v.Title, strings.TrimSpace(v.Body), v.Commit, v.State, v.URL}, []any{nil, "rlc(checkout): run-1", "body of run-1", p.Commit, forge.Open, p.URL})
	w.want("again", w.publish(p).Commit, p.Commit)
	next := w.publish(proposal("checkout", "run-2", 130))
	v, err = w.Find(t.Context(), "rlc/checkout")
	w.want("the updated review", []any{err, v.Number, v.Title, v.Commit}, []any{nil, int64(1), "rlc(checkout): run-2", next.Commit})
	asked := "ann payments"
	if w.Kind == GitLab {
		asked = "ann" // its API asks people only
	}
	w.want("on the forge", w.seen("rlc/checkout"), []string{"1 open labels=[rlc] reviewers=[" + asked + "] comments=0"})
	w.want("the earlier one", w.settle(p).State, rlc.Superseded)
	w.want("the newer one", w.settle(next).State, rlc.Open)
	all, err := w.List(t.Context())
	w.want("open", []any{err, len(all)}, []any{nil, 1})
	if _, err := w.Find(t.Context(), "rlc/cart"); !errors.Is(err, rlc.ErrNotFound) {
		t.Fatalf("a branch without a review: %v", err)
	}
	before := w.Asks.Load()
	for range 10 {
		if _, err := w.reviews.Settle(t.Context(), next); err != nil {
			t.Fatal(err)
		}
	}
	if asked := w.Asks.Load() - before; asked > 1 {
		t.Fatalf("settling ten times within half a minute asked the forge %d times", asked)
	}
}

func closed(t *testing.T, w *world) {
	p := w.publish(proposal("checkout", "run-1", 100))
	w.closes("rlc/checkout", "bob")
	by := "bob"
	if w.Kind == Gitea {
		by = "" // its API does not say
	}
	out := w.settle(p)
	w.want("closed", decided(out), fmt.Sprintf("rejected by %q: closed on the forge", by))
	w.want("its branch", w.rev("rlc/checkout"), "")
	w.want("settled again", w.settle(out).State, rlc.Rejected)
	w.want("a later, other proposal", w.publish(proposal("checkout", "run-2", 200)).State, rlc.Open)
	w.want("on the forge", len(w.seen("rlc/checkout")), 2)
}

func merged(t *testing.T, w *world) {
	p := w.publish(proposal("checkout", "run-1", 100))
	moved := p
	moved.Commit = strings.Repeat("a", 40)
	if err := w.reviews.Merge(t.Context(), moved); !errors.Is(err, rlc.ErrConflict) {
		t.Fatalf("merge of another commit: %v", err)
	}
	if err := w.Merge(t.Context(), 1, moved.Commit); !errors.Is(err, rlc.ErrConflict) {
		t.Fatalf("the forge merges another commit: %v", err)
	}
	if w.Kind == GitHub {
		w.mu.Lock()
		w.of(1).refusedMergeMethod = "squash"
		w.mu.Unlock()
	}
	if err := w.reviews.Merge(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.want("merged", w.settle(p).State, rlc.Accepted)
	_, files, err := w.repo.Head(t.Context())
	if err != nil || !strings.Contains(string(files["services/checkout/quotas.yaml"]), "100") {
		t.Fatalf("the base branch lacks it: %v\n%s", err, files["services/checkout/quotas.yaml"])
	}
	if err := w.reviews.Merge(t.Context(), p); !errors.Is(err, rlc.ErrConflict) {
		t.Fatalf("merge again: %v", err)
	}
}

// commit makes a person's commit on a branch that sets checkout's rate.
func (w *world) commit(branch, from, to string) {
	w.Helper()
	clone := filepath.Join(w.TempDir(), "clone")
	for _, args := range [][]string{{"clone", "-q", "-b", branch, w.bare, clone}} {
		if _, err := w.run(args...); err != nil {
			w.Fatal(err)
		}
	}
	file := filepath.Join(clone, "services/checkout/quotas.yaml")
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.ReplaceAll(string(data), from, to)), 0o644)
	}
	if err != nil {
		w.Fatal(err)
	}
	for _, args := range [][]string{{"-C", clone, "commit", "-qam", "by hand"}, {"-C", clone, "push", "-q", "origin", branch}} {
		if _, err := w.run(args...); err != nil {
			w.Fatal(err)
		}
	}
}

func handsOff(t *testing.T, w *world) {
	p := w.publish(proposal("checkout", "run-1", 100))
	w.commit("rlc/checkout", "rate: 100", "rate: 120")
	tip := w.rev("rlc/checkout")
	next := w.publish(proposal("checkout", "run-2", 150))
	w.want("the branch", []any{next.Human, next.Commit, w.rev("rlc/checkout")}, []any{true, tip, tip})
	v, err := w.Find(t.Context(), "rlc/checkout")
	w.want("its text", []any{err, v.Title}, []any{nil, "rlc(checkout): run-1"})
	seen := w.settle(p)
	w.closes("rlc/checkout", "ann")
	w.want("closed", w.settle(seen).State, rlc.Rejected)
	if out, err := w.run("for-each-ref", "--format=%(objectname)", "refs/rlc/kept"); err != nil || out != tip {
		t.Fatalf("the person's commit is not kept: %q %v", out, err)
	}
}

func emptied(t *testing.T, w *world) {
	w.publish(proposal("checkout", "run-1", 100))
	back := proposal("checkout", "run-2", 100)
	back.Changes = nil
	w.want("nothing moves", w.publish(back).State, rlc.Superseded)
	w.want("on the forge", strings.Fields(w.seen("rlc/checkout")[0])[1], "closed")
}

func commented(t *testing.T, w *world) {
	p := w.publish(proposal("checkout", "run-1", 100))
	for _, text := range []string{"first", "second"} {
		if err := w.reviews.Comment(t.Context(), p, text); err != nil {
			t.Fatal(err)
		}
	}
	s := forge.Status{Name: "rlc", Verdict: forge.Failure, Detail: "two\nlines", URL: "https://rlc.example.com/proposals/1"}
	if err := w.reviews.Status(t.Context(), p, s); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	comments := w.of(1).comments
	w.want("comments", []any{len(comments), comments[0].body}, []any{1, fmt.Sprintf("second\n\n<!-- rlc:comment %d -->", comments[0].id)})
	s.Detail = "two lines"
	w.want("statuses", w.status[p.Commit], []forge.Status{s})
}

func paged(t *testing.T, w *world) {
	w.mu.Lock()
	for n := range 230 {
		w.Server.reviews = append(w.Server.reviews, &review{number: int64(n + 1), branch: fmt.Sprintf("rlc/many-%d", n), head: "x", state: forge.Open})
	}
	w.mu.Unlock()
	all, err := w.List(t.Context())
	seen := map[string]bool{}
	for _, v := range all {
		seen[v.Branch] = true
	}
	w.want("reviews", []any{err, len(all), len(seen)}, []any{nil, 230, 230})
}

func rotated(t *testing.T, w *world) {
	w.Rotate("another-secret")
	_, err := w.List(t.Context())
	if !errors.Is(err, rlc.ErrRefused) || strings.Contains(err.Error(), token) {
		t.Fatalf("an old token: %v", err)
	}
	before := w.Asks.Load()
	if _, err := w.List(t.Context()); !errors.Is(err, rlc.ErrRefused) || w.Asks.Load() != before {
		t.Fatalf("a refused token was tried again at once: %v", err)
	}
	if err := os.WriteFile(w.TokenFile(), []byte("another-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.List(t.Context()); err != nil {
		t.Fatalf("the new token: %v", err)
	}
}

func limited(t *testing.T, w *world) {
	w.Answer(func(rw http.ResponseWriter) bool {
		rw.Header().Set("Retry-After", "120")
		reply(rw, http.StatusTooManyRequests, map[string]string{"message": "slow down"})
		return true
	})
	if _, err := w.List(t.Context()); err == nil {
		t.Fatal("no error")
	}
	w.Answer(nil)
	before := w.Asks.Load()
	w.now = w.now.Add(119 * time.Second)
	if _, err := w.List(t.Context()); err == nil || w.Asks.Load() != before {
		t.Fatalf("asked again within the pause: %v", err)
	}
	w.now = w.now.Add(2 * time.Second)
	if _, err := w.List(t.Context()); err != nil {
		t.Fatalf("after the pause: %v", err)
	}
}

func redirected(t *testing.T, w *world) {
	other := NewServer(t, w.Kind, w.bare, token)
	w.Answer(func(rw http.ResponseWriter) bool {
		rw.Header().Set("Location", other.URL+"/elsewhere")
		rw.WriteHeader(http.StatusTemporaryRedirect)
		return true
	})
	if _, err := w.List(t.Context()); err == nil || other.Asks.Load() != 0 {
		t.Fatalf("followed to another host: %v, %d requests there", err, other.Asks.Load())
	}
}
