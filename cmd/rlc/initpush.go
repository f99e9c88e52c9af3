package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/escape"
	"github.com/openrlc/rlc/quotafile"
)

// publish commits the policies to a branch of the config repository and puts it
// up for review.
func (s *starting) publish(c *cobra.Command) error {
	ctx, cfg := c.Context(), loadConfig(c).Server // openHistory has checked it
	dir, err := os.MkdirTemp("", "rlc-init-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	names, err := s.names(ctx)
	if err != nil {
		return err
	}
	at, on, err := app.Repository(cfg, dir)
	if err != nil {
		return err
	}
	at.Log = logger(c)
	repo, err := openRepository(ctx, cfg, at)
	if err != nil {
		return err
	}
	defer repo.Close()
	_, head, err := repo.Head(ctx)
	if err != nil {
		return err
	}
	if err := unmanaged(names, head); err != nil {
		return err
	}
	found, err := s.look(ctx, names)
	if err != nil {
		return err
	}
	files, err := s.files(found, func(path string) bool { return head[path] != nil })
	if err != nil {
		return err
	}
	text := forge.Text{Title: fmt.Sprintf("rlc: first policies of %s, all in shadow", rlc.Plural(len(found), "service")), Labels: config.List(cfg.Reviews.Labels)}
	commit, err := repo.PublishFirst(ctx, author(), text.Title, files)
	if errors.Is(err, rlc.ErrConflict) {
		return exit{exitRefused, err}
	}
	if err != nil {
		return err
	}
	tell(c.OutOrStdout(), found, "committed")
	s.unowned(c.OutOrStdout(), found)
	fmt.Fprintf(c.OutOrStdout(), "%s committed to %s as %s, all in shadow.\n", rlc.Plural(len(files), "file"), gitsync.FirstBranch, short(commit))
	if on == nil {
		return byHand(c.OutOrStdout(), cfg.Repository.URL, cfg.Repository.Branch)
	}
	text.Body = forge.Fit(firstBody(found, s.profile.Name), on.BodyLimit())
	v, err := putUp(ctx, on, text)
	if err != nil {
		err = fmt.Errorf("the branch is pushed, its review is not open; the same command again opens it: %w", err)
		if errors.Is(err, rlc.ErrRefused) {
			err = exit{exitAuthorised, err}
		}
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "review: %s\n", v.URL)
	return err
}

// openRepository opens the config repository, which it makes on this machine as the
// server would at its first start.
func openRepository(ctx context.Context, cfg config.Server, at gitsync.Config) (*gitsync.Repo, error) {
	err := app.MakeRepository(ctx, cfg)
	if err == nil {
		var repo *gitsync.Repo
		if repo, err = gitsync.Open(ctx, at); err == nil {
			return repo, nil
		}
	}
	if !errors.Is(err, rlc.ErrConflict) || gitsync.Remote(cfg.Repository.URL) {
		return nil, fmt.Errorf("config repository: %w", err)
	}
	where := ""
	if url, err := app.Running(cfg.Data); err == nil {
		where = " at " + url
	}
	return nil, fmt.Errorf("a running server%s holds the config repository; onboard services on its pages, or: git clone %s limits, the same command with --out limits in place of --push, and in limits git add, commit and push",
		where, quoted(cfg.Repository.URL))
}

// unmanaged refuses services that have a policy.
func unmanaged(names []string, head rlc.Files) error {
	var have []string
	for _, name := range names {
		if head[quotafile.PolicyPath(name)] != nil {
			have = append(have, name)
		}
	}
	if len(have) == 0 {
		return nil
	}
	return exit{exitRefused, fmt.Errorf("there is already a policy of %s; name the other services with --services", escape.Clip(strings.Join(have, ", "), 400))}
}

// author is who runs the command: as git would say it by its environment, else
// this machine's user.
func author() gitsync.Person {
	p := gitsync.Person{Name: os.Getenv("GIT_AUTHOR_NAME"), Email: os.Getenv("GIT_AUTHOR_EMAIL")}
	if p.Name == "" {
		if u, err := user.Current(); err == nil {
			p.Name = cmp.Or(u.Name, u.Username)
		}
	}
	return p
}

// putUp opens the branch's review, or brings an open one up to date.
func putUp(ctx context.Context, on forge.Forge, t forge.Text) (forge.Review, error) {
	v, err := on.Find(ctx, gitsync.FirstBranch)
	if errors.Is(err, rlc.ErrNotFound) || err == nil && v.State != forge.Open {
		return on.Open(ctx, gitsync.FirstBranch, t)
	}
	if err != nil {
		return v, err
	}
	return v, on.Update(ctx, v.Number, t)
}

// firstBody is the review's text.
func firstBody(found []seen, profile string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The metrics of profile %s name %s without a policy. Each gets a policy of six lines. Everything is in shadow: merging drops nothing; the next run proposes the first quotas, in reviews of their own.\n\n", escape.Code(profile), rlc.Plural(len(found), "service"))
	b.WriteString("To change a policy, commit to this branch. To leave a service out, delete its folder here. To reject, close this.\n\n")
	for _, f := range found {
		fmt.Fprintf(&b, "- %s: %s\n", escape.Code(f.Name), escape.Prose(f.about()))
		for _, d := range f.Doubts {
			fmt.Fprintf(&b, "  - look: %s\n", escape.Prose(d))
		}
	}
	return b.String()
}

// byHand says how to review and merge a branch without a forge.
func byHand(w io.Writer, url, base string) error {
	_, err := fmt.Fprintf(w, `No forge is configured. In a clone of the config repository,
  clone:  git clone %[1]s rlc-config && cd rlc-config
  show:   git fetch %[1]s %[2]s && git diff HEAD...FETCH_HEAD
  merge:  git switch %[3]s && git pull --no-rebase --no-edit %[1]s %[2]s && git push %[1]s %[3]s && git push %[1]s --delete %[2]s
  reject: git push %[1]s --delete %[2]s
`, quoted(url), gitsync.FirstBranch, quoted(base))
	return err
}

// quoted makes a text one word of a shell.
func quoted(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./-_", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
