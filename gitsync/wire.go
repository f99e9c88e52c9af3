package gitsync

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/dialcheck"
)

// The two services of git's protocol.
const (
	fetching = "git-upload-pack"
	pushing  = "git-receive-pack"
)

const (
	// maxRefs bounds what a server says of its references, in bytes.
	maxRefs = 16 << 20
	// maxReport bounds what a server answers to a push, in bytes.
	maxReport = 1 << 20
	// maxSecret bounds a credential file, in bytes; maxTrust one of what is trusted.
	maxSecret, maxTrust = 64 << 10, 4 << 20
)

// conversation is one exchange of git's protocol with a server.
type conversation interface {
	// refs is what the server says first: the references that it has.
	refs() io.Reader
	// ask sends the one request and returns the answer, to be closed.
	ask(body []byte) (io.ReadCloser, error)
	// stderr waits for the end of what the server says beside the protocol and
	// returns it, "" over https. It is called once, in place of ask.
	stderr() string
	io.Closer
}

// failure is a conversation that did not come about or broke off.
type failure struct {
	root    error  // of the rlc package, nil where none fits
	text    string // without secrets
	lasting bool   // trying again soon will not help
	cause   error  // kept for errors.Is, never printed
}

func (f *failure) Error() string {
	if f.root != nil {
		return f.root.Error() + ": " + f.text
	}
	return f.text
}

func (f *failure) Unwrap() (all []error) {
	for _, err := range []error{f.root, f.cause} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// secrets are the credential files as they are now.
type secrets struct {
	token, key, passphrase []byte
	ca, hosts              []byte
}

// secrets reads the credential files: each conversation uses what they hold by
// then.
func (f *remote) secrets() (s secrets, err error) {
	for _, file := range []struct {
		name, path string
		into       *[]byte
		max        int
	}{
		{"token", f.cfg.TokenFile, &s.token, maxSecret}, {"key", f.cfg.KeyFile, &s.key, maxSecret},
		{"passphrase", f.cfg.PassphraseFile, &s.passphrase, maxSecret},
		{"CA", f.cfg.CAFile, &s.ca, maxTrust}, {"known hosts", f.cfg.KnownHostsFile, &s.hosts, maxTrust},
	} {
		if file.path == "" {
			continue
		}
		data, err := os.ReadFile(file.path)
		if err == nil && len(data) > file.max {
			err = errors.New("is too large")
		}
		if err != nil {
			return s, &failure{root: rlc.ErrInvalid, text: fmt.Sprintf("%s file: %v", file.name, err), lasting: true, cause: err}
		}
		*file.into = data
	}
	if f.cfg.Token != nil {
		token, err := f.cfg.Token()
		if err != nil {
			return s, &failure{root: rlc.ErrRefused, text: fmt.Sprintf("token: %v", err), cause: err}
		}
		s.token = []byte(token)
	}
	s.token, s.passphrase = bytes.TrimRight(s.token, "\r\n"), bytes.TrimRight(s.passphrase, "\r\n")
	if bytes.ContainsFunc(s.token, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return s, &failure{root: rlc.ErrInvalid, text: "token file: want one line, the token", lasting: true}
	}
	return s, nil
}

func (s secrets) sum() [32]byte {
	h := sha256.New()
	for _, part := range [][]byte{s.token, s.key, s.passphrase, s.ca, s.hosts} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return [32]byte(h.Sum(nil))
}

// scrub takes what is secret out of a text of the server's.
func (s secrets) scrub(text string) string {
	for _, secret := range [][]byte{s.token, s.passphrase} {
		if len(secret) == 0 {
			continue
		}
		text = strings.ReplaceAll(text, string(secret), "…")
		text = strings.ReplaceAll(text, base64.StdEncoding.EncodeToString(secret), "…")
	}
	return text
}

// dial begins a conversation.
func (f *remote) dial(ctx context.Context, service string, s secrets) (conversation, error) {
	if f.addr.scheme == "ssh" {
		return f.dialSSH(ctx, service, s)
	}
	return f.dialHTTP(ctx, service, s)
}

// webTalk is a conversation by git's smart HTTP: a GET, then at most one POST.
type webTalk struct {
	ctx     context.Context
	f       *remote
	s       secrets
	service string
	base    string // the repository's URL after redirects within its host
	first   io.ReadCloser
	max     int64 // bytes of the answer to ask
}

func (f *remote) dialHTTP(ctx context.Context, service string, s secrets) (conversation, error) {
	if err := f.client(s); err != nil {
		return nil, err
	}
	t := &webTalk{ctx: ctx, f: f, s: s, service: service, base: f.addr.String(), max: f.cfg.FetchBytes}
	if service == pushing {
		t.max = maxReport
	}
	resp, err := t.do(http.MethodGet, t.base+"/info/refs?service="+service, nil, maxRefs)
	if err != nil {
		return nil, err
	}
	if want := "application/x-" + service + "-advertisement"; resp.Header.Get("Content-Type") != want {
		resp.Body.Close()
		return nil, &failure{root: rlc.ErrInvalid, lasting: true, text: fmt.Sprintf("%s does not answer as a git server: content type %s", f.addr, clip(inert(resp.Header.Get("Content-Type")), 80))}
	}
	at := *resp.Request.URL
	at.RawQuery = ""
	t.base = strings.TrimSuffix(at.String(), "/info/refs")
	t.first = resp.Body
	return t, nil
}

// client makes the HTTP client, anew when the extra CA changed.
func (f *remote) client(s secrets) error {
	if sum := sha256.Sum256(s.ca); f.web == nil || sum != f.webCA {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if f.cfg.CAFile != "" && !pool.AppendCertsFromPEM(s.ca) {
			return &failure{root: rlc.ErrInvalid, text: "CA file " + f.cfg.CAFile + " holds no certificate", lasting: true}
		}
		f.hangUp()
		f.web, f.webCA = &http.Client{
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				DialContext:            f.dialer().DialContext,
				TLSClientConfig:        &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
				TLSHandshakeTimeout:    dialTime,
				DisableCompression:     true,
				MaxResponseHeaderBytes: 64 << 10,
				MaxIdleConnsPerHost:    1,
				IdleConnTimeout:        90 * time.Second,
			},
			CheckRedirect: func(req *http.Request, via []*http.Request) error {
				from := via[0].URL
				if from.Scheme != req.URL.Scheme || from.Host != req.URL.Host || via[0].Method != http.MethodGet ||
					!strings.HasSuffix(req.URL.Path, "/info/refs") || len(via) > 3 {
					return errRedirect
				}
				return nil
			},
		}, sum
	}
	return nil
}

// dialer connects to where the repository's URL may lead.
func (f *remote) dialer() dialcheck.Dialer {
	return dialcheck.Dialer{Networks: f.cfg.Networks, Timeout: dialTime}
}

// errRedirect is a redirect that is not followed. Nothing was sent to where it
// points.
var errRedirect = errors.New("redirect refused")

// do sends a request with credentials; an answer other than 200 is a failure.
func (t *webTalk) do(method, at string, body []byte, limit int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(t.ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, &failure{root: rlc.ErrInvalid, text: "request to " + t.f.addr.String(), lasting: true}
	}
	req.Header.Set("User-Agent", "git/2 (rlc)") // some servers speak git to git only
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-"+t.service+"-request")
		req.Header.Set("Accept", "application/x-"+t.service+"-result")
	}
	if t.f.cfg.TokenFile != "" {
		req.SetBasicAuth(t.f.user(), string(t.s.token))
	}
	resp, err := t.f.web.Do(req)
	if errors.Is(err, errRedirect) {
		return nil, &failure{root: rlc.ErrRefused, text: t.f.addr.String() + " redirects elsewhere, which is not followed: name the place itself", lasting: true}
	}
	if err != nil {
		return nil, t.f.broken(t.s, err)
	}
	resp.Body = &capped{ReadCloser: resp.Body, left: limit}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	resp.Body.Close()
	e := &failure{text: fmt.Sprintf("%s answers %d %s", t.f.addr, resp.StatusCode, http.StatusText(resp.StatusCode))}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.root, e.lasting = rlc.ErrRefused, true
		e.text += ": check the token and what it may do"
	case http.StatusNotFound, http.StatusGone:
		e.root, e.lasting = rlc.ErrNotFound, true
		e.text += ": check the URL; servers also say so of what the token may not see"
	}
	return nil, e
}

func (t *webTalk) refs() io.Reader { return t.first }

func (t *webTalk) ask(body []byte) (io.ReadCloser, error) {
	resp, err := t.do(http.MethodPost, t.base+"/"+t.service, body, t.max)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (t *webTalk) stderr() string { return "" }

func (t *webTalk) Close() error {
	_, _ = io.Copy(io.Discard, io.LimitReader(t.first, 4<<10)) // lets the connection be used again
	return t.first.Close()
}

// capped is a body that is an error beyond its size.
type capped struct {
	io.ReadCloser
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, fmt.Errorf("%w: the server's answer is too large", rlc.ErrInvalid)
	}
	return n, err
}

// dialTime bounds how long a server is waited for before a word of git's.
const dialTime = 20 * time.Second

// sshTalk is a conversation in one session of an ssh connection, which is kept
// between conversations.
type sshTalk struct {
	session *ssh.Session
	in      io.WriteCloser
	out     io.Reader
	err     *bounded
	stop    func() bool
	conn    net.Conn
	max     int64
	asked   bool
}

func (f *remote) dialSSH(ctx context.Context, service string, s secrets) (conversation, error) {
	if f.line != nil && f.lineSum != s.sum() {
		f.hangUp()
	}
	kept := f.line != nil
	if !kept {
		if err := f.connect(ctx, s); err != nil {
			return nil, err
		}
	}
	deadline, _ := ctx.Deadline()
	_ = f.conn.SetDeadline(deadline)
	t := &sshTalk{err: &bounded{max: hookText}, conn: f.conn, max: f.cfg.FetchBytes}
	if service == pushing {
		t.max = maxReport
	}
	conn := f.conn
	t.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	fail := func(err error) (conversation, error) {
		t.stop()
		f.hangUp()
		if kept && ctx.Err() == nil { // the server may have closed what was kept
			return f.dialSSH(ctx, service, s)
		}
		return nil, f.broken(s, err)
	}
	var err error
	if t.session, err = f.line.NewSession(); err != nil {
		return fail(err)
	}
	t.session.Stderr = t.err
	if t.in, err = t.session.StdinPipe(); err != nil {
		return fail(err)
	}
	if t.out, err = t.session.StdoutPipe(); err != nil {
		return fail(err)
	}
	// The path holds neither quotes nor anything else that a shell reads.
	if err := t.session.Start(service + " '" + f.addr.path + "'"); err != nil {
		return fail(err)
	}
	return t, nil
}

// connect opens the ssh connection to a host whose key is known.
func (f *remote) connect(ctx context.Context, s secrets) error {
	db, err := gitssh.NewKnownHostsDb(f.cfg.KnownHostsFile)
	if err != nil {
		return &failure{root: rlc.ErrInvalid, text: "known hosts file " + f.cfg.KnownHostsFile + " cannot be read", lasting: true, cause: err}
	}
	signer, err := ssh.ParsePrivateKey(s.key)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		signer, err = ssh.ParsePrivateKeyWithPassphrase(s.key, s.passphrase)
	}
	if err != nil {
		return &failure{root: rlc.ErrInvalid, text: "key file " + f.cfg.KeyFile + " holds no private key that the passphrase opens", lasting: true}
	}
	addr := f.addr.hostPort()
	algorithms := db.HostKeyAlgorithms(addr)
	if len(algorithms) == 0 {
		return &failure{root: rlc.ErrRefused, text: fmt.Sprintf("no key of %s in the known hosts file %s: have its owner tell it, then add it", addr, f.cfg.KnownHostsFile), lasting: true}
	}
	checked := false
	check := db.HostKeyCallback()
	conn, err := f.dialer().DialContext(ctx, "tcp", addr)
	if err != nil {
		return f.broken(s, err)
	}
	_ = conn.SetDeadline(time.Now().Add(dialTime))
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c, channels, requests, err := ssh.NewClientConn(conn, addr, &ssh.ClientConfig{
		User: f.user(),
		Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: func(host string, at net.Addr, key ssh.PublicKey) error {
			err := check(host, at, key)
			checked = err == nil
			return err
		},
		HostKeyAlgorithms: algorithms,
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		conn.Close()
		return f.broken(s, ctx.Err())
	case strings.Contains(err.Error(), "knownhosts:"):
		conn.Close()
		return &failure{root: rlc.ErrRefused, text: fmt.Sprintf("the key of %s is not the one in the known hosts file %s", addr, f.cfg.KnownHostsFile), lasting: true}
	case checked && strings.Contains(err.Error(), "unable to authenticate"):
		conn.Close()
		return &failure{root: rlc.ErrRefused, text: fmt.Sprintf("%s does not accept the key of user %s", addr, f.user()), lasting: true}
	default:
		conn.Close()
		return f.broken(s, err)
	}
	f.conn, f.line, f.lineSum = conn, ssh.NewClient(c, channels, requests), s.sum()
	return nil
}

func (t *sshTalk) refs() io.Reader { return &capped{ReadCloser: io.NopCloser(t.out), left: maxRefs} }

func (t *sshTalk) ask(body []byte) (io.ReadCloser, error) {
	t.asked = true
	sent := make(chan error, 1)
	go func() {
		_, err := t.in.Write(body)
		sent <- errors.Join(err, t.in.Close())
	}()
	return &capped{ReadCloser: answer{t.out, sent}, left: t.max}, nil
}

// answer waits, when closed, for the request to be sent.
type answer struct {
	io.Reader
	sent chan error
}

func (a answer) Close() error {
	err := <-a.sent
	if errors.Is(err, io.EOF) { // the server had heard enough
		return nil
	}
	return err
}

func (t *sshTalk) stderr() string {
	_ = t.in.Close()
	_ = t.session.Wait() // ends the copying into t.err; the connection has a deadline
	return t.err.String()
}

func (t *sshTalk) Close() error {
	if !t.asked {
		_, _ = io.WriteString(t.in, "0000") // nothing wanted: goodbye
	}
	_ = t.in.Close()
	_ = t.session.Close()
	t.stop()
	return t.conn.SetDeadline(time.Time{})
}

// hangUp closes what is kept open to the server.
func (f *remote) hangUp() {
	if f.web != nil {
		f.web.CloseIdleConnections()
	}
	if f.line != nil {
		_ = f.line.Close()
		f.line = nil
	}
}

// broken makes a network error one that may be shown.
func (f *remote) broken(s secrets, err error) error {
	if own := (*failure)(nil); errors.As(err, &own) {
		return err
	}
	text := err.Error()
	if u := (*url.Error)(nil); errors.As(err, &u) {
		text = u.Err.Error() // the rest repeats the URL
	}
	e := &failure{text: fmt.Sprintf("%s: %s", f.addr, clip(inert(s.scrub(text)), 300)), cause: err}
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, rlc.ErrInvalid):
		e.root, e.lasting = rlc.ErrInvalid, true
		e.text = strings.ReplaceAll(e.text, rlc.ErrInvalid.Error()+": ", "")
	case errors.As(err, &untrusted):
		e.root, e.lasting = rlc.ErrRefused, true
	case errors.Is(err, rlc.ErrRefused): // an address that is not connected to
		e.root, e.lasting = rlc.ErrRefused, true
		e.text = strings.ReplaceAll(e.text, rlc.ErrRefused.Error()+": ", "")
	}
	return e
}
