package app

import (
	"path/filepath"

	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/promhistory"
)

// historyConfig is what the configuration says about reading history from
// a.Prom.
func (a *App) historyConfig() promhistory.Config {
	p := a.Config.Prometheus
	c := promhistory.Config{
		URL: a.Prom, Store: a.Records, Log: a.log, Each: a.each,
		RangeOnly: p.RangeOnly, QueryTimeout: p.QueryTimeout, MaxQueries: p.MaxQueries,
	}
	if p.URL == "" {
		return c // our own store is asked for nothing, and told nothing
	}
	c.Auth = promhistory.Auth{User: p.User, PasswordFile: p.PasswordFile, TokenFile: p.BearerFile, Headers: p.Headers}
	c.TLS = promhistory.TLS{CAFile: p.CAFile, CertFile: p.CertFile, KeyFile: p.KeyFile, ServerName: p.ServerName}
	if p.Thanos {
		c.Params = promhistory.ThanosParams()
	}
	return c
}

// repositoryConfig is what the configuration says about the config repository.
func (a *App) repositoryConfig() gitsync.Config {
	r := a.Config.Repository
	c := gitsync.Config{
		URL: r.URL, Branch: r.Branch, Name: committer, Email: "rlc@localhost", Log: a.log, Epoch: a.epoch.Load,
	}
	if !gitsync.Remote(r.URL) {
		return c
	}
	c.Dir, c.Fresh = filepath.Join(a.Config.Data, "repository"), a.Config.Poll
	c.User, c.TokenFile, c.CAFile = r.User, r.TokenFile, r.CAFile
	c.KeyFile, c.PassphraseFile, c.KnownHostsFile = r.KeyFile, r.PassphraseFile, r.KnownHostsFile
	return c
}
