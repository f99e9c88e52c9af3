package quotafile_test

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// awkward are values that readers of YAML take for something else, or that
// need care between quotes.
var awkward = []string{
	"yes", "No", "null", "~", "true", "1", "0100", "1e3", ".nan", "1:30", "2026-11-27", "absent", "*", "web/*", "a b", " a", "a ", "a: b", "a #b", "#a",
	"-", "- a", "?", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "{a}", "[a]", "a,b", "a=b", `a\b`, `a"b`, "a'b", "'", `"`, "a\nb", "a\tb", "\u0085", "\u2028", "\ufeff",
	"é", "日本", "😀", "\u0000", "\u001b[31m", "<<", "<<<<<<< HEAD", "---", "...", "=", "x" + strings.Repeat("y", 1000), "payments/checkout", "a.b-c_d", "n", "Infinity",
}

func quotaLists() *rapid.Generator[[]rlc.Quota] {
	text := rapid.OneOf(rapid.SampledFrom(awkward), rapid.StringMatching(`[a-z][a-z0-9-]{0,12}`), rapid.StringN(1, 20, 60))
	return rapid.Custom(func(t *rapid.T) []rlc.Quota {
		quotas := []rlc.Quota{}
		seen := map[string]bool{}
		for range rapid.IntRange(0, 8).Draw(t, "quotas") {
			q := rlc.Quota{Bucket: rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,10}`).Draw(t, "bucket")}
			for _, name := range []string{"caller", "procedure", "api_key", "Z.z-1"} {
				if rapid.IntRange(0, 2).Draw(t, "has "+name) == 0 {
					if q.Key == nil {
						q.Key = rlc.Key{}
					}
					q.Key[name] = text.Draw(t, name)
				}
			}
			switch rapid.IntRange(0, 5).Draw(t, "place") {
			case 0:
				q.Region = rapid.SampledFrom([]string{"eu-west-1", "us", "no"}).Draw(t, "region")
			case 1:
				q.Zone = rapid.SampledFrom([]string{"eu-west-1a", "1b"}).Draw(t, "zone")
			}
			if seen[q.ID()] {
				continue
			}
			seen[q.ID()] = true
			if rapid.IntRange(0, 9).Draw(t, "zero") > 0 {
				q.Rate = rlc.Rate(rapid.OneOf(rapid.Float64Range(1e-9, rlc.MaxRate), rapid.Map(rapid.IntRange(1, 999), func(n int) float64 { return float64(n) / 10 })).Draw(t, "rate"))
				q.Burst = rlc.Burst(rapid.Int64Range(1, rlc.MaxRate).Draw(t, "burst"))
			}
			timed(t, &q)
			if rapid.Bool().Draw(t, "shadow") {
				q.Mode = rlc.Shadow
			}
			if rapid.Bool().Draw(t, "why") {
				q.Why = text.Draw(t, "why text")
			}
			quotas = append(quotas, q)
		}
		return quotas
	})
}

// timed draws a quota's windows and hours.
func timed(t *rapid.T, q *rlc.Quota) {
	rate := rapid.Map(rapid.IntRange(1, 99999), func(n int) rlc.Rate { return rlc.Rate(n) / 100 })
	at := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	for range rapid.IntRange(-2, 3).Draw(t, "windows") {
		w := rlc.QuotaWindow{From: at.Add(time.Duration(rapid.Int64Range(0, 1e13).Draw(t, "from")))}
		w.Until = w.From.Add(time.Duration(rapid.Int64Range(1, 1e15).Draw(t, "length")))
		if rapid.Bool().Draw(t, "open") {
			w.Limit = rlc.Limit{Rate: rate.Draw(t, "rate"), Burst: rlc.Burst(rapid.IntRange(1, 1e6).Draw(t, "burst"))}
		}
		q.Windows, at = append(q.Windows, w), w.Until
	}
	if rapid.IntRange(0, 3).Draw(t, "has hours") == 0 {
		q.Hours = &rlc.QuotaHours{From: at.Truncate(time.Hour), Rates: rapid.SliceOfN(rate, 1, 40).Draw(t, "rates")}
	}
}

func sorted(quotas []rlc.Quota) []rlc.Quota {
	s := slices.Clone(quotas)
	slices.SortFunc(s, func(a, b rlc.Quota) int {
		if c := strings.Compare(a.Bucket, b.Bucket); c != 0 {
			return c
		}
		if c := strings.Compare(a.Key.String(), b.Key.String()); c != 0 {
			return c
		}
		return strings.Compare(a.Region+"\x00"+a.Zone, b.Region+"\x00"+b.Zone)
	})
	return s
}

// Generated, parsed and generated again: the same values, the same bytes, by
// either way of reading, whatever order the quotas came in.
func TestQuotasSurviveARoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quotas := quotaLists().Draw(t, "quotas")
		service := rapid.SampledFrom([]string{"checkout", "Check Out", "yes", "a/b", "日本", `a"b`, "x"}).Draw(t, "service")
		data := quotafile.MarshalQuotas(service, quotas)

		fastService, fast, ok := quotafile.ReadGenerated(data)
		slowService, slow, problems := quotafile.ReadByYAML(data)
		if len(problems) > 0 || !ok || fastService != service || slowService != service {
			t.Fatalf("fast %v %q, slow %q %v\n%s", ok, fastService, slowService, problems, data)
		}
		if !reflect.DeepEqual(fast, slow) {
			t.Fatalf("fast %+v\nslow %+v\n%s", fast, slow, data)
		}
		name, got, problems := quotafile.ParseQuotas("quotas.yaml", data)
		if name != service || len(problems) > 0 || !reflect.DeepEqual(got, sorted(quotas)) {
			t.Fatalf("%q %v\ngot  %+v\nwant %+v\n%s", name, problems, got, sorted(quotas), data)
		}
		if again := quotafile.MarshalQuotas(name, got); !bytes.Equal(again, data) {
			t.Fatalf("first\n%s\nagain\n%s", data, again)
		}
		if shuffled := rapid.Permutation(quotas).Draw(t, "order"); !bytes.Equal(quotafile.MarshalQuotas(service, shuffled), data) || quotafile.Hash(shuffled) != quotafile.Hash(quotas) {
			t.Fatal("the order of the quotas shows")
		}
		// A reader without our checks takes every key for the same string.
		var plain struct {
			Quotas []struct{ Key map[string]any }
		}
		if err := yaml.Unmarshal(data, &plain); err != nil {
			t.Fatal(err)
		}
		for i, q := range plain.Quotas {
			for n, v := range q.Key {
				if v != got[i].Key[n] {
					t.Fatalf("key %s is %#v to another reader, want %q", n, v, got[i].Key[n])
				}
			}
		}
	})
}

// An unchanged quota is an unchanged byte: changing one quota of many changes
// its own lines only.
func TestAChangedQuotaChangesItsOwnLinesOnly(t *testing.T) {
	var quotas []rlc.Quota
	for i := range 50 {
		quotas = append(quotas, rlc.Quota{Bucket: "callers", Key: rlc.Key{"caller": fmt.Sprint("c", i)}, Limit: rlc.Limit{Rate: 10, Burst: 20}, Why: "weekly peak"})
	}
	before := strings.Split(string(quotafile.MarshalQuotas("s", quotas)), "\n")
	hash := quotafile.Hash(quotas)
	quotas[20].Rate = 10.5
	after := strings.Split(string(quotafile.MarshalQuotas("s", quotas)), "\n")
	differ := 0
	for i := range before {
		if before[i] != after[i] {
			differ++
			if after[i] != "    rate: 10.5" {
				t.Errorf("line %d became %q", i+1, after[i])
			}
		}
	}
	if len(before) != len(after) || differ != 1 {
		t.Errorf("%d of %d lines differ", differ, len(before))
	}
	if quotafile.Hash(quotas) == hash {
		t.Error("the hash did not change")
	}
}

func TestRatesAreWrittenAsTheShortestDecimal(t *testing.T) {
	for rate, want := range map[rlc.Rate]string{420: "420", 61.3: "61.3", 0.02: "0.02", 1e11: "100000000000", 1e-7: "0.0000001", 1.0 / 3: "0.3333333333333333"} {
		data := quotafile.MarshalQuotas("s", []rlc.Quota{{Bucket: "b", Limit: rlc.Limit{Rate: rate, Burst: 1}}})
		if !bytes.Contains(data, []byte("rate: "+want+"\n")) {
			t.Errorf("%g is written as\n%s", float64(rate), data)
		}
	}
}

// FuzzParse holds for every file of every kind: no panic, problems with a
// place, bounded in number, a valid file or none of it; and valid quotas
// survive a round trip.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"first.yaml", "policy.yaml", "profile.yaml", "quotas.yaml"} {
		data, err := os.ReadFile("testdata/config/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(acme))
	f.Add([]byte(policyHead + "timezone: Europe/Paris\nbuckets:\n  - {name: b, role: cap, algorithm: fixed_window, limit: {requests: 5, per: day, reset: \"06:00\"}}\n  - {name: c, role: cap, algorithm: concurrency, limit: {concurrent: 5, timeout: 1s}}\n  - {name: d, algorithm: sliding_log, limit: {requests: 5, window: 10s}, cost: {x: 2}, tier: {batch: [y]}}\n"))
	f.Add([]byte(policyHead + "buckets: [{name: b}]\naliases: [{caller: a, was: b}]\nfreeze: [{cron: \"0 0 1 1 *\", for: 1d}]\nfailover: [{lose: a, to: {b: 1}}]\ntargets: [{kind: envoy-ratelimit, path: a.yaml}]\nsensitive: [a]\nauto_merge: {max_change: 0.2}\ncapacity: {per_instance: 1, instances: x}\n"))
	f.Add([]byte(quotasHead + "  - {bucket: b, region: eu, rate: 1, burst: 1, windows: [{from: 2026-11-27T00:00:00Z, until: 2026-11-28T00:00:00Z, rate: 2, burst: 2}], hours: {from: 2026-11-27T00:00:00Z, rates: [1]}}\n"))
	f.Add(quotafile.MarshalQuotas("s", []rlc.Quota{{Bucket: "b", Key: rlc.Key{"caller": "a\nb"}, Limit: rlc.Limit{Rate: 1.5, Burst: 3}, Mode: rlc.Shadow, Why: `"`}}))
	for _, s := range []string{"---\n", "&a *a", "a: &a [*a]", "<<: {a: b}", "a: |\n  b", "? [a]\n: b", "a: 1e400", "\"\\ud800\"", "- - - -", "%YAML 1.1\n---\na: b", "a: !!binary x", quotasHead + "  - {bucket: b, rate: 1, burst: 1}\n", policyHead + "buckets: [{name: b, match: {caller: [a, b]}}]\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, path := range []string{"defaults.yaml", "profiles/grpc.yaml", "contracts/acme-2026.yaml", "services/checkout/policy.yaml", "services/s/policy.yaml"} {
			c := quotafile.Parse(rlc.Files{path: data}, nil)
			check(t, c.Problems)
			if len(c.Services) > 0 && c.Valid() != nil {
				t.Fatalf("%s is in Services in spite of %v", path, c.Valid())
			}
			for _, s := range c.Services {
				for i := range s.Buckets {
					valid(t, &s.Buckets[i])
				}
			}
		}
		_, _, problems := quotafile.ParseQuotas("services/s/quotas.yaml", data)
		check(t, problems)
		service, quotas, problems := quotafile.ParseQuotas("quotas.yaml", data)
		check(t, problems)
		if len(problems) > 0 {
			if quotas != nil {
				t.Fatal("quotas of an invalid file")
			}
			return
		}
		again, got, problems := quotafile.ParseQuotas("quotas.yaml", quotafile.MarshalQuotas(service, quotas))
		if len(problems) > 0 || again != service || !reflect.DeepEqual(got, sorted(quotas)) {
			t.Fatalf("%v\ngot  %q %+v\nwant %q %+v", problems, again, got, service, sorted(quotas))
		}
		for _, q := range quotas {
			if q.Limit.Valid() != nil || q.Bucket == "" || q.Mode == rlc.Enforce {
				t.Fatalf("accepted %+v", q)
			}
		}
	})
}

// FuzzGenerated holds the fast way of reading quotas against the slow one:
// what the fast way reads, the slow way reads alike.
func FuzzGenerated(f *testing.F) {
	f.Add(quotafile.MarshalQuotas("s", nil))
	day := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	f.Add(quotafile.MarshalQuotas("s", []rlc.Quota{
		{Bucket: "b", Region: "eu", Limit: rlc.Limit{Rate: 1, Burst: 1}, Windows: []rlc.QuotaWindow{{From: day, Until: day.Add(time.Hour)}, {From: day.Add(time.Hour), Until: day.Add(3 * time.Hour), Limit: rlc.Limit{Rate: 2.5, Burst: 5}}}},
		{Bucket: "b", Zone: "eu-a", Limit: rlc.Limit{Rate: 1, Burst: 1}, Hours: &rlc.QuotaHours{From: day, Rates: []rlc.Rate{1, 2.5}}, Mode: rlc.Shadow, Why: "x"},
	}))
	for _, s := range awkward {
		f.Add(quotafile.MarshalQuotas(s, []rlc.Quota{{Bucket: "b", Key: rlc.Key{"caller": s, "zone": s}, Limit: rlc.Limit{Rate: 1.5, Burst: 3}, Mode: rlc.Shadow, Why: s}, {Bucket: "c", Limit: rlc.Limit{Rate: 1, Burst: 1}}}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		service, fast, ok := quotafile.ReadGenerated(data)
		if !ok {
			return
		}
		slowService, slow, problems := quotafile.ReadByYAML(data)
		if len(problems) > 0 || slowService != service || !reflect.DeepEqual(fast, slow) {
			t.Fatalf("%v\nfast %q %+v\nslow %q %+v", problems, service, fast, slowService, slow)
		}
	})
}

// valid holds that a bucket that was read has exactly one limit or policy, and
// that what a person wrote can be enforced.
func valid(t *testing.T, b *rlc.Bucket) {
	t.Helper()
	n := 0
	for _, there := range []bool{b.Policy != nil, b.Limit != nil, b.Window != nil, b.InFlight != nil} {
		if there {
			n++
		}
	}
	switch {
	case n != 1 || b.Algorithm == "" || b.Scope == "" || b.OnFailure == "":
		t.Fatalf("accepted %+v", b)
	case (b.InFlight != nil) != (b.Algorithm == rlc.Concurrency):
		t.Fatalf("accepted %s with %+v", b.Algorithm, b.InFlight)
	case b.Limit != nil && b.Limit.Valid() != nil, b.Window != nil && b.Window.Valid() != nil:
		t.Fatalf("accepted limit %+v, window %+v", b.Limit, b.Window)
	}
}

func check(t *testing.T, problems []rlc.Problem) {
	t.Helper()
	if len(problems) > 103 {
		t.Fatalf("%d problems", len(problems))
	}
	for _, p := range problems {
		if p.Line < 1 || p.Column < 1 || p.File == "" || p.Message == "" {
			t.Fatalf("a problem without a place: %+v", p)
		}
	}
}
