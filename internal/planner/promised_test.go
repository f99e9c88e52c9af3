package planner_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/policies/external"
)

// contract is a file of contracts/.
func contract(name, caller, body string) rlc.Files {
	return rlc.Files{"contracts/" + name + ".yaml": []byte("apiVersion: rlc/v1\nkind: Contract\nname: " + name + "\ncaller: " + caller + "\n" + body)}
}

// withCapacity adds a capacity to a policy.
func service(name, head, buckets string) rlc.Files {
	f := policy(name, buckets)
	for path, text := range f {
		f[path] = []byte(strings.Replace(string(text), "buckets:\n", head+"buckets:\n", 1))
	}
	return f
}

func TestACallersContractIsItsFloorInEveryBucket(t *testing.T) {
	w := newWorld(t, files(
		policy("shop", callers), policy("geo", "  - {name: all, match: {caller: acme}}\n"), policy("mail", "  - {name: acme, match: {caller: acme}, policy: {kind: contractual, contract: mail-only}}\n"+callers),
		contract("acme", "acme", "rate: 200\nburst: 400\nfrom: 2026-01-01T00:00:00Z\nuntil: 2026-12-31T00:00:00Z\n"),
		contract("acme-old", "acme", "rate: 900\nburst: 900\nuntil: 2026-03-01T00:00:00Z\n"),
		contract("acme-next", "acme", "rate: 800\nburst: 900\nfrom: 2026-04-01T00:00:00Z\n"),
		contract("mail-only", "web", "rate: 700\nburst: 900\n"),
	))
	for _, name := range []string{"shop callers caller=acme", "shop callers caller=web", "geo all", "mail acme", "mail callers caller=web"} {
		w.history.series[name] = wave(50) // 50 × 1.3 = 65
	}
	w.cron()
	for _, x := range []struct {
		service, bucket string
		key             rlc.Key
		rate            rlc.Rate
	}{
		{"shop", "callers", caller("acme"), 200}, // none of the others holds in March 2026
		{"shop", "callers", caller("web"), 65},   // its contract is named by mail's policy
		{"geo", "all", nil, 200},
		{"mail", "acme", nil, 700},
		{"mail", "callers", caller("web"), 700},
	} {
		c := w.change(x.service, x.bucket, x.key)
		if c.New == nil || c.New.Rate != x.rate {
			t.Errorf("%s %s: %+v, want %v\n%s", x.service, c.ID(), c.New, x.rate, policies.Explain(c).Text())
		}
	}
	if c := w.change("shop", "callers", caller("acme")); !strings.Contains(c.Why, "contract 200/s") {
		t.Errorf("why %q", c.Why)
	}
}

// Scenario 14: the contract wins over the peak, and what lies above it shows.
func TestAContractBelowThePeakWinsAndShowsItsDrops(t *testing.T) {
	w := newWorld(t, files(policy("shop", "  - {name: acme, match: {caller: acme}, policy: {kind: contractual, contract: acme}}\n"),
		contract("acme", "acme", "rate: 60\nburst: 60\nuntil: 2026-04-10T00:00:00Z\n")))
	w.history.series["shop acme"] = wave(100)
	w.cron()
	c := w.change("shop", "acme", nil)
	if c.New == nil || *c.New != (rlc.Limit{Rate: 60, Burst: 60}) || c.Backtest.New == nil || c.Backtest.New.Drops == 0 || len(c.Backtest.New.Episodes) == 0 {
		t.Errorf("%+v, backtest %+v", c.New, c.Backtest.New)
	}
	if !strings.Contains(c.Look, "166 % of the contract") || !strings.Contains(c.Look, "in 22 days") {
		t.Errorf("look %q", c.Look)
	}
}

func TestContractsBeyondTheCapacityRefuseTheService(t *testing.T) {
	w := newWorld(t, files(service("shop", "capacity: {rate: 1000, reserve: 0.1}\n", callers+
		"  - {name: acme, match: {caller: acme}, policy: {kind: contractual, rate: 500}}\n"), contract("web", "web", "rate: 450\nburst: 900\n")))
	w.history.series["shop callers caller=web"], w.history.series["shop acme"] = wave(50), wave(50)
	run := w.cron()
	c := w.change("shop", "callers", caller("web"))
	if run.Result != rlc.ResultDegraded || c.Held != "conflict" || !strings.Contains(c.HeldWhy, "contracts of 950/s in all do not fit") {
		t.Errorf("%+v; %s: %q", run, c.Held, c.HeldWhy)
	}
}

// Two callers peak together at 100/s; one of them storms for a night hour. Their
// quotas of 130/s each exceed the capacity of 200/s, however high the storm was.
func TestAStormDoesNotSwitchTheCapacityFitOff(t *testing.T) {
	for _, kind := range []string{"historical", "recent"} {
		w := newWorld(t, files(service("shop", "capacity: {rate: 200}\n", "  - {name: callers, each: [caller], policy: {kind: "+kind+", headroom: 0.3}}\n")))
		night := now.Truncate(day).Add(-8 * day)
		w.history.series["shop callers caller=a"] = times(wave(100), 50, night, night.Add(time.Hour))
		w.history.series["shop callers caller=b"] = wave(100)
		w.cron()
		for _, name := range []string{"a", "b"} {
			if c := w.change("shop", "callers", caller(name)); c.New == nil || c.New.Rate != 100 {
				t.Errorf("%s of %s: %+v, want 100\n%s", name, kind, c.New, policies.Explain(c).Text())
			}
		}
	}
}

// counted answers the number of instances.
type counted struct {
	planner.History
	n     float64
	known bool
	err   error
}

func (c counted) Number(_ context.Context, expr string, at time.Time) (float64, bool, error) {
	if expr != `count(up{job="geo"} == 1)` || !at.Equal(now) {
		return 0, false, errors.New("not the query")
	}
	return c.n, c.known, c.err
}

func TestACapacityPerInstanceGoesByHowManyThereAre(t *testing.T) {
	for name, x := range map[string]struct {
		source counted
		cap    *rlc.Limit
		cut    bool
	}{
		"ten":     {counted{n: 10, known: true}, &rlc.Limit{Rate: 72, Burst: 72}, true}, // 9 × 10 × 0.8
		"unknown": {counted{}, nil, false},
		"none":    {counted{n: 0, known: true}, nil, false},
		"failed":  {counted{err: errors.New("timeout")}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, service("geo", "capacity: {per_instance: 9, instances: 'count(up{job=\"geo\"} == 1)', reserve: 0.2}\n",
				"  - {name: all}\n  - {name: whole, role: cap, policy: {kind: capacity}}\n"))
			w.history.series["geo all"] = wave(100)
			x.source.History = w.history
			p, err := planner.New(w.config(func(c *planner.Config) { c.History = x.source }))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now}); err != nil {
				t.Fatal(err)
			}
			c := w.change("geo", "whole", nil)
			if (c.New == nil) != (x.cap == nil) || c.New != nil && *c.New != *x.cap {
				t.Errorf("cap %+v (%s), want %+v", c.New, c.HeldWhy, x.cap)
			}
			if x.cap == nil && c.HeldWhy != "the number of instances is not known" {
				t.Errorf("held %q", c.HeldWhy)
			}
			all := w.change("geo", "all", nil)
			if cut := slices.ContainsFunc(all.Reasons, func(r rlc.Reason) bool { return r.Rule == "capacity_fit" }); cut != x.cut || all.New == nil {
				t.Errorf("quota %+v, cut %v", all.New, cut)
			}
		})
	}
}

// A run that is made again for the same now reads the recorded answer.
func TestAModelIsNotAskedTwiceForOneNow(t *testing.T) {
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		_, _ = w.Write([]byte(`{"rate": 150}`))
	}))
	t.Cleanup(server.Close)
	host, _ := url.Parse(server.URL)
	w := newWorld(t, policy("geo", "  - {name: all, policy: {kind: external, url: '"+server.URL+"/quota'}}\n"))
	w.history.series["geo all"] = wave(100)
	p, err := planner.New(w.config(func(c *planner.Config) {
		c.Policies = policies.New(policies.Config{External: external.ClientConfig{Allow: []string{host.Host}, Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}})
	}))
	if err != nil {
		t.Fatal(err)
	}
	var first rlc.Change
	for i, slot := range []string{"first", "again"} {
		if _, err := p.Run(t.Context(), planner.Ask{Trigger: rlc.ByPerson, Slot: slot, Now: now}); err != nil {
			t.Fatal(err)
		}
		c := w.change("geo", "all", nil)
		if i == 0 {
			first = c
		}
		if calls != 1 || c.New == nil || *c.New != *first.New || c.Answer != `{"rate": 150}` || c.InputID != first.InputID {
			t.Errorf("%s: %d calls, %+v, answer %q", slot, calls, c.New, c.Answer)
		}
	}
	if _, err := p.Run(t.Context(), planner.Ask{Trigger: rlc.ByPerson, Slot: "later", Now: now.Add(time.Hour)}); err != nil || calls != 2 {
		t.Errorf("an hour later: %d calls (%v), want another", calls, err)
	}
}
