package github_test

import (
	"testing"

	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/forgetest"
	"github.com/openrlc/rlc/gitsync/github"
)

func TestConformance(t *testing.T) {
	forgetest.Run(t, forgetest.GitHub, func(s forge.Server) (forge.Forge, error) {
		return github.New(github.Config{Server: s, Repo: forgetest.Repo})
	})
}
