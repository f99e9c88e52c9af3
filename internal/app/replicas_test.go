package app_test

import (
	"context"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/distribute"
	"github.com/openrlc/rlc/internal/distribute/redistest"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/promserver"
	"github.com/openrlc/rlc/internal/store/pgtest"
	"github.com/openrlc/rlc/web"
)

var postgres pgtest.Server

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// follower is an enforcer in another process, as far as the bus can tell.
func follower(t *testing.T, url, name string) *enforcer.Enforcer {
	t.Helper()
	e, err := enforcer.New(enforcer.Config{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	bus, err := distribute.NewRedis(distribute.RedisConfig{URL: url, Poll: 50 * time.Millisecond, Repeat: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- bus.Follow(ctx, func(m distribute.Message) rlc.Ack {
			if m.Snapshot != nil {
				_ = e.Load(*m.Snapshot) // the acknowledgement tells
			}
			return e.Ack()
		})
	}()
	t.Cleanup(func() { cancel(); <-done; bus.Close() })
	return e
}

// history serves weeks of it to several servers.
func history(t *testing.T) string {
	t.Helper()
	s, err := promserver.Open(promserver.Config{Dir: t.TempDir(), Retention: 40 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	backfill(t, s, time.Now().UTC().Truncate(time.Minute))
	server := httptest.NewServer(s.Handler())
	t.Cleanup(func() { server.Close(); s.Close() })
	return server.URL
}

func banner(a *app.App, text string) bool {
	return slices.ContainsFunc(a.Banners(), func(b web.Banner) bool { return strings.Contains(b.Text, text) })
}

// With Redis, live is what every enforcer elsewhere has in force; while it is
// away nothing is lost, and what was merged meanwhile arrives afterwards.
func TestEnforcersElsewhereDecideWhatIsLive(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := open(t, t.TempDir(), twoServices(), func(c *config.Server) { c.Redis.URL = config.Inline(redis.URL()) })
	eventually(t, "this process's witness has the first snapshot", func() bool { return a.Enforcer.Version().Number > 0 })
	if v, live := a.Live(); live != nil || len(a.Acks()) != 0 {
		t.Fatalf("live is %s without an enforcer", v)
	}
	one, two := follower(t, redis.URL(), "edge-1"), follower(t, redis.URL(), "edge-2")
	eventually(t, "live on both", func() bool {
		v, live := a.Live()
		return live != nil && v == one.Version() && v == two.Version() && len(a.Acks()) == 2
	})
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	acceptAll(t, a)
	before := one.Version()

	redis.Stop()
	eventually(t, "a banner that Redis does not answer", func() bool { return banner(a, "Redis does not answer") })
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "two", Service: "checkout"}); err != nil {
		t.Errorf("a run without Redis: %v", err)
	}
	if one.Version() != before || len(one.Describe("checkout")) == 0 {
		t.Error("an enforcer lost its snapshot with Redis")
	}
	url := a.URL
	if page := get(t, url+"/"); !strings.Contains(page, "Redis does not answer") {
		t.Error("the overview does not say that Redis does not answer")
	}
	commitPolicy(t, a, "search", "defaults: {policy: {kind: historical, headroom: 0.7}}\n")
	acceptNext(t, a, "search")

	redis.Start() // empty: it lost what it held
	eventually(t, "live again on both", func() bool {
		head, _, err := a.Repo.Head(t.Context())
		v, live := a.Live()
		return err == nil && live != nil && v == head.Version && one.Version() == v && two.Version() == v && !banner(a, "Redis")
	})
}

// commitPolicy is a person's edit of a policy.
func commitPolicy(t *testing.T, a *app.App, service, extra string) {
	t.Helper()
	if _, err := a.Repo.Edit(t.Context(), dana, "Edit "+service, rlc.Files{"services/" + service + "/policy.yaml": policy(service, extra)}); err != nil {
		t.Fatal(err)
	}
	a.Nudge()
}

// acceptNext waits for the review of a service and merges it.
func acceptNext(t *testing.T, a *app.App, service string) {
	t.Helper()
	eventually(t, "a review of "+service, func() bool {
		all := openProposals(t, a, service)
		return len(all) == 1 && all[0].State == rlc.Open
	})
	if err := a.Accept(t.Context(), openProposals(t, a, service)[0].ID, "", "dana"); err != nil {
		t.Fatal(err)
	}
}

// An enforcer that refuses what is published is counted and named, and keeps
// live where it is.
func TestARefusingEnforcerIsNamed(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := open(t, t.TempDir(), twoServices(), func(c *config.Server) { c.Redis.URL = config.Inline(redis.URL()) })
	follower(t, redis.URL(), "edge-1")
	odd, err := distribute.NewRedis(distribute.RedisConfig{URL: redis.URL(), Poll: 50 * time.Millisecond, Repeat: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var first rlc.Version
	go func() {
		done <- odd.Follow(ctx, func(m distribute.Message) rlc.Ack {
			if first == (rlc.Version{}) {
				first = m.Snapshot.Version
			}
			ack := rlc.Ack{Enforcer: "edge-old", Version: first}
			if m.Snapshot.Version != first {
				ack.Refused = "needs a newer enforcer"
			}
			return ack
		})
	}()
	defer func() { cancel(); <-done; odd.Close() }()
	eventually(t, "both are heard", func() bool { v, live := a.Live(); return live != nil && v.Number == 1 && len(a.Acks()) == 2 })

	commitPolicy(t, a, "search", "timezone: Europe/Paris\n")
	eventually(t, "a banner that names it", func() bool {
		return banner(a, "1 of 2 enforcers refused the newest snapshot and keep the one before: edge-old")
	})
	if v, _ := a.Live(); v.Number != 1 {
		t.Errorf("live is %s, which one enforcer refuses", v)
	}
	if page := get(t, a.URL+"/"); !strings.Contains(page, "edge-old") {
		t.Error("the overview does not name the enforcer")
	}
}

// Two replicas on one database, one repository and one bus: both serve pages
// and people's acts, one fires runs; when it goes the other takes over, under a
// higher epoch, and nothing is done twice.
func TestTwoReplicasOneScheduler(t *testing.T) {
	t.Parallel()
	redis, prom := redistest.Start(t), history(t)
	url, ca, bare := remote(t, twoServices())
	dsn := postgres.DSN(t)
	replica := func() (*app.App, func()) {
		a, err := app.Open(t.Context(), config.Server{
			Listen: "127.0.0.1:0", Data: t.TempDir(), Poll: 100 * time.Millisecond,
			Store: config.Inline(dsn), Prometheus: config.Prometheus{URL: prom},
			Repository: config.Repository{URL: url, CAFile: ca}, Redis: config.Redis{URL: config.Inline(redis.URL())},
		}, app.Options{})
		if err != nil {
			t.Fatal(err)
		}
		stop := carry(t, a)
		t.Cleanup(stop)
		eventually(t, "ready", func() bool { return len(a.Ready()) == 0 })
		return a, stop
	}
	first, stop := replica()
	eventually(t, "the first leads", first.Leads)
	second, _ := replica()
	edge := follower(t, redis.URL(), "edge-1")
	if second.Leads() {
		t.Fatal("two replicas lead")
	}

	// Asked on the standby, carried out by the leader, accepted on the standby.
	if _, err := second.Run(t.Context(), planner.Ask{Actor: "dana"}); err != nil {
		t.Fatal(err)
	}
	acceptNext(t, second, "checkout")
	acceptNext(t, second, "search")
	accepted := func(a *app.App) bool {
		v, live := a.Live()
		return live != nil && len(live.Quotas["checkout"]) == 2 && len(live.Quotas["search"]) == 1 && v == edge.Version()
	}
	eventually(t, "live, as both replicas say", func() bool { return accepted(first) && accepted(second) })
	epoch := edge.Version().Epoch

	stop()
	eventually(t, "the second leads", second.Leads)
	commitPolicy(t, second, "search", "defaults: {policy: {kind: historical, headroom: 0.8}}\n")
	acceptNext(t, second, "search")
	eventually(t, "live under a higher epoch", func() bool {
		v, _ := second.Live()
		head, _, err := second.Repo.Head(t.Context())
		return err == nil && v == head.Version && edge.Version() == v && v.Epoch > epoch
	})
	runs, _, err := second.Records.Runs(t.Context(), rlc.Page{Size: 100})
	if err != nil {
		t.Fatal(err)
	}
	byPerson := 0
	for _, r := range runs {
		if r.Stage != rlc.Finished || r.Result != rlc.ResultOK {
			t.Errorf("run %+v", r)
		}
		if r.Trigger == rlc.ByPerson {
			byPerson++
		}
	}
	if commits := strings.TrimSpace(git(t, bare, "rev-list", "--count", "main")); byPerson != 1 || commits != "5" {
		t.Errorf("%d runs by a person, %s commits; want 1, and 5: the first, three accepted, one edit", byPerson, commits)
	}
}
