// Package github is reviews as GitHub's pull requests.
package github

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v84/github"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync/forge"
)

// bodyLimit is what GitHub takes, in bytes: 65,536 characters, of which one may
// have four; text that is mostly ASCII stays below with the room left here.
const bodyLimit = 60_000

// maxPages bounds a listing, at 100 entries a page.
const maxPages = 50

// Config says which repository, and as whom. Exactly one of Server's TokenFile
// (a fine-grained or classic token) and App is given.
type Config struct {
	Server forge.Server // URL: https://api.github.com by default, else https://host/api/v3
	Repo   string       // required: owner/name
	Branch string       // the base branch, "main" by default
	App    App
}

// App is a GitHub App's identity; the zero value is none.
type App struct {
	ID           int64
	Installation int64
	KeyFile      string // PEM of its RSA key; read again for every token
}

// Forge implements forge.Forge.
type Forge struct {
	api               *github.Client
	owner, name, base string
	app               *tokens // nil with a token file
}

// New checks c; it asks the server nothing.
func New(c Config) (*Forge, error) {
	if c.Server.URL == "" {
		c.Server.URL = "https://api.github.com"
	}
	if c.Branch == "" {
		c.Branch = "main"
	}
	owner, name, ok := strings.Cut(c.Repo, "/")
	if !ok || owner == "" || name == "" || strings.ContainsAny(c.Repo, "?#% ") || strings.Contains(name, "/") || strings.Contains(c.Repo, "..") {
		return nil, fmt.Errorf("%w: repository %q: want owner/name", rlc.ErrInvalid, c.Repo)
	}
	f := &Forge{owner: owner, name: name, base: c.Branch}
	c.Server.Header, c.Server.Prefix = "Authorization", "Bearer "
	if c.App.KeyFile != "" {
		if c.Server.TokenFile != "" || c.App.ID <= 0 || c.App.Installation <= 0 {
			return nil, fmt.Errorf("%w: a GitHub App needs its id and its installation's, and no token file", rlc.ErrInvalid)
		}
		f.app, c.Server.MadeFrom = &tokens{app: c.App, now: c.Server.Now}, c.App.KeyFile
		if f.app.now == nil {
			f.app.now = time.Now
		}
		signed := c.Server
		signed.Token = f.app.assertion
		asApp, err := client(signed)
		if err != nil {
			return nil, err
		}
		f.app.api, c.Server.Token = asApp, f.app.token
	}
	var err error
	f.api, err = client(c.Server)
	return f, err
}

func client(s forge.Server) (*github.Client, error) {
	web, err := forge.Client(s)
	if err != nil {
		return nil, err
	}
	api := github.NewClient(web)
	api.BaseURL, err = url.Parse(strings.TrimRight(s.URL, "/") + "/")
	return api, err
}

// Token is the token in use now: an App's installation token is what git's https
// wants as a password, too.
func (f *Forge) Token(ctx context.Context) (string, error) {
	if f.app == nil {
		return "", fmt.Errorf("%w: the token is kept in a file", rlc.ErrInvalid)
	}
	return f.app.token(ctx)
}

// BodyLimit implements forge.Forge.
func (f *Forge) BodyLimit() int { return bodyLimit }

// List implements forge.Forge.
func (f *Forge) List(ctx context.Context) ([]forge.Review, error) {
	var out []forge.Review
	opt := &github.PullRequestListOptions{State: "open", Base: f.base, ListOptions: github.ListOptions{PerPage: 100}}
	for range maxPages {
		all, resp, err := f.api.PullRequests.List(ctx, f.owner, f.name, opt)
		if err != nil {
			return nil, failed("list reviews", resp, err)
		}
		for _, p := range all {
			if f.own(p) && strings.HasPrefix(p.GetHead().GetRef(), "rlc/") {
				out = append(out, review(p))
			}
		}
		if opt.Page = resp.NextPage; opt.Page == 0 {
			return out, nil
		}
	}
	return out, nil
}

// own reports whether a pull request comes from the repository itself: a fork
// may have a branch of the same name.
func (f *Forge) own(p *github.PullRequest) bool {
	return strings.EqualFold(p.GetHead().GetRepo().GetFullName(), f.owner+"/"+f.name)
}

// Find implements forge.Forge.
func (f *Forge) Find(ctx context.Context, branch string) (forge.Review, error) {
	all, resp, err := f.api.PullRequests.List(ctx, f.owner, f.name, &github.PullRequestListOptions{
		State: "all", Head: f.owner + ":" + branch, Base: f.base, Sort: "created", Direction: "desc", ListOptions: github.ListOptions{PerPage: 10}})
	if err != nil {
		return forge.Review{}, failed("look for a review", resp, err)
	}
	for _, p := range all {
		if p.GetHead().GetRef() != branch || p.GetHead().Repo != nil && !f.own(p) {
			continue
		}
		v := review(p)
		if v.State == forge.Open {
			return v, nil
		}
		// Who closed it only the issue tells, and who merged it the whole review.
		if v.State == forge.Merged {
			whole, resp, err := f.api.PullRequests.Get(ctx, f.owner, f.name, p.GetNumber())
			if err != nil {
				return v, failed("read a review", resp, err)
			}
			v.By = whole.GetMergedBy().GetLogin()
			return v, nil
		}
		issue, resp, err := f.api.Issues.Get(ctx, f.owner, f.name, p.GetNumber())
		if err != nil {
			return v, failed("read a review", resp, err)
		}
		v.By = issue.GetClosedBy().GetLogin()
		return v, nil
	}
	return forge.Review{}, fmt.Errorf("%w: no review of branch %s", rlc.ErrNotFound, branch)
}

func review(p *github.PullRequest) forge.Review {
	v := forge.Review{Number: int64(p.GetNumber()), URL: p.GetHTMLURL(), Branch: p.GetHead().GetRef(), Commit: p.GetHead().GetSHA(),
		State: forge.Open, Title: p.GetTitle(), Body: p.GetBody()}
	for _, l := range p.Labels {
		v.Labels = append(v.Labels, l.GetName())
	}
	switch {
	case p.MergedAt != nil:
		v.State, v.At = forge.Merged, p.GetMergedAt().UTC()
	case p.GetState() == "closed":
		v.State, v.At = forge.Closed, p.GetClosedAt().UTC()
	}
	return v
}

// Open implements forge.Forge.
func (f *Forge) Open(ctx context.Context, branch string, t forge.Text) (forge.Review, error) {
	p, resp, err := f.api.PullRequests.Create(ctx, f.owner, f.name, &github.NewPullRequest{
		Title: &t.Title, Body: &t.Body, Head: &branch, Base: &f.base, MaintainerCanModify: github.Ptr(false)})
	if err != nil {
		return forge.Review{}, failed("open a review", resp, err)
	}
	return review(p), f.attach(ctx, p.GetNumber(), t)
}

// Update implements forge.Forge.
func (f *Forge) Update(ctx context.Context, number int64, t forge.Text) error {
	_, resp, err := f.api.PullRequests.Edit(ctx, f.owner, f.name, int(number), &github.PullRequest{Title: &t.Title, Body: &t.Body})
	if err != nil {
		return failed("update a review", resp, err)
	}
	return nil
}

// attach adds labels and reviewers. GitHub refuses all reviewers when it does
// not know one, so they are asked one by one then.
func (f *Forge) attach(ctx context.Context, number int, t forge.Text) error {
	if len(t.Labels) > 0 {
		if _, resp, err := f.api.Issues.AddLabelsToIssue(ctx, f.owner, f.name, number, t.Labels); err != nil {
			return failed("label a review", resp, err)
		}
	}
	var all []github.ReviewersRequest
	for _, who := range t.Reviewers {
		if _, team, ok := strings.Cut(who, "/"); ok {
			all = append(all, github.ReviewersRequest{TeamReviewers: []string{team}})
		} else {
			all = append(all, github.ReviewersRequest{Reviewers: []string{who}})
		}
	}
	for _, one := range all {
		_, resp, err := f.api.PullRequests.RequestReviewers(ctx, f.owner, f.name, number, one)
		if err != nil && (resp == nil || resp.StatusCode != http.StatusUnprocessableEntity) {
			return failed("ask a reviewer", resp, err)
		}
	}
	return nil
}

// Close implements forge.Forge.
func (f *Forge) Close(ctx context.Context, number int64) error {
	_, resp, err := f.api.PullRequests.Edit(ctx, f.owner, f.name, int(number), &github.PullRequest{State: github.Ptr("closed")})
	return failed("close a review", resp, err)
}

// Comment implements forge.Forge.
func (f *Forge) Comment(ctx context.Context, number int64, body string) error {
	opt := &github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 100}}
	return forge.Comments{
		Each: func(yield func(int64, string) bool) error {
			for range maxPages {
				all, resp, err := f.api.Issues.ListComments(ctx, f.owner, f.name, int(number), opt)
				if err != nil {
					return failed("read comments", resp, err)
				}
				for _, c := range all {
					if !yield(c.GetID(), c.GetBody()) {
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
			c, resp, err := f.api.Issues.CreateComment(ctx, f.owner, f.name, int(number), &github.IssueComment{Body: &text})
			return c.GetID(), failed("comment", resp, err)
		},
		Change: func(id int64, text string) error {
			_, resp, err := f.api.Issues.EditComment(ctx, f.owner, f.name, id, &github.IssueComment{Body: &text})
			return failed("change a comment", resp, err)
		},
	}.Write(body)
}

// Status implements forge.Forge.
func (f *Forge) Status(ctx context.Context, commit string, s forge.Status) error {
	status := github.RepoStatus{Context: &s.Name, State: github.Ptr(string(s.Verdict)), Description: github.Ptr(forge.Line(s.Detail))}
	if s.URL != "" {
		status.TargetURL = &s.URL
	}
	_, resp, err := f.api.Repositories.CreateStatus(ctx, f.owner, f.name, commit, status)
	return failed("set a status", resp, err)
}

// Merge implements forge.Forge: it merges by the first way that the repository
// allows. Which checks must have passed the branch's protection says.
func (f *Forge) Merge(ctx context.Context, number int64, commit string) error {
	var last error
	for _, method := range []string{"squash", "merge", "rebase"} {
		_, resp, err := f.api.PullRequests.Merge(ctx, f.owner, f.name, int(number), "", &github.PullRequestOptions{SHA: commit, MergeMethod: method})
		if err == nil {
			return nil
		}
		last = failed("merge a review", resp, err)
		var said *github.ErrorResponse
		if !errors.As(err, &said) || resp == nil || resp.StatusCode != http.StatusMethodNotAllowed || !strings.Contains(said.Message, "not allowed on this repository") {
			break
		}
	}
	if !errors.Is(last, rlc.ErrConflict) {
		return last
	}
	if p, _, err := f.api.PullRequests.Get(ctx, f.owner, f.name, int(number)); err == nil && p.GetMergeableState() == "behind" {
		return fmt.Errorf("%w: %w", forge.ErrBehind, last)
	}
	return last
}

func failed(did string, resp *github.Response, err error) error {
	status := 0
	if resp != nil && resp.Response != nil {
		status = resp.StatusCode
	}
	return forge.Failed(did, status, err)
}

// tokens makes installation tokens; each lives an hour and is made anew five
// minutes before its end.
type tokens struct {
	app App
	api *github.Client
	now func() time.Time

	mu    sync.Mutex // guards what follows
	text  string
	until time.Time
}

func (t *tokens) token(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text != "" && t.now().Add(5*time.Minute).Before(t.until) {
		return t.text, nil
	}
	made, resp, err := t.api.Apps.CreateInstallationToken(ctx, t.app.Installation, nil)
	if err != nil {
		return "", failed("make an installation token", resp, err)
	}
	t.text, t.until = made.GetToken(), made.GetExpiresAt().Time
	return t.text, nil
}

// assertion is the App's word on itself: a JSON Web Token by RS256 (RFC 7519,
// RFC 7518 3.3), valid nine minutes of the ten that GitHub allows, and from one
// minute ago because clocks differ.
func (t *tokens) assertion(context.Context) (string, error) {
	data, err := os.ReadFile(t.app.KeyFile)
	if err != nil {
		return "", fmt.Errorf("%w: the App's key file: %w", rlc.ErrInvalid, err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return "", fmt.Errorf("%w: the App's key file holds no PEM block", rlc.ErrInvalid)
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		any, err8 := x509.ParsePKCS8PrivateKey(block.Bytes)
		own, ok := any.(*rsa.PrivateKey)
		if err8 != nil || !ok {
			return "", fmt.Errorf("%w: the App's key file holds no RSA key", rlc.ErrInvalid)
		}
		key = own
	}
	now, enc := t.now(), base64.RawURLEncoding.EncodeToString
	text := enc([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc(fmt.Appendf(nil, `{"iat":%d,"exp":%d,"iss":"%d"}`, now.Add(-time.Minute).Unix(), now.Add(8*time.Minute).Unix(), t.app.ID))
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", err
	}
	return text + "." + enc(signature), nil
}
