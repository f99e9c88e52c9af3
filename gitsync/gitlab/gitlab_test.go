package gitlab_test

import (
	"testing"

	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/forgetest"
	"github.com/openrlc/rlc/gitsync/gitlab"
)

func TestConformance(t *testing.T) {
	forgetest.Run(t, forgetest.GitLab, func(s forge.Server) (forge.Forge, error) {
		return gitlab.New(gitlab.Config{Server: s, Repo: forgetest.Repo})
	})
}
