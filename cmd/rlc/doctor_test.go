package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/promhistory"
)

// A bare repository is looked at by its base branch, as a checkout of it is; one
// without a service is no success.
func TestDoctorLooksAtABareRepositoryAsAtItsCheckout(t *testing.T) {
	prometheus, dir := metered(t), t.TempDir()
	bare, checkout := filepath.Join(dir, "config.git"), filepath.Join(dir, "checkout")
	policy := []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: geo\nprofile: grpc\nbuckets:\n  - {name: callers, each: [caller]}\n")
	if err := gitsync.Init(t.Context(), bare, "trunk", rlc.Files{"services/geo/policy.yaml": policy}, gitsync.Person{Name: "ann"}, "first"); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "clone", "-q", bare, checkout)
	findings := func(args ...string) (told string) {
		out, _ := program(t.Context(), nil, append([]string{"doctor", "--prometheus", prometheus, "-o", "json"}, args...)...).Output()
		var all struct{ Services []examined }
		if err := json.Unmarshal(out, &all); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		for _, s := range all.Services {
			for _, f := range s.Findings {
				told += fmt.Sprintln(s.Service, f.Level, f.Check)
			}
		}
		return told
	}
	want := findings("--repo", checkout)
	if !strings.Contains(want, "geo "+string(promhistory.OK)+" names\n") {
		t.Fatalf("of the checkout:\n%s", want)
	}
	for _, args := range [][]string{{"--repo", bare}, {"--profile", "grpc"}, {"--profile", "grpc", "--service", "geo"}} {
		if got := findings(args...); got != want {
			t.Errorf("%v:\n%s\nwant\n%s", args, got, want)
		}
	}
	if told, _ := program(t.Context(), nil, "doctor", "--prometheus", prometheus, "--repo", checkout).Output(); !strings.Contains(string(told), "warn  enforcers: no enforcer was scraped") || !strings.Contains(string(told), "job_name: rlc-enforcer") {
		t.Errorf("a Prometheus that scrapes no enforcer:\n%s", told)
	}
	rlcOutput(t, "validate", bare)

	if out, code := failing(t, "doctor", "--prometheus", prometheus, "--repo", configured(t)); code != exitInvalid || !strings.Contains(out, "has no valid service: nothing was looked at") {
		t.Errorf("without services: exit %d\n%s", code, out)
	}
	empty := t.TempDir()
	if out, code := failing(t, "doctor", "--prometheus", prometheus, "--repo", empty); code != exitInvalid || !strings.Contains(out, empty+" holds no file of a config repository") {
		t.Errorf("of an empty folder: exit %d\n%s", code, out)
	}
}

// Where the metrics name nothing, doctor says query by query what is missing; and
// an audit whose profile names a wrong label which labels there are.
func TestWhatAProfileLacksIsNamed(t *testing.T) {
	prometheus := metered(t)
	out, code := failing(t, "doctor", "--prometheus", prometheus, "--profile", "istio")
	if code != exitError || !strings.HasPrefix(out, "SERVICE (the metrics name no service; it stands for any)\n") || !strings.Contains(out, "there is no metric istio_requests_total") {
		t.Errorf("exit %d\n%s", code, out)
	}
	text, _ := rlcOutput(t, "profiles", "grpc")
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	text = strings.NewReplacer("name: grpc", "name: mine", "metric: client_service,", "metric: peer,").Replace(text)
	if err := os.WriteFile(mine, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = rlcOutput(t, "audit", "--prometheus", prometheus, "--profile", mine, "--days", "2")
	if want := "geo: its metrics have the labels client_service, grpc_method, service; write a profile that names the right one: rlc profiles mine >mine.yaml, correct it, and give --profile mine.yaml"; !strings.Contains(out, want) {
		t.Errorf("told:\n%s\nwant %s", out, want)
	}
}
