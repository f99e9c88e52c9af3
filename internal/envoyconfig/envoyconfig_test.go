package envoyconfig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// parsed is a policy as the validator reads it.
func parsed(t interface{ Fatalf(string, ...any) }, policy []byte, quotas []byte) (*rlc.Service, []rlc.Quota, *rlc.Profile) {
	service := ""
	for line := range strings.Lines(string(policy)) {
		if v, ok := strings.CutPrefix(line, "service: "); ok {
			service = strings.TrimSpace(v)
		}
	}
	files := rlc.Files{quotafile.PolicyPath(service): policy}
	if quotas != nil {
		files[quotafile.QuotasPath(service)] = quotas
	}
	c := quotafile.Parse(files, nil)
	if err := c.Valid(); err != nil {
		t.Fatalf("%v\n%s", err, policy)
	}
	return c.Services[0], c.Quotas[c.Services[0].Name], c.Profiles[c.Services[0].Profile]
}

const ratelimitFile = `domain: checkout
descriptors:
  - key: caller
    rate_limit: {unit: minute, requests_per_unit: 600}
  - key: caller
    value: acme
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 100, name: acme}
    descriptors:
      - key: procedure
        value: Create*
        rate_limit: {unit: month, requests_per_unit: 7, replaces: [{name: acme}]}
  - key: caller
    value: internal
  - key: caller
    value: friend
    rate_limit: {unlimited: true}
  - key: generic_key
    value: all
    rate_limit: {unit: day, requests_per_unit: 0}
`

func TestDescriptorsBecomeBuckets(t *testing.T) {
	in, problems := Import("f.yaml", []byte(ratelimitFile))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := `apiVersion: rlc/v1
kind: ServicePolicy
service: checkout
defaults: {mode: enforce, on_failure: open}
buckets:
  - {name: each-caller, each: [caller], algorithm: fixed_window, limit: {requests: 600, per: minute}}
  - {name: acme, match: {caller: acme}, mode: shadow, algorithm: fixed_window, limit: {requests: 100, per: second}}
  - {name: caller-acme-procedure-create, each: [procedure], match: {caller: acme, procedure: "Create*"}, algorithm: fixed_window, limit: {requests: 7, window: 720h, align: calendar}}
  - {name: caller-internal, match: {caller: internal}, mode: shadow}
  - {name: caller-friend, match: {caller: friend}, mode: shadow}
  - {name: generic_key-all, role: cap, match: {generic_key: all}, algorithm: fixed_window, limit: {requests: 0, per: day}}
`
	if string(in.Policy) != want {
		t.Errorf("got\n%s\nwant\n%s", in.Policy, want)
	}
	parsed(t, in.Policy, nil)
}

func TestWhatRatelimitWouldReadOtherwiseIsAnError(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"domain: a\ndescriptors:\n  - key: k\n    rate_limit: {unit: second, requests_per_unit: 1, shadow_mode: true}\n", "f.yaml:4:67: shadow_mode inside rate_limit"},
		{"domain: a\ndescriptors:\n  - key: k\n    rate_limits: {}\n", `f.yaml:4:5: unknown key "rate_limits"`},
		{"domain: a\ndescriptors:\n  - {key: k, rate_limit: {unit: fortnight, requests_per_unit: 1}}\n", `unit "fortnight" is unknown`},
		{"domain: a\ndescriptors:\n  - {key: k, rate_limit: {unit: second, requests_per_unit: -1}}\n", "no whole number"},
		{"domain: a\ndescriptors:\n  - {key: k, rate_limit: {unit: second, requests_per_unit: 010}}\n", "no whole number"},
		{"domain: a\ndescriptors:\n  - {key: k, rate_limit: {unit: second}}\n", "needs unit and requests_per_unit"},
		{"domain: a\ndescriptors:\n  - {key: k, rate_limit: {unlimited: true, unit: second}}\n", "unlimited beside a number"},
		{"domain: a\ndescriptors:\n  - {key: k}\n  - {key: k}\n", "stands twice"},
		{"domain: a\ndescriptors:\n  - {value: k}\n", "without a key"},
		{"descriptors: []\n", "no domain"},
		{"domain: a\n---\ndomain: b\n", "a second document"},
		{"domain: a\ndescriptors: &x\n  - {key: k}\n", "anchors"},
		{"", "the file is empty"}, {"[", "f.yaml:1:1"}, {"- a", "no mapping"}, {"domain: a\ndescriptors: 7\n", "no list"},
	} {
		in, problems := Import("f.yaml", []byte(c.in))
		if !slices.ContainsFunc(problems, func(p rlc.Problem) bool { return strings.Contains(p.String(), c.want) }) {
			t.Errorf("%q: %v %s, want %q", c.in, problems, in.Policy, c.want)
		}
	}
}

// A file goes in and comes out, and in again, as the same policy.
func TestImportAndExportAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]string{"", "a", "b", "web/front", "true", "0", "é \" \\", "a b: {c}", "pre*", "p*"})
		limit := rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("{unit: %s, requests_per_unit: %d}", rapid.SampledFrom([]string{"second", "minute", "hour", "day", "week", "month", "year"}).Draw(t, "unit"), rapid.Uint32().Draw(t, "n"))
		})
		var b strings.Builder
		b.WriteString("domain: checkout\ndescriptors:\n")
		deep := rapid.Bool().Draw(t, "deep")
		for _, v := range rapid.SliceOfNDistinct(value, 1, 5, rapid.ID[string]).Draw(t, "values") {
			fmt.Fprintf(&b, "  - key: caller\n    value: %s\n    shadow_mode: %t\n", scalar(v), rapid.Bool().Draw(t, "shadow"))
			if !deep {
				fmt.Fprintf(&b, "    rate_limit: %s\n", limit.Draw(t, "limit"))
				continue
			}
			b.WriteString("    descriptors:\n")
			for _, w := range rapid.SliceOfNDistinct(value, 1, 3, rapid.ID[string]).Draw(t, "deeper") {
				fmt.Fprintf(&b, "      - key: procedure\n        value: %s\n        rate_limit: %s\n", scalar(w), limit.Draw(t, "limit"))
			}
		}
		first, problems := Import("f.yaml", []byte(b.String()))
		if len(problems) > 0 {
			t.Fatalf("%v\n%s", problems, b.String())
		}
		svc, quotas, profile := parsed(t, first.Policy, nil)
		out, losses, err := Export(Ratelimit, Source{svc, quotas, profile}, Options{})
		if err != nil || len(losses) > 0 {
			t.Fatalf("%v %v\n%s\n%s", err, losses, first.Policy, out)
		}
		second, problems := Import("g.yaml", out)
		if len(problems) > 0 || !bytes.Equal(first.Policy, second.Policy) {
			t.Fatalf("%v\n%s\n%s\n%s", problems, first.Policy, out, second.Policy)
		}
	})
}

func TestHostileFilesDoNotPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cut := []byte(ratelimitFile)
		for range rapid.IntRange(1, 4).Draw(t, "edits") {
			i := rapid.IntRange(0, len(cut)-1).Draw(t, "at")
			cut = slices.Insert(cut, i, rapid.SliceOfN(rapid.SampledFrom([]byte("{}[]:,*&!\"'\n -0\x00")), 1, 4).Draw(t, "bytes")...)
		}
		in, problems := Import("f.yaml", cut)
		if len(problems) == 0 && len(in.Policy) == 0 {
			t.Fatal("neither a policy nor a problem")
		}
	})
}

const goldenPolicy = `apiVersion: rlc/v1
kind: ServicePolicy
service: checkout
profile: grpc
defaults: {mode: enforce}
buckets:
  - {name: callers, each: [caller]}
  - {name: create, match: {caller: mobile, procedure: [Create, Refund]}, limit: {rate: 61.3, burst: 123}}
  - {name: reads, match: {procedure: "Get*"}, limit: {rate: 500, burst: 1000}}
  - {name: quiet, match: {caller: quiet}, mode: shadow, limit: {rate: 0.25, burst: 1}}
  - {name: guests, match: {caller: absent}, limit: {rate: 5, burst: 5}}
  - {name: whole, role: cap, limit: {rate: 9000, burst: 9000}}
  - {name: inflight, role: cap, algorithm: concurrency, limit: {concurrent: 40}}
`

const goldenQuotas = `apiVersion: rlc/v1
kind: ServiceQuotas
service: checkout
quotas:
  - {bucket: callers, key: {caller: "a\"}: [x"}, rate: 7, burst: 14, why: "x"}
  - {bucket: callers, key: {caller: search}, rate: 420, burst: 840, mode: shadow, why: "x"}
`

// The files are looked at by people: a changed one is a decision. With
// RLC_GOLDEN=write they are written anew.
func TestExportsAreAsReviewed(t *testing.T) {
	svc, quotas, profile := parsed(t, []byte(goldenPolicy), []byte(goldenQuotas))
	for _, kind := range Kinds() {
		out, losses, err := Export(kind, Source{svc, quotas, profile}, Options{Headers: map[string]string{"caller": "x-client"}, Instances: 4})
		if err != nil {
			t.Fatal(err)
		}
		got := string(out) + "\n"
		for _, l := range losses {
			got += "# " + l.String() + "\n"
		}
		file := filepath.Join("testdata", kind+".golden")
		if os.Getenv("RLC_GOLDEN") == "write" {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || got != string(want) {
			t.Errorf("%s: %v, got\n%s", kind, err, got)
		}
	}
	if _, _, err := Export("nginx", Source{svc, quotas, profile}, Options{}); err == nil {
		t.Error("an unknown kind is exported")
	}
}

// A whole number of requests comes within 1 % where some unit allows it, and a
// rate above 0 never becomes 0, which would admit nothing.
func TestARateTakesTheShortestUnitThatFits(t *testing.T) {
	for _, c := range []struct {
		rate float64
		n    int64
		unit string
	}{{0, 0, "second"}, {1, 1, "second"}, {61.3, 61, "second"}, {0.5, 30, "minute"}, {1.004, 1, "second"}, {1.5, 90, "minute"}, {1e-9, 1, "year"}, {4e9, 4_000_000_000, "second"}} {
		if n, u, _ := fit(c.rate, ratelimitUnits); n != c.n || u.name != c.unit {
			t.Errorf("%g/s: %d per %s, want %d per %s", c.rate, n, u.name, c.n, c.unit)
		}
	}
}
