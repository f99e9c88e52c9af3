package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/web"
)

// pages answers with the handler of the token in force. A new token takes a
// new handler: sessions opened with the old one end with it.
type pages struct {
	handler atomic.Pointer[http.Handler]
	token   string // of handler; only Open and watchToken touch it
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*p.handler.Load()).ServeHTTP(w, r)
}

// openPages builds the pages for the token as it is now.
func (a *App) openPages() error {
	token, err := a.Config.Token.Read()
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	return a.admit(token)
}

func (a *App) admit(token string) error {
	c := web.Config{
		Records: a.Records.Pages(), Truths: a, History: a.History, Acts: a, Status: a, Overrides: a, Merging: a, Amendments: a, Loop: a, Rollouts: a, Onboarding: a, Imports: a, Files: a, Settings: a,
		Token: token, Hook: a.hook(),
		Metrics: promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{}),
		Log:     a.log, Now: time.Now, Alone: !a.overRedis(),
	}
	if err := a.people(&c); err != nil {
		return err
	}
	h, err := web.New(c)
	if err != nil {
		return fmt.Errorf("pages: %w", err)
	}
	a.handler.handler.Store(&h)
	a.handler.token = token
	return nil
}

// makeToken makes sure that acting needs a secret that only this machine's
// user can read: it makes the server's own where none was configured.
func (a *App) makeToken() error {
	own := a.Config.OwnToken()
	if a.Config.Token.File() != own {
		return nil
	}
	// A file that a crash left short is made anew.
	if b, err := os.ReadFile(own); err == nil && len(strings.TrimSpace(string(b))) >= config.MinToken {
		return nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("token: %w", err)
	}
	t, err := randomHex(config.MinToken)
	if err != nil {
		return err
	}
	if err := os.WriteFile(own, []byte(t+"\n"), 0o600); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	return nil
}

// TokenFile is where the token is kept; "" where the configuration holds it.
func (a *App) TokenFile() string { return a.Config.Token.File() }

// watchToken takes a changed token into use. One that cannot be read or is too
// short changes nothing: the last good one goes on, and every page says so.
func (a *App) watchToken(ctx context.Context) error {
	for wait(ctx, a.Config.Poll) {
		token, err := a.Config.Token.Read()
		if err == nil && len(token) < config.MinToken {
			err = fmt.Errorf("%d characters, want at least %d", len(token), config.MinToken)
		}
		if err != nil {
			a.status.set("token", "warn", "The token's file cannot be used: the token read before goes on.", err.Error())
			continue
		}
		a.status.clear("token")
		if token == a.handler.token {
			continue
		}
		if err := a.admit(token); err != nil {
			return err
		}
		a.log.Info("the token changed: sessions opened with the old one ended")
	}
	return nil
}

// metricsOnly answers /metrics and nothing else.
func (a *App) metricsOnly() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{}))
	return mux
}

// MetricsAddr is where the second listener answers; "" without one.
func (a *App) MetricsAddr() string {
	if a.counters == nil {
		return ""
	}
	return a.counters.Addr().String()
}
