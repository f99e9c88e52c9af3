// Package gitea is reviews as pull requests of Gitea and Forgejo.
package gitea

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"code.gitea.io/sdk/gitea"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync/forge"
)

// bodyLimit is a bound of ours, in bytes: Gitea's column takes 64 KiB on MySQL.
const bodyLimit = 60_000

// maxPages bounds a listing, at 50 entries a page, which is what servers give.
const maxPages = 40

// Config says which repository, and as whom.
type Config struct {
	Server forge.Server // URL: required, https://host without /api/v1
	Repo   string       // required: owner/name
	Branch string       // the base branch, "main" by default
}

// Forge implements forge.Forge.
type Forge struct {
	web               *http.Client
	url               string
	owner, name, base string
}

// New checks c; it asks the server nothing.
func New(c Config) (*Forge, error) {
	if c.Branch == "" {
		c.Branch = "main"
	}
	owner, name, ok := strings.Cut(c.Repo, "/")
	if !ok || owner == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%w: repository %q: want owner/name", rlc.ErrInvalid, c.Repo)
	}
	c.Server.Header, c.Server.Prefix = "Authorization", "token "
	web, err := forge.Client(c.Server)
	if err != nil {
		return nil, err
	}
	return &Forge{web: web, url: strings.TrimRight(c.Server.URL, "/"), owner: owner, name: name, base: c.Branch}, nil
}

// api is a client for one act: the library keeps the context in it. The version
// is the oldest with all that is used here, so that it is not asked for.
func (f *Forge) api(ctx context.Context) (*gitea.Client, error) {
	return gitea.NewClient(f.url, gitea.SetHTTPClient(f.web), gitea.SetGiteaVersion("1.22.0"), gitea.SetContext(ctx))
}

// BodyLimit implements forge.Forge.
func (f *Forge) BodyLimit() int { return bodyLimit }

// List implements forge.Forge.
func (f *Forge) List(ctx context.Context) ([]forge.Review, error) {
	return f.list(ctx, gitea.StateOpen, func(p *gitea.PullRequest) bool { return strings.HasPrefix(branchOf(p), "rlc/") }, false)
}

// list pages through pull requests, the newest first, and keeps those wanted,
// the first only where one is enough.
func (f *Forge) list(ctx context.Context, state gitea.StateType, wanted func(*gitea.PullRequest) bool, one bool) (out []forge.Review, err error) {
	api, err := f.api(ctx)
	if err != nil {
		return nil, err
	}
	for page := 1; page <= maxPages; page++ {
		all, resp, err := api.ListRepoPullRequests(f.owner, f.name, gitea.ListPullRequestsOptions{ListOptions: gitea.ListOptions{Page: page, PageSize: 50}, State: state, Sort: "newest"})
		if err != nil {
			return nil, failed("list reviews", resp, err)
		}
		for _, p := range all {
			if p.Head == nil || p.Base == nil || p.Base.Ref != f.base || p.Head.RepoID != p.Base.RepoID || !wanted(p) {
				continue
			}
			if out = append(out, review(p)); one {
				return out, nil
			}
		}
		if len(all) == 0 || resp.NextPage == 0 {
			break
		}
	}
	return out, nil
}

// Find implements forge.Forge. The API cannot be asked by branch: the newest
// 2,000 reviews are looked through, open ones first.
func (f *Forge) Find(ctx context.Context, branch string) (forge.Review, error) {
	of := func(p *gitea.PullRequest) bool { return branchOf(p) == branch }
	for _, state := range []gitea.StateType{gitea.StateOpen, gitea.StateClosed} {
		found, err := f.list(ctx, state, of, true)
		if err != nil {
			return forge.Review{}, err
		}
		if len(found) > 0 {
			return found[0], nil
		}
	}
	return forge.Review{}, fmt.Errorf("%w: no review of branch %s", rlc.ErrNotFound, branch)
}

// branchOf is a pull request's branch. Once that is deleted only the label tells: the
// reference becomes refs/pull/<number>/head.
func branchOf(p *gitea.PullRequest) string {
	if strings.HasPrefix(p.Head.Ref, "refs/pull/") {
		return p.Head.Name
	}
	return p.Head.Ref
}

func review(p *gitea.PullRequest) forge.Review {
	v := forge.Review{Number: p.Index, URL: p.HTMLURL, Branch: branchOf(p), Commit: p.Head.Sha, State: forge.Open, Title: p.Title, Body: p.Body}
	for _, l := range p.Labels {
		v.Labels = append(v.Labels, l.Name)
	}
	switch {
	case p.HasMerged:
		v.State = forge.Merged
		if p.Merged != nil {
			v.At = p.Merged.UTC()
		}
		if p.MergedBy != nil {
			v.By = p.MergedBy.UserName
		}
	case p.State == gitea.StateClosed:
		v.State = forge.Closed // by whom the API does not say
		if p.Closed != nil {
			v.At = p.Closed.UTC()
		}
	}
	return v
}

// Open implements forge.Forge.
func (f *Forge) Open(ctx context.Context, branch string, t forge.Text) (forge.Review, error) {
	api, err := f.api(ctx)
	if err != nil {
		return forge.Review{}, err
	}
	p, resp, err := api.CreatePullRequest(f.owner, f.name, gitea.CreatePullRequestOption{Head: branch, Base: f.base, Title: t.Title, Body: t.Body})
	if err != nil {
		return forge.Review{}, failed("open a review", resp, err)
	}
	return review(p), f.attach(api, p.Index, t)
}

// Update implements forge.Forge.
func (f *Forge) Update(ctx context.Context, number int64, t forge.Text) error {
	api, err := f.api(ctx)
	if err != nil {
		return err
	}
	if _, resp, err := api.EditPullRequest(f.owner, f.name, number, gitea.EditPullRequestOption{Title: t.Title, Body: &t.Body}); err != nil {
		return failed("update a review", resp, err)
	}
	return nil
}

// attach adds labels, by their numbers, and reviewers, one by one because the
// server refuses all when it does not know one.
func (f *Forge) attach(api *gitea.Client, number int64, t forge.Text) error {
	if len(t.Labels) > 0 {
		ids, err := f.labels(api, t.Labels)
		if err != nil {
			return err
		}
		if _, resp, err := api.AddIssueLabels(f.owner, f.name, number, gitea.IssueLabelsOption{Labels: ids}); err != nil {
			return failed("label a review", resp, err)
		}
	}
	for _, who := range t.Reviewers {
		one := gitea.PullReviewRequestOptions{Reviewers: []string{who}}
		if _, team, ok := strings.Cut(who, "/"); ok {
			one = gitea.PullReviewRequestOptions{TeamReviewers: []string{team}}
		}
		resp, err := api.CreateReviewRequests(f.owner, f.name, number, one)
		if err != nil && (resp == nil || resp.Response == nil || resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusUnprocessableEntity) {
			return failed("ask a reviewer", resp, err)
		}
	}
	return nil
}

// labels finds labels by name and makes those that are missing.
func (f *Forge) labels(api *gitea.Client, names []string) (ids []int64, err error) {
	known := map[string]int64{}
	for page := 1; page <= maxPages; page++ {
		all, resp, err := api.ListRepoLabels(f.owner, f.name, gitea.ListLabelsOptions{ListOptions: gitea.ListOptions{Page: page, PageSize: 50}})
		if err != nil {
			return nil, failed("list labels", resp, err)
		}
		for _, l := range all {
			known[l.Name] = l.ID
		}
		if len(all) == 0 || resp.NextPage == 0 {
			break
		}
	}
	for _, name := range names {
		id, ok := known[name]
		if !ok {
			l, resp, err := api.CreateLabel(f.owner, f.name, gitea.CreateLabelOption{Name: name, Color: "#1d76db"})
			if err != nil {
				return nil, failed("make a label", resp, err)
			}
			id = l.ID
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Close implements forge.Forge.
func (f *Forge) Close(ctx context.Context, number int64) error {
	api, err := f.api(ctx)
	if err != nil {
		return err
	}
	closed := gitea.StateClosed
	_, resp, err := api.EditPullRequest(f.owner, f.name, number, gitea.EditPullRequestOption{State: &closed})
	return failed("close a review", resp, err)
}

// Comment implements forge.Forge.
func (f *Forge) Comment(ctx context.Context, number int64, body string) error {
	api, err := f.api(ctx)
	if err != nil {
		return err
	}
	return forge.Comments{
		Each: func(yield func(int64, string) bool) error {
			for page := 1; page <= maxPages; page++ {
				all, resp, err := api.ListIssueComments(f.owner, f.name, number, gitea.ListIssueCommentOptions{ListOptions: gitea.ListOptions{Page: page, PageSize: 50}})
				if err != nil {
					return failed("read comments", resp, err)
				}
				for _, c := range all {
					if !yield(c.ID, c.Body) {
						return nil
					}
				}
				if len(all) == 0 || resp.NextPage == 0 {
					break
				}
			}
			return nil
		},
		Create: func(text string) (int64, error) {
			c, resp, err := api.CreateIssueComment(f.owner, f.name, number, gitea.CreateIssueCommentOption{Body: text})
			if err != nil {
				return 0, failed("comment", resp, err)
			}
			return c.ID, nil
		},
		Change: func(id int64, text string) error {
			_, resp, err := api.EditIssueComment(f.owner, f.name, id, gitea.EditIssueCommentOption{Body: text})
			return failed("change a comment", resp, err)
		},
	}.Write(body)
}

// Status implements forge.Forge.
func (f *Forge) Status(ctx context.Context, commit string, s forge.Status) error {
	api, err := f.api(ctx)
	if err != nil {
		return err
	}
	_, resp, err := api.CreateStatus(f.owner, f.name, commit, gitea.CreateStatusOption{State: gitea.StatusState(s.Verdict), Context: s.Name, Description: forge.Line(s.Detail), TargetURL: s.URL})
	return failed("set a status", resp, err)
}

// Merge implements forge.Forge. The server is asked once all of the commit's checks
// have passed: left to wait for them it would merge whatever is the head by then.
func (f *Forge) Merge(ctx context.Context, number int64, commit string) error {
	api, err := f.api(ctx)
	if err != nil {
		return err
	}
	checks, resp, err := api.GetCombinedStatus(f.owner, f.name, commit)
	if err != nil {
		return failed("read the checks of a review", resp, err)
	}
	if checks.TotalCount > 0 && checks.State != gitea.StatusSuccess && checks.State != gitea.StatusWarning {
		return fmt.Errorf("merge a review: %w: its checks are %s", rlc.ErrConflict, checks.State)
	}
	ok, resp, err := api.MergePullRequest(f.owner, f.name, number, gitea.MergePullRequestOption{Style: gitea.MergeStyleSquash, HeadCommitId: commit})
	if err == nil && !ok {
		err = fmt.Errorf("the server answered HTTP %d: %s", resp.StatusCode, why(resp))
	}
	if err = failed("merge a review", resp, err); !errors.Is(err, rlc.ErrConflict) {
		return err
	}
	if strings.Contains(err.Error(), "behind the base branch") {
		return fmt.Errorf("%w: %w", forge.ErrBehind, err)
	}
	return err
}

// why is what a server says with a refusal. The library drops it; forge.Client holds
// every answer in memory, so that it can be read again.
func why(resp *gitea.Response) string {
	var said struct{ Message string }
	_ = json.NewDecoder(resp.Body).Decode(&said)
	return forge.Line(said.Message)
}

func failed(did string, resp *gitea.Response, err error) error {
	status := 0
	if resp != nil && resp.Response != nil {
		status = resp.StatusCode
	}
	return forge.Failed(did, status, err)
}
