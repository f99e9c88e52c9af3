package app

import (
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/promhistory"
)

// historyConfig is what the configuration says about reading history from
// a.Prom.
func (a *App) historyConfig() promhistory.Config {
	p := a.Config.Prometheus
	return promhistory.Config{
		URL: a.Prom, Store: a.Records, Log: a.log, Each: a.each,
		QueryTimeout: p.QueryTimeout, MaxQueries: p.MaxQueries,
	}
}

// repositoryConfig is what the configuration says about the config repository.
func (a *App) repositoryConfig() gitsync.Config {
	r := a.Config.Repository
	return gitsync.Config{
		URL: r.URL, Branch: r.Branch, Name: committer, Email: "rlc@localhost", Log: a.log, Epoch: a.epoch.Load,
	}
}
