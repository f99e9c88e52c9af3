package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type servicesAnswer struct {
	Services []struct {
		Name    string   `json:"name"`
		Owners  []string `json:"owners"`
		Virtual float64  `json:"virtual_drops_24h"`
		Open    *string  `json:"open_review"`
	} `json:"services"`
}

type proposalsAnswer struct {
	Proposals []struct {
		ID      string `json:"id"`
		Service string `json:"service"`
		Changes []struct {
			Bucket   string                 `json:"bucket"`
			New      map[string]float64     `json:"new"`
			Backtest map[string]interface{} `json:"backtest"`
		} `json:"changes"`
	} `json:"proposals"`
}

// The demo does what its help promises: real traffic, accepted quotas, an open
// proposal with backtests, virtual drops that move; a person's day with it; a
// clean end; and the same data again.
func TestDemoShowsTheWholeLoop(t *testing.T) {
	data := filepath.Join(t.TempDir(), "demo")
	d := startDemo(t, data)

	var services servicesAnswer
	d.get("/api/v1/services", &services)
	if len(services.Services) < 5 {
		t.Errorf("%d services, want at least five", len(services.Services))
	}
	var runs struct {
		Runs []struct {
			ID, Result string
		} `json:"runs"`
	}
	d.get("/api/v1/runs", &runs)
	if len(runs.Runs) < 2 || runs.Runs[len(runs.Runs)-1].Result != "ok" {
		t.Errorf("runs: %+v", runs)
	}
	repo := filepath.Join(data, "config.git")
	if head := git(t, repo, "symbolic-ref", "HEAD"); head != "refs/heads/main" {
		t.Errorf("HEAD is %s", head)
	}
	if log := git(t, repo, "log", "--format=%B", "main"); !strings.Contains(log, "RLC-Run: ") {
		t.Error("no commit carries RLC-Run")
	}
	if files := git(t, repo, "ls-tree", "-r", "--name-only", "main"); strings.Count(files, "/quotas.yaml") < 5 {
		t.Errorf("quotas on the base branch:\n%s", files)
	}
	var open proposalsAnswer
	d.get("/api/v1/proposals?state=open", &open)
	if len(open.Proposals) != 1 || len(open.Proposals[0].Changes) == 0 || open.Proposals[0].Changes[0].Backtest["new"] == nil {
		t.Fatalf("open proposals: %+v", open)
	}
	eventually(t, "virtual drops of the retry storm", func() bool {
		d.get("/api/v1/services", &services)
		for _, s := range services.Services {
			if s.Virtual > 0 {
				return true
			}
		}
		return false
	})

	// Acting without the token is refused with its own exit code.
	if out, code := d.rlc("run", "--token", "wrong-token-wrong-token"); code != exitAuthorised {
		t.Errorf("run without the token: exit %d\n%s", code, out)
	}
	// plan finds what the open proposal holds, twice, and writes nothing.
	before := git(t, repo, "for-each-ref")
	if out, code := d.rlc("plan", "--service", open.Proposals[0].Service); code != exitChanges || !strings.Contains(out, "headroom") {
		t.Errorf("plan: exit %d\n%s", code, out)
	}
	if after := git(t, repo, "for-each-ref"); after != before {
		t.Errorf("plan wrote to the repository:\n%s\n%s", before, after)
	}
	if out, code := d.rlc("explain", "checkout", "callers", "caller=web-frontend"); code != exitOK || !strings.Contains(out, "headroom") {
		t.Errorf("explain: exit %d\n%s", code, out)
	}
	if out, code := d.rlc("backtest", "--service", "checkout", "--bucket", "callers", "--key", "caller=web-frontend", "--rate", "100"); code != exitOK || !strings.Contains(out, "would have dropped") {
		t.Errorf("backtest: exit %d\n%s", code, out)
	}
	if out, code := d.rlc("why", "checkout", "--caller", "web-frontend"); code != exitOK || !strings.Contains(out, "callers") || !strings.Contains(out, "web-frontend") {
		t.Errorf("why: exit %d\n%s", code, out)
	}
	if out, code := d.rlc("replay", "--service", "checkout"); code != exitOK || !strings.Contains(out, "web-frontend") {
		t.Errorf("replay: exit %d\n%s", code, out)
	}
	if out, code := d.rlc("run", "--service", "checkout"); code != exitOK || !strings.Contains(out, "ok: ") {
		t.Errorf("run: exit %d\n%s", code, out)
	}

	// doctor looks at the same history against a checkout.
	checkout := filepath.Join(t.TempDir(), "checkout")
	git(t, t.TempDir(), "clone", "-q", repo, checkout)
	_, prometheus, _ := strings.Cut(d.stderr.String(), "prometheus: ")
	prometheus, _, _ = strings.Cut(prometheus, "\n")
	out, code := d.rlc("doctor", "--prometheus", strings.TrimSpace(prometheus), "--repo", checkout, "--service", "checkout")
	if !strings.Contains(out, "bill: ") || !strings.Contains(out, "names: ") {
		t.Errorf("doctor: exit %d\n%s", code, out)
	}

	// The bare repository that the demo names is read as it is held.
	if bare, again := d.rlc("doctor", "--prometheus", strings.TrimSpace(prometheus), "--repo", repo, "--service", "checkout"); again != code || !strings.Contains(bare, "names: ") {
		t.Errorf("doctor of the bare repository: exit %d\n%s", again, bare)
	}

	d.scripts()
	d.acts()

	d.stop()
	if _, err := os.Stat(filepath.Join(data, "url")); err == nil {
		t.Error("a stopped demo leaves its address behind")
	}
	if out, code := d.rlc("plan"); code != exitError || !strings.Contains(out, "no server runs on "+data) {
		t.Errorf("plan without a server: exit %d\n%s", code, out)
	}

	again := startDemo(t, data)
	var reopened proposalsAnswer
	again.get("/api/v1/proposals?state=open", &reopened)
	if len(reopened.Proposals) != 1 || reopened.Proposals[0].ID != open.Proposals[0].ID {
		t.Errorf("after a restart: %+v", reopened)
	}
	again.stop()
}
