package web_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
	"github.com/openrlc/rlc/internal/store/pgtest"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

// newFleet is a world of many services, each with so many quotas, checkout with
// the most, in an empty database. The last run proposed a change of every
// quota; every fourth service has an open review.
func newFleet(t testing.TB, dsn string, services, each, most int) *fixture {
	t.Helper()
	ctx := context.Background()
	db, err := store.Open(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f := newFixture(t)
	f.db, f.files, f.counts = db, rlc.Files{quotafile.PolicyPath("checkout"): []byte(checkoutPolicy)}, nil
	like := f.compute(t, "checkout", "cron-2026-12-02T060000Z", traffic{bucket: "callers", key: rlc.Key{"caller": "batch-reports"}, peak: 184, force: 260, storm: 6})
	history := f.history["checkout|callers/caller=batch-reports"]
	f.history = map[string]rlc.History{}

	run := rlc.Run{ID: "cron-2026-12-02T060000Z", Trigger: rlc.ByCron, Now: runAt, Started: runAt.Add(time.Second), Finished: runAt.Add(42 * time.Second), Result: rlc.ResultOK, Commit: f.commit.Hash}
	var changes []rlc.Change
	var proposals []rlc.Proposal
	var sums []rlc.ServiceSummary
	for i := range services {
		name, keys := fmt.Sprintf("service-%04d", i), each
		if i == 0 {
			name, keys = "checkout", most
		} else {
			f.files[quotafile.PolicyPath(name)] = fmt.Appendf(nil, "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: %s\nowners: [team-%d]\nbuckets:\n  - {name: callers, each: [caller]}\n", name, i%40)
		}
		var quotas []rlc.Quota
		var moved []rlc.Change
		for k := range keys {
			c := like
			c.Service, c.Bucket, c.Key = name, "callers", rlc.Key{"caller": fmt.Sprintf("caller-%03d", k)}
			if i == 0 && k == 0 {
				c.Bucket, c.Key = "mobile-create", nil
			}
			moved = append(moved, c)
			quotas = append(quotas, rlc.Quota{Bucket: c.Bucket, Key: c.Key, Limit: *like.Old, Why: "weekly peak 200 × 1.30"})
			f.history[name+"|"+rlc.QuotaID(c.Bucket, c.Key)] = history
			f.counts = append(f.counts, rlc.Count{Service: name, Bucket: c.Bucket, Key: c.Key, Offered: 9e6, VirtualDrops: float64(k)})
		}
		f.files[quotafile.QuotasPath(name)] = quotafile.MarshalQuotas(name, quotas)
		changes = append(changes, moved...)
		head := rlc.Ratio(i%60)/100 - 0.1
		sum := rlc.ServiceSummary{Name: name, Owners: []string{fmt.Sprintf("team-%d", i%40)}, Updated: runAt, Buckets: keys, Desired: keys, LimitSum: like.Old.Rate * rlc.Rate(keys), Offered: new(rlc.Rate(4000)), Headroom: &head, HeadroomAt: "callers/caller=caller-001", Counted: 9e7, VirtualDrops: float64(i % 7), Week: rlc.Trend{Until: runAt, Dropped: make([]rlc.Rate, 168), Virtual: make([]rlc.Rate, 168)}}
		for h := range 168 {
			mean, most := rlc.Rate(1000+(h*37+i)%900), rlc.Rate(1200+(h*37+i)%900)
			sum.Week.Mean, sum.Week.Most = append(sum.Week.Mean, &mean), append(sum.Week.Most, &most)
		}
		if i%4 == 0 {
			id := run.ID + "-" + name
			sum.OpenReview = id
			proposals = append(proposals, rlc.Proposal{ID: id, RunID: run.ID, Service: name, State: rlc.Pending, Created: runAt.Add(30 * time.Second), Content: id, Branch: "rlc/" + name, Changes: moved})
		}
		sums = append(sums, sum)
	}
	run.Total, run.Changed = len(changes), len(changes)
	f.run(t, run, changes, proposals)
	for _, p := range proposals {
		p.State, p.Commit, p.Base = rlc.Open, "77aa01c9", f.commit.Hash
		if err := db.SetProposal(ctx, p, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.SaveSummaries(ctx, sums); err != nil {
		t.Fatal(err)
	}
	f.desired = quotafile.Parse(f.files, policies.Builtin().Check)
	f.live = quotafile.Parse(f.files, nil)
	if n := len(f.desired.Services); n != services {
		t.Fatalf("%d services of %d are valid: %v", n, services, f.desired.Problems)
	}
	return f
}

// routePages are the pages of the routes list and the sheets beside them, with
// things of the fixture; those that a fleet does not have are left out.
func routePages(h http.Handler) map[string]string {
	out := map[string]string{}
	for _, r := range web.Routes() {
		if isPage(r) || r.Method == "GET" && (strings.HasSuffix(r.Path, ".json") || strings.HasSuffix(r.Path, ".csv")) && r.Path != "/api/openapi.json" {
			if path := filled(r.Path); get(h, path).Code == http.StatusOK {
				out[r.Path] = path
			}
		}
	}
	return out
}

// A page asks the store as often whether there are 60 services with two quotas
// each or 1,100 with nine, 200 on the page's own: with 10,080 quotas no page
// asks more than sixteen times. The statements are counted on their way to
// PostgreSQL. With everything that it loads no page weighs more than 150 kB.
func TestAPageOfALargeFleetAsksTheStoreNoMoreOften(t *testing.T) {
	server := pgtest.New(t)
	small, few := tapped(t, server.DSN(t), 60, 2, 60)
	large, many := tapped(t, server.DSN(t), 1100, 9, 189)
	pages := routePages(many)
	if len(pages) < 40 {
		t.Fatalf("only %d pages: %v", len(pages), pages)
	}
	sizes := map[string]int{}
	for _, route := range slices.Sorted(maps.Keys(pages)) {
		a, b := small.count(t, few, pages[route]), large.count(t, many, pages[route])
		weight := weigh(many, pages[route], sizes)
		t.Logf("%2d statements, %6d bytes: %s", b, weight, route)
		if a != b || b > 16 {
			t.Errorf("%s asks %d times in a small fleet, %d times in a large one", route, a, b)
		}
		if weight > 150_000 && !strings.HasSuffix(route, ".json") && !strings.HasSuffix(route, ".csv") {
			t.Errorf("%s weighs %d bytes", route, weight)
		}
	}
}

// BenchmarkFleet is how long pages of 1,100 services with 10,080 quotas take:
// the 95th of a hundred, in ms.
func BenchmarkFleet(b *testing.B) {
	h := newFleet(b, "sqlite:"+filepath.Join(b.TempDir(), "rlc.db"), 1100, 9, 189).handler(b)
	for _, path := range []string{"/", "/services", "/services?sort=headroom&page=22", "/services/checkout", "/services/checkout/whatif?headroom=0.NN", "/services/checkout/buckets/callers?key=caller%3Dcaller-007&headroom=0.NN", "/proposals", "/scorecard"} {
		asked := func(i int) string { return strings.Replace(path, "NN", fmt.Sprintf("%02d", i%100), 1) }
		b.Run(strings.ReplaceAll(path, "/", "_"), func(b *testing.B) {
			if w := get(h, asked(1)); w.Code != http.StatusOK {
				b.Fatalf("%d %s", w.Code, w.Body)
			}
			var took []time.Duration
			for i := range b.N {
				began := time.Now()
				get(h, asked(i))
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
		})
	}
}

// weigh is a page with everything that it loads, as sent to a browser: markup,
// styles, scripts and the typeface, compressed. Sizes keeps what was weighed.
func weigh(h http.Handler, path string, sizes map[string]int) int {
	zipped := func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") }
	sum := request(h, "GET", path, "", zipped).Body.Len()
	for _, m := range asset.FindAllStringSubmatch(get(h, path).Body.String(), -1) {
		if sizes[m[1]] == 0 {
			sizes[m[1]] = request(h, "GET", m[1], "", zipped).Body.Len()
		}
		sum += sizes[m[1]]
	}
	return sum
}

// tap is a way to PostgreSQL on which statements are counted.
type tap struct {
	dsn string // leads through it
	n   atomic.Int64
}

func newTap(t *testing.T, dsn string) *tap {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q, dir := u.Query(), t.TempDir()
	to := filepath.Join(q.Get("host"), ".s.PGSQL.5432")
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	x := &tap{dsn: u.String()}
	var going sync.WaitGroup
	going.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			going.Go(func() { x.carry(c, to) })
		}
	})
	t.Cleanup(func() { l.Close(); going.Wait() })
	return x
}

// tapped is a fleet whose pages read through a tap.
func tapped(t *testing.T, dsn string, services, each, most int) (*tap, http.Handler) {
	t.Helper()
	f := newFleet(t, dsn, services, each, most)
	x := newTap(t, dsn)
	db, err := store.Open(t.Context(), x.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f.db = db
	return x, f.handler(t)
}

// idle is what the driver asks a connection that lay unused for a second, on a busy
// machine in the middle of a page. It is no statement of the page's.
const idle = "-- ping\x00"

// carry passes a connection on, until either side ends.
func (x *tap) carry(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("unix", to)
	if err != nil {
		return // the client sees it
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(client, server); client.Close() }) // it ends with either side
	defer back.Wait()
	defer server.Close()
	head := make([]byte, 5)
	for first := true; ; first = false {
		h := head
		if first {
			h = head[:4] // the first message has a length alone
		}
		if _, err := io.ReadFull(client, h); err != nil {
			return
		}
		body := make([]byte, int(binary.BigEndian.Uint32(h[len(h)-4:]))-4)
		if _, err := io.ReadFull(client, body); err != nil {
			return
		}
		if !first && (h[0] == 'E' || h[0] == 'Q' && string(body) != idle) { // Execute, Query
			x.n.Add(1)
		}
		if _, err := server.Write(append(slices.Clone(h), body...)); err != nil {
			return
		}
	}
}

// count is how many statements a page sends, when it has been asked before.
func (x *tap) count(t *testing.T, h http.Handler, path string) int64 {
	t.Helper()
	get(h, path)
	before := x.n.Load()
	if w := get(h, path); w.Code != http.StatusOK {
		t.Errorf("%s: %d", path, w.Code)
	}
	return x.n.Load() - before
}
