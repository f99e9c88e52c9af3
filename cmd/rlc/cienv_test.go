package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/forgetest"
	"github.com/openrlc/rlc/quotafile"
)

// Each CI says by its environment which review and which commit it checks; what
// is given by flags wins, and an event file that is none says nothing.
func TestTheReviewComesFromTheCIsEnvironment(t *testing.T) {
	head := strings.Repeat("a1", 20)
	event := written(t, "event.json", `{"action":"synchronize","number":7,"pull_request":{"head":{"sha":%q}}}`, head)
	actions := map[string]string{"GITHUB_ACTIONS": "true", "GITHUB_API_URL": "https://api.github.com", "GITHUB_SERVER_URL": "https://git.example.com",
		"GITHUB_REPOSITORY": "acme/config", "GITHUB_SHA": strings.Repeat("b2", 20), "GITHUB_EVENT_PATH": event}
	gitlab := map[string]string{"GITLAB_CI": "true", "CI_SERVER_URL": "https://gitlab.example.com", "CI_PROJECT_PATH": "acme/teams/config", "CI_MERGE_REQUEST_IID": "12",
		"CI_COMMIT_SHA": strings.Repeat("c3", 20), "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": head}
	for name, c := range map[string]struct {
		env, over map[string]string
		flags     forgeFlags
		want      forgeFlags
	}{
		"GitHub Actions": {env: actions, want: forgeFlags{kind: "github", url: "https://api.github.com", repository: "acme/config", review: 7, commit: head}},
		"Gitea Actions":  {env: actions, over: map[string]string{"GITEA_ACTIONS": "true"}, want: forgeFlags{kind: "gitea", url: "https://git.example.com", repository: "acme/config", review: 7, commit: head}},
		"Forgejo Actions": {env: actions, over: map[string]string{"FORGEJO_ACTIONS": "true"},
			want: forgeFlags{kind: "gitea", url: "https://git.example.com", repository: "acme/config", review: 7, commit: head}},
		"a push has no review": {env: actions, over: map[string]string{"GITHUB_EVENT_PATH": written(t, "event.json", `{"ref":"refs/heads/main"}`)},
			want: forgeFlags{kind: "github", url: "https://api.github.com", repository: "acme/config"}},
		"an event that is no JSON": {env: actions, over: map[string]string{"GITHUB_EVENT_PATH": written(t, "event.json", `{"number":`)},
			want: forgeFlags{kind: "github", url: "https://api.github.com", repository: "acme/config"}},
		"no event file": {env: actions, over: map[string]string{"GITHUB_EVENT_PATH": "/nowhere/event.json"},
			want: forgeFlags{kind: "github", url: "https://api.github.com", repository: "acme/config"}},
		"GitLab CI": {env: gitlab, want: forgeFlags{kind: "gitlab", url: "https://gitlab.example.com", repository: "acme/teams/config", review: 12, commit: head}},
		"a branch's pipeline in GitLab": {env: gitlab, over: map[string]string{"CI_MERGE_REQUEST_IID": "", "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": ""},
			want: forgeFlags{kind: "gitlab", url: "https://gitlab.example.com", repository: "acme/teams/config", commit: strings.Repeat("c3", 20)}},
		"flags win": {env: gitlab, flags: forgeFlags{kind: "gitea", url: "https://a", repository: "b/c", review: 3, commit: "d"},
			want: forgeFlags{kind: "gitea", url: "https://a", repository: "b/c", review: 3, commit: "d"}},
		"no CI": {},
	} {
		t.Run(name, func(t *testing.T) {
			for _, all := range []map[string]string{{"GITHUB_ACTIONS": "", "GITEA_ACTIONS": "", "FORGEJO_ACTIONS": "", "GITLAB_CI": ""}, c.env, c.over} {
				for k, v := range all {
					t.Setenv(k, v)
				}
			}
			got := c.flags
			if got.environment(); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// proposed is a clone of a config repository with an edit on a branch.
func proposed(t *testing.T) (bare, work string) {
	t.Helper()
	bare, work = filepath.Join(t.TempDir(), "acme", "config.git"), filepath.Join(t.TempDir(), "work")
	if err := gitsync.Init(t.Context(), bare, "main", rlc.Files{"services/checkout/policy.yaml": []byte(ciPolicy), "services/checkout/quotas.yaml": []byte(ciQuotas)},
		gitsync.Person{Name: "ann", Email: "ann@example.com"}, "First configuration"); err != nil {
		t.Fatal(err)
	}
	git(t, "/", "clone", "-q", bare, work)
	git(t, work, "checkout", "-qb", "edit")
	if err := os.WriteFile(filepath.Join(work, "services/checkout/quotas.yaml"), []byte(strings.Replace(ciQuotas, "100", "80", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, work, "commit", "-qam", "edit")
	return bare, work
}

// runsCI runs rlc ci on a clone, wants its exit code and returns what it said.
func runsCI(t *testing.T, work string, want int, env []string, args ...string) string {
	t.Helper()
	cmd := program(t.Context(), append([]string{"GITHUB_ACTIONS=", "GITLAB_CI="}, env...), append([]string{"ci", "--repo", work, "--base", "origin/main"}, args...)...)
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != want || strings.Contains(string(out), "canary") {
		t.Fatalf("exit %d, want %d\n%s", code, want, out)
	}
	return string(out)
}

// A token that the server or the forge refuses is exit code 5, and the status
// says so wherever it can be written.
func TestARefusedTokenInCIIsExitFive(t *testing.T) {
	bare, work := proposed(t)
	git(t, work, "push", "-q", "origin", "edit")
	head := git(t, work, "rev-parse", "HEAD")
	denies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":"not authorised"}`))
	}))
	defer denies.Close()
	server := forgetest.NewServer(t, forgetest.Gitea, bare, "canary-ci-token")
	env := []string{"RLC_FORGE_TOKEN_FILE=" + server.TokenFile(), "RLC_TOKEN=canary-api-token"}
	post := []string{"--post", "--forge", "gitea", "--forge-url", server.URL, "--forge-repository", forgetest.Repo, "--forge-ca-file", server.CAFile(), "--commit", head}

	runsCI(t, work, exitAuthorised, env, append(post, "--server", denies.URL)...)
	if all := server.Statuses(head); len(all) != 1 || all[0].Name != "rlc ci" || all[0].Verdict != forge.Failure {
		t.Errorf("statuses: %+v", all)
	}
	server.Rotate("another")
	out := runsCI(t, work, exitAuthorised, env, post...)
	if !strings.Contains(out, "callers/caller=search: lowered from 100/s to 80/s") || !strings.Contains(out, "the token needs to write comments and statuses") {
		t.Errorf("told:\n%s", out)
	}
	if out := runsCI(t, work, exitInvalid, nil, "--post", "--forge", "gitea"); !strings.Contains(out, "RLC_FORGE_TOKEN") {
		t.Errorf("without a token:\n%s", out)
	}
}

// A pull request of a stranger can make the check refuse it, and no more: no
// link is followed, no attribute runs a program, a large file is named.
func TestAHostilePullRequestIsOnlyRefused(t *testing.T) {
	secret := written(t, "secret.yaml", "canary: outside the repository\n")
	ran := filepath.Join(t.TempDir(), "ran")
	large := bytes.Repeat([]byte("# 0123456789\n"), quotafile.MaxQuotasFile/13+1)
	for name, c := range map[string]struct {
		edit func(t *testing.T, work string)
		want int
		says string
	}{
		"quotas beyond the limit": {func(t *testing.T, work string) {
			if err := os.WriteFile(filepath.Join(work, "services/checkout/quotas.yaml"), large, 0o644); err != nil {
				t.Fatal(err)
			}
		}, exitInvalid, "services/checkout/quotas.yaml:1:1: "},
		"a policy beyond the limit": {func(t *testing.T, work string) {
			if err := os.WriteFile(filepath.Join(work, "services/checkout/policy.yaml"), large[:quotafile.MaxFile+1], 0o644); err != nil {
				t.Fatal(err)
			}
		}, exitInvalid, "services/checkout/policy.yaml:1:1: "},
		"a file that nobody reads": {func(t *testing.T, work string) {
			if err := os.WriteFile(filepath.Join(work, "services/checkout/policy.yml"), []byte(ciPolicy), 0o644); err != nil {
				t.Fatal(err)
			}
		}, exitInvalid, "services/checkout/policy.yml:1:1: nobody reads this file; rename it to policy.yaml"},
		"attributes and hooks that run programs": {func(t *testing.T, work string) {
			for name, text := range map[string]string{".gitattributes": "* filter=evil diff=evil merge=evil\n", ".gitmodules": "[submodule \"x\"]\n\tpath = x\n\turl = ext::sh -c touch% " + ran + "\n"} {
				if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}, exitOK, "valid, 1 change of 1 service"},
	} {
		t.Run(name, func(t *testing.T) {
			_, work := proposed(t)
			c.edit(t, work)
			git(t, work, "add", "-A")
			git(t, work, "commit", "-qm", "hostile")
			git(t, work, "config", "diff.evil.textconv", "touch "+ran)
			git(t, work, "config", "filter.evil.smudge", "touch "+ran)
			if out := runsCI(t, work, c.want, nil); !strings.Contains(out, c.says) {
				t.Errorf("told, want %q:\n%.2000s", c.says, out)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("a program of the pull request ran")
			}
		})
	}
	_, work := proposed(t)
	for _, link := range [][2]string{{secret, "services/spy/policy.yaml"}, {filepath.Dir(secret), "services/linked"}} {
		at := filepath.Join(work, link[1])
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(link[0], at)); err != nil {
			t.Fatal(err)
		}
	}
	git(t, work, "add", "-A")
	git(t, work, "commit", "-qm", "links")
	cmd := program(t.Context(), []string{"GITHUB_ACTIONS=", "GITLAB_CI="}, "ci", "--repo", work, "--base", "origin/main")
	if out, _ := cmd.CombinedOutput(); strings.Contains(string(out), "canary") || !strings.Contains(string(out), "lowered from 100/s to 80/s") {
		t.Errorf("links that lead outside:\n%s", out)
	}
	if out := runsCI(t, work, exitInvalid, nil, "--head", "--output="+ran); !strings.Contains(out, "is no commit here") {
		t.Errorf("a head that looks like a flag:\n%s", out)
	}
}
