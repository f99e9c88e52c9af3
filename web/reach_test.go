package web_test

import (
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

// A server that reaches its own enforcer alone says so wherever somebody could
// take an act for done everywhere.
func TestWhoHearsOfNothingIsSaid(t *testing.T) {
	f := newFixture(t)
	f.overrides = []rlc.Override{override("held", nil)}
	f.acks = []rlc.Ack{{Enforcer: "own", Version: f.commit.Version, Overrides: rlc.Version{Epoch: 3, Number: 7}}}
	c := f.config()
	c.Alone = true
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	const reach = "only this server's own enforcer hears of it, since redis.url is not set: one that follows a folder does not"
	holds(t, h, "/emergency", "Only this server&#39;s own enforcer hears of overrides and switches", "redis.url is not set; one that follows a folder hears of none")
	holds(t, h, "/emergency?service=checkout&caller=search&action=block&ttl=30m&reason=x", "Mind: only this server&#39;s own enforcer hears of it")
	holds(t, h, "/", "on this server&#39;s own enforcer; one that follows a folder does not report")
	in := `{"service":"checkout","match":{"caller":"serch"},"action":"block","ttl_seconds":60,"reason":"x"}`
	if out := body(t, post(h, "/api/v1/overrides", in, bearer), 201); out["warning"] != "no quota and no traffic of the last hour names a caller serch; did you mean search?; "+reach {
		t.Errorf("an override: %v", out)
	}
	if out := body(t, post(h, "/api/v1/switches/all-to-shadow", `{"on":true,"reason":"x"}`, bearer), 200); out["warning"] != reach {
		t.Errorf("a switch: %v", out)
	}
	if out := body(t, post(f.handler(t), "/api/v1/switches/all-to-shadow", `{"on":true,"reason":"x"}`, bearer), 200); out["warning"] != nil {
		t.Errorf("a switch that every enforcer hears of: %v", out)
	}
}
