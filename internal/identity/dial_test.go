package identity_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openrlc/rlc/internal/identity"
)

// An issuer's URL leads to the issuer and nowhere else: not to another protocol
// of this machine through an address that names nobody, nor to where a cloud
// keeps a machine's credentials.
func TestAnIssuerThatLeadsWhereItShouldNotIsNotConnectedTo(t *testing.T) {
	var reached atomic.Int32
	decoy := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	decoy.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			reached.Add(1)
		}
	}
	decoy.StartTLS()
	defer decoy.Close()
	_, port, err := net.SplitHostPort(decoy.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"0.0.0.0", "[::]", "0", "2130706433", "169.254.169.254", "[::ffff:0.0.0.0]"} {
		o, err := identity.NewOIDC(identity.OIDCConfig{Issuer: "https://" + host + ":" + port, ClientID: "rlc", RedirectURL: "https://rlc.example.com/login/callback"})
		if err != nil {
			continue // refused before anybody is asked
		}
		if _, err := o.Start(t.Context(), "state", "nonce", "verifier"); err == nil {
			t.Errorf("%s was asked", host)
		} else if host == "0.0.0.0" && !strings.Contains(err.Error(), "no address of a server") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the decoy was reached %d times", n)
	}
}
