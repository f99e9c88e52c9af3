package promhistory

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/porttest"
	"github.com/openrlc/rlc/internal/store"
)

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// reader is a Reader of a server that answers vector(1) and notes what came.
func reader(t *testing.T, url string, c Config) *Reader {
	t.Helper()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "rlc.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	c.URL, c.Store = url, db
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

const one = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}`

func TestEveryRequestSaysWhoWeAre(t *testing.T) {
	var got *http.Request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		got = r
		_, _ = w.Write([]byte(one))
	}))
	defer srv.Close()
	file := write(t, filepath.Join(t.TempDir(), "secret"), "tiger\n")
	r := reader(t, srv.URL, Config{Auth: Auth{User: "rlc", PasswordFile: file, Headers: map[string]string{"X-Scope-OrgID": "team-a"}}, Params: ThanosParams()})
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if user, password, _ := got.BasicAuth(); user != "rlc" || password != "tiger" {
		t.Errorf("%s, %s", user, password)
	}
	if got.Header.Get("X-Scope-OrgID") != "team-a" || got.Form.Get("partial_response") != "false" || got.Form.Get("dedup") != "true" || got.Form.Get("max_source_resolution") != "0s" || got.Form.Get("query") != "vector(1)" {
		t.Errorf("header %v, form %v", got.Header, got.Form)
	}
	r = reader(t, srv.URL, Config{Auth: Auth{TokenFile: file}})
	for _, token := range []string{"tiger", "lion"} { // a changed file counts at once
		write(t, file, token+"\n")
		if err := r.Check(t.Context()); err != nil || got.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("%v, %v", err, got.Header)
		}
	}
	got = nil
	for _, text := range []string{"", "hush\nhush"} {
		write(t, file, text)
		if err := r.Check(t.Context()); err == nil || strings.Contains(err.Error(), "hush") || got != nil {
			t.Errorf("%q: %v, sent %t", text, err, got != nil)
		}
	}
	os.Remove(file)
	if err := r.Check(t.Context()); !errors.Is(err, os.ErrNotExist) || got != nil {
		t.Errorf("%v, sent %t", err, got != nil)
	}
}

func TestNoSecretIsInAnError(t *testing.T) {
	addr := porttest.Free(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	angry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("go") != "" || strings.Contains(r.URL.Path, "away") {
			http.Redirect(w, r, other.URL, http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer angry.Close()
	file := write(t, filepath.Join(t.TempDir(), "secret"), "tiger")
	for _, url := range []string{"http://u:tiger@" + addr, "http://u:tiger@" + strings.TrimPrefix(angry.URL, "http://"), "http://u:tiger@" + strings.TrimPrefix(angry.URL, "http://") + "/away"} {
		for _, auth := range []Auth{{}, {TokenFile: file}, {User: "u", PasswordFile: file}} {
			err := reader(t, url, Config{Auth: auth, Params: map[string]string{"key": "tiger"}}).Check(t.Context())
			if err == nil || strings.Contains(err.Error(), "tiger") {
				t.Errorf("%v", err)
			}
		}
	}
	if _, err := New(Config{URL: "http://u:tiger@ho st", Store: reader(t, "http://x", Config{}).cfg.Store}); !errors.Is(err, rlc.ErrInvalid) || strings.Contains(err.Error(), "tiger") {
		t.Errorf("%v", err)
	}
}

func TestWhatCannotBeSentIsRefusedAtTheStart(t *testing.T) {
	db := reader(t, "http://x", Config{}).cfg.Store
	for name, c := range map[string]Config{
		"two ways":       {Auth: Auth{User: "u", PasswordFile: "p", TokenFile: "t"}},
		"no password":    {Auth: Auth{User: "u"}},
		"no user":        {Auth: Auth{PasswordFile: "p"}},
		"no key":         {TLS: TLS{CertFile: "c"}},
		"no such file":   {TLS: TLS{CAFile: filepath.Join(t.TempDir(), "none")}},
		"two clients":    {TLS: TLS{ServerName: "x"}, Client: http.DefaultClient},
		"a broken line":  {Auth: Auth{Headers: map[string]string{"X": "a\r\nY: b"}}},
		"no certificate": {TLS: TLS{CAFile: write(t, filepath.Join(t.TempDir(), "ca"), "hello")}},
	} {
		c.URL, c.Store = "https://x", db
		if _, err := New(c); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// authority signs certificates for the tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{}
	a.pem, _ = a.issue(t, "ca")
	return a
}

// issue makes a certificate; the first is the authority's own.
func (a *authority) issue(t *testing.T, name string) (cert, key string) {
	t.Helper()
	return a.issueWith(t, name, func(*x509.Certificate) {})
}

// issueWith is issue with something changed.
func (a *authority) issueWith(t *testing.T, name string, change func(*x509.Certificate)) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: a.cert == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	change(c)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, k
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &k.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert == nil {
		a.cert, _ = x509.ParseCertificate(der)
		a.key = k
	}
	private, _ := x509.MarshalECPrivateKey(k)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
}

func TestCertificatesAreCheckedAndReadAgain(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t, "server")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	who := ""
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who = r.TLS.PeerCertificates[0].Subject.CommonName
		_, _ = w.Write([]byte(one))
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	srv.StartTLS()
	defer srv.Close()
	dir := t.TempDir()
	c := Config{TLS: TLS{CAFile: write(t, filepath.Join(dir, "ca"), ca.pem), CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}}
	put := func(name string) {
		cert, key := ca.issue(t, name)
		write(t, c.TLS.CertFile, cert)
		write(t, c.TLS.KeyFile, key)
	}
	put("first")
	r := reader(t, srv.URL, c)
	if err := r.Check(t.Context()); err != nil || who != "first" {
		t.Fatalf("%v, %q", err, who)
	}
	// Half of a change counts for nothing; the whole of it does.
	write(t, c.TLS.CertFile, "nothing yet")
	if err := r.Check(t.Context()); err != nil || who != "first" {
		t.Errorf("%v, %q", err, who)
	}
	put("second")
	if err := r.Check(t.Context()); err != nil || who != "second" {
		t.Errorf("%v, %q", err, who)
	}
	// A server is verified, by the system's list where no other is given.
	for name, change := range map[string]func(*TLS){
		"unknown authority": func(c *TLS) { c.CAFile = "" },
		"another authority": func(c *TLS) { c.CAFile = write(t, filepath.Join(dir, "other"), newAuthority(t).pem) },
		"another name":      func(c *TLS) { c.ServerName = "example.com" },
		"no certificate":    func(c *TLS) { c.CertFile, c.KeyFile = "", "" },
	} {
		bad := c
		change(&bad.TLS)
		who = ""
		if err := reader(t, srv.URL, bad).Check(t.Context()); err == nil || who != "" {
			t.Errorf("%s: %v, %q", name, err, who)
		}
	}
}
