package forgetest

import (
	"net/http"
	"testing"

	"github.com/openrlc/rlc/gitsync/forge"
)

// Check sets the checks of a branch's head: pending or success. What was ordered to
// merge once they succeed merges then, as the forge does: Gitea whatever is the head.
func (s *Server) Check(t testing.TB, branch, state string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	head := s.rev(branch)
	s.checks[head] = state
	for _, v := range s.reviews {
		if v.branch != branch || v.state != forge.Open || v.ordered == "" || state != "success" {
			continue
		}
		v.head = head
		if code := s.merge(v, "", "rlc-bot"); code != http.StatusOK {
			t.Fatalf("the fake does not merge what it was ordered to: HTTP %d", code)
		}
	}
}

// Strict makes the forge merge only what is on the base branch's tip.
func (s *Server) Strict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strict = true
}

// Says writes a person's comment on a branch's open review.
func (s *Server) Says(branch, who, text string) (id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.reviews {
		if v.branch == branch && v.state == forge.Open {
			c := s.comment(v, text)
			v.comments[len(v.comments)-1].by = who
			return c.id
		}
	}
	return 0
}
