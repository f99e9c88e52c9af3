package gitsync_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/quotafile"
)

var start = time.Date(2026, 10, 5, 8, 0, 0, 0, time.UTC)

// world is a config repository with rlc on one side and people with git on the
// other. Its clock moves a minute per commit of rlc's.
type world struct {
	*gitsync.Repo
	t      testing.TB
	path   string
	now    time.Time
	mu     sync.Mutex     // guards now
	remote gitsync.Config // how rlc reaches the repository; zero by its path
}

func policy(service string) []byte {
	return fmt.Appendf(nil, "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: %q\nowners: [team-a]\nbuckets:\n  - {name: callers, each: [caller]}\n", service)
}

func newWorld(t testing.TB, services ...string) *world {
	t.Helper()
	if len(services) == 0 {
		services = []string{"checkout"}
	}
	files := rlc.Files{}
	for _, s := range services {
		files[quotafile.PolicyPath(s)] = policy(s)
	}
	w := &world{t: t, path: filepath.Join(t.TempDir(), "config.git"), now: start}
	if err := gitsync.Init(t.Context(), w.path, "main", files, gitsync.Person{Name: "Ada", Email: "ada@example.org"}, "first policies"); err != nil {
		t.Fatal(err)
	}
	switch {
	case strings.HasPrefix(t.Name(), overHTTPS):
		w.remote = newWebServer(t, w.path).config(t)
	case strings.HasPrefix(t.Name(), overSSH):
		w.remote = newSSHServer(t, w.path).config(t)
	}
	w.Repo = w.open(gitsync.Config{})
	return w
}

// open opens the world's repository and closes it at the test's end.
func (w *world) open(c gitsync.Config) *gitsync.Repo {
	w.t.Helper()
	if c.URL, c.Log = w.path, slog.New(slog.DiscardHandler); w.remote.URL != "" {
		branch, readOnly, epoch, name, email, groupBy := c.Branch, c.ReadOnly, c.Epoch, c.Name, c.Email, c.GroupBy
		c = w.remote
		c.Branch, c.ReadOnly, c.Epoch, c.Name, c.Email, c.GroupBy = branch, readOnly, epoch, name, email, groupBy
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Now = func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now = w.now.Add(time.Minute)
		return w.now
	}
	r, err := gitsync.Open(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { r.Close() })
	return r
}

// The methods that answer from the mirror of a remote repository look at the
// server first here: people have just pushed.

func (w *world) fetched() {
	w.t.Helper()
	if w.remote.URL == "" {
		return
	}
	if _, _, err := w.Head(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Edited(ctx context.Context, service string) (map[string]string, error) {
	w.fetched()
	return w.Repo.Edited(ctx, service)
}

func (w *world) Rewritten(ctx context.Context, seen string) (bool, error) {
	w.fetched()
	return w.Repo.Rewritten(ctx, seen)
}

func (w *world) Changed(ctx context.Context, from, to string) ([]string, bool, error) {
	w.fetched()
	return w.Repo.Changed(ctx, from, to)
}

func (w *world) Log(ctx context.Context, service string, n int) ([]gitsync.Entry, error) {
	w.fetched()
	return w.Repo.Log(ctx, service, n)
}

// command is git as a person runs it, without this machine's configuration.
func command(ctx context.Context, dir, who string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME="+who, "GIT_AUTHOR_EMAIL="+who+"@example.org", "GIT_COMMITTER_NAME="+who, "GIT_COMMITTER_EMAIL="+who+"@example.org")
	return cmd
}

func (w *world) git(dir string, args ...string) string {
	w.t.Helper()
	out, err := command(w.t.Context(), dir, "Bob", args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// clone is a person's working copy.
func (w *world) clone() string {
	w.t.Helper()
	dir := w.t.TempDir()
	w.git(dir, "clone", "-q", w.path, ".")
	return dir
}

// commit writes files in a working copy and commits them; "" removes one.
func (w *world) commit(dir, message string, files map[string]string) {
	w.t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if text == "" {
			w.git(dir, "rm", "-q", name)
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			w.t.Fatal(err)
		}
		w.git(dir, "add", name)
	}
	w.git(dir, "commit", "-q", "-m", message)
}

// push is a person's commit straight to main, "" removing a file. It goes through
// git fast-import, which is one process; clone and git push are several.
func (w *world) push(message string, files map[string]string) {
	w.t.Helper()
	w.fastImport(commitOf(message, "from refs/heads/main^0\n", files))
}

// pushEach is one commit per path, in one process.
func (w *world) pushEach(paths []string, text func(n int) string) {
	w.t.Helper()
	var in strings.Builder
	for n, path := range paths {
		from := ""
		if n == 0 {
			from = "from refs/heads/main^0\n"
		}
		in.WriteString(commitOf("change", from, map[string]string{path: text(n)}))
	}
	w.fastImport(in.String())
}

func commitOf(message, from string, files map[string]string) string {
	var in strings.Builder
	fmt.Fprintf(&in, "commit refs/heads/main\ncommitter Bob <bob@example.org> now\ndata %d\n%s\n%s", len(message), message, from)
	for name, text := range files {
		if text == "" {
			fmt.Fprintf(&in, "D %s\n", name)
		} else {
			fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", name, len(text), text)
		}
	}
	return in.String()
}

func (w *world) fastImport(in string) {
	w.t.Helper()
	cmd := command(w.t.Context(), w.path, "Bob", "fast-import", "--quiet", "--date-format=now")
	cmd.Stdin = strings.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("git fast-import: %v\n%s", err, out)
	}
}

func (w *world) rev(name string) string {
	w.t.Helper()
	out, err := command(w.t.Context(), w.path, "Bob", "rev-parse", "-q", "--verify", name).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func (w *world) show(rev, path string) string {
	w.t.Helper()
	return w.git(w.path, "show", rev+":"+path)
}

func (w *world) fsck() {
	w.t.Helper()
	w.git(w.path, "fsck", "--strict", "--full")
}

func limitOf(rate float64) *rlc.Limit {
	return &rlc.Limit{Rate: rlc.Rate(rate), Burst: rlc.Burst(2 * rate)}
}

// set is a change of a caller's quota from old to new requests/s; old 0 is none.
func set(service, caller string, old, new float64) rlc.Change {
	c := rlc.Change{Service: service, Bucket: "callers", Key: rlc.Key{"caller": caller}, New: limitOf(new), At: start,
		Why: fmt.Sprintf("weekly peak %g/s × 1.30 headroom", new/1.3)}
	if old > 0 {
		c.Old = limitOf(old)
	}
	return c
}

func proposal(service, run string, changes ...rlc.Change) rlc.Proposal {
	return rlc.Proposal{ID: run + "-" + service, RunID: run, Service: service, State: rlc.Pending, Created: start, Changes: changes}
}

func (w *world) publish(p rlc.Proposal) rlc.Proposal {
	w.t.Helper()
	out, err := w.Publish(w.t.Context(), p)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// inForce publishes and accepts.
func (w *world) inForce(p rlc.Proposal) rlc.Proposal {
	w.t.Helper()
	p = w.publish(p)
	if _, err := w.Accept(w.t.Context(), p, "Ada"); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// rates reads a service's quotas at a revision, by caller.
func (w *world) rates(rev, service string) map[string]float64 {
	w.t.Helper()
	_, quotas, problems := quotafile.ParseQuotas("", []byte(w.show(rev, quotafile.QuotasPath(service))+"\n"))
	if len(problems) > 0 {
		w.t.Fatal(problems)
	}
	out := map[string]float64{}
	for _, q := range quotas {
		out[q.Key["caller"]] = float64(q.Rate)
	}
	return out
}

// edited is a quotas.yaml with one caller's rate replaced.
func (w *world) edited(rev, service, caller string, rate float64) string {
	w.t.Helper()
	name, quotas, _ := quotafile.ParseQuotas("", []byte(w.show(rev, quotafile.QuotasPath(service))+"\n"))
	for i := range quotas {
		if quotas[i].Key["caller"] == caller {
			quotas[i].Limit = *limitOf(rate)
		}
	}
	return string(quotafile.MarshalQuotas(name, quotas))
}
