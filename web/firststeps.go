package web

import (
	"fmt"
	"strings"

	"github.com/openrlc/rlc/web/ui"
)

// empty reports whether the configuration was read and is about no service.
func (s *server) empty() bool {
	_, c := s.Truths.Desired()
	return c != nil && len(c.Services)+len(c.Broken) == 0
}

// firstStep is what an installation without a service shows in place of what waits:
// which services there are, and how the first gets its policy.
func (s *server) firstStep() *ui.Empty {
	view := &ui.Empty{
		Title: "The first step: a policy for one service", Query: "rlc init",
		Reason: "No service has a policy yet, so nothing is limited. Metrics have named no service so far: where yours are in another Prometheus, name it as prometheus.url.",
		Fix:    ui.Link{Text: "Services without a policy", URL: "/services?show=unmanaged"},
	}
	if names := s.unmanagedNames(); len(names) > 0 {
		view.Reason = "No service has a policy yet, so nothing is limited. Metrics name " + plural(len(names), "service", "services") + " without one: " +
			some(names) + ". For each, a page suggests buckets and puts up a first policy, all in shadow."
	}
	if begun, branch := s.begun(); len(begun) > 0 {
		view.Title, view.Query = "The first step: merge "+branch, "git merge origin/"+branch
		view.Reason = "The branch " + branch + " has first policies of " + plural(len(begun), "service", "services") + ": " + some(begun) + ". Nothing is limited until it is merged, all in shadow at first."
	}
	return view
}

// begun are the services whose first policies wait on a branch, and that branch.
func (s *server) begun() ([]string, string) {
	if s.Onboarding == nil {
		return nil, ""
	}
	return s.Onboarding.Begun()
}

// mostNamed are the services that a sentence names.
const mostNamed = 5

func some(names []string) string {
	if len(names) > mostNamed {
		return strings.Join(names[:mostNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-mostNamed)
	}
	return strings.Join(names, ", ")
}

// unmanagedNames are the services that metrics name and no policy is about.
func (s *server) unmanagedNames() []string {
	if s.Onboarding == nil {
		return nil
	}
	names, _, _ := s.Onboarding.Unmanaged() // what was seen is named beside an error, too
	return names
}

// unmanagedFor are those for who may see services of others; none for anybody else.
func (s *server) unmanagedFor(who identity) []string {
	if !s.maySee(who, "") {
		return nil
	}
	return s.unmanagedNames()
}

// unmanagedSign points at services that have traffic and no policy; none where all
// have one.
func (s *server) unmanagedSign() []ui.Sign {
	names := s.unmanagedNames()
	if len(names) == 0 {
		return nil
	}
	return []ui.Sign{{
		Level: "note", Link: ui.Link{Text: plural(len(names), "service has", "services have") + " traffic and no policy", URL: "/services?show=unmanaged"},
		Soft: some(names),
	}}
}
