package gitsync

import (
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

func (r *Repo) baseRef() string { return "refs/heads/" + r.cfg.Branch }

func branchRef(segment string) string { return "refs/heads/" + branchName(segment) }

// mergedRef keeps the last review of a service that was found merged by content.
// After a squash nothing else tells RLC's numbers from a person's.
func mergedRef(segment string) string { return "refs/rlc/merged/" + refName(segment) }

// branchName is the review branch of a path segment.
func branchName(segment string) string { return "rlc/" + refName(segment) }

// refName makes a path segment a component of a reference's name: the segment
// itself unless git refuses it ("a..b", "a.", "a.lock").
func refName(segment string) string {
	if plumbing.NewBranchReferenceName("rlc/"+segment).Validate() == nil {
		return segment
	}
	return strings.ReplaceAll(segment, ".", "-") + "-" + plumbing.ComputeHash(plumbing.BlobObject, []byte(segment)).String()[:8]
}

// signature makes a name or an address fit for a commit's author line.
func signature(s string) string {
	s = clip(inert(s), 100)
	s = strings.TrimSpace(strings.NewReplacer("<", "(", ">", ")").Replace(s))
	if s == "" {
		return "unknown"
	}
	return s
}

// signed completes a person for a commit's author line.
func (who Person) signed() Person {
	p := Person{Name: signature(who.Name), Email: who.Email}
	if p.Email == "" {
		p.Email = strings.ReplaceAll(strings.ToLower(p.Name), " ", ".") + "@localhost"
	}
	p.Email = signature(p.Email)
	return p
}
