package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/audit"
	"github.com/openrlc/rlc/internal/promserver"
)

// metered is a Prometheus that holds eight days of geo: web at 10/s, batch at
// 2/s and, of no limit, adhoc at 1/s.
func metered(t *testing.T) string {
	t.Helper()
	prom, err := promserver.Open(promserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prom.Close() })
	until := time.Now().Truncate(time.Minute)
	var all []promserver.LabelledSeries
	for caller, rate := range map[string]float64{"web": 10, "batch": 2, "adhoc": 1} {
		all = append(all, promserver.LabelledSeries{
			Labels: map[string]string{"__name__": "grpc:server_started:rate1m", "service": "geo", "client_service": caller, "grpc_method": "Get"},
			Samples: func(yield func(int64, float64) bool) {
				for at := until.Add(-8 * 24 * time.Hour); !at.After(until); at = at.Add(time.Minute) {
					if !yield(at.UnixMilli(), rate) {
						return
					}
				}
			},
		})
	}
	if err := prom.Backfill(t.Context(), all, nil); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(prom.Handler())
	t.Cleanup(server.Close)
	return server.URL
}

// rlcOutput runs the program and gives both of its outputs.
func rlcOutput(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := program(ctx, nil, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("rlc %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), errs.String()
}

func TestLimitsOfEveryFormAreAudited(t *testing.T) {
	url := metered(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"limits.csv":      "service,caller,procedure,rate,burst\ngeo,web,,5,10\ngeo,batch,,100,200\n",
		"ratelimit.yaml":  "domain: geo\ndescriptors:\n  - {key: caller, value: web, rate_limit: {unit: second, requests_per_unit: 5}}\n  - {key: caller, value: batch, rate_limit: {unit: minute, requests_per_unit: 6000}}\n",
		"geo/policy.yaml": "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: geo\nbuckets:\n  - {name: callers, each: [caller]}\n",
		"geo/quotas.yaml": "apiVersion: rlc/v1\nkind: ServiceQuotas\nservice: geo\nquotas:\n  - {bucket: callers, key: {caller: web}, rate: 5, burst: 10, why: x}\n  - {bucket: callers, key: {caller: batch}, rate: 100, burst: 200, why: x}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"limits.csv", "ratelimit.yaml", "geo/quotas.yaml", ""} {
		args := []string{"audit", "--prometheus", url, "--profile", "grpc", "--days", "7", "-o", "json"}
		want := "map[fine:0 none:1 protects nothing:1 too tight:1]"
		if file == "" {
			want = "map[fine:0 none:3 protects nothing:0 too tight:0]"
		} else {
			args = append(args, "--limits", filepath.Join(dir, file))
		}
		out, errs := rlcOutput(t, args...)
		var table audit.Table
		if err := json.Unmarshal([]byte(out), &table); err != nil {
			t.Fatal(err)
		}
		got := map[audit.Verdict]int{}
		for _, v := range []audit.Verdict{audit.TooTight, audit.Nothing, audit.None, audit.Fine} {
			got[v] = table.Totals[v]
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s\n%s\n%s", file, got, want, out, errs)
		}
		bill, first := strings.Index(errs, "The bill: 1 service, 3 label sets at once, about "), strings.Index(errs, "1 of 1: geo")
		if bill < 0 || first < bill {
			t.Errorf("%s: the bill does not come first:\n%s", file, errs)
		}
	}
	page, _ := rlcOutput(t, "audit", "--prometheus", url, "--profile", "grpc", "--days", "7", "--limits", filepath.Join(dir, "limits.csv"), "-o", "html")
	if !strings.HasPrefix(page, "<!doctype html>") || !strings.Contains(page, "would have dropped") || strings.Contains(page, "<script") {
		t.Errorf("the page:\n%s", page)
	}
	if _, errs := rlcOutput(t, "audit", "--prometheus", url, "--profile", "istio", "--days", "7"); !strings.Contains(errs, "\nNothing matched: in 7 days no query of the profile istio gave traffic") || !strings.Contains(errs, `"rlc doctor --profile" with the same flags says query by query what is missing, "rlc profiles istio" what is asked.`) {
		t.Errorf("of metrics that are not there:\n%s", errs)
	}
}

func TestFirstPoliciesComeFromTheMetrics(t *testing.T) {
	url, dir := metered(t), filepath.Join(t.TempDir(), "limits")
	out, _ := rlcOutput(t, "init", "--profile", "grpc", "--from-prometheus", url, "--out", dir)
	if !strings.HasPrefix(out, "geo: written, 13/s in the last day, each caller (3 callers)\n") || !strings.Contains(out, "1 file written") || !strings.Contains(out, "look: there is data of 7d ago") {
		t.Errorf("told:\n%s", out)
	}
	policy, err := os.ReadFile(filepath.Join(dir, "services/geo/policy.yaml"))
	if want := "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: geo\nprofile: grpc\nbuckets:\n  - {name: callers, each: [caller]}\n"; err != nil || string(policy) != want {
		t.Errorf("%v\n%s", err, policy)
	}
	rlcOutput(t, "validate", dir)
	out, _ = rlcOutput(t, "init", "--profile", "grpc", "--from-prometheus", url, "--out", dir)
	if !strings.HasPrefix(out, "geo: kept as it is") {
		t.Errorf("told:\n%s", out)
	}
}
