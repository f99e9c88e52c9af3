package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/forgetest"
	"github.com/openrlc/rlc/gitsync/github"
)

// configured is a bare config repository without services.
func configured(t *testing.T) (bare string) {
	t.Helper()
	bare = filepath.Join(t.TempDir(), "acme", "config.git")
	if err := gitsync.Init(t.Context(), bare, "main", rlc.Files{"defaults.yaml": []byte("apiVersion: rlc/v1\nkind: Defaults\nprofile: rlc\n")},
		gitsync.Person{Name: "ann", Email: "ann@example.com"}, "First configuration"); err != nil {
		t.Fatal(err)
	}
	return bare
}

// pushes runs rlc init --push with a configuration file and wants its exit code.
func pushes(t *testing.T, prometheus, config string, want int, args ...string) string {
	t.Helper()
	cmd := program(t.Context(), []string{"GIT_AUTHOR_NAME=Sam", "GIT_AUTHOR_EMAIL=sam@example.com"},
		append([]string{"init", "--profile", "grpc", "--from-prometheus", prometheus, "--config", config, "--push"}, args...)...)
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != want || strings.Contains(string(out), "canary") {
		t.Fatalf("exit %d, want %d\n%s", code, want, out)
	}
	return string(out)
}

func written(t *testing.T, name, format string, args ...any) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The first policies are pushed to git's own server and are one review, also
// where the forge refused it at first. Once merged, nothing is put over them.
func TestFirstPoliciesArePushedAsOneReview(t *testing.T) {
	prometheus, bare := metered(t), configured(t)
	server := forgetest.NewServer(t, forgetest.GitHub, bare, "canary-init-token")
	config := written(t, "rlc.yaml", "repository:\n  url: %s\n  token_file: %s\n  ca_file: %s\nforge:\n  kind: github\n  url: %s\n", server.GitURL(), server.TokenFile(), server.CAFile(), server.URL)
	hub, err := github.New(github.Config{Server: forge.Server{URL: server.URL, CAFile: server.CAFile(), TokenFile: server.TokenFile()}, Repo: forgetest.Repo})
	if err != nil {
		t.Fatal(err)
	}
	base := git(t, bare, "rev-parse", "main")

	server.Answer(func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusForbidden); return true })
	if out := pushes(t, prometheus, config, exitAuthorised); !strings.Contains(out, "the branch is pushed, its review is not open") {
		t.Errorf("told:\n%s", out)
	}
	server.Answer(nil)
	pushes(t, prometheus, config, exitOK)
	out := pushes(t, prometheus, config, exitOK)

	all, err := hub.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("reviews: %+v, %v", all, err)
	}
	v := all[0]
	if !strings.HasSuffix(out, "review: "+v.URL+"\n") {
		t.Errorf("told:\n%s", out)
	}
	got := forge.Review{Number: v.Number, Branch: v.Branch, Commit: v.Commit, State: v.State, Title: v.Title, Labels: v.Labels}
	if want := (forge.Review{Number: 1, Branch: gitsync.FirstBranch, Commit: git(t, bare, "rev-parse", gitsync.FirstBranch), State: forge.Open,
		Title: "rlc: first policies of 1 service, all in shadow", Labels: []string{"rlc"}}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the review is %+v\nwant %+v", got, want)
	}
	if !strings.Contains(v.Body, "- `geo`: 13/s in the last day, each caller (3 callers)\n  - look: ") {
		t.Errorf("body:\n%s", v.Body)
	}
	if now := git(t, bare, "log", "--format=%P %an %ae %s", "-1", gitsync.FirstBranch) + "\n" + git(t, bare, "diff", "--name-status", "main", gitsync.FirstBranch); now !=
		base+" Sam sam@example.com rlc: first policies of 1 service, all in shadow\nA\tservices/geo/policy.yaml" || git(t, bare, "rev-parse", "main") != base {
		t.Errorf("the branch:\n%s", now)
	}

	if err := hub.Merge(t.Context(), v.Number, v.Commit); err != nil {
		t.Fatal(err)
	}
	if out := pushes(t, prometheus, config, exitRefused); !strings.Contains(out, "there is already a policy of geo") {
		t.Errorf("told:\n%s", out)
	}
	if refs := git(t, bare, "for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" {
		t.Errorf("references after the merge: %s", refs)
	}
}

// Without a forge the branch is pushed, and what is printed merges it.
func TestFirstPoliciesWithoutAForgeAreMergedAsPrinted(t *testing.T) {
	prometheus, bare := metered(t), configured(t)
	config := written(t, "rlc.yaml", "repository:\n  url: %s\n", bare)
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, "/", "clone", "-q", bare, clone)
	out := pushes(t, prometheus, config, exitOK)
	run := func(word string) {
		t.Helper()
		_, line, _ := strings.Cut(out, "  "+word+":")
		line, _, _ = strings.Cut(line, "\n")
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", line)
		cmd.Dir = clone
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_COMMITTER_NAME=Sam", "GIT_COMMITTER_EMAIL=sam@example.com", "GIT_AUTHOR_NAME=Sam", "GIT_AUTHOR_EMAIL=sam@example.com")
		if said, err := cmd.CombinedOutput(); line == "" || err != nil {
			t.Fatalf("%s: %q: %v\n%s\n%s", word, line, err, said, out)
		}
	}
	run("show")
	run("reject")
	if refs := git(t, bare, "for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" {
		t.Errorf("rejected, references: %s", refs)
	}
	if !strings.Contains(out, "No policy names owners. Give --owners TEAM") {
		t.Errorf("who owns the services is not told:\n%s", out)
	}
	if out = pushes(t, prometheus, config, exitOK, "--owners", "team-geo,sre"); strings.Contains(out, "No policy names owners") {
		t.Errorf("owners are given, told:\n%s", out)
	}
	run("merge")
	if text := git(t, bare, "show", "main:services/geo/policy.yaml"); !strings.Contains(text, "\nowners: [team-geo, sre]\n") {
		t.Errorf("the policy:\n%s", text)
	}
	if files := git(t, bare, "ls-tree", "-r", "--name-only", "main"); files != "defaults.yaml\nservices/geo/policy.yaml" {
		t.Errorf("main holds %s", files)
	}
	if out := pushes(t, prometheus, config, exitRefused, "--services", "geo"); !strings.Contains(out, "already a policy of geo") {
		t.Errorf("told:\n%s", out)
	}
	if refs := git(t, bare, "for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" {
		t.Errorf("references: %s", refs)
	}
	pushes(t, prometheus, config, exitInvalid, "--out", clone)
}

// Before the server's first start the repository and its branch are made as the
// server would: where nothing is, and where git made an empty one.
func TestFirstPoliciesMakeTheRepositoryThatTheServerWouldMake(t *testing.T) {
	prometheus := metered(t)
	for name, made := range map[string]bool{"nothing there": false, "an empty bare one": true} {
		data := filepath.Join(t.TempDir(), "data")
		bare := filepath.Join(data, "config.git")
		if made {
			git(t, t.TempDir(), "init", "-q", "--bare", bare)
		}
		config := written(t, "rlc.yaml", "data: %s\n", data)
		out := pushes(t, prometheus, config, exitOK)
		if want := "1 file committed to " + gitsync.FirstBranch; !strings.Contains(out, want) {
			t.Errorf("%s: told:\n%s\nwant %s", name, out, want)
		}
		if files := git(t, bare, "ls-tree", "-r", "--name-only", "main") + "\n" + git(t, bare, "diff", "--name-status", "main", gitsync.FirstBranch); files != "defaults.yaml\nA\tservices/geo/policy.yaml" {
			t.Errorf("%s: the branches:\n%s", name, files)
		}
		if info, err := os.Stat(data); err != nil || !made && info.Mode().Perm() != 0o700 {
			t.Errorf("%s: the data folder: %v %v", name, info.Mode(), err)
		}
	}
}

// While a server holds the repository the error says what to do, and that works.
func TestFirstPoliciesBesideARunningServerSayWhatToDo(t *testing.T) {
	prometheus, data := metered(t), filepath.Join(t.TempDir(), "data")
	s := startService(t, serveProgram(nil, "--data", data, "--prometheus-url", prometheus))
	bare := filepath.Join(data, "config.git")
	out := pushes(t, prometheus, written(t, "rlc.yaml", "data: %s\n", data), exitError)
	want := "rlc: a running server at " + s.url + " holds the config repository; onboard services on its pages, or: git clone " + bare + " limits, the same command with --out limits in place of --push, and in limits git add, commit and push\n"
	if !strings.HasSuffix(out, want) {
		t.Errorf("told:\n%s\nwant %s", out, want)
	}
	work := t.TempDir()
	git(t, work, "clone", "-q", bare, "limits")
	limits := filepath.Join(work, "limits")
	rlcOutput(t, "init", "--profile", "grpc", "--from-prometheus", prometheus, "--out", limits)
	git(t, limits, "add", ".")
	git(t, limits, "commit", "-q", "-m", "first policies")
	git(t, limits, "push", "-q")
	eventually(t, "the service is managed", func() bool {
		code, text := s.ask("GET", s.url+"/api/v1/services", "")
		return code == http.StatusOK && strings.Contains(text, `"geo"`)
	})
	s.signal()
	if err := s.wait(); err != nil {
		t.Error(err)
	}
}
