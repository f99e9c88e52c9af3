package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

// While certificates of both sides move to another authority and back, request
// after request is answered, over connections that stand and over new ones. Of a
// certificate and its key one is there before the other.
func TestCertificatesRotateUnderLoadWithoutARefusedRequest(t *testing.T) {
	const rotations, workers = 6, 4
	dir := t.TempDir()
	cas := []*mtlstest.Authority{mtlstest.New(t), mtlstest.New(t)}
	roots := x509.NewCertPool()
	for _, ca := range cas {
		roots.AppendCertsFromPEM(ca.PEM)
	}
	serve := func(ca *mtlstest.Authority, n int) {
		cert, key := ca.Issue(t, fmt.Sprintf("server-%d", n), time.Now().Add(time.Hour))
		mtlstest.Write(t, dir, "cert", cert)
		mtlstest.Write(t, dir, "key", key)
	}
	serve(cas[0], 0)
	mtlstest.Write(t, dir, "ca", cas[0].PEM)
	c := Config{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), ClientCA: filepath.Join(dir, "ca"), Log: slog.New(slog.DiscardHandler)}
	var clock atomic.Int64 // each handshake comes two looks later than the one before
	f := &files{config: c, now: func() time.Time { return time.Unix(0, clock.Add(int64(2*checkEvery))) }}
	f.seen = f.look()
	first, err := f.parse(f.seen)
	if err != nil {
		t.Fatal(err)
	}
	f.current.Store(first)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "y") }))
	s.TLS = first.Clone()
	s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.fresh(), nil }
	s.StartTLS()
	defer s.Close()

	var mine atomic.Pointer[tls.Certificate] // what clients show
	show := func(ca *mtlstest.Authority) { mine.Store(&ca.Client(t, "gateway").Certificates[0]) }
	show(cas[0])
	var asked [workers]atomic.Int64
	var refused atomic.Int64
	var seen sync.Map // certificates of the server that clients met
	met := func(state tls.ConnectionState) error {
		seen.Store(state.PeerCertificates[0].Subject.CommonName, true)
		return nil
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); load.Wait() })
	defer end()
	for i := range workers {
		client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
			DisableKeepAlives: i%2 == 0,
			TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", VerifyConnection: met,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return mine.Load(), nil }},
		}}
		load.Go(func() {
			defer client.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := client.Get(s.URL)
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				if asked[i].Add(1); err != nil {
					refused.Add(1)
					t.Errorf("request: %v", err)
				}
			}
		})
	}
	// more waits until every client has begun and ended a request since.
	more := func() {
		t.Helper()
		deadline, tick := time.After(time.Minute), time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := range asked {
			for until := asked[i].Load() + 2; asked[i].Load() < until; {
				select {
				case <-tick.C:
				case <-deadline:
					t.Fatal("no requests are answered")
				}
			}
		}
	}
	for n := 1; n <= rotations; n++ {
		next := cas[n%2]
		mtlstest.Write(t, dir, "ca", slices.Concat(cas[0].PEM, cas[1].PEM)) // both are believed
		more()
		show(next)
		serve(next, n)
		more()
		mtlstest.Write(t, dir, "ca", next.PEM) // the old one is no more
		more()
	}
	end()
	certificates, requests := 0, int64(0)
	for i := range asked {
		requests += asked[i].Load()
	}
	seen.Range(func(any, any) bool { certificates++; return true })
	t.Logf("%d requests over %d rotations, %d certificates met, %d refused", requests, rotations, certificates, refused.Load())
	if certificates != rotations+1 {
		t.Errorf("clients met %d certificates, want each of %d", certificates, rotations+1)
	}
}
