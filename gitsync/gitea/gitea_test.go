package gitea_test

import (
	"testing"

	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/forgetest"
	"github.com/openrlc/rlc/gitsync/gitea"
)

func TestConformance(t *testing.T) {
	forgetest.Run(t, forgetest.Gitea, func(s forge.Server) (forge.Forge, error) {
		return gitea.New(gitea.Config{Server: s, Repo: forgetest.Repo})
	})
}
