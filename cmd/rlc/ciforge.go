package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/gitea"
	"github.com/openrlc/rlc/gitsync/github"
	"github.com/openrlc/rlc/gitsync/gitlab"
	"github.com/openrlc/rlc/internal/config"
)

// statusName is the name of the check on a forge.
const statusName = "rlc ci"

// forgeFlags say which review a command speaks to; what is empty comes from the
// CI's environment.
type forgeFlags struct {
	kind, url, repository, caFile string
	review                        int64
	commit                        string
}

func (f *forgeFlags) add(c *cobra.Command) {
	f.addRepository(c)
	c.Flags().Int64Var(&f.review, "review", 0, "number of the pull or merge request")
	c.Flags().StringVar(&f.commit, "commit", "", "full hash of the commit that gets the status: the head of the pull or merge request")
}

// addRepository adds the flags that name the repository on the forge.
func (f *forgeFlags) addRepository(c *cobra.Command) {
	c.Flags().StringVar(&f.kind, "forge", "", "github, gitlab or gitea (Forgejo too)")
	c.Flags().StringVar(&f.url, "forge-url", "", "the forge: https://host, for GitHub the API's https://host/api/v3")
	c.Flags().StringVar(&f.repository, "forge-repository", "", "the repository's name there, owner/name")
	c.Flags().StringVar(&f.caFile, "forge-ca-file", "", "`file` of authorities (PEM) trusted beside the system's")
}

// environment fills in what a CI says of itself.
func (f *forgeFlags) environment() {
	env := os.Getenv
	switch {
	case env("GITLAB_CI") != "":
		f.kind = cmp.Or(f.kind, "gitlab")
		f.url = cmp.Or(f.url, env("CI_SERVER_URL"))
		f.repository = cmp.Or(f.repository, env("CI_PROJECT_PATH"))
		// A pipeline of a merge's result runs on a commit that only it has.
		f.commit = cmp.Or(f.commit, env("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"), env("CI_COMMIT_SHA"))
		if n, err := strconv.ParseInt(env("CI_MERGE_REQUEST_IID"), 10, 64); err == nil && f.review == 0 {
			f.review = n
		}
	case env("GITHUB_ACTIONS") != "":
		if env("GITEA_ACTIONS") != "" || env("FORGEJO_ACTIONS") != "" {
			f.kind = cmp.Or(f.kind, "gitea")
			f.url = cmp.Or(f.url, env("GITHUB_SERVER_URL"))
		}
		f.kind = cmp.Or(f.kind, "github")
		f.url = cmp.Or(f.url, env("GITHUB_API_URL"))
		f.repository = cmp.Or(f.repository, env("GITHUB_REPOSITORY"))
		// The commit checked out is a merge that only the job has: the event
		// names the head.
		var event struct {
			Number int64 `json:"number"`
			Pull   struct {
				Head struct {
					SHA string `json:"sha"`
				} `json:"head"`
			} `json:"pull_request"`
		}
		if b, err := readBounded(env("GITHUB_EVENT_PATH")); err == nil && json.Unmarshal(b, &event) == nil {
			f.review = cmp.Or(f.review, event.Number)
			f.commit = cmp.Or(f.commit, event.Pull.Head.SHA)
		}
	}
}

// client opens the forge. An error is rlc.ErrInvalid.
func (f *forgeFlags) client(base string) (forge.Forge, error) {
	f.environment()
	token, err := config.Env("forge-token", "")
	if err != nil {
		return nil, err
	}
	for _, name := range map[string][]string{"github": {"GITHUB_TOKEN"}, "gitlab": {"GITLAB_TOKEN"}, "gitea": {"GITEA_TOKEN", "GITHUB_TOKEN"}}[f.kind] {
		token = cmp.Or(token, os.Getenv(name))
	}
	if token = strings.TrimSpace(token); token == "" {
		return nil, fmt.Errorf("%w: no token for the forge: give RLC_FORGE_TOKEN or RLC_FORGE_TOKEN_FILE", rlc.ErrInvalid)
	}
	s := forge.Server{URL: f.url, CAFile: f.caFile, Token: func(context.Context) (string, error) { return token, nil }}
	switch f.kind {
	case "github":
		return github.New(github.Config{Server: s, Repo: f.repository, Branch: base})
	case "gitlab":
		return gitlab.New(gitlab.Config{Server: s, Repo: f.repository, Branch: base})
	case "gitea":
		return gitea.New(gitea.Config{Server: s, Repo: f.repository, Branch: base})
	}
	return nil, fmt.Errorf("%w: --forge %q: want github, gitlab or gitea", rlc.ErrInvalid, f.kind)
}

// posting is one review on a forge. A nil one posts nothing.
type posting struct {
	forge  forge.Forge
	review int64
	commit string
}

func (f *forgeFlags) open() (*posting, error) {
	client, err := f.client("")
	if err != nil {
		return nil, err
	}
	if len(f.commit) < 40 {
		return nil, fmt.Errorf("%w: --commit: which commit gets the status? the environment does not say", rlc.ErrInvalid)
	}
	return &posting{client, f.review, f.commit}, nil
}

// comment writes the one comment; a branch without a review has none.
func (p *posting) comment(ctx context.Context, body string) error {
	if p == nil || p.review == 0 {
		return nil
	}
	return denied(p.forge.Comment(ctx, p.review, body))
}

func (p *posting) status(ctx context.Context, v forge.Verdict, detail string) error {
	if p == nil {
		return nil
	}
	return denied(p.forge.Status(ctx, p.commit, forge.Status{Name: statusName, Verdict: v, Detail: detail}))
}

// denied gives a refused token its exit code.
func denied(err error) error {
	if errors.Is(err, rlc.ErrRefused) {
		return exit{exitAuthorised, fmt.Errorf("%w; the token needs to write comments and statuses", err)}
	}
	return err
}
