package redis

import (
	"crypto/x509"
	"testing"

	"github.com/openrlc/rlc/internal/distribute/redistest"
	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

// Counters are charged over TLS, strictly and by leases, and by nobody who
// cannot tell whose certificate that is.
func TestCountersAreChargedOverTLSThatIsVerified(t *testing.T) {
	server := redistest.StartTLS(t, mtlstest.New(t))
	for name, c := range map[string]Config{"strict": {Strict: true}, "leased": {LeaseFrom: 1}} {
		c.RootCAs = server.Roots()
		r := counter(t, server.URL(), c)
		s := strict(t, r, "k", 5)
		admitted := 0
		for range 9 {
			if take(t, s, 0, 1).OK() {
				admitted++
			}
		}
		if admitted != 5 {
			t.Errorf("%s: %d of a burst of 5 admitted", name, admitted)
		}
	}
	if keys := server.Do("DBSIZE")[0]; keys != "2" {
		t.Errorf("%s keys, want one for each", keys)
	}
	for what, roots := range map[string]*x509.CertPool{"the system's authorities": nil, "another authority": mtlstest.New(t).Pool()} {
		if got := chargedBy(t, server.URL(), Config{RootCAs: roots}); got != Refused {
			t.Errorf("%s: %q, want %q", what, got, Refused)
		}
	}
	if got := chargedBy(t, "redis://"+server.Addr(), Config{}); got != Refused {
		t.Errorf("in clear: %q, want %q", got, Refused)
	}
}

// A Cluster whose nodes speak TLS alone: counters on every shard are charged
// together and by leases, and the certificates of all nodes are verified.
func TestAClusterIsChargedOverTLSThatIsVerified(t *testing.T) {
	cluster := redistest.StartTLSCluster(t, mtlstest.New(t))
	roots := cluster.Servers[0].Roots()
	for name, c := range map[string]Config{"strict": {Strict: true}, "leased": {LeaseFrom: 1}} {
		c.RootCAs = roots
		s := counter(t, cluster.URL(), c).Set(many(t, 10, 5)).(*Set)
		shards := map[int]bool{}
		for i := range s.parts {
			shards[cluster.Owner(int(s.parts[i].slot))] = true
		}
		admitted := 0
		for range 9 {
			if take(t, s, 0, 1).OK() {
				admitted++
			}
		}
		if admitted != 5 || len(shards) != 3 {
			t.Errorf("%s: %d of a burst of 5 admitted, on %d shards", name, admitted, len(shards))
		}
	}
	for what, roots := range map[string]*x509.CertPool{"the system's authorities": nil, "another authority": mtlstest.New(t).Pool()} {
		if got := chargedBy(t, cluster.URL(), Config{RootCAs: roots}); got != Refused {
			t.Errorf("%s: %q, want %q", what, got, Refused)
		}
	}
}

// chargedBy is why a counter there could not be charged, "" where it was.
func chargedBy(t *testing.T, url string, c Config) string {
	t.Helper()
	_, err := strict(t, counter(t, url, c), "k", 5).Take(t.Context(), 0, 1)
	return reason(err)
}
