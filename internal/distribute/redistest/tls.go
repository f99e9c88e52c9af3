package redistest

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

// StartTLS is Start for a server that speaks TLS alone, with a certificate for
// 127.0.0.1 that ca signed. It asks clients for none.
func StartTLS(t testing.TB, ca *mtlstest.Authority, args ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	cert, key := ca.Issue(t, "redis", time.Now().Add(time.Hour))
	s := newServer(t, append([]string{
		"--port", "0", "--tls-port", "{port}", "--tls-auth-clients", "no", "--tls-ca-cert-file", mtlstest.Write(t, dir, "ca", ca.PEM),
		"--tls-cert-file", mtlstest.Write(t, dir, "cert", cert), "--tls-key-file", mtlstest.Write(t, dir, "key", key),
	}, args...))
	s.roots = ca.Pool()
	s.run()
	return s
}

// Roots judge the server's certificate; nil for one in clear.
func (s *Server) Roots() *x509.CertPool { return s.roots }
