package deploy_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The snippets are YAML of the shape that each CI reads, and call rlc with what
// the check needs.
func TestSnippetsOfCIAreReadyToCopy(t *testing.T) {
	var actions struct {
		On          map[string]any
		Permissions map[string]string
		Jobs        map[string]struct {
			Steps []struct {
				Uses string
				With map[string]any
				Env  map[string]string
				Run  string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "ci/github-actions.yml")), &actions); err != nil {
		t.Fatal(err)
	}
	steps := actions.Jobs["rlc"].Steps
	if _, ok := actions.On["pull_request"]; !ok || len(steps) != 3 || steps[0].With["fetch-depth"] != 0 {
		t.Fatalf("%+v", actions)
	}
	if actions.Permissions["statuses"] != "write" || actions.Permissions["pull-requests"] != "write" || actions.Permissions["contents"] != "read" {
		t.Errorf("permissions: %v", actions.Permissions)
	}
	if !strings.HasPrefix(steps[1].Run, "rlc ci ") || steps[1].Env["GITHUB_TOKEN"] == "" {
		t.Errorf("the check: %+v", steps[1])
	}

	var lab map[string]struct {
		Variables map[string]string
		Script    []string
		Rules     []map[string]string
		Artifacts struct{ Reports map[string]string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "ci/gitlab-ci.yml")), &lab); err != nil {
		t.Fatal(err)
	}
	job := lab["rlc"]
	if job.Variables["GIT_DEPTH"] != "0" || len(job.Script) != 1 || !strings.HasPrefix(job.Script[0], "rlc ci ") || !strings.HasSuffix(job.Script[0], " --post") || job.Artifacts.Reports["junit"] != "rlc.xml" {
		t.Errorf("%+v", job)
	}
}
