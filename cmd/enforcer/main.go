// Command enforcer is the data plane: it answers whether a request may pass,
// from the quotas that were approved.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/distribute"
)

// The exit codes, as every command of RLC has them.
const (
	exitOK      = 0
	exitError   = 1
	exitInvalid = 3
)

// drain is how long requests under way may take to finish after SIGTERM.
const drain = 10 * time.Second

const usage = `The enforcer answers whether a request may pass, from approved quotas.

Usage:
  enforcer serve [flags]     answer POST /v1/check on --http
  enforcer version           print the version

Try it:
  enforcer serve --config-dir ./config --state ./state
  enforcer serve --redis redis://localhost:6379/0 --state ./state
  curl -s localhost:8082/v1/check -d '{"service":"checkout","attributes":{"caller":"search"}}'

"enforcer serve --help" lists the flags. Exit codes: 0 ok, 1 error, 3 invalid
input. Data goes to stdout, logs to stderr.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the command with everything it takes from its process.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	var err error
	switch name {
	case "serve":
		err = serve(ctx, args, env, stdout, stderr)
	case "version", "--version":
		fmt.Fprintln(stdout, "enforcer", version())
	case "help", "--help", "-h":
		fmt.Fprint(stdout, usage)
	case "aggregator", "controller":
		err = fmt.Errorf("%w: enforcer %s is not supported by this version", rlc.ErrInvalid, name)
	case "":
		err = fmt.Errorf("%w: want a command: serve or version; see enforcer --help", rlc.ErrInvalid)
	default:
		err = fmt.Errorf("%w: unknown command %q; see enforcer --help", rlc.ErrInvalid, name)
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, rlc.ErrInvalid):
		fmt.Fprintln(stderr, "enforcer:", err)
		return exitInvalid
	}
	fmt.Fprintln(stderr, "enforcer:", err)
	return exitError
}

// settings are what serve is told.
type settings struct {
	http, state, configDir     string
	redis, redisPassword       string // the bus's URL and the file with its password
	name, zone, region         string
	pagesURL, token, tokenFile string
	allowRemovals              bool
	verbose                    bool
	grpc, aggregator           string // not supported by this version
}

// parse reads flags, then the environment for flags that were not given:
// --config-dir is RLC_CONFIG_DIR.
func parse(args []string, env func(string) string, stdout, stderr io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("enforcer serve", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.http, "http", "127.0.0.1:8082", "`address` of the HTTP API; beyond loopback it asks for a token")
	f.StringVar(&s.configDir, "config-dir", "", "`folder` with a checkout of the config repository, read again when it changes")
	f.StringVar(&s.redis, "redis", "", "`URL` of the Redis that carries snapshots: redis://[user:password@]host:port/db, or rediss:// for TLS;\nRLC_REDIS_FILE names a file with the URL or, beside this flag, with the password")
	f.StringVar(&s.state, "state", "", "`folder` for the last good snapshot; without it nothing outlives a restart")
	f.StringVar(&s.name, "name", "", "`name` of this enforcer (default the host's)")
	f.StringVar(&s.zone, "zone", "", "`zone` it runs in")
	f.StringVar(&s.region, "region", "", "`region` it runs in")
	f.StringVar(&s.pagesURL, "pages-url", "", "`URL` of rlc's pages: a refusal links to its bucket's page")
	f.StringVar(&s.tokenFile, "token-file", "", "`file` with the token that /v1 asks for (or RLC_TOKEN)")
	f.BoolVar(&s.allowRemovals, "allow-removals", false, "accept a folder that lacks more than a tenth of the buckets in force")
	f.BoolVar(&s.verbose, "verbose", false, "log more")
	f.StringVar(&s.grpc, "grpc", "", "not supported by this version")
	f.StringVar(&s.aggregator, "aggregator", "", "not supported by this version")

	invalid := func(format string, a ...any) (settings, error) {
		return s, fmt.Errorf("%w: %s; see enforcer serve --help", rlc.ErrInvalid, fmt.Sprintf(format, a...))
	}
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, "Usage: enforcer serve [flags]\n\nAnswers whether requests may pass. Each flag may be given in the environment:\n--config-dir is RLC_CONFIG_DIR.\n\n")
		f.SetOutput(stdout)
		f.PrintDefaults()
		return s, err
	} else if err != nil {
		return invalid("%v", err)
	}
	if f.NArg() > 0 {
		shown := f.Arg(0)
		if scheme, _, ok := strings.Cut(shown, "://"); ok {
			shown = scheme + "://…" // the rest may hold a password
		}
		return invalid("unexpected argument %q", shown)
	}
	given := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	var err error
	f.VisitAll(func(fl *flag.Flag) {
		key := "RLC_" + strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_"))
		if v := env(key); v != "" && !given[fl.Name] {
			if e := fl.Value.Set(v); e != nil && err == nil {
				err = fmt.Errorf("%w: %s: %v", rlc.ErrInvalid, key, e)
			}
		}
	})
	if err != nil {
		return s, err
	}
	for name, v := range map[string]string{"grpc": s.grpc, "aggregator": s.aggregator} {
		if v != "" {
			return invalid("--%s is not supported by this version", name)
		}
	}
	if s.redis, s.redisPassword, err = redisSource(s.redis, env("RLC_REDIS_FILE")); err != nil {
		return s, err
	}
	switch {
	case s.configDir == "" && s.redis == "":
		return invalid("nowhere to take snapshots from: give --redis URL, or --config-dir DIR to stand alone")
	case s.configDir != "" && s.redis != "":
		return invalid("--config-dir and --redis exclude each other: snapshots come from one of them")
	case s.allowRemovals && s.redis != "":
		return invalid("--allow-removals is for --config-dir; from a bus, removals bear the names of the people who made them")
	}

	if s.token = env("RLC_TOKEN"); s.tokenFile != "" {
		data, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return invalid("--token-file: %v", err)
		}
		if s.token = strings.TrimSpace(string(data)); s.token == "" {
			return invalid("--token-file: %s is empty", s.tokenFile)
		}
	}
	host, _, err := net.SplitHostPort(s.http)
	if err != nil {
		return invalid("--http: %v", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) && s.token == "" {
		return invalid("--http %s can be reached from other machines: set RLC_TOKEN or --token-file, or listen on 127.0.0.1", s.http)
	}
	return s, nil
}

// serve answers until ctx ends.
func serve(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	s, err := parse(args, env, stdout, stderr)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if s.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	e, err := enforcer.New(enforcer.Config{
		Name: s.name, Zone: s.zone, Region: s.region, StateDir: s.state, PagesURL: s.pagesURL, Token: s.token,
		Registerer: registry, Log: log,
	})
	if err != nil {
		return err
	}
	var bus *distribute.Redis
	if s.redis != "" {
		if bus, err = distribute.NewRedis(distribute.RedisConfig{URL: s.redis, PasswordFile: s.redisPassword, OnError: e.Unreadable, Log: log}); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", s.http)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return e.Run(ctx) })
	group.Go(func() error { return enforcer.Serve(ctx, l, e.Handler(), drain) })
	if bus != nil {
		group.Go(func() error { return followBus(ctx, bus, e) })
	} else {
		by := ""
		if s.allowRemovals {
			by = "--allow-removals"
		}
		group.Go(func() error { return newFolder(s.configDir, by, e, log).follow(ctx) })
	}
	fmt.Fprintf(stdout, "listening: http://%s\n", l.Addr())
	return group.Wait()
}

// version is the build's: its tag or commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v += "-" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return v + " " + runtime.Version()
}
