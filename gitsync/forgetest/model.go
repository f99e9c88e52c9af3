// Package forgetest is the suite that every adapter of a forge passes, over
// fakes of the forges' HTTP APIs with git's own server over https behind each.
//
// A fake answers the endpoints that the adapters' libraries call, in the forms
// that the forges' documentation gives, and keeps real reviews: heads are what
// the branches are at, and a merge makes a commit.
package forgetest

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc/gitsync/forge"
)

// Kind is which forge a fake is.
type Kind string

// The kinds.
const (
	GitHub Kind = "github"
	GitLab Kind = "gitlab"
	Gitea  Kind = "gitea"
)

// Repo is the name of the repository on each fake.
const Repo = "acme/config"

// Server is a fake forge with one repository. Its fields under mu may be read
// by tests through the methods only.
type Server struct {
	*httptest.Server
	Kind  Kind
	Asks  atomic.Int64 // requests to the API
	bare  string
	dir   string
	git   http.Handler
	extra map[string]http.HandlerFunc // of a test: "METHOD /path"

	mu      sync.Mutex        // guards what follows
	strict  bool              // a review merges on the base branch's tip only
	checks  map[string]string // by commit: pending or success; none where it is not in it
	token   string
	answer  func(http.ResponseWriter) bool // before everything; true: answered
	reviews []*review
	status  map[string][]forge.Status // by commit
	labels  []string
	next    int64 // number of a comment
}

type review struct {
	number             int64
	branch, head       string
	title, body, by    string
	state              forge.State
	at                 time.Time
	labels, reviewers  []string
	comments           []comment
	refusedMergeMethod string // the repository does not allow it
	ordered            string // the commit that is to merge once its checks pass; "" for none
}

type comment struct {
	id       int64
	by, body string
}

// people and teams are the names that a fake knows.
var (
	people = []string{"ann", "bob", "rlc-bot"}
	teams  = []string{"payments"}
)

// NewServer starts a fake over a bare repository at bare, whose token is token.
func NewServer(t testing.TB, kind Kind, bare, token string) *Server {
	t.Helper()
	s := &Server{Kind: kind, bare: bare, token: token, dir: t.TempDir(), status: map[string][]forge.Status{}, checks: map[string]string{}, extra: map[string]http.HandlerFunc{}}
	s.git = Git(t, filepath.Dir(filepath.Dir(bare)))
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := errors.Join(os.WriteFile(s.CAFile(), ca, 0o600), os.WriteFile(s.TokenFile(), []byte(token+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return s
}

// CAFile and TokenFile are what a client of the fake needs.
func (s *Server) CAFile() string { return filepath.Join(s.dir, "ca.pem") }

// TokenFile is the file of the client's token.
func (s *Server) TokenFile() string { return filepath.Join(s.dir, "token") }

// GitURL is the repository's.
func (s *Server) GitURL() string { return s.URL + "/" + Repo + ".git" }

// Rotate makes the server want another token.
func (s *Server) Rotate(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// Answer puts f before the API; nil takes it away.
func (s *Server) Answer(f func(http.ResponseWriter) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/"+Repo+".git/") {
		s.mu.Lock()
		want := s.token
		s.mu.Unlock()
		if _, password, _ := r.BasicAuth(); password != want {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		s.git.ServeHTTP(w, r)
		return
	}
	s.Asks.Add(1)
	s.mu.Lock()
	answer := s.answer
	s.mu.Unlock()
	if answer != nil && answer(w) { // it may take its time: git goes on
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.extra[r.Method+" "+r.URL.Path]; h != nil {
		h(w, r)
		return
	}
	shown := strings.TrimPrefix(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "token ")
	if s.Kind == GitLab {
		shown = r.Header.Get("PRIVATE-TOKEN")
	}
	if shown != s.token {
		reply(w, http.StatusUnauthorized, map[string]string{"message": "Bad credentials: " + shown})
		return
	}
	heads := s.heads()
	for _, v := range s.reviews {
		if v.state == forge.Open {
			if head := heads[v.branch]; head != "" {
				if v.head != head && s.Kind == GitLab {
					v.ordered = "" // a push takes the order back
				}
				v.head = head
			} else if s.Kind != GitLab && !strings.HasPrefix(v.branch, "rlc/many-") {
				v.state, v.at = forge.Closed, time.Now()
			}
		}
	}
	switch s.Kind {
	case GitHub:
		s.github(w, r)
	case GitLab:
		s.gitlab(w, r)
	default:
		s.gitea(w, r)
	}
}

func (s *Server) run(args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", s.bare, "-c", "user.name=ann", "-c", "user.email=ann@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// heads are the branches with their commits, in one process however many there are.
func (s *Server) heads() map[string]string {
	out := map[string]string{}
	all, _ := s.run("for-each-ref", "--format=%(objectname) %(refname)", "refs/heads")
	for line := range strings.Lines(all) {
		if hash, name, ok := strings.Cut(strings.TrimSpace(line), " refs/heads/"); ok {
			out[name] = hash
		}
	}
	return out
}

func (s *Server) rev(branch string) string {
	out, err := s.run("rev-parse", "--verify", "--quiet", "refs/heads/"+branch)
	if err != nil {
		return ""
	}
	return out
}

// of is the review of a number, nil where there is none.
func (s *Server) of(number int64) *review {
	for _, v := range s.reviews {
		if v.number == number {
			return v
		}
	}
	return nil
}

// open makes a review; an HTTP status other than 201 says why not.
func (s *Server) open(branch, title, body string) (*review, int) {
	head := s.rev(branch)
	for _, v := range s.reviews {
		if v.branch == branch && v.state == forge.Open {
			return nil, http.StatusConflict
		}
	}
	if head == "" {
		return nil, http.StatusUnprocessableEntity
	}
	v := &review{number: int64(len(s.reviews) + 1), branch: branch, head: head, title: title, body: body, state: forge.Open}
	s.reviews = append(s.reviews, v)
	return v, http.StatusCreated
}

// merge squashes a review onto the base branch and deletes its branch.
func (s *Server) merge(v *review, commit, who string) int {
	if v.state != forge.Open {
		return http.StatusMethodNotAllowed
	}
	if commit != "" && commit != v.head {
		return http.StatusConflict
	}
	if s.behind(v) {
		return http.StatusMethodNotAllowed
	}
	tree, err := s.run("merge-tree", "--write-tree", "refs/heads/main", v.head)
	if err != nil {
		return http.StatusMethodNotAllowed
	}
	made, err := s.run("commit-tree", "-p", "refs/heads/main", "-m", v.title+"\n\n"+v.body, tree)
	if err == nil {
		_, err = s.run("update-ref", "refs/heads/main", made)
	}
	if err == nil {
		_, err = s.run("update-ref", "-d", "refs/heads/"+v.branch)
	}
	if err != nil {
		return http.StatusInternalServerError
	}
	v.state, v.by, v.at = forge.Merged, who, time.Now()
	return http.StatusOK
}

// behind reports whether a review lacks commits of the base branch that it has to
// have.
func (s *Server) behind(v *review) bool {
	if !s.strict {
		return false
	}
	_, err := s.run("merge-base", "--is-ancestor", "refs/heads/main", v.head)
	return err != nil
}

// ask adds reviewers; false when the fake does not know one.
func (s *Server) ask(v *review, logins, known []string) bool {
	for _, l := range logins {
		if !slices.Contains(known, l) {
			return false
		}
		if !slices.Contains(v.reviewers, l) {
			v.reviewers = append(v.reviewers, l)
		}
	}
	return true
}

func (v *review) label(names []string) {
	for _, n := range names {
		if !slices.Contains(v.labels, n) {
			v.labels = append(v.labels, n)
		}
	}
}

func (s *Server) comment(v *review, body string) comment {
	s.next++
	c := comment{s.next, "rlc-bot", body}
	v.comments = append(v.comments, c)
	return c
}

func (s *Server) change(id int64, body string) (comment, bool) {
	for _, v := range s.reviews {
		for i := range v.comments {
			if v.comments[i].id == id {
				if s.Kind == GitLab && v.comments[i].by != "rlc-bot" {
					return comment{}, false // nobody else's may be changed there
				}
				v.comments[i].body = body
				return v.comments[i], true
			}
		}
	}
	return comment{}, false
}

// Closes closes a review as a person does.
func (s *Server) closes(branch, who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.reviews {
		if v.branch == branch && v.state == forge.Open {
			v.state, v.by, v.at = forge.Closed, who, time.Now()
		}
	}
}

// merges merges a review as a person does.
func (s *Server) merges(t testing.TB, branch, who string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.reviews {
		if v.branch == branch && v.state == forge.Open {
			v.head = s.rev(branch)
			if code := s.merge(v, "", who); code != http.StatusOK {
				t.Fatalf("the fake does not merge: HTTP %d", code)
			}
		}
	}
}

// seen renders the reviews of a branch: number, state, labels, reviewers,
// comments.
func (s *Server) seen(branch string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, v := range s.reviews {
		if v.branch == branch {
			out = append(out, fmt.Sprintf("%d %s labels=%v reviewers=%v comments=%d", v.number, v.state, v.labels, v.reviewers, len(v.comments)))
		}
	}
	return out
}
