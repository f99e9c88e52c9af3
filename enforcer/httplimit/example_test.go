package httplimit_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/follow"
	"github.com/openrlc/rlc/enforcer/httplimit"
)

// A service that limits itself: an enforcer that follows a checkout of the
// config repository (follow.Config.Redis follows the bus instead), and a
// middleware around its handlers.
func Example() {
	dir := checkout()
	defer os.RemoveAll(dir)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "an order") })

	e, err := follow.Start(follow.Config{Dir: dir}, enforcer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	limiter, err := httplimit.New(httplimit.Config{
		Enforcer: e.Enforcer, Service: "checkout",
		CallerHeader: "X-Caller", PeerAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // the gateway's
	})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(limiter.Wrap(mux))
	defer server.Close()

	for range 3 {
		r, _ := http.NewRequest("GET", server.URL+"/orders/7", nil)
		r.Header.Set("X-Caller", "search")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		fmt.Println(res.StatusCode, res.Header.Get("RateLimit-Policy"))
	}
	// Output:
	// 200 "checkout/callers";q=1;w=100
	// 200 "checkout/callers";q=1;w=100
	// 429 "checkout/callers";q=1;w=100
}

// checkout stands in for a checkout of the config repository.
func checkout() string {
	dir, err := os.MkdirTemp("", "rlc-example")
	if err != nil {
		log.Fatal(err)
	}
	folder := filepath.Join(dir, "services", "checkout")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		log.Fatal(err)
	}
	policy := `apiVersion: rlc/v1
kind: ServicePolicy
service: checkout
owners: [team-payments]
defaults: {mode: enforce}
buckets:
  - {name: callers, each: [caller], limit: {rate: 0.01, burst: 2}}
`
	if err := os.WriteFile(filepath.Join(folder, "policy.yaml"), []byte(policy), 0o600); err != nil {
		log.Fatal(err)
	}
	return dir
}
