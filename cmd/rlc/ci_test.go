package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/forgetest"
	"github.com/openrlc/rlc/gitsync/gitea"
	"github.com/openrlc/rlc/gitsync/github"
	"github.com/openrlc/rlc/gitsync/gitlab"
)

// scripts runs the scripts of testdata/demo against a running demo, each on
// services of its own. Beside testscript's commands they have:
//
//	exits CODE program args…         runs it and wants this exit code
//	await PATH field=value… [-- NAME=field…]
//	                                 waits until one object of the answer's list has
//	                                 these fields, and keeps others in variables
//	post PATH                        acts with the demo's token
func (d *server) scripts() {
	d.t.Run("scripts", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Dir: "testdata/demo", ContinueOnError: true,
			Setup: func(e *testscript.Env) error {
				e.Vars = append(e.Vars, "RLC_DATA="+d.data, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=Sam", "GIT_AUTHOR_EMAIL=sam@example.com",
					"GIT_COMMITTER_NAME=Sam", "GIT_COMMITTER_EMAIL=sam@example.com", "GORACE=atexit_sleep_ms=0")
				return nil
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "await": d.await, "post": d.post},
		})
	})
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var e *exec.ExitError
		if !errors.As(err, &e) {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func (d *server) await(ts *testscript.TestScript, _ bool, args []string) {
	var list []any
	eventually(d.t, strings.Join(args, " "), func() bool {
		var answer map[string]any
		d.get(args[0], &answer)
		for _, v := range answer {
			if all, ok := v.([]any); ok {
				list = all
			}
		}
		for _, one := range list {
			if keep, ok := fits(one, args[1:]); ok {
				for name, path := range keep {
					ts.Setenv(name, field(one, path))
				}
				return true
			}
		}
		return false
	})
}

// fits reports whether an object has the fields, and what is to be kept of it.
func fits(one any, want []string) (keep map[string]string, ok bool) {
	for i, w := range want {
		if w == "--" {
			keep = map[string]string{}
			for _, k := range want[i+1:] {
				name, path, _ := strings.Cut(k, "=")
				keep[name] = path
			}
			break
		}
		path, value, _ := strings.Cut(w, "=")
		if field(one, path) != value {
			return nil, false
		}
	}
	return keep, true
}

// field is a value by its dotted path: a text as it is, else JSON.
func field(one any, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		switch x := one.(type) {
		case map[string]any:
			one = x[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(x) {
				return ""
			}
			one = x[i]
		}
	}
	if s, ok := one.(string); ok {
		return s
	}
	b, _ := json.Marshal(one) // came from JSON
	return string(b)
}

func (d *server) post(ts *testscript.TestScript, _ bool, args []string) {
	token, err := os.ReadFile(filepath.Join(d.data, "token"))
	ts.Check(err)
	req, err := http.NewRequest(http.MethodPost, d.url+args[0], nil)
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	res, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode >= 300 {
		ts.Fatalf("POST %s: %s %v\n%s", args[0], res.Status, err, b)
	}
}

const (
	ciPolicy = "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: checkout\nbuckets:\n  - {name: callers, each: [caller], mode: enforce}\n"
	ciQuotas = "apiVersion: rlc/v1\nkind: ServiceQuotas\nservice: checkout\nquotas:\n  - {bucket: callers, key: {caller: search}, rate: 100, burst: 200, why: x}\n"
)

// The comment of a review is one, whatever is pushed; the status follows the
// head and reports also what is invalid. The exit code says the same.
func TestCIPostsOneCommentAndAlwaysAStatus(t *testing.T) {
	replay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Rate float64 }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		drops := max(0, 1000-10*in.Rate) // of 1,000 requests at up to 100/s
		fmt.Fprintf(w, `{"requests":1000,"drops":%g,"share":%g}`, drops, drops/1000)
	}))
	defer replay.Close()
	for kind, open := range map[forgetest.Kind]func(forge.Server) (forge.Forge, error){
		forgetest.GitHub: func(s forge.Server) (forge.Forge, error) {
			return github.New(github.Config{Server: s, Repo: forgetest.Repo})
		},
		forgetest.GitLab: func(s forge.Server) (forge.Forge, error) {
			return gitlab.New(gitlab.Config{Server: s, Repo: forgetest.Repo})
		},
		forgetest.Gitea: func(s forge.Server) (forge.Forge, error) {
			return gitea.New(gitea.Config{Server: s, Repo: forgetest.Repo})
		},
	} {
		t.Run(string(kind), func(t *testing.T) { postsOnce(t, kind, open, replay.URL) })
	}
}

func postsOnce(t *testing.T, kind forgetest.Kind, open func(forge.Server) (forge.Forge, error), replay string) {
	bare, work := filepath.Join(t.TempDir(), "acme", "config.git"), filepath.Join(t.TempDir(), "work")
	if err := os.MkdirAll(filepath.Dir(bare), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := gitsync.Init(t.Context(), bare, "main", rlc.Files{"services/checkout/policy.yaml": []byte(ciPolicy), "services/checkout/quotas.yaml": []byte(ciQuotas)},
		gitsync.Person{Name: "ann", Email: "ann@example.com"}, "First configuration"); err != nil {
		t.Fatal(err)
	}
	server := forgetest.NewServer(t, kind, bare, "canary-ci-token")
	git(t, "/", "clone", "-q", bare, work)
	git(t, work, "checkout", "-qb", "edit")
	edit := func(file, text string) string {
		if err := os.WriteFile(filepath.Join(work, "services/checkout", file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		git(t, work, "commit", "-qam", "edit")
		git(t, work, "push", "-q", "origin", "edit")
		return git(t, work, "rev-parse", "HEAD")
	}
	head := edit("quotas.yaml", strings.Replace(ciQuotas, "100", "80", 1))
	adapter, err := open(forge.Server{URL: server.URL, CAFile: server.CAFile(), TokenFile: server.TokenFile()})
	if err != nil {
		t.Fatal(err)
	}
	v, err := adapter.Open(t.Context(), "edit", forge.Text{Title: "An edit"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(commit string, want int, args ...string) {
		t.Helper()
		args = append([]string{"ci", "--repo", work, "--base", "origin/main", "--post", "--forge", string(kind), "--forge-url", server.URL, "--forge-repository", forgetest.Repo,
			"--forge-ca-file", server.CAFile(), "--review", strconv.FormatInt(v.Number, 10), "--commit", commit}, args...)
		cmd := program(t.Context(), []string{"RLC_FORGE_TOKEN_FILE=" + server.TokenFile(), "GITHUB_ACTIONS=", "GITLAB_CI="}, args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want || strings.Contains(string(out), "canary") {
			t.Fatalf("exit %d, want %d\n%s", code, want, out)
		}
	}
	told := func(commit string, verdict forge.Verdict, detail, comment string) {
		t.Helper()
		comments, statuses := server.Comments(v.Number), server.Statuses(commit)
		if len(comments) != 1 || !strings.Contains(comments[0], comment) || !strings.Contains(comments[0], "\n\n<!-- rlc:comment ") {
			t.Errorf("comments, want one with %q:\n%s", comment, strings.Join(comments, "\n---\n"))
		}
		if last := statuses[len(statuses)-1]; last.Name != "rlc ci" || last.Verdict != verdict || !strings.Contains(last.Detail, detail) {
			t.Errorf("status %+v, want %s with %q", last, verdict, detail)
		}
	}
	check(head, exitOK, "--server", "http://127.0.0.1:1")
	told(head, forge.Success, "nothing was backtested: no server", "Nothing was backtested")
	check(head, exitRefused, "--server", "http://127.0.0.1:1", "--strict")
	check(head, exitOK, "--server", replay)
	told(head, forge.Success, "1 change of 1 service, 1 backtested", "1 would have dropped requests: 200 of 1,000 (20.00 %)")
	check(head, exitRefused, "--server", replay, "--max-drop-share", "0.1")
	told(head, forge.Failure, "more than a share of 0.1", "20.00 %")
	head = edit("policy.yaml", strings.Replace(ciPolicy, "each", "eech", 1))
	check(head, exitInvalid, "--server", replay)
	told(head, forge.Failure, "invalid: 1 error", "policy.yaml:5:21: unknown key")
}
