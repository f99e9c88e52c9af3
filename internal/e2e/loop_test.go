package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// From history in Prometheus to virtual drops on the page, with every engine
// real and every program built: proposals, merged by a plain git push,
// acknowledged by two enforcers, counted in shadow, scraped and shown. Then each
// engine in turn is stopped and started: nothing is lost or lowered, enforcers
// decide on, and pages say what is held and why.
func TestTheLoopWithRealEngines(t *testing.T) {
	w := newWorld(t)
	rlc := w.serve("first")
	rlc.ready()
	one, two := w.edge("edge-1"), w.edge("edge-2")

	if r := rlc.compute(); r.Result != "ok" || r.Changed != 3 {
		t.Fatalf("first run: %+v", r)
	}
	eventually(t, "two reviews", func() bool { return len(rlc.open()) == 2 })
	w.merge("checkout")
	w.merge("search")
	head := func() string {
		return git(t, w.git.bare, "rev-list", "--count", "--first-parent", "main")
	}
	synced := func() bool {
		v, n := rlc.live()
		return n == 2 && one.inForce() == v && two.inForce() == v && len(v) > 2 && v[len(v)-len(head()):] == head() && len(rlc.open()) == 0
	}
	eventually(t, "both enforcers have what was merged", synced)
	limits := rlc.limits("checkout")
	if l := limits["web"]; l.Rate < 255 || l.Rate > 265 {
		t.Fatalf("web's limit is %+v, want its peak of 200/s × 1.30", l)
	}

	// 2,000 requests at once on a burst of about 520.
	drops := 0
	for range 2000 {
		code, text := ask("POST", one.url+"/v1/check", map[string]any{"service": "checkout", "attributes": map[string]string{"caller": "web", "procedure": "Get"}})
		if code != 200 {
			t.Fatalf("a shadow bucket answered %d %s", code, text)
		}
		if strings.Contains(text, `"outcome":"virtual_drop"`) {
			drops++
		}
	}
	if drops == 0 {
		t.Fatal("no virtual drop")
	}
	eventually(t, "virtual drops, scraped, on the page", func() bool {
		var s struct {
			Live struct {
				VirtualDrops float64 `json:"virtual_drops"`
			} `json:"live"`
		}
		return rlc.get("/api/v1/services/checkout/shadow", &s) && s.Live.VirtualDrops > 0 && rlc.says("/services/checkout/shadow", "web")
	})
	if r := rlc.compute(); r.Changed != 0 {
		t.Errorf("a second run changed %d quotas", r.Changed)
	}

	before := git(t, w.git.bare, "rev-parse", "main")
	version := one.inForce()
	unharmed := func(without string) {
		t.Helper()
		if now := git(t, w.git.bare, "rev-parse", "main"); now != before {
			t.Errorf("without %s the base branch moved", without)
		}
		for _, e := range []*process{one, two} {
			if v := e.inForce(); v != version {
				t.Errorf("without %s an enforcer went from %s to %s", without, version, v)
			}
			if code, _ := ask("GET", e.url+"/v1/check?service=checkout&caller=mobile", nil); code != 200 {
				t.Errorf("without %s an enforcer answered %d", without, code)
			}
		}
	}

	t.Log("without Prometheus")
	w.prom.stop()
	eventually(t, "the page says that history is unreachable", func() bool { return rlc.says("/", "History is unreachable") })
	if r := rlc.compute(); r.Result == "ok" || r.Held != 3 || r.Changed != 0 {
		t.Errorf("a run without Prometheus: %+v", r)
	}
	unharmed("Prometheus")
	w.prom.start()
	eventually(t, "history is back", func() bool { return !rlc.says("/", "History is unreachable") })
	if r := rlc.compute(); r.Result != "ok" || r.Changed != 0 {
		t.Errorf("a run with Prometheus back: %+v", r)
	}

	t.Log("without the git server")
	w.git.stop()
	eventually(t, "the page says that the repository cannot be read", func() bool { return rlc.says("/", "The config repository cannot be read") })
	unharmed("the git server")
	w.git.start()
	eventually(t, "the repository is back", func() bool { return !rlc.says("/", "The config repository cannot be read") })

	t.Log("without Redis")
	w.redis.Stop()
	eventually(t, "the page says that Redis does not answer", func() bool { return rlc.says("/", "Redis does not answer") })
	unharmed("Redis")
	if r := rlc.compute(); r.Result != "ok" || r.Changed != 0 {
		t.Errorf("a run without Redis: %+v", r)
	}
	w.redis.Start() // empty
	eventually(t, "both enforcers are heard again", synced)

	t.Log("without PostgreSQL")
	postgres.Kill(t)
	eventually(t, "not ready without records", func() bool { code, _ := ask("GET", rlc.url+"/readyz", nil); return code == 503 })
	if code, text := ask("POST", rlc.url+"/api/v1/runs", map[string]string{}); code != 503 {
		t.Errorf("a run without records: %d %s", code, text)
	}
	unharmed("PostgreSQL")
	postgres.Start(t)
	rlc.ready()
	if r := rlc.compute(); r.Result != "ok" || r.Changed != 0 {
		t.Errorf("a run with PostgreSQL back: %+v", r)
	}
	unharmed("anything, afterwards")
	if now := rlc.limits("checkout"); now["web"] != limits["web"] || now["mobile"] != limits["mobile"] {
		t.Errorf("limits are %v, were %v", now, limits)
	}

	t.Log("another replica starts without PostgreSQL, and takes over")
	postgres.Kill(t)
	second := w.serve("second")
	if code, _ := ask("GET", second.url+"/readyz", nil); code != 503 {
		t.Errorf("ready without records: %d", code)
	}
	postgres.Start(t)
	second.ready()
	rlc.ready()
	rlc.stop()
	eventually(t, "the second replica carries out runs", func() bool {
		code, _ := ask("POST", second.url+"/api/v1/runs", map[string]string{})
		return code/100 == 2
	})
	rlc = second
	eventually(t, "both enforcers are in sync with it", synced)
	if r := second.compute(); r.Result != "ok" || r.Changed != 0 {
		t.Errorf("the second replica's run: %+v", r)
	}
	one.stop()
	two.stop()
	second.stop()
}

// merge puts a review on the base branch as a person does, with plain git.
func (w *world) merge(service string) {
	w.t.Helper()
	clone := w.git.clone()
	git(w.t, clone, "merge", "-q", "--no-edit", "origin/rlc/"+service)
	if quotas, err := filepath.Glob(filepath.Join(clone, "services", service, "quotas.yaml")); err != nil || len(quotas) != 1 {
		w.t.Fatalf("the review of %s holds no quotas.yaml", service)
	}
	git(w.t, clone, "push", "-q", "origin", "main")
	eventually(w.t, "the review of "+service+" is settled", func() bool {
		return !slices.Contains(w.branches(), "rlc/"+service)
	})
}

// branches are the server's.
func (w *world) branches() []string {
	return strings.Fields(git(w.t, w.git.bare, "for-each-ref", "--format=%(refname:short)", "refs/heads"))
}
