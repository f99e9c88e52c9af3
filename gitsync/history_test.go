package gitsync_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/quotafile"
)

func head(t testing.TB, w *world) (rlc.Commit, rlc.Files) {
	t.Helper()
	c, files, err := w.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c, files
}

func TestTheVersionCountsFirstParentCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if c, _ := head(t, w); c.Version != (rlc.Version{Epoch: 0, Number: 1}) || c.Hash != w.rev("main") {
		t.Errorf("first head %+v", c)
	}
	dir := w.clone()
	w.git(dir, "checkout", "-q", "-b", "side")
	w.commit(dir, "a", map[string]string{"a": "a"})
	w.commit(dir, "b", map[string]string{"b": "b"})
	w.git(dir, "checkout", "-q", "main")
	w.git(dir, "merge", "-q", "--no-ff", "--no-edit", "side")
	w.git(dir, "push", "-q", "origin", "main")
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	c, files := head(t, w)
	if want := w.git(w.path, "rev-list", "--first-parent", "--count", "main"); fmt.Sprint(c.Version.Number) != want || want != "3" {
		t.Errorf("number %d, git counts %s, want 3", c.Version.Number, want)
	}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, []string{"services/checkout/policy.yaml", quotas}) {
		t.Errorf("files %v", got)
	}
	// A new process counts the same.
	w.Close()
	if again, err := w.open(gitsync.Config{}), error(nil); err == nil {
		if got, _, _ := again.Head(t.Context()); got != c {
			t.Errorf("after a restart %+v, before %+v", got, c)
		}
	}
}

func TestAbsurdEpochsOfPeopleAreIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, epoch := range []string{"18446744073709551615", "-1", "x", "9007199254740993"} {
		w.push("hm\n\nRLC-Epoch: "+epoch, map[string]string{"README.md": epoch})
	}
	if c, _ := head(t, w); c.Version != (rlc.Version{Epoch: 0, Number: 5}) {
		t.Errorf("version %v, want 0.5", c.Version)
	}
}

func TestAtShowsTheBaseBranchAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	first, _ := head(t, w)
	w.now = w.now.Add(24 * time.Hour)
	w.inForce(proposal("checkout", "cron-2", set("checkout", "search", 420, 500)))
	second, now := head(t, w)
	// The first commit was made at the machine's own time: move that out of the way.
	for at, want := range map[time.Time]string{
		first.Time: "420", second.Time.Add(-time.Second): "420", second.Time: "500", second.Time.Add(time.Hour): "500",
	} {
		files, err := w.At(t.Context(), at)
		if err != nil || !bytes.Contains(files[quotas], []byte("rate: "+want)) {
			t.Errorf("at %s: %v, %s; want rate %s", at, err, files[quotas], want)
		}
	}
	if _, err := w.At(t.Context(), time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)); !errors.Is(err, rlc.ErrNotFound) {
		t.Errorf("before the first commit: %v, want ErrNotFound", err)
	}
	if _, again := head(t, w); !reflect.DeepEqual(again, now) {
		t.Error("looking at the past changed the present")
	}
}

// D5.
func TestRewrittenHistoryIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	seen, _ := head(t, w)
	w.push("on top", map[string]string{"README.md": "x"})
	if gone, err := w.Rewritten(t.Context(), seen.Hash); err != nil || gone {
		t.Errorf("after a push: %v, %v; want false", gone, err)
	}
	dir := w.clone()
	w.git(dir, "reset", "-q", "--hard", "HEAD~2")
	w.commit(dir, "another past", map[string]string{"README.md": "y"})
	w.git(dir, "push", "-q", "-f", "origin", "main")
	if gone, err := w.Rewritten(t.Context(), seen.Hash); err != nil || !gone {
		t.Errorf("after a force push: %v, %v; want true", gone, err)
	}
	if gone, err := w.Rewritten(t.Context(), ""); err != nil || gone {
		t.Errorf("never seen: %v, %v; want false", gone, err)
	}
	c, files := head(t, w)
	if c.Version.Number != 2 || files[quotas] != nil || c.Hash != w.git(dir, "rev-parse", "HEAD") {
		t.Errorf("head after the rewrite: %+v, want what is there now", c)
	}
	if got := edits(t, w, "checkout"); len(got) != 0 {
		t.Errorf("edited %v", got)
	}
}

func TestChangedNamesTheServicesWhosePolicyChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "checkout", "search", "Web UI")
	from, _ := head(t, w)
	changed := func() string {
		t.Helper()
		services, all, err := w.Changed(t.Context(), from.Hash, w.rev("main"))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(services, all)
	}
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.push("not config", map[string]string{"README.md": "x", "services/search/notes.yaml": "x", "services/search/sub/policy.yaml": "x"})
	if got := changed(); got != "[] false" {
		t.Errorf("quotas and other files: %s, want none", got)
	}
	w.push("owners", map[string]string{
		quotafile.PolicyPath("Web UI"): strings.Replace(string(policy("Web UI")), "team-a", "team-b", 1),
		quotafile.PolicyPath("search"): "",
		quotafile.PolicyPath("new"):    string(policy("new")),
		quotafile.PolicyPath("broken"): "service: [",
	})
	if got := changed(); got != "[Web UI broken new search] false" {
		t.Errorf("changed %s", got)
	}
	w.push("defaults", map[string]string{"defaults.yaml": "apiVersion: rlc/v1\nkind: Defaults\nprofile: rlc\n"})
	if got := changed(); got != "[Web UI broken new search] true" {
		t.Errorf("changed %s, want all", got)
	}
	if services, all, err := w.Changed(t.Context(), "", w.rev("main")); err != nil || !all || services != nil {
		t.Errorf("from nothing: %v %v %v, want all", services, all, err)
	}
}

func TestLogAndShowTellAServicesHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "checkout", "search")
	first := w.rev("main")
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	second := w.rev("main")
	w.push("elsewhere", map[string]string{"README.md": "x"})
	w.inForce(proposal("search", "cron-1", set("search", "web", 0, 9)))
	w.push("more", map[string]string{quotas: w.edited("main", "checkout", "search", 500)})
	got, err := w.Log(t.Context(), "checkout", 10)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].Time.IsZero() {
			t.Error("an entry has no time")
		}
		got[i].Time = time.Time{}
	}
	want := []gitsync.Entry{
		{Hash: w.rev("main"), Author: "Bob", Subject: "more"},
		{Hash: second, Author: "rlc", Subject: "rlc(checkout): 1 quota +1 · est. drops unknown → unknown", Actor: "Ada", Run: "cron-1"},
		{Hash: first, Author: "Ada", Subject: "first policies"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("log %+v\nwant %+v", got, want)
	}
	if two, _ := w.Log(t.Context(), "checkout", 2); len(two) != 2 {
		t.Errorf("asked for 2 entries, got %d", len(two))
	}
	data, err := w.Show(t.Context(), second, quotas)
	if err != nil || !bytes.Contains(data, []byte("rate: 420")) {
		t.Errorf("show: %v, %s", err, data)
	}
	for hash, path := range map[string]string{second: "services/none/quotas.yaml", first: quotas, strings.Repeat("0", 39) + "1": quotas, "main": quotas, "": quotas, w.rev("main"): "README.md", w.rev("main^"): "../../etc/passwd"} {
		if _, err := w.Show(t.Context(), hash, path); !errors.Is(err, rlc.ErrNotFound) {
			t.Errorf("show %s %s: %v, want ErrNotFound", hash, path, err)
		}
	}
}

// D13, D14, D15: what a foreign tree may hold is never followed or run. A link or a
// module where RLC reads a file is refused by name, and does not look removed.
func TestOddThingsInTheTreeAreIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "checkout", "search")
	dir := w.clone()
	canary := filepath.Join(t.TempDir(), "canary")
	w.commit(dir, "odd", map[string]string{
		".gitattributes":                 "* filter=evil\n",
		".lfsconfig":                     "[lfs]\n\turl = https://example.invalid\n",
		"hooks/pre-receive":              "#!/bin/sh\ntouch " + canary + "\n",
		"services/lfs/policy.yaml":       "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
		"services/big/policy.yaml":       strings.Repeat("#", quotafile.MaxFile+1),
		"services/UPPER/policy.yaml":     string(policy("UPPER")),
		"profiles/sub/deep.yaml":         "x",
		"services/checkout/extra.yaml":   "x",
		"services/search/quotas.yaml.md": "x",
	})
	for link, target := range map[string]string{"defaults.yaml": "/etc/passwd", "contracts": "/etc", "services/link": "checkout", "services/search/quotas.yaml": "../../../../etc/passwd"} {
		if err := os.Symlink(target, filepath.Join(dir, filepath.FromSlash(link))); err != nil {
			t.Fatal(err)
		}
		w.git(dir, "add", link)
	}
	w.git(dir, "update-index", "--add", "--cacheinfo", "160000,"+w.rev("main")+",services/module")
	w.git(dir, "commit", "-q", "-m", "links and modules")
	w.git(dir, "push", "-q", "origin", "main")
	_, files := head(t, w)
	want := []string{"defaults.yaml", "services/UPPER/policy.yaml", "services/big/policy.yaml", "services/checkout/policy.yaml", "services/lfs/policy.yaml",
		"services/link/policy.yaml", "services/module/policy.yaml", "services/search/policy.yaml", "services/search/quotas.yaml"}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	parsed := quotafile.Parse(files, nil)
	for _, broken := range []string{"big", "lfs", "UPPER", "link", "module", "search"} {
		if parsed.Broken[broken] == nil {
			t.Errorf("%s is not refused by name: %v", broken, slices.Collect(maps.Keys(parsed.Broken)))
		}
	}
	for _, link := range []string{"defaults.yaml", "services/link/policy.yaml", "services/module/policy.yaml", "services/search/quotas.yaml"} {
		if !slices.ContainsFunc(parsed.Problems, func(p rlc.Problem) bool { return p.File == link && strings.Contains(p.Message, "symbolic link") }) {
			t.Errorf("%s is not refused by name", link)
		}
	}
	// Publishing keeps all of it as it is, and writes over no link.
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	if got := w.git(w.path, "diff", "--name-only", "main^", "main"); got != quotas {
		t.Errorf("changed files %q, want %q", got, quotas)
	}
	if _, err := w.Publish(t.Context(), proposal("search", "cron-1", set("search", "web", 0, 4))); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("a quotas.yaml that is a link: %v, want ErrInvalid", err)
	}
	if _, err := os.Stat(canary); err == nil {
		t.Error("a hook from the tree ran")
	}
}

// A folder of services that is a link is not a repository without services.
func TestServicesThatAreNoFolderAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := w.clone()
	w.git(dir, "mv", "services", "elsewhere")
	if err := os.Symlink("elsewhere", filepath.Join(dir, "services")); err != nil {
		t.Fatal(err)
	}
	w.git(dir, "add", "-A")
	w.git(dir, "commit", "-q", "-m", "moved")
	w.git(dir, "push", "-q", "origin", "main")
	if _, files, err := w.Head(t.Context()); !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), "services is a file, a symbolic link") {
		t.Errorf("%d files, %v; want it refused", len(files), err)
	}
}

// D14: names that no checkout could hold, made with plumbing.
func TestHostileNamesInTheTreeAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	blob := w.git(w.path, "rev-parse", "main:services/checkout/policy.yaml")
	sub := mktree(t, w, "100644 blob "+blob+"\tpolicy.yaml\x00")
	var list strings.Builder
	for _, name := range []string{"..", ".", ".git", ".GIT", "a/b", `a\b`, "new\nline", "\xff\xfe", "\u202ename", strings.Repeat("x", 300)} {
		list.WriteString("040000 tree " + sub + "\t" + name + "\x00")
	}
	list.WriteString("040000 tree " + sub + "\tcheckout\x00")
	root := mktree(t, w, "040000 tree "+mktree(t, w, list.String())+"\tservices\x00")
	commit := w.git(w.path, "commit-tree", "-m", "hostile", "-p", "main", root)
	w.git(w.path, "update-ref", "refs/heads/main", commit)
	_, files := head(t, w)
	if got := slices.Collect(maps.Keys(files)); !slices.Equal(got, []string{"services/checkout/policy.yaml"}) {
		t.Errorf("files %q, want checkout's policy only", got)
	}
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
}

// mktree writes a tree object byte by byte, because git mktree refuses slashes.
func mktree(t *testing.T, w *world, entries string) string {
	t.Helper()
	var raw bytes.Buffer
	for e := range strings.SplitSeq(strings.TrimSuffix(entries, "\x00"), "\x00") {
		meta, name, _ := strings.Cut(e, "\t")
		part := strings.Fields(meta)
		hash := make([]byte, 20)
		if _, err := fmt.Sscanf(part[2], "%x", &hash); err != nil {
			t.Fatal(err)
		}
		raw.WriteString(strings.TrimPrefix(part[0], "0") + " " + name + "\x00")
		raw.Write(hash)
	}
	cmd := exec.Command("git", "hash-object", "-t", "tree", "-w", "--stdin", "--literally")
	cmd.Dir, cmd.Stdin = w.path, &raw
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// D20.
func TestARepositoryThatIsNotReadySaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, other, shallow := filepath.Join(dir, "empty.git"), filepath.Join(dir, "other.git"), filepath.Join(dir, "shallow.git")
	w := &world{t: t}
	w.git(dir, "init", "-q", "--bare", empty)
	if err := gitsync.Init(t.Context(), other, "trunk", nil, gitsync.Person{Name: "Ada"}, "first"); err != nil {
		t.Fatal(err)
	}
	w.git(dir, "clone", "-q", "--bare", "--depth=1", "file://"+newWorldWithTwoCommits(t).path, shallow)
	for path, want := range map[string]string{
		empty:                        "it has no branch at all",
		other:                        "it has trunk",
		shallow:                      "shallow",
		filepath.Join(dir, "absent"): "is not a bare repository",
		dir:                          "is not a bare repository",
	} {
		_, err := gitsync.Open(t.Context(), gitsync.Config{URL: path})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func newWorldWithTwoCommits(t *testing.T) *world {
	w := newWorld(t)
	w.push("second", map[string]string{"README.md": "x"})
	return w
}

func TestInitIsDoneOnceAndGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deep", "config.git")
	files := rlc.Files{quotafile.PolicyPath("checkout"): policy("checkout")}
	who := gitsync.Person{Name: "Ada"}
	w := &world{t: t, path: path}
	w.t.Context()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	// As if killed after the repository was made and before its first commit.
	w.git(filepath.Dir(path), "init", "-q", "--bare", "-b", "main", path)
	for range 2 {
		if err := gitsync.Init(t.Context(), path, "main", files, who, "first"); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.git(path, "log", "--format=%an|%s", "HEAD"); got != "Ada|first" {
		t.Errorf("history %q, want one commit by Ada", got)
	}
	if err := gitsync.Init(t.Context(), path, "main", rlc.Files{"README.md": nil}, who, "x"); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("a file that is none of the repository's: %v, want ErrInvalid", err)
	}
	w.fsck()
}
