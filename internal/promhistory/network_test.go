package promhistory

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/openrlc/rlc"
)

// toxic is a proxy between the Reader and its server, to do harm with.
func toxic(t *testing.T, upstream string) *toxiproxy.Proxy {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled)
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "history", "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// A2, A3: a network that swallows everything after it accepted, or gives one
// byte a second, costs a reading its deadline and a handful of requests, and is
// forgotten once it is well. No goroutine stays (TestMain).
func TestANetworkThatSwallowsOrDripsEndsTheReadingInTime(t *testing.T) {
	for name, harm := range map[string]string{
		"swallows":             `{"name":"x","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`,
		"swallows what we say": `{"name":"x","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`,
		"drips":                `{"name":"x","type":"slicer","stream":"downstream","attributes":{"average_size":1,"size_variation":0,"delay":1000000}}`,
	} {
		for _, rangeOnly := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", range queries only ", rangeOnly), func(t *testing.T) {
				var net *toxiproxy.Proxy
				w := newWorld(t, func(c *Config) {
					net = toxic(t, strings.TrimPrefix(c.URL, "http://"))
					c.URL, c.RangeOnly = "http://"+net.Listen, rangeOnly
				})
				w.fill(rates(now.Add(-2*day), now, always(3), "client", "a"))
				if h := w.read(service(callers()), profile(), now.Add(-26*time.Hour))["callers/caller=a"]; len(h.Problems) > 0 || len(h.Hours) < 20 {
					t.Fatalf("before: %d hours, problems %v", len(h.Hours), h.Problems)
				}
				if _, err := net.Toxics.AddToxicJson(strings.NewReader(harm)); err != nil {
					t.Fatal(err)
				}
				hasty := w.reader.cfg
				hasty.QueryTimeout, hasty.ServiceTimeout = 100*time.Millisecond, 250*time.Millisecond
				ill, err := New(hasty)
				if err != nil {
					t.Fatal(err)
				}
				defer ill.Close()
				err = ill.Service(t.Context(), rlc.HistoryRequest{Service: service(callers()), Profile: profile(), Lookback: 9 * day, Now: now}, func(x rlc.Series) error {
					t.Errorf("%s was yielded, with problems %v", x.Bucket, x.History.Problems)
					return nil
				})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want the reading's deadline", err)
				}
				if requests, _ := ill.Cost(); requests > 5 {
					t.Errorf("%d requests within 250 ms of timeouts of 100 ms", requests)
				}
				net.Toxics.ResetToxics(t.Context())
				if h := w.read(service(callers()), profile(), now)["callers/caller=a"]; len(h.Problems) > 0 || len(h.Hours) < 40 {
					t.Errorf("well again: %d hours, problems %v", len(h.Hours), h.Problems)
				}
			})
		}
	}
}

// A21: what a server's certificate says is believed only where it is signed by
// whom we trust, in time, and for the host of the URL. There is no setting that
// says otherwise.
func TestAServerThatCannotProveItselfIsNotAsked(t *testing.T) {
	ca := newAuthority(t)
	var reached atomic.Int32
	for name, change := range map[string]func(*x509.Certificate){
		"in order": func(*x509.Certificate) {},
		"expired": func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
		},
		"not yet": func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(48*time.Hour)
		},
		"another name": func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"other.example"}, nil },
		"self-signed":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			signer := ca
			if change == nil {
				signer, change = &authority{}, func(c *x509.Certificate) { c.IsCA = false }
			}
			cert, key := signer.issueWith(t, "server", change)
			pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				reached.Add(1)
				_, _ = w.Write([]byte(one))
			}))
			srv.Config.ErrorLog = log.New(io.Discard, "", 0)
			srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
			srv.StartTLS()
			defer srv.Close()
			token := write(t, filepath.Join(t.TempDir(), "token"), "tiger")
			trusting := Config{Auth: Auth{TokenFile: token}, TLS: TLS{CAFile: write(t, filepath.Join(t.TempDir(), "ca"), ca.pem)}}
			for which, c := range map[string]Config{"our authority": trusting, "the system's list": {Auth: trusting.Auth}} {
				reached.Store(0)
				err := reader(t, srv.URL, c).Check(t.Context())
				if name == "in order" && which == "our authority" {
					if err != nil || reached.Load() != 1 {
						t.Errorf("%v", err)
					}
					continue
				}
				if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "tiger") || reached.Load() != 0 {
					t.Errorf("by %s: %v; it was asked %d times", which, err, reached.Load())
				}
			}
		})
	}
}

// B9: however many services want to be read at once, the server has MaxQueries
// of their queries at a time.
func TestFiveHundredServicesAtOnceKeepToTheirTurns(t *testing.T) {
	const most = 8
	var inside, asked atomic.Int32
	var highest atomic.Int32
	full, once := make(chan struct{}), sync.Once{}
	w := newWorld(t, func(c *Config) { c.MaxQueries = most })
	w.tamper = func(out http.ResponseWriter, r *http.Request, form url.Values) bool {
		n := inside.Add(1)
		defer inside.Add(-1)
		for was := highest.Load(); n > was && !highest.CompareAndSwap(was, n); was = highest.Load() {
		}
		if n >= most {
			once.Do(func() { close(full) })
		}
		<-full // so many do come together
		asked.Add(1)
		return say(`{"status":"success","data":{"resultType":"vector","result":[]}}`)(out, r, form)
	}
	var all sync.WaitGroup
	for n := range 500 {
		all.Go(func() {
			_, _ = w.reader.instant(t.Context(), fmt.Sprintf(`count(x{service="s%d"})`, n), now)
		})
	}
	all.Wait()
	if highest.Load() != most || asked.Load() != 500 {
		t.Errorf("%d queries at once of %d, want %d of 500", highest.Load(), asked.Load(), most)
	}
}
