package policies

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

func TestParametersAreDecodedStrictly(t *testing.T) {
	const ok = ""
	r := Builtin()
	cases := []struct {
		kind   string
		params rlc.Params
		want   string // the first problem
	}{
		{"historical", nil, ok},
		{"historical", rlc.Params{"headroom": 0.25, "window": "28d"}, ok},
		{"historical", rlc.Params{"headroom": 0.0, "window": "2w"}, ok},
		{"historical", rlc.Params{"headroom": -0.1}, "headroom −0.1 is out of range; 0 to 10"},
		{"historical", rlc.Params{"headroom": math.NaN()}, "headroom NaN is out of range; 0 to 10"},
		{"historical", rlc.Params{"headroom": "a lot"}, "headroom is not a number; write a plain number: 0.3 for 30 %"},
		{"historical", rlc.Params{"window": 28.0}, "window is not a duration; 7d to 84d, as in 28d, 4w, 36h or 5s"},
		{"historical", rlc.Params{"window": "1d"}, "window 1d is out of range; 7d to 84d, as in 28d, 4w, 36h or 5s"},
		{"historical", rlc.Params{"window": "NaNd"}, `window "NaNd" is not a duration; 7d to 84d, as in 28d, 4w, 36h or 5s`},
		{"historical", rlc.Params{"horizon": "7d"}, `unknown parameter "horizon" of policy historical; known: headroom, window`},
		{"predictive", nil, ok},
		{"predictive", rlc.Params{"horizon": "14d", "headroom": 0.0, "schedule": "hourly", "planned": 0.5}, ok},
		{"predictive", rlc.Params{"horizon": "6h"}, "horizon 6h is out of range; 1d to 14d, as in 28d, 4w, 36h or 5s"},
		{"predictive", rlc.Params{"schedule": "weekly"}, `schedule "weekly" is unknown; static: one number; hourly: one for each hour`},
		{"predictive", rlc.Params{"planned": -0.2}, "planned −0.2 is out of range; 0 to 10"},
		{"predictive", rlc.Params{"window": "28d"}, `unknown parameter "window" of policy predictive; known: headroom, horizon, planned, schedule`},
		{"contractual", rlc.Params{"contract": "acme"}, ok},
		{"contractual", rlc.Params{"rate": 10.0, "burst": 20.0, "from": "2026-01-01", "until": "2026-12-31T00:00:00Z", "reference": "x"}, ok},
		{"contractual", nil, "a contractual policy needs a contract or a rate; write contract: NAME, or rate and burst"},
		{"contractual", rlc.Params{"contract": ""}, "contract is blank; name a file of contracts/"},
		{"contractual", rlc.Params{"contract": "acme", "rate": 5.0}, "a contractual policy has either a contract's name or its own numbers; drop contract, or drop rate, burst, from, until and reference"},
		{"contractual", rlc.Params{"rate": 0.0}, "rate is 0; a promised rate is above 0; to admit nothing write a limit by hand"},
		{"contractual", rlc.Params{"rate": 1e12}, "rate 1,000,000,000,000 is out of range; 0 to 100,000,000,000"},
		{"contractual", rlc.Params{"rate": 5.0, "burst": 1.5}, "burst is not a whole number"},
		{"contractual", rlc.Params{"rate": 5.0, "from": "2026-02-01", "until": "2026-01-01"}, "until is not after from"},
		{"contractual", rlc.Params{"rate": 5.0, "until": "soon"}, "until is not a time; as in 2026-11-27T00:00:00Z or 2026-11-27"},
		{"capacity", nil, ok},
		{"capacity", rlc.Params{"rate": 5.0}, `unknown parameter "rate" of policy capacity; it has no parameters`},
		{"recent", nil, ok},
		{"recent", rlc.Params{"headroom": 0.5}, ok},
		{"recent", rlc.Params{"window": "1d"}, `unknown parameter "window" of policy recent; known: headroom`},
		{"external", rlc.Params{"url": "https://models.example/quota", "timeout": "2s"}, ok},
		{"external", nil, "url is blank; as in https://models.example/quota"},
		{"external", rlc.Params{"url": "file:///etc/passwd"}, "url is not an http or https URL; as in https://models.example/quota"},
		{"external", rlc.Params{"url": "https://models.example/", "timeout": "5m"}, "timeout 5m is out of range; 1s to 30s, as in 28d, 4w, 36h or 5s"},
		{"expression", rlc.Params{"expression": "weekly_peak * 1.3 + planned", "planned": 25.0}, ok},
		{"expression", nil, `expression is blank; as in "weekly_peak * 1.3 + planned"`},
		{"expression", rlc.Params{"expression": "weekly_peak * 2"}, "expression 1:13: found no matching overload for '_*_' applied to '(double, int)'; whole numbers and decimals do not mix: write 2.0 instead of 2"},
		{"expression", rlc.Params{"expression": "p99", "planned": -1.0}, "planned −1 is out of range; 0 to 100,000,000,000"},
		{"astrology", nil, `unknown policy kind "astrology"; known: ` + strings.Join(r.Kinds(), ", ")},
	}
	for _, c := range cases {
		got := ""
		if p := r.Check(c.kind, c.params); len(p) > 0 {
			got = p[0].String()
		}
		if got != c.want {
			t.Errorf("%s %v: %q, want %q", c.kind, c.params, got, c.want)
		}
		policy, err := r.New(rlc.PolicySpec{Kind: c.kind, Params: c.params})
		if (err == nil) != (c.want == ok) || (policy == nil) != (err != nil) || err != nil && !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%s %v: New returns %v, %v", c.kind, c.params, policy, err)
		}
	}
}

func TestAPolicysHashFollowsParametersAndGuardsButNotDefaults(t *testing.T) {
	spec := rlc.PolicySpec{Kind: "historical", Params: rlc.Params{"headroom": 0.3, "window": "28d"}}
	h := PolicyHash(spec, rlc.Guards{})
	if h != PolicyHash(rlc.PolicySpec{Kind: "historical", Params: rlc.Params{"window": "28d", "headroom": 0.3}}, rlc.DefaultGuards()) {
		t.Error("the order of parameters or a default written out changes the hash")
	}
	if h == PolicyHash(rlc.PolicySpec{Kind: "historical", Params: rlc.Params{"headroom": 0.4, "window": "28d"}}, rlc.Guards{}) ||
		h == PolicyHash(spec, rlc.Guards{Floor: 5}) {
		t.Error("another headroom or floor has the same hash")
	}
}

func TestTheContractOfAPolicyIsFoundByName(t *testing.T) {
	if got := ContractName(rlc.PolicySpec{Kind: "contractual", Params: rlc.Params{"contract": "acme-2026"}}); got != "acme-2026" {
		t.Errorf("got %q", got)
	}
	if got := ContractName(rlc.PolicySpec{Kind: "historical", Params: rlc.Params{"contract": "acme-2026"}}); got != "" {
		t.Errorf("historical: got %q", got)
	}
}
