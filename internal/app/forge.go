package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/gitea"
	"github.com/openrlc/rlc/gitsync/github"
	"github.com/openrlc/rlc/gitsync/gitlab"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/review"
	"github.com/openrlc/rlc/web"
)

// openForge makes the client of the configured forge, nil for none. A GitHub
// App's token is git's password as well.
func openForge(c config.Server, at *gitsync.Config) (forge.Forge, error) {
	f := c.Forge
	if f.Kind == "none" || f.Kind == "" {
		return nil, nil
	}
	repo, err := forgeRepository(f.Repository, c.Repository.URL)
	if err != nil {
		return nil, err
	}
	networks, err := config.Networks(cmp.Or(f.Networks, c.Repository.Networks))
	if err != nil {
		return nil, err
	}
	s := forge.Server{URL: f.URL, CAFile: cmp.Or(f.CAFile, c.Repository.CAFile), TokenFile: cmp.Or(f.TokenFile, c.Repository.TokenFile), Networks: networks}
	switch f.Kind {
	case "gitlab":
		return gitlab.New(gitlab.Config{Server: s, Repo: repo, Branch: c.Repository.Branch})
	case "gitea":
		return gitea.New(gitea.Config{Server: s, Repo: repo, Branch: c.Repository.Branch})
	}
	g := github.Config{Server: s, Repo: repo, Branch: c.Repository.Branch}
	if f.AppKeyFile != "" {
		g.Server.TokenFile = ""
		g.App = github.App{ID: int64(f.AppID), Installation: int64(f.AppInstallation), KeyFile: f.AppKeyFile}
	}
	hub, err := github.New(g)
	if err != nil {
		return nil, err
	}
	if f.AppKeyFile != "" && at.TokenFile == "" {
		at.User = cmp.Or(at.User, "x-access-token")
		at.Token = func() (string, error) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return hub.Token(ctx)
		}
	}
	return hub, nil
}

// forgeRepository is the repository's name on the forge: as configured, or the
// path of the URL that git uses.
func forgeRepository(configured, remote string) (string, error) {
	if configured != "" {
		return configured, nil
	}
	path := ""
	if u, err := url.Parse(remote); err == nil && u.Host != "" {
		path = u.Path
	} else if _, after, ok := strings.Cut(remote, ":"); ok && gitsync.Remote(remote) {
		path = after
	}
	path = strings.TrimSuffix(strings.Trim(path, "/"), ".git")
	if path == "" {
		return "", fmt.Errorf("%w: forge.repository: the forge needs the repository's name, owner/name", rlc.ErrInvalid)
	}
	return path, nil
}

// openReviews puts reviews between runs and the repository.
func (a *App) openReviews(f forge.Forge) (err error) {
	c := forge.Config{
		Repository: a.Repo, Forge: f, MaxOpen: a.Config.Reviews.MaxOpen, Open: a.openProposals, Queue: a.Records.Queue, Log: a.log,
		Title:     a.reviewTitle,
		Body:      a.reviewBody,
		Reviewers: a.reviewers,
	}
	for l := range strings.SplitSeq(a.Config.Reviews.Labels, ",") {
		if l = strings.TrimSpace(l); l != "" {
			c.Labels = append(c.Labels, l)
		}
	}
	a.reviews, err = forge.New(c)
	return err
}

// moving are the changes that a review is about.
func moving(all []rlc.Change) []rlc.Change {
	return slices.DeleteFunc(slices.Clone(all), func(c rlc.Change) bool { return !c.Moves() })
}

func (a *App) reviewTitle(p rlc.Proposal) string {
	all, team := a.together(p)
	if team == "" {
		return review.Title(p.Service, moving(p.Changes))
	}
	return review.TeamTitle(team, len(all))
}

func (a *App) reviewBody(p rlc.Proposal) string {
	all, team := a.together(p)
	if team == "" {
		return a.proposalBody(p)
	}
	bodies := make([]string, len(all))
	for i, p := range all {
		bodies[i] = "## " + review.Title(p.Service, moving(p.Changes)) + "\n\n" + a.proposalBody(p)
	}
	return review.TeamBody(bodies)
}

func (a *App) proposalBody(p rlc.Proposal) string {
	about := review.About{Page: a.URL + "/proposals/" + p.ID, Forge: true}
	if _, c := a.Desired(); c != nil {
		about.Service = c.Service(p.Service)
		about.Rendered = renderLosses(c, p)
		about.Owners = func(caller string) []string {
			if s := c.Service(caller); s != nil {
				return s.Owners
			}
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	about.Merges, about.Because = a.Mergeable(ctx, p)
	p.Changes = moving(p.Changes)
	return review.Body(p, about)
}

// reviewers are whom CODEOWNERS names for a service's quotas; where it names
// nobody, those owners in policy.yaml that are written as the forge's (@login,
// @group/team).
func (a *App) reviewers(ctx context.Context, p rlc.Proposal) ([]string, error) {
	all, team := a.together(p)
	if team == "" {
		return a.reviewersOf(ctx, p)
	}
	var who []string
	for _, p := range all {
		more, err := a.reviewersOf(ctx, p)
		if err != nil {
			return nil, err
		}
		who = append(who, more...)
	}
	slices.Sort(who)
	return slices.Compact(who), nil
}

func (a *App) reviewersOf(ctx context.Context, p rlc.Proposal) ([]string, error) {
	who, err := a.Repo.CodeOwners(ctx, p.Service)
	if err != nil || who != nil {
		return who, err
	}
	_, c := a.Desired()
	if c == nil || c.Service(p.Service) == nil {
		return nil, nil
	}
	for _, o := range c.Service(p.Service).Owners {
		if name, ok := strings.CutPrefix(o, "@"); ok {
			who = append(who, name)
		}
	}
	return who, nil
}

func (a *App) openProposals(ctx context.Context) ([]rlc.Proposal, error) {
	return a.Records.UnderReview(ctx)
}

// closeReview closes a decided proposal's review on the forge. The decision
// stands whether or not the forge hears of it; one that could not be closed is
// logged, and closed by hand.
func (a *App) closeReview(ctx context.Context, p rlc.Proposal) {
	if err := a.reviews.CloseReview(ctx, p); err != nil && !errors.Is(err, context.Canceled) {
		a.log.Warn("the review was not closed on the forge", "proposal", p.ID, "error", err)
	}
}

// hook is what the forge may send.
func (a *App) hook() web.Hook {
	h := web.Hook{Kind: a.Config.Forge.Kind, Wake: func() {
		a.merging.woken.Add(1)
		a.reviews.Wake()
		a.Nudge()
	}}
	if file := a.Config.Forge.WebhookSecretFile; file != "" {
		h.Secret = func() (string, error) { return forge.ReadSecret(file) }
	}
	return h
}
