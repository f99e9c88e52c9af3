// Package config holds the settings of an RLC server: what each one means, its
// default, and where its value came from.
//
// One table, Keys, says everything about a setting. The file is read with it,
// flags and environment variables are named by it, the operator's page and the
// example file are printed from it.
package config

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// Server is the configuration of one RLC server. Every part that is not
// configured uses its embedded default, so the zero value is a whole product
// on one machine. What each field means stands in Keys.
type Server struct {
	Listen        string
	MetricsListen string // "": no listener of its own
	Data          string // made absolute by Complete
	Token         Secret
	Store         Secret // the DSN of the records
	Prometheus    Prometheus
	Retention     time.Duration
	Scrape        time.Duration
	Repository    Repository
	Redis         Redis
	External      External
	Poll          time.Duration
	Schedule      string
	RunDeadline   time.Duration
	Log           Log
	Forge         Forge
	Reviews       Reviews
	OIDC          OIDC
	Proxy         Proxy
	Roles         Roles
	Rollout       Rollout
	Notify        Notify
	Loop          Loop
}

// Loop says whom pages ask about the drop-ratio loop.
type Loop struct {
	Controller string // URL of its /v1/loop; "": nobody
}

// Forge says where reviews are put up and how RLC shows who it is.
type Forge struct {
	Kind              string // none, github, gitlab or gitea
	URL               string // of the API; "": the kind's public server
	Repository        string // owner/name; "": the path of the repository's URL
	TokenFile         string // "": the repository's
	CAFile            string // "": the repository's
	Networks          string // CIDRs, separated by commas; "": the repository's
	AppID             int    // of a GitHub App
	AppInstallation   int
	AppKeyFile        string
	WebhookSecretFile string // "": no webhook
}

// Reviews say how reviews are put up.
type Reviews struct {
	MaxOpen               int
	GroupBy               string // service or team
	Labels                string // separated by commas
	SigningKeyFile        string // ssh; "": commits are not signed
	SigningPassphraseFile string
	MergeEvery            time.Duration // between two automatic merges of a service
}

// OIDC says which OpenID Connect provider lets people in.
type OIDC struct {
	Issuer     string // "": none
	ClientID   string
	SecretFile string // "": a public client
	PublicURL  string // where browsers reach this server
	Groups     string // claim
}

// Proxy says which proxies name people by a header.
type Proxy struct {
	Networks     string // CIDRs, separated by commas; "": none
	UserHeader   string
	GroupsHeader string // "": none
}

// Roles say who may do what, beside the owners of services. Lists are
// separated by commas.
type Roles struct {
	Admins   string
	OnCall   string
	Private  bool
	FourEyes bool
}

// Prometheus says where history is read from and how RLC shows who it is.
type Prometheus struct {
	URL          string // "": the embedded store
	User         string // HTTP Basic; "": none
	PasswordFile string
	BearerFile   string
	Headers      map[string]string
	CAFile       string // "": the system's authorities
	CertFile     string
	KeyFile      string
	ServerName   string
	Thanos       bool
	RangeOnly    bool
	QueryTimeout time.Duration
	// ServiceTimeout bounds all reading of one service in one run.
	ServiceTimeout time.Duration
	MaxQueries     int
	Networks       string // CIDRs, separated by commas
	ReplicaLabel   string
}

// Repository says where the config repository is and how RLC shows who it is.
type Repository struct {
	URL            string
	Branch         string
	User           string // "": the URL's, or git
	TokenFile      string // https
	CAFile         string // https; "": the system's authorities
	KeyFile        string // ssh
	PassphraseFile string // ssh
	KnownHostsFile string // ssh
	Networks       string // CIDRs, separated by commas
}

// Redis says where the bus to enforcers in other processes is.
type Redis struct {
	URL          Secret // unset: no enforcers in other processes
	PasswordFile string
	CAFile       string // "": the system's authorities
	Prefix       string
}

// External says whom policies of kind external may ask.
type External struct {
	Hosts    string // separated by commas; "": nobody
	Networks string // CIDRs, separated by commas
}

// Log says what is logged, to stderr.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// Complete fills in the defaults and checks every value. The error names each
// setting that is wrong; it is rlc.ErrInvalid.
func (c *Server) Complete() error {
	var errs []error
	for _, f := range c.complete() {
		errs = append(errs, fmt.Errorf("%s: %w", f.key.Name, f.err))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w configuration: %w", rlc.ErrInvalid, errors.Join(errs...))
}

// finding is what is wrong with one key's value.
type finding struct {
	key Key
	err error
}

func (c *Server) complete() []finding {
	var found []finding
	for _, k := range Keys() {
		if err := k.complete(c); err != nil {
			found = append(found, finding{k, err})
		}
	}
	for _, k := range Keys() {
		if k.check == nil {
			continue
		}
		if err := k.check(c); err != nil {
			found = append(found, finding{k, err})
		}
	}
	return found
}

// OwnToken is the file of the token that the server makes for itself; it is
// made only where no other token was configured.
func (c *Server) OwnToken() string { return filepath.Join(c.Data, "token") }

// address checks host:port; an empty one is left to the default.
func address(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q: want host:port, such as 127.0.0.1:8080", text)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return fmt.Errorf("%q: port %q is not one", text, port)
	}
	if strings.ContainsAny(host, " /") {
		return fmt.Errorf("%q: host %q is not one", text, host)
	}
	return nil
}

// httpURL checks the URL of a part that is asked over HTTP. Errors and pages
// name it, so it may hold no credentials.
func httpURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return errors.New("want http://host:port or https://host:port") // the text may hold a password
	case u.User != nil:
		return errors.New("credentials in a URL end up in logs and pages: take them out")
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q: a query or a fragment has no meaning here", text)
	}
	return nil
}

// Env returns the value of the environment variable RLC_<NAME>, or of the file
// that RLC_<NAME>_FILE names (for secrets), or fallback. Name is a flag's name:
// "run-deadline" reads RLC_RUN_DEADLINE.
func Env(name, fallback string) (string, error) {
	key := envName(name)
	if v, ok := os.LookupEnv(key); ok {
		return v, nil
	}
	if file, ok := os.LookupEnv(key + "_FILE"); ok {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("%s_FILE: %w", key, err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	return fallback, nil
}

func envName(name string) string {
	return "RLC_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// absolute makes a path independent of the working folder.
func absolute(path *string) error {
	abs, err := filepath.Abs(*path)
	if err != nil {
		return err
	}
	*path = abs
	return nil
}

// storeDSN names engines only: the rest may hold a password.
func storeDSN(dsn string) error {
	engine, rest, _ := strings.Cut(dsn, ":")
	switch {
	case engine == "sqlite" && rest != "":
		return nil
	case engine == "postgres" || engine == "postgresql":
		return nil // the store says whether it is supported
	}
	return fmt.Errorf("engine %q: want sqlite:/path/of/file.db or postgres://…", engine)
}

// redisURL checks the form that the bus reads; errors never repeat it.
func redisURL(c *Server) error {
	if !c.Redis.URL.IsSet() {
		return nil
	}
	text, err := c.Redis.URL.Read()
	if err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "redis" && u.Scheme != "rediss") {
		return errors.New("want redis://[user:password@]host[:port][/database], or rediss:// for TLS")
	}
	return nil
}

// beside checks that a setting of Redis is not given without Redis.
func (c *Server) besideRedis(value string) error {
	if value != "" && !c.Redis.URL.IsSet() {
		return errors.New("redis.url belongs with it")
	}
	return nil
}

// List is what commas separate in text, without the spaces around.
func List(text string) []string {
	var all []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// Networks reads CIDRs or addresses that commas separate; "" is none.
func Networks(text string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, part := range List(text) {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			a, err := netip.ParseAddr(part)
			if err != nil {
				return nil, fmt.Errorf("%q: want networks such as 10.0.0.0/8, 192.0.2.7, separated by commas", part)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

func networks(text string) error { _, err := Networks(text); return err }

// remoteURL refuses a password in a repository's URL; what else is allowed is
// gitsync's to say.
func remoteURL(text string) error {
	if !strings.Contains(text, "://") {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("not a URL")
	}
	if _, has := u.User.Password(); has {
		return errors.New("credentials in a URL end up in logs and pages: take them out")
	}
	return nil
}

// readable checks that a file that a part will read is there; "" names none.
func readable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// together checks that two settings are both given or both left out.
func together(mine, other, name string) error {
	if mine != "" && other == "" {
		return fmt.Errorf("%s belongs with it", name)
	}
	return nil
}

// firstOf is the first error; nil where there is none.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// headers refuses what has a key of its own or cannot be sent.
func headers(all map[string]string) error {
	for name, value := range all {
		switch canonical := http.CanonicalHeaderKey(name); canonical {
		case "Authorization", "Cookie", "Proxy-Authorization":
			return fmt.Errorf("%s is a secret: use prometheus.bearer_file or prometheus.user", canonical)
		case "Host", "Content-Type", "Content-Length", "Content-Encoding", "Accept-Encoding", "Connection", "Transfer-Encoding":
			return fmt.Errorf("%s is RLC's own", canonical)
		}
		if !headerName.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			return fmt.Errorf("header %q cannot be sent", name)
		}
	}
	return nil
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
