// Package app builds an RLC server from its configuration. It knows every part
// and decides nothing: tests start the same value that main starts.
package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/notify"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/promhistory"
	"github.com/openrlc/rlc/internal/promserver"
	"github.com/openrlc/rlc/internal/review"
	"github.com/openrlc/rlc/internal/scheduler"
	"github.com/openrlc/rlc/internal/store"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/policies/external"
	"github.com/openrlc/rlc/web"
)

// recordedRate is the recording rule that makes reading the enforcers' own
// counters cheap: the first source of the built-in profile "rlc".
var recordedRate = promserver.Rule{
	Name: "rlc:enforcer_requests:rate1m",
	Expr: `sum by (service, caller, procedure) (rate(rlc_enforcer_requests_total[1m]))`,
}

// Options are what a caller adds to a configuration.
type Options struct {
	Log *slog.Logger // nil: discarded
	// Files is the first content of a config repository that does not exist
	// yet; nil makes an empty one with a README.
	Files rlc.Files
	// Author signs that first commit.
	Author gitsync.Person
	// RecordFrom is when the embedded store begins to record the enforcer's
	// rates: until then somebody else has written them. Zero: at once.
	RecordFrom time.Time
	// Loop tells the enforcer of this process what to drop of drop_ratio buckets;
	// nil: nobody does, and it holds them as token buckets.
	Loop *loop.Client
	// Values are what the configuration was read from, for the page of settings;
	// nil: it was made by the program.
	Values []config.Value
}

// App is one RLC server. Open builds it, Serve carries it until its context
// ends, Close releases what Open took.
type App struct {
	Config    config.Server
	Records   *store.DB
	Repo      *gitsync.Repo
	History   *promhistory.Reader
	Planner   *planner.Planner
	Enforcer  *enforcer.Enforcer
	Store     *promserver.Server // the embedded Prometheus store; nil where one is configured by URL
	Registry  *prometheus.Registry
	URL       string // where pages are, e.g. http://127.0.0.1:8080
	Prom      string // where the Prometheus API is
	bus       bus
	policies  *policies.Registry
	scheduler *scheduler.Scheduler
	lock      *os.File // of the data folder
	pages     net.Listener
	promAddr  net.Listener
	counters  net.Listener // of MetricsListen; nil without it
	handler   pages
	log       *slog.Logger
	// recordFrom is Options.RecordFrom.
	recordFrom time.Time
	leading    sync.Mutex    // one claim to leadership at a time
	holder     string        // this process, in the leadership row
	epoch      atomic.Uint64 // under which this replica led last; what it writes by itself is fenced by it
	leader     atomic.Uint64 // whoever leads, as last heard; 0: unknown
	leads      atomic.Bool
	heard      chan struct{} // wakes listen
	followed   followed
	rewritten  atomic.Bool   // the base branch's history was; nothing is computed
	rewriting  sync.Mutex    // one act that follows a rewritten history at a time
	nudge      chan struct{} // wakes the follower
	running    atomic.Pointer[context.Context]
	tasks      sync.WaitGroup // runs asked for and not yet over
	metrics    metrics
	truths     truths
	status     status
	summaries  summaries
	scored     time.Time // when scores were stored last; the count loop's own
	firstScore time.Time // when first by this process
	emergency  emergency
	notify     *notify.Sender
	reviews    *forge.Reviews
	loop       localLoop
	merging    merging
	deciding   deciding
	spotted    spotted
	values     []config.Value // of every key, for the page of settings
}

// Open builds the server: folders, records, history, repository, enforcer,
// listeners. Nothing runs yet. The error names the part.
func Open(ctx context.Context, c config.Server, o Options) (_ *App, err error) {
	if err := c.Complete(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	a := &App{Config: c, log: o.Log, recordFrom: o.RecordFrom, nudge: make(chan struct{}, 1), heard: make(chan struct{}, 1), Registry: prometheus.NewRegistry()}
	a.loop.client = o.Loop
	if a.values = o.Values; a.values == nil {
		a.values = c.Values()
	}
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	private, err := config.Networks(c.External.Networks)
	if err != nil {
		return nil, fmt.Errorf("external.networks: %w", err)
	}
	a.policies = policies.New(policies.Config{External: external.ClientConfig{Allow: config.List(c.External.Hosts), Private: private}})
	if a.lock, err = lock(c.Data); err != nil {
		return nil, err
	}
	if a.holder, err = randomHex(8); err != nil {
		return nil, err
	}
	if err := a.makeToken(); err != nil {
		return nil, err
	}
	if a.pages, err = net.Listen("tcp", c.Listen); err != nil {
		return nil, fmt.Errorf("listen on %s: %w; choose another address with --listen", c.Listen, err)
	}
	a.URL = address(a.pages)
	if c.MetricsListen != "" {
		if a.counters, err = net.Listen("tcp", c.MetricsListen); err != nil {
			return nil, fmt.Errorf("listen for metrics on %s: %w", c.MetricsListen, err)
		}
	}
	dsn, err := c.Store.Read()
	if err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	if a.Records, err = store.OpenLater(ctx, dsn); err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	if err := a.openHistory(); err != nil {
		return nil, err
	}
	if err := a.openRepository(ctx, o); err != nil {
		return nil, err
	}
	if err := a.openEnforcers(); err != nil {
		return nil, err
	}
	if err := a.openEmergency(); err != nil {
		return nil, err
	}
	if err := a.openNotify(); err != nil {
		return nil, err
	}
	if a.Planner, err = planner.New(a.plannerConfig(a.History)); err != nil {
		return nil, fmt.Errorf("planner: %w", err)
	}
	if a.scheduler, err = scheduler.New(a.schedule()); err != nil {
		return nil, fmt.Errorf("schedule %q: %w", c.Schedule, err)
	}
	a.metrics = newMetrics(a.Registry)
	a.status.started = time.Now()
	if err := a.openPages(); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *App) plannerConfig(history planner.History) planner.Config {
	return planner.Config{
		Repo: a.Repo, History: history, Records: pastOverrides{a.Records, a}, Policies: a.policies, Publisher: pinned{a.publisher(), a},
		Epoch: a.epoch.Load, Deadline: a.Config.RunDeadline, Log: a.log,
		Waiting: a.reviews.Waiting, Riskier: review.Riskier,
		Branch:  func(s *rlc.Service) string { return gitsync.Branch(s, a.Config.Reviews.GroupBy) },
		PageURL: func(id string) string { return a.URL + "/proposals/" + id },
	}
}

// drafts is a planner for drafts of policies. It keeps what it reads apart from the
// records and done throws that away: a bucket of a draft counts other requests than the
// one of the same name in force.
func (a *App) drafts(ctx context.Context) (p *planner.Planner, done func(), err error) {
	dir, err := os.MkdirTemp("", "rlc-draft-")
	if err != nil {
		return nil, nil, err
	}
	drop := func() { os.RemoveAll(dir) }
	records, err := store.Open(ctx, "sqlite:"+filepath.Join(dir, "history.db"))
	if err != nil {
		drop()
		return nil, nil, err
	}
	drop = func() { records.Close(); os.RemoveAll(dir) }
	from, err := a.historyConfig()
	if err != nil {
		drop()
		return nil, nil, err
	}
	from.Store = records
	reader, err := promhistory.New(from)
	if err != nil {
		drop()
		return nil, nil, err
	}
	done = func() { reader.Close(); drop() }
	if p, err = planner.New(a.plannerConfig(reader)); err != nil {
		done()
		return nil, nil, err
	}
	return p, done, nil
}

func (a *App) openHistory() (err error) {
	a.Prom = a.Config.Prometheus.URL
	if a.Prom == "" {
		if a.Store, err = promserver.Open(promserver.Config{Dir: filepath.Join(a.Config.Data, "prometheus"), Retention: a.Config.Retention, Log: a.log}); err != nil {
			return fmt.Errorf("embedded Prometheus store: %w", err)
		}
		if a.promAddr, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return fmt.Errorf("listen for the embedded Prometheus store: %w", err)
		}
		a.Prom = "http://" + a.promAddr.Addr().String()
	}
	from, err := a.historyConfig()
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	if a.History, err = promhistory.New(from); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

func (a *App) openRepository(ctx context.Context, o Options) (err error) {
	c := a.Config.Repository
	if !gitsync.Remote(c.URL) {
		if err := makeRepository(ctx, c, o.Files, o.Author); err != nil {
			return fmt.Errorf("config repository: %w", err)
		}
	}
	at, err := a.repositoryConfig()
	if err != nil {
		return fmt.Errorf("config repository: %w", err)
	}
	on, err := openForge(a.Config, &at)
	if err != nil {
		return fmt.Errorf("forge: %w", err)
	}
	a.Repo, err = gitsync.Open(ctx, at)
	if err != nil {
		return fmt.Errorf("config repository: %w", err)
	}
	return a.openReviews(on)
}

// urlFile is where a running server notes its address for the command line.
func (a *App) urlFile() string { return filepath.Join(a.Config.Data, "url") }

// Serve carries the server until ctx ends, then stops it in order: no new
// requests, the runs under way, the followers. It returns nil after a stop
// that was asked for.
func (a *App) Serve(ctx context.Context) error {
	if err := os.WriteFile(a.urlFile(), []byte(a.URL+"\n"), 0o644); err != nil {
		return fmt.Errorf("note the address: %w", err)
	}
	defer os.Remove(a.urlFile())
	g, ctx := errgroup.WithContext(ctx)
	a.running.Store(&ctx)
	if a.Store != nil {
		g.Go(serve(ctx, a.promAddr, a.Store.Handler()))
		g.Go(func() error {
			return ended(ctx, a.Store.Scrape(ctx, a.Registry, a.Config.Scrape, map[string]string{"job": "rlc-enforcer", "instance": "embedded"}))
		})
		g.Go(func() error {
			if !wait(ctx, time.Until(a.recordFrom)) {
				return nil
			}
			return ended(ctx, a.Store.Record(ctx, []promserver.Rule{recordedRate}, time.Minute))
		})
	}
	g.Go(serve(ctx, a.pages, &a.handler))
	if a.counters != nil {
		g.Go(serve(ctx, a.counters, a.metricsOnly()))
	}
	g.Go(func() error { return a.watchToken(ctx) })
	g.Go(func() error { return ended(ctx, a.Enforcer.Run(ctx)) })
	g.Go(func() error { return ended(ctx, a.deliver(ctx)) })
	g.Go(func() error { return a.mindEmergency(ctx) })
	g.Go(func() error { return a.mindRollouts(ctx) })
	g.Go(func() error { return a.notices(ctx) })
	g.Go(func() error { return a.listen(ctx) })
	g.Go(func() error { return a.lead(ctx) })
	g.Go(func() error { return a.follow(ctx) })
	g.Go(func() error { return ended(ctx, a.scheduler.Run(ctx)) })
	g.Go(func() error { return a.count(ctx) })
	g.Go(func() error { return a.resume(ctx) })
	err := g.Wait()
	a.tasks.Wait()
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Close releases files and listeners. It may be called on a half-built value
// and more than once.
func (a *App) Close() error {
	var errs []error
	for _, l := range []net.Listener{a.pages, a.promAddr, a.counters} {
		if l != nil {
			if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	if a.Repo != nil {
		errs = append(errs, a.Repo.Close())
	}
	if b, ok := a.bus.(interface{ Close() }); ok {
		b.Close()
	}
	if a.emergency.glass != nil {
		a.emergency.glass.Close()
	}
	if a.History != nil {
		a.History.Close()
	}
	if a.Store != nil {
		errs = append(errs, a.Store.Close())
	}
	if a.Records != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if a.leads.Load() {
			errs = append(errs, a.Records.Resign(ctx, leadership, a.holder))
		}
		errs = append(errs, a.Records.Close())
	}
	if a.lock != nil {
		errs = append(errs, a.lock.Close())
		a.lock = nil
	}
	a.pages, a.promAddr, a.counters, a.Repo, a.Store, a.Records = nil, nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// serve answers on l until ctx ends, then drains for at most ten seconds.
func serve(ctx context.Context, l net.Listener, h http.Handler) func() error {
	return func() error {
		s := web.Server(h)
		s.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
		}
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(drain); err != nil {
			s.Close()
		}
		<-done
		return nil
	}
}

// ended turns the error of a part that stopped because ctx ended into nil.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func randomHex(n int) (string, error) {
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("random: %w", err)
	}
	return hex.EncodeToString(b), nil
}
