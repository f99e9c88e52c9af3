package main

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the enforcer's /metrics promises: names, types and labels.
var promised = map[string]string{
	"rlc_enforcer_requests_total":       "bucket,caller,outcome,procedure,service",
	"rlc_enforcer_cap_requests_total":   "bucket,outcome,service",
	"rlc_enforcer_no_quota_total":       "bucket,service",
	"rlc_enforcer_fallbacks_total":      "bucket,reason,service",
	"rlc_enforcer_identity_total":       "source",
	"rlc_enforcer_limit":                "bucket,caller,key,mode,procedure,service",
	"rlc_enforcer_peak_rate":            "bucket,caller,procedure,service",
	"rlc_enforcer_snapshot_version":     "",
	"rlc_enforcer_snapshot_age_seconds": "",
	"rlc_enforcer_redis_seconds_bucket": "le",
}

var sample = regexp.MustCompile(`(?m)^(rlc_\w+)(?:\{(.*)\})? \S+$`)

func TestTheMetricsThatArePromised(t *testing.T) {
	dir := t.TempDir()
	writeService(t, dir, "apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\ndefaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: all, role: cap, limit: {rate: 50, burst: 50}, on_failure: local}\n"+
		"  - {name: callers, each: [caller, procedure], limit: {rate: 1, burst: 1}}\n")
	// Nobody is at the Redis: what asks it falls back.
	s := spawn(t, 1, "serve", "--grpc", "off", "--http", "127.0.0.1:0", "--config-dir", dir, "--redis", "redis://127.0.0.1:1/0")
	url := "http://" + s.addr["http"]
	within(t, "a snapshot", func() bool { return strings.Contains(get(t, url+"/v1/config"), "0.1") })
	for _, attributes := range []string{`{"caller":"web","procedure":"Get"}`, `{"caller":"web","procedure":"Get"}`, `{}`} {
		res, err := http.Post(url+"/v1/check", "application/json", strings.NewReader(`{"service":"s","attributes":`+attributes+`}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	text := get(t, url+"/metrics")
	seen := map[string]string{}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		var names []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			names = append(names, l[1])
		}
		slices.Sort(names)
		seen[m[1]] = strings.Join(names, ",")
	}
	for name, labels := range promised {
		kind, of := "gauge", strings.TrimSuffix(name, "_bucket")
		if of != name {
			kind = "histogram"
		}
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		if got, ok := seen[name]; !ok || got != labels || !strings.Contains(text, "# TYPE "+of+" "+kind+"\n") {
			t.Errorf("%s: there %v, labels %q, want %q on a %s", name, ok, got, labels, kind)
		}
	}
	for _, line := range []string{`rlc_enforcer_identity_total{source="attribute"} 2`, `rlc_enforcer_identity_total{source="none"} 1`,
		`rlc_enforcer_requests_total{bucket="__unmatched__",caller="",outcome="admit",procedure="",service="s"} 1`} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}
