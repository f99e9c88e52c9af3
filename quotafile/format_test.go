package quotafile_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// utc is a day of November 2026.
func utc(day, hour int) time.Time { return time.Date(2026, 11, day, hour, 0, 0, 0, time.UTC) }

func TestBucketsSayHowTheyCount(t *testing.T) {
	c := quotafile.Parse(repo(map[string]string{"services/s/policy.yaml": `service: s
timezone: Europe/Paris
defaults: {algorithm: sliding_window, on_failure: closed}
buckets:
  - {name: defaults, match: {caller: a}}
  - {name: bucket, role: cap, algorithm: leaky_bucket, on_failure: open, scope: zone, limit: {rate: 1.5, burst: 3}}
  - {name: slides, role: cap, limit: {requests: 100, window: 10s}}
  - {name: log, role: cap, algorithm: sliding_log, scope: region, limit: {requests: 100, per: minute}}
  - {name: day, role: cap, algorithm: fixed_window, limit: {requests: 10000, per: day, reset: "06:30"}}
  - {name: month, role: cap, algorithm: fixed_window, limit: {requests: 10000, per: month, reset: "00:00 America/New_York"}}
  - {name: week, role: cap, algorithm: fixed_window, limit: {requests: 0, per: week}}
  - {name: second, role: cap, algorithm: fixed_window, limit: {requests: 1, per: second}}
  - {name: rolls, role: cap, algorithm: fixed_window, limit: {requests: 5, per: day, align: rolling}}
  - {name: length, role: cap, algorithm: fixed_window, limit: {requests: 5, window: 24h}}
  - {name: grid, role: cap, algorithm: fixed_window, limit: {requests: 5, window: 24h, align: calendar}}
  - {name: inflight, role: cap, algorithm: concurrency, limit: {concurrent: 4000, timeout: 30s}}
  - {name: forgotten, role: cap, algorithm: concurrency, limit: {concurrent: 1}}
  - {name: ratio, role: cap, algorithm: drop_ratio, policy: {kind: historical, schedule: hourly}}
  - {name: costs, role: cap, cost: {Refund: 5, from: 2}, rollout: {zones: [eu-west-1a, b]}, tier: {critical: ["payments/*"], batch: [etl]}}
  - {name: later, role: cap, cost: {from: response_header, name: x-cost, reserve: 10}}
`}), nil)
	if err := c.Valid(); err != nil {
		t.Fatal(err)
	}
	type view struct {
		Algorithm, Scope, OnFailure string
		Limit                       *rlc.Limit
		Window                      *rlc.WindowLimit
		InFlight                    *rlc.InFlight
		Rollout                     []string
		Cost                        rlc.Cost
		Tier                        rlc.Tier
	}
	plain := func(algorithm string) view {
		return view{Algorithm: algorithm, Scope: rlc.ScopeGlobal, OnFailure: rlc.FailClosed}
	}
	window := func(algorithm string, w rlc.WindowLimit) view {
		v := plain(algorithm)
		v.Window = &w
		return v
	}
	want := map[string]view{
		"defaults": plain(rlc.SlidingWindow),
		"bucket":   {Algorithm: rlc.LeakyBucket, Scope: rlc.ScopeZone, OnFailure: rlc.FailOpen, Limit: &rlc.Limit{Rate: 1.5, Burst: 3}},
		"slides":   window(rlc.SlidingWindow, rlc.WindowLimit{Requests: 100, Length: 10 * time.Second}),
		"log":      {Algorithm: rlc.SlidingLog, Scope: rlc.ScopeRegion, OnFailure: rlc.FailClosed, Window: &rlc.WindowLimit{Requests: 100, Per: rlc.PerMinute}},
		"day":      window(rlc.FixedWindow, rlc.WindowLimit{Requests: 10000, Per: rlc.PerDay, Calendar: true, Reset: 6*time.Hour + 30*time.Minute, Location: "Europe/Paris"}),
		"month":    window(rlc.FixedWindow, rlc.WindowLimit{Requests: 10000, Per: rlc.PerMonth, Calendar: true, Location: "America/New_York"}),
		"week":     window(rlc.FixedWindow, rlc.WindowLimit{Per: rlc.PerWeek, Calendar: true, Location: "Europe/Paris"}),
		"second":   window(rlc.FixedWindow, rlc.WindowLimit{Requests: 1, Per: rlc.PerSecond, Calendar: true}),
		"rolls":    window(rlc.FixedWindow, rlc.WindowLimit{Requests: 5, Per: rlc.PerDay}),
		"length":   window(rlc.FixedWindow, rlc.WindowLimit{Requests: 5, Length: 24 * time.Hour}),
		"grid":     window(rlc.FixedWindow, rlc.WindowLimit{Requests: 5, Length: 24 * time.Hour, Calendar: true}),
		"inflight": {Algorithm: rlc.Concurrency, Scope: rlc.ScopeGlobal, OnFailure: rlc.FailClosed, InFlight: &rlc.InFlight{Max: 4000, Timeout: 30 * time.Second}},
		"forgotten": {Algorithm: rlc.Concurrency, Scope: rlc.ScopeGlobal, OnFailure: rlc.FailClosed,
			InFlight: &rlc.InFlight{Max: 1, Timeout: time.Minute}},
		"ratio": plain(rlc.DropRatio),
		"costs": {Algorithm: rlc.SlidingWindow, Scope: rlc.ScopeGlobal, OnFailure: rlc.FailClosed, Rollout: []string{"eu-west-1a", "b"},
			Cost: rlc.Cost{Procedures: map[string]int64{"Refund": 5, "from": 2}}, Tier: rlc.Tier{Critical: []string{"payments/*"}, Batch: []string{"etl"}}},
		"later": {Algorithm: rlc.SlidingWindow, Scope: rlc.ScopeGlobal, OnFailure: rlc.FailClosed, Cost: rlc.Cost{Header: "x-cost", Reserve: 10}},
	}
	for _, b := range c.Service("s").Buckets {
		got := view{b.Algorithm, b.Scope, b.OnFailure, b.Limit, b.Window, b.InFlight, b.Rollout, b.Cost, b.Tier}
		if !reflect.DeepEqual(got, want[b.Name]) {
			t.Errorf("%s: got %+v, want %+v", b.Name, got, want[b.Name])
		}
		if written := b.Limit != nil || b.Window != nil || b.InFlight != nil; b.ByHand() != written {
			t.Errorf("%s: by hand %v, written %v", b.Name, b.ByHand(), written)
		}
		if b.Window != nil && b.Window.Valid() != nil {
			t.Errorf("%s: %v", b.Name, b.Window.Valid())
		}
	}
}

func TestServicesSayWhatIsPlanned(t *testing.T) {
	c := quotafile.Parse(repo(map[string]string{
		"defaults.yaml": `events: [{name: sale, from: 2026-11-01T00:00:00Z, until: 2026-11-02T00:00:00Z, multiply: 1.5}]
freeze: [{cron: "0 0 20 12 *", for: 14d, allow: increases}]
auto_merge: {max_change: 0.2}
`,
		"services/a/policy.yaml": `service: a
capacity: {per_instance: 900, instances: 'count(up{job="geo"} == 1)', reserve: 0.2, evidence: "load test"}
buckets: [{name: b}]
aliases: [{caller: web/frontend-v2, was: web/frontend}]
events: [{name: black-friday, from: 2026-11-27T00:00:00Z, until: 2026-11-30T00:00:00Z, multiply: 3}]
failover: [{lose: eu-west-1, to: {us-east-1: 0.4, us-west-2: 0.6}}]
freeze: [{cron: "*/10,5 1-5/2 * 1,7 0-7", for: 90m, allow: nothing}]
sensitive: [api_key, caller]
targets: [{kind: envoy-ratelimit, path: platform/ratelimit/a.yaml}]
`,
		"services/b/policy.yaml": "service: b\nbuckets: [{name: b}]\nauto_merge: false\n",
	}), nil)
	if err := c.Valid(); err != nil {
		t.Fatal(err)
	}
	a, b := c.Service("a"), c.Service("b")
	sale := rlc.Event{Name: "sale", From: utc(1, 0), Until: utc(2, 0), Multiply: 1.5}
	winter := rlc.Freeze{Cron: "0 0 20 12 *", For: 14 * 24 * time.Hour, Allow: "increases"}
	for _, check := range []struct{ what, got, want any }{
		{"capacity", a.Capacity, &rlc.Capacity{PerInstance: 900, Instances: `count(up{job="geo"} == 1)`, Reserve: 0.2, Evidence: "load test"}},
		{"aliases", a.Aliases, []rlc.Alias{{Caller: "web/frontend-v2", Was: "web/frontend"}}},
		{"events", a.Events, []rlc.Event{sale, {Name: "black-friday", From: utc(27, 0), Until: utc(30, 0), Multiply: 3}}},
		{"failover", a.Failover, []rlc.Failover{{Lose: "eu-west-1", To: map[string]float64{"us-east-1": 0.4, "us-west-2": 0.6}}}},
		{"freeze", a.Freeze, []rlc.Freeze{winter, {Cron: "*/10,5 1-5/2 * 1,7 0-7", For: 90 * time.Minute}}},
		{"sensitive", a.Sensitive, []string{"api_key", "caller"}},
		{"targets", a.Targets, []rlc.Target{{Kind: "envoy-ratelimit", Path: "platform/ratelimit/a.yaml"}}},
		{"auto_merge", a.AutoMerge, &rlc.AutoMerge{MaxChange: 0.2}},
		{"events of b", b.Events, []rlc.Event{sale}},
		{"auto_merge of b", b.AutoMerge, (*rlc.AutoMerge)(nil)},
	} {
		if !reflect.DeepEqual(check.got, check.want) {
			t.Errorf("%s: got %+v, want %+v", check.what, check.got, check.want)
		}
	}
}

func TestWhatBucketsAndPlansSayIsStrict(t *testing.T) {
	bucket := policyHead + "buckets:\n  - name: b\n"
	plan := policyHead + "buckets: [{name: b}]\n"
	for data, want := range map[string]string{
		bucket + "    limit: {requests: 5, per: day}\n":                                                     "6:12: limit requests beside algorithm token_bucket; write algorithm: fixed_window, sliding_window or sliding_log, or {rate, burst}",
		bucket + "    algorithm: fixed_window\n    limit: {requests: 5}\n":                                  "7:12: limit requests lacks its window; add per: day, or window: 24h",
		bucket + "    algorithm: fixed_window\n    limit: {requests: 5, per: day, window: 1h}\n":            "7:44: per excludes window; remove one of the two",
		bucket + "    algorithm: fixed_window\n    limit: {requests: 1.5, per: dya}\n":                      `7:23: requests: 1.5 is not a whole number|7:33: per: "dya" is not known; one of second, minute, hour, day, week, month`,
		bucket + "    algorithm: fixed_window\n    limit: {requests: 5, per: month, align: rolling}\n":      "7:31: per month is counted by the calendar only; write window: 30d",
		bucket + "    algorithm: sliding_log\n    limit: {requests: 5, per: month}\n":                       "7:31: per month is counted by the calendar only; write window: 30d",
		bucket + "    algorithm: sliding_window\n    limit: {requests: 5, per: day, reset: \"00:00\"}\n":    "7:43: reset: the window slides and has no edges; remove it, or write algorithm: fixed_window",
		bucket + "    algorithm: fixed_window\n    limit: {requests: 5, per: hour, reset: \"00:00\"}\n":     "7:44: reset: only a day, week or month of the calendar starts at a time of day; remove it",
		bucket + "    algorithm: fixed_window\n    limit: {requests: 5, per: day, reset: \"24:00 UTC\"}\n":  `7:43: reset: "24:00 UTC" is no time of day; write "00:00", or "00:00 Europe/Paris"`,
		bucket + "    algorithm: fixed_window\n    limit: {requests: 5, per: day, reset: \"1:00\"}\n":       `7:43: reset: "1:00" is no time of day; write "00:00", or "00:00 Europe/Paris"`,
		bucket + "    algorithm: fixed_window\n    limit: {requests: 5, per: day, reset: \"01:00 Mars\"}\n": `7:43: reset: "01:00 Mars" is no time of day; write "00:00", or "00:00 Europe/Paris"`,
		bucket + "    algorithm: fixed_window\n    limit: {requests: 5, window: 400d}\n":                    "7:34: window: 400d is longer than 366d",
		bucket + "    algorithm: concurrency\n":                                                             "5:5: algorithm concurrency without a limit: no policy computes one; write limit: {concurrent: 100, timeout: 30s}",
		bucket + "    algorithm: concurrency\n    limit: {rate: 1, burst: 1}\n":                             "7:12: limit rate beside algorithm concurrency; write {concurrent, timeout}",
		bucket + "    limit: {concurrent: 5}\n":                                                             "6:12: limit concurrent beside algorithm token_bucket; write algorithm: concurrency, or {rate, burst}",
		bucket + "    algorithm: concurrency\n    limit: {concurrent: 5, timeout: 25h}\n":                   "7:37: timeout: 25h is longer than 24h",
		bucket + "    cost: {}\n":                                        "6:11: cost is empty; leave it out where every request costs 1",
		bucket + "    cost: {Refund: 0}\n":                               "6:20: cost Refund: 0 is outside 1 to 1000000",
		bucket + "    cost: {from: body, name: x}\n":                     `6:18: from: "body" is not known; one of response_header`,
		bucket + "    cost: {from: response_header}\n":                   "6:11: cost lacks the key name",
		bucket + "    cost: {from: response_header, name: \"x cost\"}\n": `6:41: name: "x cost" is not the name of a header; letters, digits and dashes`,
		bucket + "    tier: {critical: [\"a*b\"], batch: [x, x]}\n":      `6:23: tier critical: "a*b" is not a pattern; a star may only end a pattern|6:42: tier lists "x" twice; remove one`,
		bucket + "    tier: {gold: [a]}\n":                               `6:12: unknown key "gold" in tier`,
		bucket + "    rollout: {zones: []}\n":                            "6:22: zones is an empty list",
		bucket + "    scope: country\n":                                  `6:12: scope: "country" is not known; one of global, zone, region`,
		plan + "aliases: [{caller: a, was: a}]\n":                        "5:28: was is the caller itself",
		plan + "aliases: [{caller: a, was: b}, {caller: c, was: b}]\n":   `5:49: aliases name "b" twice; remove one`,
		plan + "events: [{name: x, from: 2026-11-27T00:00:00Z}]\n":       "5:10: events lacks the key until|5:10: events lacks the key multiply",
		plan + "failover: [{lose: a, to: {b: 0.5}}]\n":                   "5:26: to: the shares sum to 0.5, not 1; write shares such as {us-east-1: 0.6, us-west-2: 0.4}",
		plan + "failover: [{lose: a, to: {a: 1}}]\n":                     `5:27: to: "a" cannot receive the traffic; name another region`,
		plan + "freeze: [{cron: \"0 0 32 12 *\", for: 14d}]\n":           `5:17: cron: "0 0 32 12 *" is not a schedule; write five fields: minute hour day month weekday, as "0 0 20 12 *"`,
		plan + "freeze: [{cron: \"0 0 30 2 *\", for: 14d}]\n":            `5:17: cron: "0 0 30 2 *" never comes; write a day that its months have`,
		plan + "freeze: [{cron: \"0 0 31 4,6,9-11/2 *\", for: 14d}]\n":   `5:17: cron: "0 0 31 4,6,9-11/2 *" never comes; write a day that its months have`,
		plan + "freeze: [{cron: \"0 0 29 2 *\", for: 14d}, {cron: \"0 0 31 4 1\", for: 1d}, {cron: \"0 0 */31 4/8 *\", for: 1d}]\n": "",
		plan + "aliases: [{caller: a, was: b}, {caller: c, was: a}, {caller: b, was: c}]\n":                                         `5:70: aliases go in a circle: "c" was "b" already; remove one`,
		plan + "freeze: [{cron: \"TZ=UTC 0 0 1 12 *\", for: 14}]\n":                                                                 `5:17: cron: "TZ=UTC 0 0 1 12 *" is not a schedule; write five fields: minute hour day month weekday, as "0 0 20 12 *"|5:43: for: "14" is not a duration; write a number and a unit (ms, s, m, h, d, w), as 90s or 7d`,
		plan + "sensitive: [\"a b\"]\n":                                             `5:13: "a b" is not an attribute's name; use up to 63 letters, digits, dots, dashes and underscores, a letter or underscore first`,
		plan + "targets: [{kind: envoy-ratelimit, path: ../x.yaml}]\n":              `5:41: path: "../x.yaml" is no file of the repository that people leave to rlc; write a path such as platform/ratelimit/checkout.yaml`,
		plan + "targets: [{kind: envoy-ratelimit, path: services/x/quotas.yaml}]\n": `5:41: path: "services/x/quotas.yaml" is no file of the repository that people leave to rlc; write a path such as platform/ratelimit/checkout.yaml`,
		plan + "auto_merge: true\n":                                                 "5:13: auto_merge: want keys and values",
		plan + "capacity: {per_instance: 0, instances: x, rate: 5}\n":               `5:26: capacity per_instance is 0; leave capacity out where it is not known|5:43: unknown key "rate" in capacity`,
	} {
		c := quotafile.Parse(rlc.Files{"services/s/policy.yaml": []byte(data)}, nil)
		if got := strings.ReplaceAll(strings.Join(lines(errorsOf(c.Problems)), "|"), "services/s/policy.yaml:", ""); got != want {
			t.Errorf("%s: got\n  %s\nwant\n  %s", data, got, want)
		}
	}
}

func errorsOf(problems []rlc.Problem) (errs []rlc.Problem) {
	for _, p := range problems {
		if !p.Warning {
			errs = append(errs, p)
		}
	}
	return errs
}

func TestCronsAreFiveFieldsWithinTheirBounds(t *testing.T) {
	for cron, want := range map[string]bool{
		"0 0 20 12 *": true, "*/5 * * * *": true, "59 23 31 12 7": true, "1-5,7,*/2 0-23/3 * * 1-5": true,
		"": false, "* * * *": false, "* * * * * *": false, "60 * * * *": false, "* 24 * * *": false, "* * 0 * *": false, "* * * 13 *": false, "* * * * 8": false,
		"-1 * * * *": false, "+1 * * * *": false, "5-1 * * * *": false, "*/0 * * * *": false, "*/ * * * *": false, "1,,2 * * * *": false, "@daily": false, "* * * JAN *": false,
	} {
		c := quotafile.Parse(rlc.Files{"services/s/policy.yaml": []byte(policyHead + "buckets: [{name: b}]\nfreeze: [{cron: \"" + cron + "\", for: 1d}]\n")}, nil)
		if got := c.Valid() == nil; got != want {
			t.Errorf("%q: valid %v, want %v", cron, got, want)
		}
	}
}

func TestQuotasCarryPlacesWindowsAndHours(t *testing.T) {
	const text = quotasHead + `  - bucket: b
    region: eu-west-1
    rate: 10
    burst: 20
    windows: [{from: 2026-11-27T00:00:00Z, until: 2026-11-28T00:00:00Z, rate: 30, burst: 60}, {from: 2026-11-28T00:00:00Z, until: 2026-11-29T00:00:00Z, rate: 0, burst: 0}]
    hours: {from: 2026-11-27T05:00:00Z, rates: [1.5, 2]}
    why: "x"
  - bucket: b
    zone: eu-west-1a
    rate: 10
    burst: 20
`
	want := []rlc.Quota{
		{Bucket: "b", Region: "eu-west-1", Limit: rlc.Limit{Rate: 10, Burst: 20}, Why: "x",
			Windows: []rlc.QuotaWindow{{From: utc(27, 0), Until: utc(28, 0), Limit: rlc.Limit{Rate: 30, Burst: 60}}, {From: utc(28, 0), Until: utc(29, 0)}},
			Hours:   &rlc.QuotaHours{From: utc(27, 5), Rates: []rlc.Rate{1.5, 2}}},
		{Bucket: "b", Zone: "eu-west-1a", Limit: rlc.Limit{Rate: 10, Burst: 20}},
	}
	_, got, problems := quotafile.ParseQuotas("quotas.yaml", []byte(text))
	if len(problems) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%q\ngot  %+v\nwant %+v", lines(problems), got, want)
	}
	if got[0].ID() != "b@eu-west-1" || got[1].ID() != "b@eu-west-1a" {
		t.Errorf("%s, %s", got[0].ID(), got[1].ID())
	}
	if hash := quotafile.Hash(got); hash == quotafile.Hash(got[:1]) {
		t.Error("the hash misses a quota")
	}
	changed := append([]rlc.Quota(nil), got...)
	changed[0].Hours = &rlc.QuotaHours{From: utc(27, 5), Rates: []rlc.Rate{1.5, 3}}
	if quotafile.Hash(changed) == quotafile.Hash(got) {
		t.Error("the hash misses an hour's rate")
	}
}

func TestPlacesWindowsAndHoursAreStrict(t *testing.T) {
	quota := quotasHead + "  - bucket: b\n    rate: 1\n    burst: 1\n"
	const day = "2026-11-27T00:00:00Z, until: 2026-11-28T00:00:00Z"
	for data, want := range map[string]string{
		"    region: eu\n    zone: eu-a\n":                        "9:11: region excludes zone; remove one of the two",
		"    zone: a/b\n":                                         `8:11: zone: "a/b" is not a name; use up to 63 letters, digits, dots, dashes and underscores, a letter or digit first`,
		"    windows: []\n":                                       "8:14: windows is an empty list; leave it out",
		"    windows: [{from: " + day + ", rate: 1}]\n":           "8:15: window lacks the key burst",
		"    windows: [{from: " + day + ", rate: 1, burst: 0}]\n": "8:79: rate 1 beside burst 0: both must be above 0; to admit nothing write 0 for both",
		"    windows: [{from: 2026-11-28T00:00:00Z, until: 2026-11-27T00:00:00Z, rate: 1, burst: 1}]\n":    "8:51: until is not after from",
		"    windows: [{from: " + day + ", rate: 1, burst: 1}, {from: " + day + ", rate: 1, burst: 1}]\n":  "8:93: window starts before the one above it ends; windows stand in order of time and do not overlap",
		"    hours: {from: 2026-11-27T00:30:00Z, rates: [1]}\n":                                            "8:19: from is no full hour; write it as 2026-11-27T00:00:00Z",
		"    hours: {from: 2026-11-27T00:00:00Z, rates: []}\n":                                             "8:48: rates is an empty list; leave hours out",
		"    hours: {from: 2026-11-27T00:00:00Z, rates: [0]}\n":                                            "8:49: rate is 0: an hour that admits nothing is written as a window",
		"    hours: {from: 2026-11-27T00:00:00Z, rates: [1" + strings.Repeat(", 1", 744) + "]}\n":          "8:2281: rates lists more than 744 hours",
		"    hours: {from: 2026-11-27T00:00:00Z}\n":                                                        "8:12: hours lacks the key rates",
		"    hours: {from: 2026-11-27T00:00:00Z, rates: [.nan]}\n":                                         `8:49: rate: ".nan" is not a plain decimal number; write a plain decimal such as 1500 or 0.5`,
		"  - {bucket: b, rate: 1, burst: 1, region: eu}\n  - {bucket: b, rate: 1, burst: 1, region: eu}\n": `9:5: quota "b@eu" is given twice: first at line 8; remove one`,
	} {
		_, quotas, problems := quotafile.ParseQuotas("quotas.yaml", []byte(quota+data))
		if got := strings.ReplaceAll(strings.Join(lines(problems), "|"), "quotas.yaml:", ""); got != want || quotas != nil {
			t.Errorf("%s: got\n  %s\nwant\n  %s", data, got, want)
		}
	}
}

// Hourly profiles of a large service stay within the bound on a file's items.
func TestManyGeneratedHoursAreRead(t *testing.T) {
	rates := make([]rlc.Rate, 168)
	for i := range rates {
		rates[i] = rlc.Rate(i + 1)
	}
	var quotas []rlc.Quota
	for i := range 1000 {
		quotas = append(quotas, rlc.Quota{Bucket: "b", Key: rlc.Key{"caller": "c" + strings.Repeat("x", i%40) + string(rune('a'+i/40))}, Limit: rlc.Limit{Rate: 1, Burst: 1}, Hours: &rlc.QuotaHours{From: utc(1, 0), Rates: rates}})
	}
	data := quotafile.MarshalQuotas("s", quotas)
	for name, text := range map[string]string{"as written": string(data), "by YAML": "# a person's comment\n" + string(data) + "\n"} {
		_, got, problems := quotafile.ParseQuotas("quotas.yaml", []byte(text))
		if len(problems) > 0 || len(got) != len(quotas) {
			t.Errorf("%s: %d quotas, %v", name, len(got), lines(problems))
		}
	}
}
