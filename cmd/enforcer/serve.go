package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/accesslog"
	"github.com/openrlc/rlc/enforcer/follow"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/redis"
	"github.com/openrlc/rlc/enforcer/rls"
	"github.com/openrlc/rlc/internal/mtls"
	"github.com/openrlc/rlc/internal/redisconn"
)

// observe hears decisions; nil for nobody.
type observe = func(peer string, r enforcer.Request, d enforcer.Decision)

// server is what serve is made of.
type server struct {
	settings
	log      *slog.Logger
	registry *prometheus.Registry
	group    *errgroup.Group
	ctx      context.Context // ends with SIGTERM, or with the first part that fails
	enforcer *enforcer.Enforcer
	loop     *loop.Client // nil: not joined
}

// serve answers until ctx ends.
func serve(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	set, err := parse(args, env, stdout)
	if err != nil {
		return err
	}
	defer slack(env)()
	level := slog.LevelInfo
	if set.verbose {
		level = slog.LevelDebug
	}
	s := &server{settings: set, log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})), registry: prometheus.NewRegistry()}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.group, s.ctx = errgroup.WithContext(ctx)

	counter, err := s.counter()
	if err != nil {
		return err
	}
	if counter != nil {
		defer counter.Close() // returns what is leased, after the last request
	}
	if s.enforcer, err = s.build(counter); err != nil {
		return err
	}
	defer s.enforcer.Close()
	if s.configDir != "" && s.enforcer.Snapshot() == nil {
		if err := checkFolder(s.configDir); err != nil {
			return err
		}
	}
	source, err := s.source()
	if err != nil {
		return err
	}
	heard, closeLog, err := s.accessLogged(stderr)
	if err != nil {
		return err
	}
	defer closeLog()
	addresses, err := s.listen(heard, counter != nil)
	if err != nil {
		return err
	}
	s.group.Go(func() error { return s.enforcer.Run(s.ctx) })
	if source != nil {
		s.group.Go(func() error { return source.Run(s.ctx) })
	}
	if s.loop != nil {
		s.group.Go(s.joinLoop)
	}
	s.group.Go(s.switches)
	for _, a := range addresses {
		fmt.Fprintf(stdout, "listening: %s\n", a)
	}
	return s.group.Wait()
}

// counter makes the shared counters; nil where every counter is in process.
func (s *server) counter() (*redis.Counter, error) {
	if s.redis == "" || s.localCounters {
		return nil, nil
	}
	roots, err := redisconn.Authorities(s.redisCA)
	if err != nil {
		return nil, err
	}
	c, err := redis.New(redis.Config{URL: s.settings.redis, PasswordFile: s.redisPassword, Prefix: s.redisPrefix, RootCAs: roots, Strict: s.strict, Timeout: s.redisTimeout, Log: s.log})
	if err != nil {
		return nil, err
	}
	s.registry.MustRegister(redisCollector{c})
	s.group.Go(func() error { return c.Run(s.ctx) })
	return c, nil
}

// build makes the enforcer.
func (s *server) build(counter *redis.Counter) (*enforcer.Enforcer, error) {
	c := enforcer.Config{
		Name: s.name, Zone: s.zone, Region: s.region, StateDir: s.state, KillFile: s.killFile,
		Peers: enforcer.Peers{Zone: s.peers, Region: s.peers, Global: s.peers}, MaxKeys: s.maxKeys,
		PagesURL: s.pagesURL, Token: s.token, Registerer: s.registry, Log: s.log,
	}
	if counter != nil {
		c.Counter = counter
	}
	s.loop = s.loopClient()
	c.Loop = s.loop
	if s.hashKeyFile != "" {
		key, err := secret("--hash-key-file", s.hashKeyFile)
		if err != nil {
			return nil, err
		}
		c.HashKey = []byte(key)
	}
	return enforcer.New(c)
}

// source is where snapshots come from: the folder where there is one; nil
// where the aggregator brings them.
func (s *server) source() (*follow.Source, error) {
	if s.configDir == "" && s.redis == "" {
		return nil, nil
	}
	c := follow.Config{Dir: s.configDir, Log: s.log}
	if s.allowRemovals {
		c.RemovedBy = "--allow-removals"
	}
	if s.configDir == "" {
		c.Redis, c.PasswordFile, c.Prefix, c.CAFile = s.redis, s.redisPassword, s.redisPrefix, s.redisCA
	}
	return follow.New(c, s.enforcer)
}

// accessLogged opens the access log; what it returns hears decisions, nil for
// no log.
func (s *server) accessLogged(stderr io.Writer) (heard observe, closeLog func(), err error) {
	closeLog = func() {}
	out := stderr
	switch s.accessLog {
	case "":
		return nil, closeLog, nil
	case "-":
	default:
		file, err := accesslog.Open(s.accessLog)
		if err != nil {
			return nil, closeLog, err
		}
		out, closeLog = file, func() { file.Close() }
	}
	l, err := accesslog.New(accesslog.Config{Out: out, Reveal: s.enforcer.Reveal, Share: s.accessLogShare, Most: s.accessLogRefusals})
	if err != nil {
		closeLog()
		return nil, nil, err
	}
	s.group.Go(func() error { return l.Run(s.ctx) })
	return l.Decided, closeLog, nil
}

// listen opens the listeners and answers on them; shared says whether
// decisions may have to wait for a store. It returns the addresses as URLs.
func (s *server) listen(heard observe, shared bool) (addresses []string, err error) {
	var tlsConfig *tls.Config
	scheme := ""
	if s.tlsCert != "" {
		if tlsConfig, err = mtls.Server(mtls.Config{Cert: s.tlsCert, Key: s.tlsKey, ClientCA: s.clientCA, Clients: s.clients, Log: s.log}); err != nil {
			return nil, err
		}
		scheme = "s"
	}
	most, descriptors := enforcer.MaxConnections()
	if descriptors < 1024 {
		s.log.Warn("few file descriptors: raise the limit (LimitNOFILE= of the unit, ulimit -n)", "limit", descriptors, "connections", most)
	}
	open := func(flag, address string) (net.Listener, error) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w; choose another address with %s", address, err, flag)
		}
		return enforcer.Bound(l, most/2, s.log), nil
	}
	if s.http != off {
		l, err := open("--http", s.http)
		if err != nil {
			return nil, err
		}
		h := enforcer.HTTPServer{Handler: s.enforcer.HTTP(enforcer.HTTPConfig{Observe: heard}), TLS: tlsConfig}
		s.group.Go(func() error { return h.Serve(s.ctx, l) })
		addresses = append(addresses, "http"+scheme+"://"+l.Addr().String())
	}
	if s.grpc != off {
		l, err := open("--grpc", s.grpc)
		if err != nil {
			return nil, err
		}
		c := rls.Config{Enforcer: s.enforcer, Headers: s.responseHeaders, Observe: heard, TLS: tlsConfig, Token: s.token, Log: s.log}
		// A decision ends within the timeout; this is for what does not heed it.
		if c.Deadline = s.redisTimeout * 15 / 8; !shared {
			c.Deadline = -1 // nothing can be waited for
		}
		g, err := rls.New(c)
		if err != nil {
			return nil, err
		}
		s.registry.MustRegister(g)
		s.group.Go(func() error { return g.Serve(s.ctx, l) })
		addresses = append(addresses, "grpc"+scheme+"://"+l.Addr().String())
	}
	return addresses, nil
}

// switches throws a kill switch at each signal, and lets go of it at the next.
func (s *server) switches() error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	thrown := map[enforcer.Switch]bool{}
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case got := <-signals:
			which := enforcer.AllToShadow
			if got == syscall.SIGUSR2 {
				which = enforcer.StopDistribution
			}
			thrown[which] = !thrown[which]
			s.enforcer.Switch(which, thrown[which])
		}
	}
}
