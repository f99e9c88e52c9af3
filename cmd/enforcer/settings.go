package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// settings are what serve is told.
type settings struct {
	http, grpc            string // addresses; off for none
	responseHeaders       bool
	configDir             string
	allowRemovals         bool
	redis, redisPassword  string // the URL and the file with its password
	redisPrefix, redisCA  string
	localCounters, strict bool
	redisTimeout          time.Duration
	state, killFile       string
	name, zone, region    string
	peers, maxKeys        int
	pagesURL              string

	token, tokenFile  string
	tlsCert, tlsKey   string
	clientCA, clients string
	hashKeyFile       string
	accessLog         string
	accessLogShare    float64
	accessLogRefusals int
	verbose           bool
	aggregator        string // the loop's, host:port
	aggregatorCA      string
}

// off is the address of a listener that there is none of.
const off = "off"

// flags lists every flag with its default, unit and meaning.
func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("enforcer serve", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.grpc, "grpc", "127.0.0.1:8081", "`address` of Envoy's rate limit protocol, or off")
	f.BoolVar(&s.responseHeaders, "response-headers", false, "let Envoy add the RateLimit headers to responses (with its own x-ratelimit headers off)")
	f.StringVar(&s.http, "http", "127.0.0.1:8082", "`address` of the HTTP API, /metrics and /healthz, or off;\nbeyond loopback, both listeners ask for --client-ca or a token")
	f.StringVar(&s.configDir, "config-dir", "", "`folder` with a checkout of the config repository, read again each second")
	f.BoolVar(&s.allowRemovals, "allow-removals", false, "accept a folder that lacks more than a tenth of the buckets in force")
	f.StringVar(&s.redis, "redis", "", "`URL` of the Redis that holds shared counters and, without --config-dir, carries snapshots:\nredis://[user:password@]host:port/db, or rediss:// for TLS; RLC_REDIS_FILE names a file with\nthe URL or, beside this flag, with the password")
	f.BoolVar(&s.localCounters, "local-counters", false, "count in this process only, although there is a Redis")
	f.BoolVar(&s.strict, "strict", false, "ask Redis for every decision: exact to the request, and no leases for busy keys")
	f.DurationVar(&s.redisTimeout, "redis-timeout", 8*time.Millisecond, "how long a decision waits for Redis, over all that it asks, 1ms to 1s; Envoy gives up after\n20 ms unless it is told otherwise")
	f.StringVar(&s.state, "state", "", "`folder` for the last good snapshot and overrides; without it nothing outlives a restart")
	f.StringVar(&s.killFile, "kill-file", "", "`file` that throws kill switches while it exists, looked at each second (default kill in --state)")
	f.StringVar(&s.name, "name", "", "`name` of this enforcer (default the host's)")
	f.StringVar(&s.zone, "zone", "", "`zone` it runs in")
	f.StringVar(&s.region, "region", "", "`region` it runs in")
	f.IntVar(&s.peers, "peers", 0, "how `many` enforcers share the limits: each one's equal share while Redis is away. On the bus\nthey are counted; give it with --config-dir (default what was counted last, else 1)")
	f.IntVar(&s.maxKeys, "max-keys", 1_000_000, "the most `keys` that are counted in this process at one time, over all buckets; each takes\nup to 1 kB")
	f.StringVar(&s.pagesURL, "pages-url", "", "`URL` of rlc's pages: a refusal links to its bucket's page")
	f.StringVar(&s.tokenFile, "token-file", "", "`file` with the token that is asked for as Authorization: Bearer … (or RLC_TOKEN)")
	f.StringVar(&s.tlsCert, "tls-cert", "", "`file` with the PEM certificate of both listeners; TLS files are read again within 1 s of a change")
	f.StringVar(&s.tlsKey, "tls-key", "", "`file` with its PEM key")
	f.StringVar(&s.clientCA, "client-ca", "", "`file` with the PEM authorities whose clients alone may connect")
	f.StringVar(&s.clients, "clients", "", "`file` with the names of the clients that may, one a line (default every one of --client-ca)")
	f.StringVar(&s.hashKeyFile, "hash-key-file", "", "`file` with the key, at least 16 bytes, that sensitive values are hashed with; the same for a fleet")
	f.StringVar(&s.accessLog, "access-log", "", "`file` for decisions as JSON lines, or - for stderr (default none)")
	f.Float64Var(&s.accessLogShare, "access-log-share", 0, "`share` of all decisions that is logged, 0 to 1")
	f.IntVar(&s.accessLogRefusals, "access-log-refusals", 100, "drops and virtual drops logged beside that share, at most so `many` a second")
	f.BoolVar(&s.verbose, "verbose", false, "log more")
	f.StringVar(&s.redisPrefix, "redis-prefix", "", "`text` that all keys in Redis begin with: the redis.prefix of rlc (default rlc:)")
	f.StringVar(&s.redisCA, "redis-ca", "", "PEM `file` of the authorities that may sign the certificate of a rediss:// server (default the system's)")
	f.StringVar(&s.aggregator, "aggregator", "", "`address` of the zone's aggregator, or of several, split by commas, for drop_ratio buckets; without\n--config-dir and --redis it also brings snapshots and overrides")
	f.StringVar(&s.aggregatorCA, "aggregator-ca", "", "`file` with the PEM authorities of the aggregator, which is then shown --tls-cert; without it the stream is in clear")
	return f
}

const serveHelp = `Usage: enforcer serve [flags]

Answers whether requests may pass. Each flag may be given in the environment:
--config-dir is RLC_CONFIG_DIR. SIGTERM stops accepting and lets requests under
way finish for at most 10 s; a second one exits at once. SIGUSR1 throws the kill
switch "all to shadow" and lets go of it, SIGUSR2 "stop distribution".

`

// parse reads flags, then the environment for flags that were not given.
func parse(args []string, env func(string) string, stdout io.Writer) (settings, error) {
	var s settings
	f := s.flags()
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, serveHelp)
		f.SetOutput(stdout)
		f.PrintDefaults()
		return s, err
	} else if err != nil {
		return s, invalid("%v%s", err, meantFlag(f, err))
	}
	if f.NArg() > 0 {
		shown := f.Arg(0)
		if scheme, _, ok := strings.Cut(shown, "://"); ok {
			shown = scheme + "://…" // the rest may hold a password
		}
		return s, invalid("unexpected argument %q", shown)
	}
	if err := fromEnvironment(f, env); err != nil {
		return s, err
	}
	var err error
	if s.redis, s.redisPassword, err = redisSource(s.redis, env("RLC_REDIS_FILE")); err != nil {
		return s, err
	}
	if s.token = env("RLC_TOKEN"); s.tokenFile != "" {
		if s.token, err = secret("--token-file", s.tokenFile); err != nil {
			return s, err
		}
	}
	return s, s.check()
}

// invalid is an error of input.
func invalid(format string, a ...any) error {
	return fmt.Errorf("%w: %s; see enforcer serve --help", rlc.ErrInvalid, fmt.Sprintf(format, a...))
}

// fromEnvironment sets the flags that were not given, and warns of variables that
// mean one and are misspelt.
func fromEnvironment(f *flag.FlagSet, env func(string) string) (err error) {
	misspeltVariables(f, os.Environ(), os.Stderr)
	given := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	f.VisitAll(func(fl *flag.Flag) {
		key := variable(fl.Name)
		if v := env(key); v != "" && !given[fl.Name] {
			if e := fl.Value.Set(v); e != nil && err == nil {
				err = fmt.Errorf("%w: %s: %v", rlc.ErrInvalid, key, e)
			}
		}
	})
	return err
}

// secret reads what a file holds, without the newline at its end.
func secret(name, file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", invalid("%s: %v", name, err)
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return "", invalid("%s: %s is empty", name, file)
	}
	return text, nil
}

// check refuses what does not go together.
func (s *settings) check() error {
	switch {
	case s.configDir == "" && s.redis == "" && s.aggregator == "":
		return invalid("nowhere to take snapshots from: give --redis URL or --aggregator ADDR, or --config-dir DIR to stand alone")
	case s.aggregatorCA != "" && (s.aggregator == "" || s.tlsCert == ""):
		return invalid("--aggregator-ca needs --aggregator, and --tls-cert and --tls-key to show")
	case s.allowRemovals && s.configDir == "":
		return invalid("--allow-removals is for --config-dir; from a bus, removals bear the names of the people who made them")
	case s.redis == "" && (s.strict || s.localCounters):
		return invalid("--strict and --local-counters are for counters in --redis")
	case s.redis == "" && (s.redisPrefix != "" || s.redisCA != ""):
		return invalid("--redis-prefix and --redis-ca belong to --redis")
	case s.redisTimeout < time.Millisecond || s.redisTimeout > time.Second:
		return invalid("--redis-timeout %s is outside 1ms to 1s", rlc.DurationText(s.redisTimeout))
	case s.peers < 0 || s.maxKeys < 1:
		return invalid("--peers %d, --max-keys %d: want 0 or more, and 1 or more", s.peers, s.maxKeys)
	case s.strict && s.localCounters:
		return invalid("--strict and --local-counters exclude each other")
	case s.http == off && s.grpc == off:
		return invalid("--http and --grpc are both off: nobody could ask")
	case (s.tlsCert == "") != (s.tlsKey == ""):
		return invalid("--tls-cert and --tls-key go together")
	case s.clientCA != "" && s.tlsCert == "":
		return invalid("--client-ca needs --tls-cert and --tls-key")
	case s.clients != "" && s.clientCA == "":
		return invalid("--clients needs --client-ca, which vouches for them")
	case s.accessLog == "" && s.accessLogShare != 0:
		return invalid("--access-log-share needs --access-log")
	case !(s.accessLogShare >= 0 && s.accessLogShare <= 1):
		return invalid("--access-log-share %g is outside 0 to 1", s.accessLogShare)
	case s.accessLogRefusals < 1:
		return invalid("--access-log-refusals %d is below 1", s.accessLogRefusals)
	}
	if err := checkPlace("serve", s.zone, s.region, s.name); err != nil {
		return err
	}
	if s.aggregator != "" {
		for address := range strings.SplitSeq(s.aggregator, ",") {
			if err := checkAddress("serve", "--aggregator", address); err != nil {
				return err
			}
		}
	}
	for name, address := range map[string]string{"--http": s.http, "--grpc": s.grpc} {
		if err := s.reachable(name, address); err != nil {
			return err
		}
	}
	return nil
}

// reachable refuses a listener that other machines reach and anybody may ask.
func (s *settings) reachable(name, address string) error {
	if address == off {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return invalid("%s: %v", name, err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() || s.token != "" || s.clientCA != "" {
		return nil
	}
	return invalid("%s %s can be reached from other machines: give --client-ca with --tls-cert and --tls-key, or set RLC_TOKEN or --token-file, or listen on 127.0.0.1", name, address)
}
