// Package gitlab is reviews as GitLab's merge requests.
package gitlab

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"gitlab.com/gitlab-org/api/client-go"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync/forge"
)

// bodyLimit is below what GitLab takes (1,048,576 characters): nobody reads more.
const bodyLimit = 500_000

// maxPages bounds a listing, at 100 entries a page.
const maxPages = 50

// Config says which project, and as whom.
type Config struct {
	Server forge.Server // URL: https://gitlab.com by default, without /api/v4
	Repo   string       // required: group/…/name
	Branch string       // the base branch, "main" by default
}

// Forge implements forge.Forge.
type Forge struct {
	api           *gitlab.Client
	project, base string
}

// New checks c; it asks the server nothing.
func New(c Config) (*Forge, error) {
	if c.Server.URL == "" {
		c.Server.URL = "https://gitlab.com"
	}
	if c.Branch == "" {
		c.Branch = "main"
	}
	if !strings.Contains(strings.Trim(c.Repo, "/"), "/") {
		return nil, fmt.Errorf("%w: project %q: want group/name", rlc.ErrInvalid, c.Repo)
	}
	c.Server.Header = "PRIVATE-TOKEN"
	web, err := forge.Client(c.Server)
	if err != nil {
		return nil, err
	}
	// The client's own header is written over by the token as it is by then.
	api, err := gitlab.NewClient("", gitlab.WithBaseURL(c.Server.URL), gitlab.WithHTTPClient(web), gitlab.WithoutRetries(), gitlab.WithCustomLimiter(unlimited{}))
	if err != nil {
		return nil, err
	}
	return &Forge{api: api, project: strings.Trim(c.Repo, "/"), base: c.Branch}, nil
}

// unlimited leaves waiting to forge.Client, which keeps what the server asks for.
type unlimited struct{}

func (unlimited) Wait(context.Context) error { return nil }

// BodyLimit implements forge.Forge.
func (f *Forge) BodyLimit() int { return bodyLimit }

// List implements forge.Forge.
func (f *Forge) List(ctx context.Context) ([]forge.Review, error) {
	var out []forge.Review
	opt := &gitlab.ListProjectMergeRequestsOptions{State: gitlab.Ptr("opened"), TargetBranch: &f.base, ListOptions: gitlab.ListOptions{PerPage: 100}}
	for range maxPages {
		all, resp, err := f.api.MergeRequests.ListProjectMergeRequests(f.project, opt, gitlab.WithContext(ctx))
		if err != nil {
			return nil, failed("list reviews", resp, err)
		}
		for _, m := range all {
			if m.SourceProjectID == m.TargetProjectID && strings.HasPrefix(m.SourceBranch, "rlc/") {
				out = append(out, review(m))
			}
		}
		if opt.Page = resp.NextPage; opt.Page == 0 {
			break
		}
	}
	return out, nil
}

// Find implements forge.Forge.
func (f *Forge) Find(ctx context.Context, branch string) (forge.Review, error) {
	all, resp, err := f.api.MergeRequests.ListProjectMergeRequests(f.project, &gitlab.ListProjectMergeRequestsOptions{
		State: gitlab.Ptr("all"), SourceBranch: &branch, TargetBranch: &f.base, OrderBy: gitlab.Ptr("created_at"), Sort: gitlab.Ptr("desc"),
		ListOptions: gitlab.ListOptions{PerPage: 10}}, gitlab.WithContext(ctx))
	if err != nil {
		return forge.Review{}, failed("look for a review", resp, err)
	}
	for _, m := range all {
		if m.SourceBranch == branch && m.SourceProjectID == m.TargetProjectID {
			return review(m), nil
		}
	}
	return forge.Review{}, fmt.Errorf("%w: no review of branch %s", rlc.ErrNotFound, branch)
}

func review(m *gitlab.BasicMergeRequest) forge.Review {
	v := forge.Review{Number: m.IID, URL: m.WebURL, Branch: m.SourceBranch, Commit: m.SHA, State: forge.Open, Title: m.Title, Body: m.Description, Labels: m.Labels}
	switch m.State {
	case "merged":
		v.State = forge.Merged
		if m.MergedAt != nil {
			v.At = m.MergedAt.UTC()
		}
		if m.MergeUser != nil {
			v.By = m.MergeUser.Username
		}
	case "closed":
		v.State = forge.Closed
		if m.ClosedAt != nil {
			v.At = m.ClosedAt.UTC()
		}
		if m.ClosedBy != nil {
			v.By = m.ClosedBy.Username
		}
	}
	return v
}

// Open implements forge.Forge.
func (f *Forge) Open(ctx context.Context, branch string, t forge.Text) (forge.Review, error) {
	opt := &gitlab.CreateMergeRequestOptions{Title: &t.Title, Description: &t.Body, SourceBranch: &branch, TargetBranch: &f.base, RemoveSourceBranch: gitlab.Ptr(true)}
	if len(t.Labels) > 0 {
		labels := gitlab.LabelOptions(t.Labels)
		opt.Labels = &labels
	}
	who, err := f.people(ctx, t.Reviewers)
	if err != nil {
		return forge.Review{}, err
	}
	if len(who) > 0 {
		opt.ReviewerIDs = &who
	}
	m, resp, err := f.api.MergeRequests.CreateMergeRequest(f.project, opt, gitlab.WithContext(ctx))
	if err != nil {
		return forge.Review{}, failed("open a review", resp, err)
	}
	return review(&m.BasicMergeRequest), nil
}

// people are the numbers of logins. A group cannot be asked here; CODEOWNERS
// makes GitLab ask it by itself.
func (f *Forge) people(ctx context.Context, logins []string) (ids []int64, err error) {
	for _, login := range logins {
		if strings.Contains(login, "/") {
			continue
		}
		all, resp, err := f.api.Users.ListUsers(&gitlab.ListUsersOptions{Username: &login}, gitlab.WithContext(ctx))
		if err != nil {
			return nil, failed("look for a reviewer", resp, err)
		}
		for _, u := range all {
			ids = append(ids, u.ID)
		}
	}
	return ids, nil
}

// Update implements forge.Forge.
func (f *Forge) Update(ctx context.Context, number int64, t forge.Text) error {
	opt := &gitlab.UpdateMergeRequestOptions{Title: &t.Title, Description: &t.Body}
	_, resp, err := f.api.MergeRequests.UpdateMergeRequest(f.project, number, opt, gitlab.WithContext(ctx))
	return failed("update a review", resp, err)
}

// Close implements forge.Forge.
func (f *Forge) Close(ctx context.Context, number int64) error {
	_, resp, err := f.api.MergeRequests.UpdateMergeRequest(f.project, number, &gitlab.UpdateMergeRequestOptions{StateEvent: gitlab.Ptr("close")}, gitlab.WithContext(ctx))
	return failed("close a review", resp, err)
}

// Comment implements forge.Forge.
func (f *Forge) Comment(ctx context.Context, number int64, body string) error {
	opt := &gitlab.ListMergeRequestNotesOptions{ListOptions: gitlab.ListOptions{PerPage: 100}}
	return forge.Comments{
		Each: func(yield func(int64, string) bool) error {
			for range maxPages {
				all, resp, err := f.api.Notes.ListMergeRequestNotes(f.project, number, opt, gitlab.WithContext(ctx))
				if err != nil {
					return failed("read comments", resp, err)
				}
				for _, n := range all {
					if !yield(n.ID, n.Body) {
						return nil
					}
				}
				if opt.Page = resp.NextPage; opt.Page == 0 {
					break
				}
			}
			return nil
		},
		Create: func(text string) (int64, error) {
			n, resp, err := f.api.Notes.CreateMergeRequestNote(f.project, number, &gitlab.CreateMergeRequestNoteOptions{Body: &text}, gitlab.WithContext(ctx))
			if err != nil {
				return 0, failed("comment", resp, err)
			}
			return n.ID, nil
		},
		Change: func(id int64, text string) error {
			_, resp, err := f.api.Notes.UpdateMergeRequestNote(f.project, number, id, &gitlab.UpdateMergeRequestNoteOptions{Body: &text}, gitlab.WithContext(ctx))
			return failed("change a comment", resp, err)
		},
	}.Write(body)
}

// Status implements forge.Forge.
func (f *Forge) Status(ctx context.Context, commit string, s forge.Status) error {
	state := map[forge.Verdict]gitlab.BuildStateValue{forge.Pending: gitlab.Pending, forge.Success: gitlab.Success, forge.Failure: gitlab.Failed}[s.Verdict]
	opt := &gitlab.SetCommitStatusOptions{State: state, Name: &s.Name, Description: gitlab.Ptr(forge.Line(s.Detail))}
	if s.URL != "" {
		opt.TargetURL = &s.URL
	}
	_, resp, err := f.api.Commits.SetCommitStatus(f.project, commit, opt, gitlab.WithContext(ctx))
	if resp != nil && resp.StatusCode == http.StatusBadRequest && strings.Contains(err.Error(), "Cannot transition status") {
		return nil // it has that state already
	}
	return failed("set a status", resp, err)
}

// Merge implements forge.Forge. The server is asked once the pipeline has passed: an
// order to merge later would stand whatever people say meanwhile.
func (f *Forge) Merge(ctx context.Context, number int64, commit string) error {
	m, resp, err := f.api.MergeRequests.GetMergeRequest(f.project, number, nil, gitlab.WithContext(ctx))
	switch {
	case err != nil:
		return failed("read a review", resp, err)
	case m.DetailedMergeStatus == "need_rebase":
		return fmt.Errorf("merge a review: %w", forge.ErrBehind)
	case m.HeadPipeline != nil && m.HeadPipeline.Status != "success" && m.HeadPipeline.Status != "skipped":
		return fmt.Errorf("merge a review: %w: its pipeline is %s", rlc.ErrConflict, m.HeadPipeline.Status)
	}
	_, resp, err = f.api.MergeRequests.AcceptMergeRequest(f.project, number, &gitlab.AcceptMergeRequestOptions{
		SHA: &commit, ShouldRemoveSourceBranch: gitlab.Ptr(true)}, gitlab.WithContext(ctx))
	return failed("merge a review", resp, err)
}

func failed(did string, resp *gitlab.Response, err error) error {
	status := 0
	if resp != nil && resp.Response != nil {
		status = resp.StatusCode
	}
	return forge.Failed(did, status, err)
}
