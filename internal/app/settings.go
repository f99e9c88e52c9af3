package app

import (
	"cmp"
	"context"
	"runtime/debug"
	"strings"
	"time"

	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/scheduler"
	"github.com/openrlc/rlc/web"
)

// Version is the program's: its release or devel, the commit it was built from
// where that is known, and Go's.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	version, revision := "devel", ""
	if v := info.Main.Version; v != "" && v != "(devel)" {
		version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = " " + s.Value
		}
	}
	return version + revision + " " + info.GoVersion
}

// Settings implements web.Settings. It asks the records; what is said of the
// other parts is what was last heard of them, at most some seconds ago.
func (a *App) Settings(ctx context.Context) web.Setup {
	a.status.mu.Lock()
	started := a.status.started
	a.status.mu.Unlock()
	s := web.Setup{Version: Version(), Started: started, Leads: a.Leads(), Schedule: a.Config.Schedule, Parts: a.parts(ctx)}
	if schedule, err := scheduler.ParseSchedule(a.Config.Schedule); err == nil { // Open has parsed it
		s.Next = schedule.Next(time.Now())
	}
	means := map[string]string{}
	for _, k := range config.Keys() {
		means[k.Name] = k.Means
	}
	for _, v := range a.values {
		s.Keys = append(s.Keys, web.Setting{Key: v.Key, Value: v.Value, From: v.From(), Source: v.Source, Means: means[v.Key]})
	}
	return s
}

// parts are the engines in use and how each one is.
func (a *App) parts(ctx context.Context) []web.SetupPart {
	c := a.Config
	records := web.SetupPart{Name: "Records", Engine: "PostgreSQL", Where: c.Store.String()}
	for _, v := range a.values {
		if v.Key == "store.dsn" && strings.HasPrefix(v.Value, "sqlite:") {
			records.Engine, records.Where = "SQLite", strings.TrimPrefix(v.Value, "sqlite:")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := a.Records.Ping(ctx); err != nil {
		records.Trouble = err.Error()
	}
	history := web.SetupPart{Name: "History", Engine: "Prometheus", Where: a.Prom}
	if a.Store != nil {
		history.Engine = "embedded Prometheus store"
	}
	repository := web.SetupPart{Name: "Config repository", Engine: "a folder here", Where: c.Repository.URL + ", branch " + c.Repository.Branch}
	if gitsync.Remote(c.Repository.URL) {
		repository.Engine = "git server"
	}
	bus := web.SetupPart{Name: "Bus", Engine: "within this process", Where: "snapshots stay here"}
	if a.overRedis() {
		bus.Engine, bus.Where = "Redis", "redis.url, keys begin with "+c.Redis.Prefix
	}
	reviews := web.SetupPart{Name: "Reviews", Engine: "the pages here", Where: "no forge: branches alone"}
	if a.reviews.OnForge() {
		repo, _ := forgeRepository(c.Forge.Repository, c.Repository.URL)
		reviews.Engine, reviews.Where = c.Forge.Kind, strings.TrimSpace(repo+" "+cmp.Or(c.Forge.URL, "at its public server"))
	}
	people := web.SetupPart{Name: "Sign-in", Engine: "the token alone", Where: c.Token.String()}
	switch {
	case c.OIDC.Issuer != "":
		people.Engine, people.Where = "OpenID Connect", c.OIDC.Issuer
	case c.Proxy.Networks != "":
		people.Engine, people.Where = "a trusted proxy", c.Proxy.Networks
	}
	for part, trouble := range map[*web.SetupPart]string{&history: "history", &repository: "repository", &bus: "bus", &reviews: "publish", &people: "token"} {
		if b, stands := a.status.trouble(trouble); stands {
			part.Trouble, part.Since = cmp.Or(b.Detail, b.Text), b.Since
		}
	}
	return []web.SetupPart{records, history, repository, bus, reviews, people}
}

// trouble is the standing trouble of this name, here or as the leader tells it.
func (s *status) trouble(name string) (web.Banner, bool) {
	if b, ok := s.own(name); ok {
		return b, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.leaders[name]
	return b, ok
}
