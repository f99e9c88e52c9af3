package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/loopwire"
	"github.com/openrlc/rlc/internal/mtls"
)

// tier is what aggregator and controller have in common.
type tier struct {
	name       string // of the command
	grpc, http string
	zone       string
	region     string
	tls        loopTLS
	verbose    bool

	log      *slog.Logger
	registry *prometheus.Registry
	group    *errgroup.Group
	ctx      context.Context
}

// loopTLS names the files that two tiers know each other by.
type loopTLS struct{ cert, key, ca, clients string }

func (t *tier) flags() *flag.FlagSet {
	f := flag.NewFlagSet("enforcer "+t.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&t.region, "region", "", "`region` it runs in")
	f.StringVar(&t.tls.cert, "tls-cert", "", "`file` with its PEM certificate, shown both ways")
	f.StringVar(&t.tls.key, "tls-key", "", "`file` with its PEM key")
	f.StringVar(&t.tls.ca, "ca", "", "`file` with the PEM authorities of every other tier; beyond loopback, --grpc asks for it")
	f.StringVar(&t.tls.clients, "clients", "", "`file` with the names of the certificates that may connect to --grpc, one a line, read again when it\nchanges (default every one of --ca)")
	f.BoolVar(&t.verbose, "verbose", false, "log more")
	return f
}

// read reads flags, then the environment for those that were not given.
func (t *tier) read(f *flag.FlagSet, help string, args []string, env func(string) string, stdout io.Writer) error {
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, help)
		f.SetOutput(stdout)
		f.PrintDefaults()
		return err
	} else if err != nil {
		return t.invalid("%v%s", err, meantFlag(f, err))
	}
	if f.NArg() > 0 {
		return t.invalid("unexpected argument %q", f.Arg(0))
	}
	if err := fromEnvironment(f, env); err != nil {
		return err
	}
	if given := []string{t.tls.cert, t.tls.key, t.tls.ca}; given[0]+given[1]+given[2] != "" && (given[0] == "" || given[1] == "" || given[2] == "") {
		return t.invalid("--tls-cert, --tls-key and --ca go together")
	}
	if t.tls.clients != "" && t.tls.ca == "" {
		return t.invalid("--clients needs --ca, which vouches for them")
	}
	return nil
}

func (t *tier) invalid(format string, a ...any) error {
	return fmt.Errorf("%w: %s; see enforcer %s --help", rlc.ErrInvalid, fmt.Sprintf(format, a...), t.name)
}

// begin makes the log and the metrics.
func (t *tier) begin(ctx context.Context, stderr io.Writer) {
	level := slog.LevelInfo
	if t.verbose {
		level = slog.LevelDebug
	}
	t.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	t.registry = prometheus.NewRegistry()
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t.group, t.ctx = errgroup.WithContext(ctx)
}

// serve opens the listeners: serveGRPC answers on the one, mux on the other. It
// returns when all has ended.
func (t *tier) serve(stdout io.Writer, serveGRPC func(context.Context, net.Listener) error, mux *http.ServeMux) error {
	l, err := net.Listen("tcp", t.grpc)
	if err != nil {
		return err
	}
	defer l.Close()
	t.group.Go(func() error { return serveGRPC(t.ctx, l) })
	scheme := "grpc"
	if t.tls.cert != "" {
		scheme = "grpcs"
	}
	fmt.Fprintf(stdout, "listening: %s://%s\n", scheme, l.Addr())
	if t.http != off {
		h, err := net.Listen("tcp", t.http)
		if err != nil {
			return err
		}
		mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{}))
		mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
		t.group.Go(func() error { return enforcer.HTTPServer{Handler: mux}.Serve(t.ctx, h) })
		fmt.Fprintf(stdout, "listening: http://%s\n", h.Addr())
	}
	return t.group.Wait()
}

// showReady answers /readyz: 503 with the reason where ready gives one.
func showReady(ready func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	}
}

// server is the TLS of a listener, nil for none.
func (f loopTLS) server(log *slog.Logger) (*tls.Config, error) {
	if f.cert == "" {
		return nil, nil
	}
	return mtls.Server(mtls.Config{Cert: f.cert, Key: f.key, ClientCA: f.ca, Clients: f.clients, Log: log})
}

// client is the TLS of a stream up, nil for none. The certificate is read at
// each handshake, the authorities once.
func (f loopTLS) client() (*tls.Config, error) {
	if f.ca == "" {
		return nil, nil
	}
	data, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, fmt.Errorf("%w: authorities: %w", rlc.ErrInvalid, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%w: authorities: %s holds no PEM certificate", rlc.ErrInvalid, f.ca)
	}
	c := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if f.cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(f.cert, f.key)
			return &pair, err
		}
	}
	return c, nil
}

// ackEvery is how often a data plane acknowledges what it has.
const ackEvery = 5 * time.Second

// joinLoop keeps the enforcer joined to its aggregator. With documents set it
// takes snapshot and overrides from there.
func joinLoop(ctx context.Context, e *enforcer.Enforcer, c loopwire.ClientConfig, documents bool, metrics prometheus.Registerer) error {
	acks := make(chan struct{}, 1)
	if documents {
		c.OnDocument = func(d loopwire.Document) {
			_ = d.Load(e) // the enforcer logs, counts and acknowledges a refusal
			select {
			case acks <- struct{}{}:
			default:
			}
		}
	}
	client, err := loopwire.NewClient(c)
	if err != nil {
		return err
	}
	if err := metrics.Register(joinedCollector{client, c.Client}); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return client.Run(ctx) })
	group.Go(func() error {
		tick := time.NewTicker(ackEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-acks:
			case <-tick.C:
				if documents && client.Stats().Connected {
					e.Confirm()
				}
			}
			if ack, err := json.Marshal(e.Ack()); err == nil {
				client.Ack(ack)
			}
		}
	})
	return group.Wait()
}

// loopClient makes the hot path's end of the loop; nil where there is none.
func (s *settings) loopClient() *loop.Client {
	if s.aggregator == "" {
		return nil
	}
	return loop.NewClient(loop.ClientConfig{Node: s.node()})
}

// joinLoop keeps the enforcer joined to its aggregator.
func (s *server) joinLoop() error {
	c := loopwire.ClientConfig{Addresses: strings.Split(s.aggregator, ","), Node: s.node(), Place: loop.Place{Zone: s.zone, Region: s.region}, Client: s.loop, Log: s.log}
	if s.aggregatorCA != "" {
		var err error
		if c.TLS, err = (loopTLS{cert: s.tlsCert, key: s.tlsKey, ca: s.aggregatorCA}).client(); err != nil {
			return err
		}
	}
	return joinLoop(s.ctx, s.enforcer, c, s.configDir == "" && s.redis == "", s.registry)
}

// node names the process in its zone: a host may run several.
func (s *settings) node() string {
	name := s.name
	if name == "" {
		name, _ = os.Hostname()
	}
	return fmt.Sprintf("%s/%d", name, os.Getpid())
}
