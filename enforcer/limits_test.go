package enforcer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// one decides a single request.
func one(e *enforcer.Enforcer, attrs rlc.Attributes, cost int64) enforcer.Decision {
	return e.Decide(enforcer.Request{Service: "s", Attributes: attrs, Cost: cost})
}

func TestAPlaceInFlightIsFreedByDoneOrByTheTimeout(t *testing.T) {
	e, at := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: inflight, role: cap, algorithm: concurrency, limit: {concurrent: 3, timeout: 30s}}\n"+
		"  - {name: daily, match: {caller: search}, limit: "+fiveADay+"}\n")))
	first := one(e, search, 1)
	at.advance(time.Second)
	second, third := one(e, search, 9), one(e, search, 1) // a cost above the quota: refused, and its place given back
	if first.Outcome != enforcer.Admit || second.Bucket != "daily" || third.Outcome != enforcer.Admit {
		t.Fatalf("%+v\n%+v\n%+v", first, second, third)
	}
	one(e, search, 1)
	if d := one(e, search, 1); d.Outcome != enforcer.Drop || d.Bucket != "inflight" || d.RetryAfter != time.Second || d.Limit.Burst != 3 {
		t.Errorf("a fourth: %+v", d)
	}
	third.Done(-1)
	third.Done(-1) // the second call does nothing
	fourth := one(e, search, 1)
	if fourth.Outcome != enforcer.Admit || one(e, search, 1).Outcome != enforcer.Drop {
		t.Errorf("one place was freed: %+v", fourth)
	}
	// The quota has one of its five left. At 30 s the first request's place is free.
	at.t = noon.Add(30 * time.Second)
	wantOutcomes(t, "after the first timeout", ask(e, 2, "s", search), 1, 1, 0)
	at.advance(time.Hour)
	e.Explain("s", search)
	for range 10 {
		e.Tick()
	}
	first.Done(-1) // long forgotten
	wantMetrics(t, e, map[string]string{"rlc_enforcer_in_flight": "0", "rlc_enforcer_in_flight_expired_total": "4"})
}

func TestACostIsPerProcedureOrSettledAfterwards(t *testing.T) {
	e, _ := start(t, enforcer.Config{Counter: enforcer.InProcess(nil)})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: callers, each: [caller], cost: {Refund: 5}, limit: "+tenADay+"}\n"+
		"  - {name: slow, role: cap, match: {procedure: Query}, cost: {from: response_header, name: x-cost, reserve: 4}, limit: {rate: 0.00001, burst: 20}}\n")))
	as := func(procedure string) rlc.Attributes { return rlc.Attributes{"caller": "a", "procedure": procedure} }
	for i, c := range []struct {
		procedure string
		want      enforcer.Outcome
		left      int64
	}{
		{"Refund", enforcer.Admit, 5},
		{"Get", enforcer.Admit, 4},
		{"Refund", enforcer.Drop, 4},
		{"Get", enforcer.Admit, 3},
	} {
		// A look sees what the request will meet, and what is left before it.
		look := e.Decide(enforcer.Request{Service: "s", Attributes: as(c.procedure), Peek: true})
		d := one(e, as(c.procedure), 1)
		if d.Outcome != c.want || d.Remaining != c.left {
			t.Errorf("request %d: %+v", i, d)
		}
		if look.Outcome != c.want || look.RetryAfter != d.RetryAfter {
			t.Errorf("a look before request %d: %+v", i, look)
		}
	}
	if look := e.Decide(enforcer.Request{Service: "s", Attributes: as("Get"), Cost: 4, Peek: true}); look.Outcome != enforcer.Drop {
		t.Errorf("a look at a cost of 4 with 3 left: %+v", look)
	}
	query := func(caller string) enforcer.Decision {
		return one(e, rlc.Attributes{"caller": caller, "procedure": "Query"}, 1)
	}
	left := func() int64 {
		return *e.Explain("s", rlc.Attributes{"caller": "z", "procedure": "Query"}).Buckets[1].Remaining
	}
	d := query("b")
	if d.CostHeader != "x-cost" || left() != 16 {
		t.Errorf("reserved: %+v, %d left", d, left())
	}
	d.Done(1) // three come back
	if left() != 19 {
		t.Errorf("%d left after a cheap one, want 19", left())
	}
	query("b").Done(15) // eleven more than reserved
	if left() != 4 {
		t.Errorf("%d left after a dear one, want 4", left())
	}
	query("c").Done(-1) // unknown: the reserve stays
	if d := query("d"); d.Outcome != enforcer.Drop || d.Bucket != "slow" || left() != 0 {
		t.Errorf("used up: %+v, %d left", d, left())
	}
}

func TestALeakyBucketTellsHowLongToWait(t *testing.T) {
	e, _ := start(t, enforcer.Config{Counter: enforcer.InProcess(nil)})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: callers, each: [caller], limit: "+tenADay+"}\n"+
		"  - {name: paced, role: cap, algorithm: leaky_bucket, limit: {rate: 10, burst: 3}}\n")))
	for i, want := range []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond} {
		if d := one(e, search, 1); d.Outcome != enforcer.Admit || d.Wait != want {
			t.Errorf("request %d waits %s, want %s", i, d.Wait, want)
		}
	}
	if d := one(e, search, 1); d.Outcome != enforcer.Drop || d.Wait != 0 {
		t.Errorf("the queue is full: %+v", d)
	}
}

func TestQuotasAndRolloutsHoldWhereTheyAreMeant(t *testing.T) {
	files := []rlc.Files{
		policy("s", "defaults: {mode: enforce}\nbuckets:\n"+
			"  - {name: zonal, each: [caller], scope: zone}\n"+
			"  - {name: rolled, role: cap, scope: zone, rollout: {zones: [z2]}, limit: {rate: 0.00001, burst: 4}}\n"),
		quotas("s", quota("zonal", "caller: search", 0.0001, 3), quota("zonal", "caller: search", 0.0001, 5, "zone: z2"), quota("zonal", "caller: search", 0.0001, 2, "region: r1")),
	}
	shared := enforcer.InProcess(nil)
	at := func(zone, region string) *enforcer.Enforcer {
		e, _ := start(t, enforcer.Config{Counter: shared, Zone: zone, Region: region})
		load(t, e, snap(1, files...))
		return e
	}
	z0, z1, z2 := at("z0", "r0"), at("z1", "r1"), at("z2", "r1")
	wantOutcomes(t, "the quota for all", ask(z0, 6, "s", search), 3, 3, 0)
	wantOutcomes(t, "the region's", ask(z1, 6, "s", search), 2, 4, 0)
	// Five by the zone's quota, four by the cap that enforces here only.
	wantOutcomes(t, "the zone's", ask(z2, 6, "s", search), 4, 2, 0)
	wantOutcomes(t, "each zone has its own counter, which its enforcers share", ask(at("z1", "r1"), 6, "s", search), 0, 6, 0)
}

func TestAQuotasHoursAndWindowsSwitchAtTheSecond(t *testing.T) {
	e, at := start(t, enforcer.Config{})
	q := quota("b", "", 1, 2, "hours: {from: 2026-11-02T13:00:00Z, rates: [10, 20]}",
		"windows: [{from: 2026-11-02T14:30:00Z, until: 2026-11-02T14:45:00Z, rate: 50, burst: 70}]")
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: b, match: {caller: search}}\n"), quotas("s", q)))
	for _, c := range []struct {
		at    string
		burst int // the hour's burst is in the quota's proportion: 2 s of rate
		rate  rlc.Rate
	}{
		{"12:59:59.999", 2, 1}, {"13:00:00", 20, 10}, {"13:59:59.999", 20, 10}, {"14:00:00", 40, 20},
		{"14:30:00", 70, 50}, {"14:44:59", 70, 50}, {"14:45:00", 40, 20}, {"15:00:00", 2, 1},
	} {
		when, err := time.Parse("2006-01-02T15:04:05.999", "2026-11-02T"+c.at)
		if err != nil {
			t.Fatal(err)
		}
		at.t = when
		if d := e.Decide(enforcer.Request{Service: "s", Attributes: search, Peek: true}); d.Limit.Rate != c.rate || int(d.Limit.Burst) != c.burst {
			t.Errorf("at %s: %+v", c.at, *d.Limit)
		}
	}
	if got := e.Describe("s")[0].Limit; got.Rate != 1 {
		t.Errorf("described after the hours: %+v", got)
	}
}

func TestSensitiveValuesLeaveAsAKeyedHashOnly(t *testing.T) {
	const secret = "sk-live-4711"
	key := []byte("0123456789abcdef")
	var log bytes.Buffer
	e, _ := start(t, enforcer.Config{HashKey: key})
	body := "defaults: {mode: enforce}\nsensitive: [api_key, caller]\nbuckets:\n" +
		"  - {name: keys, each: [api_key], match: {caller: \"*\"}, new_key: {limit: " + twoADay + "}}\n  - {name: callers, role: cap, each: [caller], limit: " + tenADay + "}\n"
	load(t, e, snap(1, policy("s", body)))
	attrs := rlc.Attributes{"api_key": secret, "caller": "user@" + secret}
	wantOutcomes(t, "limits", ask(e, 5, "s", attrs), 2, 3, 0)
	d := one(e, attrs, 1)
	hash := d.Key["api_key"]
	if len(hash) != 17 || hash[0] != '~' {
		t.Errorf("the hash is %q", hash)
	}
	// What people see of it is what they can limit, and what quotas are keyed by.
	overlay(t, e, 1, override("o1", func(o *enforcer.Override) { o.Match = map[string]enforcer.Pattern{"api_key": {hash}} }))
	if d := one(e, attrs, 1); d.Bucket != enforcer.Overridden {
		t.Errorf("an override on the hash: %+v", d)
	}
	overlay(t, e, 2)
	load(t, e, snap(2, policy("s", body), quotas("s", quota("keys", "api_key: \""+hash+"\"", 5, 7))))
	if d := one(e, attrs, 1); d.Limit == nil || d.Limit.Burst != 7 {
		t.Errorf("a quota on the hash: %+v", d)
	}
	for _, v := range []any{d, e.Explain("s", attrs), e.Top("s", "keys", 10), e.Top("s", "callers", 10), e.Describe(""), metrics(t, e), e.Reveal("s", attrs)} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(data)
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("the value left: %s", log.String())
	}
	same, _ := start(t, enforcer.Config{HashKey: key})
	load(t, same, snap(1, policy("s", body)))
	other, _ := start(t, enforcer.Config{StateDir: t.TempDir()})
	load(t, other, snap(1, policy("s", body)))
	if one(same, attrs, 1).Key["api_key"] != hash || one(other, attrs, 1).Key["api_key"] == hash {
		t.Error("the hash does not follow the key")
	}
}

func TestTheTopListNamesWhoIsRefusedMost(t *testing.T) {
	e, at := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: callers, each: [caller], limit: "+twoADay+"}\n"+
		"  - {name: all, role: cap, mode: shadow, limit: "+threeADay+"}\n")))
	ask(e, 12, "s", search)
	at.advance(time.Second)
	// A crowd that is refused once each does not push out who is refused most.
	for i := range 500 {
		ask(e, 3, "s", rlc.Attributes{"caller": fmt.Sprint("c", i)})
	}
	got := e.Top("s", "callers", 1)
	if len(got) != 1 || got[0].Key["caller"] != "search" || got[0].Drops != 10 || got[0].Over != 0 || !got[0].Last.Equal(noon) {
		t.Errorf("got %+v", got)
	}
	if n := len(e.Top("s", "callers", 1000)); n != 64 {
		t.Errorf("%d names held, want 64", n)
	}
	// The cap has one counter: its list names callers.
	var virtual uint64
	for _, x := range e.Top("s", "all", 1000) {
		virtual += x.VirtualDrops + x.Over
		if x.Drops != 0 || x.Key["caller"] == "" {
			t.Errorf("the cap in shadow: %+v", x)
		}
	}
	if virtual == 0 {
		t.Error("no virtual drops of the cap")
	}
	if e.Top("s", "nothing", 5) != nil || e.Top("nobody", "all", 5) != nil {
		t.Error("a list of nothing")
	}
	if n := series(metrics(t, e), "rlc_enforcer_top_refused_total"); n != 2*2*10 {
		t.Errorf("%d series of the top lists, want two outcomes of ten keys of two buckets", n)
	}
}

// Nobody knows yet what is sensitive: so all of it is.
func TestWithoutAPolicyNoValueIsTold(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	for range 2 { // without a snapshot, then without a policy
		got := e.Reveal("s", rlc.Attributes{"ip": "192.0.2.7", "caller": ""})
		if got["ip"] == "192.0.2.7" || got["ip"] == "" || got["caller"] != "" {
			t.Errorf("revealed as %v", got)
		}
		load(t, e, snap(1, policy("other", "buckets: [{name: b, each: [caller]}]\n")))
	}
}
