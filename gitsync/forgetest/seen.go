package forgetest

import (
	"slices"

	"github.com/openrlc/rlc/gitsync/forge"
)

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
