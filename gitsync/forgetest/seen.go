package forgetest

import (
	"slices"

	"github.com/openrlc/rlc/gitsync/forge"
)

// Bare is the path of the repository behind the forge.
func (s *Server) Bare() string { return s.bare }

// Comments are a review's, the oldest first.
func (s *Server) Comments(number int64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, v := range s.reviews {
		for _, c := range v.comments {
			if v.number == number {
				out = append(out, c.body)
			}
		}
	}
	return out
}

// Statuses are a commit's, in the order in which they were set.
func (s *Server) Statuses(commit string) []forge.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.status[commit])
}

// Review is the newest review of a branch as the forge holds it; false where
// there never was one.
func (s *Server) Review(branch string) (forge.Review, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range slices.Backward(s.reviews) {
		if v.branch == branch {
			return forge.Review{Number: v.number, Branch: v.branch, Commit: v.head, State: v.state, Title: v.title, Body: v.body,
				Labels: slices.Clone(v.labels), By: v.by, At: v.at}, true
		}
	}
	return forge.Review{}, false
}

// Reviewers are whom a branch's newest review asks.
func (s *Server) Reviewers(branch string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range slices.Backward(s.reviews) {
		if v.branch == branch {
			return slices.Clone(v.reviewers)
		}
	}
	return nil
}

// SetLabels gives a branch's open review these labels and no others, as a person
// does.
func (s *Server) SetLabels(branch string, labels ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.reviews {
		if v.branch == branch && v.state == forge.Open {
			v.labels = labels
		}
	}
}
