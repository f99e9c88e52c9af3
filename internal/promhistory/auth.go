package promhistory

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/openrlc/rlc"
)

// Auth says who we are. Secrets are in files, read again for every request, so
// that a changed one counts at once; no secret is ever in an error.
type Auth struct {
	User         string            // HTTP Basic; empty for none
	PasswordFile string            // for User
	TokenFile    string            // a bearer token; not together with User
	Headers      map[string]string // sent as they are: X-Scope-OrgID for Mimir
}

// TLS names the files of certificates in PEM. A server is always verified. The
// files are looked at before every request and read again when they change;
// while new ones cannot be used, the old ones are.
type TLS struct {
	CAFile     string // who may sign the server's certificate; empty: the system's list
	CertFile   string // ours, for servers that ask for one
	KeyFile    string
	ServerName string // verified in place of the URL's host; empty: the host
}

// ThanosParams are the query parameters by which Thanos refuses partial
// answers, joins replicas and gives raw samples.
func ThanosParams() map[string]string {
	return map[string]string{"partial_response": "false", "dedup": "true", "max_source_resolution": "0s"}
}

// access puts Auth, Params and TLS into requests.
type access struct {
	auth   Auth
	params map[string]string
	tls    TLS
	cfg    Config
	warn   func(msg string, args ...any)

	mu        sync.Mutex
	transport *http.Transport // nil without TLS
	stamp     string          // of the files that transport was made of
}

func newAccess(c Config) (*access, error) {
	a := &access{auth: c.Auth, params: c.Params, tls: c.TLS, cfg: c, warn: c.Log.Warn}
	switch {
	case a.auth.User != "" && a.auth.TokenFile != "":
		return nil, fmt.Errorf("%w: history source: a user and a token are given, one is wanted", rlc.ErrInvalid)
	case (a.auth.User == "") != (a.auth.PasswordFile == ""):
		return nil, fmt.Errorf("%w: history source: user and password file belong together", rlc.ErrInvalid)
	case (a.tls.CertFile == "") != (a.tls.KeyFile == ""):
		return nil, fmt.Errorf("%w: history source: certificate and key file belong together", rlc.ErrInvalid)
	case a.tls != (TLS{}) && c.Client != nil:
		return nil, fmt.Errorf("%w: history source: certificates are given beside a client of its own", rlc.ErrInvalid)
	}
	for name, v := range a.auth.Headers {
		if name == "" || strings.ContainsAny(name+v, "\r\n\x00") {
			return nil, fmt.Errorf("%w: history source: header %q cannot be sent", rlc.ErrInvalid, name)
		}
	}
	if a.tls == (TLS{}) {
		return a, nil
	}
	t, err := a.dial()
	if err != nil {
		return nil, fmt.Errorf("%w: history source: %w", rlc.ErrInvalid, err)
	}
	a.stamp, a.transport = a.stamps(), t
	return a, nil
}

// apply completes a request.
func (a *access) apply(req *http.Request) error {
	if len(a.params) > 0 && !strings.HasSuffix(req.URL.Path, "/api/v1/read") {
		u := *req.URL
		q := u.Query()
		for name, v := range a.params {
			q.Set(name, v)
		}
		u.RawQuery = q.Encode()
		req.URL = &u
	}
	req.Header = req.Header.Clone()
	for name, v := range a.auth.Headers {
		req.Header.Set(name, v)
	}
	switch {
	case a.auth.User != "":
		password, err := secret(a.auth.PasswordFile)
		if err != nil {
			return fmt.Errorf("password of the history source: %w", err)
		}
		req.SetBasicAuth(a.auth.User, password)
	case a.auth.TokenFile != "":
		token, err := secret(a.auth.TokenFile)
		if err != nil {
			return fmt.Errorf("token of the history source: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// secret is the content of a file of one line.
func secret(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(string(b))
	if s == "" || len(s) > 64<<10 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%s holds no line of text", file)
	}
	return s, nil
}

// client is base, or one with certificates that are up to date.
func (a *access) client(base *http.Client) *http.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.transport == nil {
		return base
	}
	if stamp := a.stamps(); stamp != a.stamp {
		if t, err := a.dial(); err != nil {
			a.warn("new certificates for the history source cannot be used", "error", err)
		} else {
			a.transport.CloseIdleConnections()
			a.transport, a.stamp = t, stamp
		}
	}
	c := *base
	c.Transport = a.transport
	return &c
}

func (a *access) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.transport != nil {
		a.transport.CloseIdleConnections()
	}
}

// stamps changes when a file does.
func (a *access) stamps() string {
	var b strings.Builder
	for _, f := range []string{a.tls.CAFile, a.tls.CertFile, a.tls.KeyFile} {
		if info, err := os.Stat(f); err == nil {
			fmt.Fprintln(&b, info.ModTime().UTC().Format(time.RFC3339Nano), info.Size())
		} else {
			fmt.Fprintln(&b, "none")
		}
	}
	return b.String()
}

func (a *access) dial() (*http.Transport, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.tls.ServerName}
	if a.tls.CAFile != "" {
		pem, err := os.ReadFile(a.tls.CAFile)
		if err != nil {
			return nil, err
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", a.tls.CAFile)
		}
	}
	if a.tls.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(a.tls.CertFile, a.tls.KeyFile)
		if err != nil {
			return nil, err
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return transport(a.cfg, conf), nil
}
