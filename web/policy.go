package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web/ui"
)

// Files are the config repository's, as they are written.
type Files interface {
	// ServiceFiles are the files of a service on the base branch, by path, and the
	// commit that they are of. One that is not there is left out.
	ServiceFiles(ctx context.Context, service string) (rlc.Commit, rlc.Files, error)
}

// policyFiles reads a service's two files.
func (s *server) policyFiles(v *visit) (commit rlc.Commit, files rlc.Files, err error) {
	name := v.r.PathValue("service")
	if _, err := s.known(name); err != nil {
		return commit, nil, err
	}
	if s.Files == nil {
		return commit, nil, fault{status: http.StatusNotFound, detail: "This server does not show policies as they are written."}
	}
	return s.Files.ServiceFiles(v.ctx(), name)
}

// policy is /services/{service}/policy.
func (s *server) policy(v *visit) error {
	name := v.r.PathValue("service")
	commit, files, err := s.policyFiles(v)
	if err != nil {
		return err
	}
	t, err := s.configured(v.ctx(), name)
	if err != nil {
		return err
	}
	f, err := s.frame(v, name+" / policy", "services")
	if err != nil {
		return err
	}
	path := quotafile.PolicyPath(name)
	view := ui.Policy{
		Head: s.tabbed(t, "policy"),
		Path: path, Commit: short(commit.Hash), At: v.time(commit.Time), JSON: v.as(".json"), Quotas: string(files[quotafile.QuotasPath(name)]), QuotasPath: quotafile.QuotasPath(name),
		Plan:    command("rlc plan --service", name, "--policy", path),
		Command: command("git", "show", commit.Hash[:min(len(commit.Hash), 10)]+":"+path),
	}
	if commit.Hash == "" {
		view.Command = ""
	}
	said := map[int][]string{}
	for _, p := range t.problems {
		if p.File != path {
			view.Elsewhere = append(view.Elsewhere, p.String())
			continue
		}
		said[max(p.Line, 1)] = append(said[max(p.Line, 1)], strings.TrimSuffix(p.Message+"; "+p.Hint, "; "))
	}
	if text := strings.TrimSuffix(string(files[path]), "\n"); text != "" {
		for i, line := range strings.Split(text, "\n") {
			view.Lines = append(view.Lines, ui.DiffLine{Text: fmt.Sprintf("%4d  %s", i+1, line)})
			for _, problem := range said[i+1] {
				view.Lines = append(view.Lines, ui.DiffLine{Kind: "del", Text: "      " + problem})
			}
		}
	}
	view.Verdict = []ui.Part{{Text: "The policy is valid. People write it; RLC writes "}, {Text: "quotas.yaml", Bold: true}, {Text: " beside it and nothing else."}}
	if t.broken {
		view.Verdict = t.invalid()
	}
	if len(view.Lines) == 0 {
		view.Empty = &ui.Empty{Title: "No policy on the base branch", Reason: "What is live stays in force until a snapshot without the service is distributed.", Query: path, Fix: ui.Link{Text: "History", URL: serviceURL(name) + "/history"}}
		view.Verdict = nil
	}
	return s.render(v, http.StatusOK, ui.PolicyPage(f, view))
}

func (s *server) policyJSON(v *visit) error {
	commit, files, err := s.policyFiles(v)
	if err != nil {
		return err
	}
	out := object{"service": v.r.PathValue("service"), "commit": orNull(commit.Hash), "snapshot": commit.Version.String(), "files": object{}}
	for path, text := range files {
		out["files"].(object)[path] = string(text)
	}
	return answer(v, http.StatusOK, out)
}
