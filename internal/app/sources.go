package app

import (
	"context"
	"path/filepath"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/promhistory"
	"github.com/openrlc/rlc/internal/store"
)

// historyConfig is what the configuration says about reading history from
// a.Prom.
func (a *App) historyConfig() (promhistory.Config, error) {
	c, err := History(a.Config.Prometheus)
	c.URL, c.Store, c.Log, c.Each = a.Prom, sketches{a.Records, a}, a.log, a.each
	return c, err
}

// History is what a configuration says about reading history from its
// Prometheus. Our own store is asked for nothing, and told nothing.
func History(p config.Prometheus) (promhistory.Config, error) {
	c := promhistory.Config{URL: p.URL, RangeOnly: p.RangeOnly, QueryTimeout: p.QueryTimeout, ServiceTimeout: p.ServiceTimeout, MaxQueries: p.MaxQueries}
	if p.URL == "" {
		return c, nil
	}
	c.Auth = promhistory.Auth{User: p.User, PasswordFile: p.PasswordFile, TokenFile: p.BearerFile, Headers: p.Headers}
	c.TLS = promhistory.TLS{CAFile: p.CAFile, CertFile: p.CertFile, KeyFile: p.KeyFile, ServerName: p.ServerName}
	if p.Thanos {
		c.Params = promhistory.ThanosParams()
	}
	c.Replica = p.ReplicaLabel
	var err error
	c.Networks, err = config.Networks(p.Networks)
	return c, err
}

// repositoryConfig is what the configuration says about the config repository,
// for the server that follows it.
func (a *App) repositoryConfig() (gitsync.Config, error) {
	c, err := repositoryConfig(a.Config)
	c.Log, c.Epoch, c.Acting = a.log, a.epoch.Load, a.leader.Load
	if c.Dir != "" {
		c.Fresh = a.Config.Poll
	}
	return c, err
}

func repositoryConfig(s config.Server) (gitsync.Config, error) {
	r := s.Repository
	c := gitsync.Config{URL: r.URL, Branch: r.Branch, Name: committer, Email: "rlc@localhost"}
	c.SigningKeyFile, c.SigningPassphraseFile = s.Reviews.SigningKeyFile, s.Reviews.SigningPassphraseFile
	if s.Reviews.GroupBy == gitsync.ByTeam {
		c.GroupBy = gitsync.ByTeam
	}
	if !gitsync.Remote(r.URL) {
		return c, nil
	}
	c.Dir = filepath.Join(s.Data, "repository")
	c.User, c.TokenFile, c.CAFile = r.User, r.TokenFile, r.CAFile
	c.KeyFile, c.PassphraseFile, c.KnownHostsFile = r.KeyFile, r.PassphraseFile, r.KnownHostsFile
	var err error
	c.Networks, err = config.Networks(r.Networks)
	return c, err
}

// Repository is what a configuration says about its config repository, and the
// client of its forge, nil for none: for a command that runs beside the server.
// dir is an empty folder for the mirror of a remote repository.
func Repository(s config.Server, dir string) (gitsync.Config, forge.Forge, error) {
	c, err := repositoryConfig(s)
	if err != nil {
		return c, nil, err
	}
	if c.Dir != "" {
		c.Dir = dir
	}
	f, err := openForge(s, &c)
	return c, f, err
}

// sketches are the records of history, which only the leader writes: another
// replica that reads the same reads it again.
type sketches struct {
	*store.DB
	app *App
}

// SaveSeries implements promhistory.Store.
func (s sketches) SaveSeries(ctx context.Context, all []rlc.SeriesKey) error {
	epoch := s.app.mine()
	if epoch == 0 {
		return nil
	}
	return s.Fenced(epoch).SaveSeries(ctx, all)
}

// SavePacked implements promhistory.Store.
func (s sketches) SavePacked(ctx context.Context, days []rlc.PackedDay) error {
	epoch := s.app.mine()
	if epoch == 0 {
		return nil
	}
	return s.Fenced(epoch).SavePacked(ctx, days)
}
