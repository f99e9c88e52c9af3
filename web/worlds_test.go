package web_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

// worlds are the states in which pages are looked at, by name.
var worlds = map[string]func(*testing.T) http.Handler{
	"calm":    func(t *testing.T) http.Handler { return newFixture(t).handler(t) },
	"trouble": newTrouble,
	"deaf": func(t *testing.T) http.Handler {
		return without(t, func(c *web.Config) { c.History = deaf{c.History} })
	},
	"blind": func(t *testing.T) http.Handler { return without(t, func(c *web.Config) { c.History = blind{} }) },
	"lost": func(t *testing.T) http.Handler {
		return without(t, func(c *web.Config) { c.Records = unread{c.Records} })
	},
	"fresh": func(t *testing.T) http.Handler { return newFresh(t, nil) },
	"first": func(t *testing.T) http.Handler { return newFresh(t, firstPolicy) },
}

func without(t *testing.T, take func(*web.Config)) http.Handler {
	t.Helper()
	config := newFixture(t).config()
	take(&config)
	h, err := web.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// blind is history that cannot be read at all.
type blind struct{}

var errAway = fmt.Errorf("%w: connect: connection refused", rlc.ErrUnavailable)

func (blind) Stored(context.Context, string, string, rlc.Key, time.Time, time.Time) (rlc.History, error) {
	return rlc.History{}, errAway
}

func (blind) StoredEach(context.Context, string, []string, time.Time, time.Time, func(string, rlc.History) error) error {
	return errAway
}

func (blind) Counts(context.Context, string, time.Duration, time.Time) ([]rlc.Count, error) {
	return nil, errAway
}

func (blind) OverrideCounts(context.Context, time.Duration, time.Time) (map[string]rlc.OverrideCount, error) {
	return nil, errAway
}

func (blind) CountedSince(context.Context, string, time.Duration, time.Time) (time.Time, error) {
	return time.Time{}, errAway
}

// firstPolicy is a service that no run has looked at.
var firstPolicy = rlc.Files{"services/checkout/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: checkout\nbuckets:\n  - {name: callers, each: [caller]}\n  - {name: health, match: {procedure: Health}, limit: {rate: 50, burst: 100}}\n")}

// newFresh is a server that has just started on a config repository that holds
// these files: no run, no record, no enforcer.
func newFresh(t *testing.T, files rlc.Files) http.Handler {
	t.Helper()
	db, err := store.Open(context.Background(), "sqlite:"+filepath.Join(t.TempDir(), "rlc.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f := &fixture{db: db, history: map[string]rlc.History{}, files: files, commit: rlc.Commit{Hash: "9f2c1ab0d3e4f5061728394a5b6c7d8e9f001122", Version: rlc.Version{Number: 1}, Time: now}}
	f.desired = quotafile.Parse(files, policies.Builtin().Check)
	return f.handler(t)
}
