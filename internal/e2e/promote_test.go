package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/openrlc/rlc"
)

// inbox is what a team's webhook receives.
type inbox struct {
	mu      sync.Mutex
	notices []rlc.Notice
}

func (b *inbox) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // half a message is none
	var m struct {
		Notices []rlc.Notice `json:"notices"`
	}
	_ = json.Unmarshal(body, &m) // as above
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notices = append(b.notices, m.Notices...)
}

// of are the notices of one kind.
func (b *inbox) of(kind string) (out []rlc.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.notices {
		if n.Kind == kind {
			out = append(out, n)
		}
	}
	return out
}

// command runs the built rlc against a server, and returns what it printed and
// its exit code.
func command(t *testing.T, server *process, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "rlc"), append(args, "--server", server.url)...)
	cmd.Env = append(os.Environ(), "RLC_TOKEN="+token)
	b, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// A bucket is promoted by the command over two zones, with an enforcer in each.
// The first soaks; in the second a caller comes with requests that its limit is
// bad for. The promotion ends by itself: shadow everywhere, as a new version in
// the approver's name, nobody refused any more, and the owners are told.
func TestAPromotionByTheCommandHaltsByItselfOverABadLimit(t *testing.T) {
	told := &inbox{}
	team := httptest.NewServer(told)
	t.Cleanup(team.Close)
	w := newWorld(t)
	config, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	hook := filepath.Join(w.dir, "hook")
	w.write(hook, team.URL+"\n")
	w.write(w.config, string(config)+"rollout: {min_shadow: 1s, soak: 15s, min_drops: 50}\nnotify: {webhook_file: "+hook+", digest: 1s}\n")
	server := w.serve("rlc")
	server.ready()
	zones := map[string]*process{}
	for _, zone := range []string{"eu-1", "eu-2"} {
		t.Setenv("RLC_ZONE", zone)
		zones[zone] = w.edge("edge-" + zone)
	}
	check := func(zone string, cost int) (outcome string) {
		_, text := ask("POST", zones[zone].url+"/v1/check", map[string]any{"service": "checkout", "attributes": map[string]string{"caller": "web", "procedure": "Get"}, "cost": cost})
		var d struct{ Outcome string }
		_ = json.Unmarshal([]byte(text), &d) // an empty outcome is none
		return d.Outcome
	}
	for _, way := range []string{"first", "second"} { // the second replays what the first put in force
		server.compute()
		if way == "first" {
			eventually(t, "a review", func() bool { return len(server.open()) == 2 })
			w.merge("checkout")
			eventually(t, "limits are live", func() bool { return len(server.limits("checkout")) == 2 })
		}
	}

	promote := []string{"promote", "checkout", "callers", "--zone", "eu-1", "--zone", "eu-2", "--all"}
	var said string
	eventually(t, "the checklist lets it pass", func() bool {
		for zone := range zones {
			check(zone, 1)
		}
		var code int
		said, code = command(t, server, promote...)
		if code != 0 && code != 4 {
			t.Fatalf("exit %d: %s", code, said)
		}
		return code == 0
	})
	if !strings.Contains(said, "✔ an owner, or on-call, says so") || !strings.Contains(said, "growing: enforced in eu-1") {
		t.Errorf("said %s", said)
	}
	policyIs := func(text string) func() bool {
		return func() bool {
			return strings.Contains(git(t, w.git.bare, "show", "main:services/checkout/policy.yaml"), text)
		}
	}
	if !policyIs(`rollout: {zones: ["eu-1"]}`)() {
		t.Error("the first stage is not on the base branch")
	}
	if out, code := command(t, server, promote...); code != 4 || !strings.Contains(out, "✔") {
		t.Errorf("a second promotion at once: exit %d: %s", code, out)
	}
	eventually(t, "the second zone follows", func() bool {
		check("eu-1", 1)
		return policyIs(`rollout: {zones: ["eu-1", "eu-2"]}`)()
	})
	var before struct {
		Version uint64 `json:"version"`
	}
	eventually(t, "the limit drops in the second zone", func() bool { return check("eu-2", 1_000_000) == "drop" })
	zones["eu-2"].get("/v1/config", &before)
	eventually(t, "back in shadow", func() bool {
		for range 20 {
			check("eu-2", 1_000_000)
		}
		return policyIs("mode: shadow")() && !policyIs("rollout:")()
	})
	for zone := range zones {
		eventually(t, "nobody is refused in "+zone, func() bool { return check(zone, 1_000_000) == "virtual_drop" })
	}
	var after struct {
		Version uint64 `json:"version"`
	}
	if zones["eu-2"].get("/v1/config", &after); after.Version <= before.Version {
		t.Errorf("version %d after %d", after.Version, before.Version)
	}
	eventually(t, "the owners are told", func() bool { return len(told.of("rollback")) > 0 })
	if n := told.of("rollback"); len(n) != 1 || !n[0].Urgent || strings.Join(n[0].Owners, ",") != "team-a" || !strings.Contains(n[0].Text, "checkout / callers is back in shadow") {
		t.Errorf("told %+v", n)
	}
	if commit := git(t, w.git.bare, "log", "-1", "--format=%an%n%B", "main"); !strings.HasPrefix(commit, "token\nBack to shadow: callers") || !strings.Contains(commit, "RLC-Actor: token") {
		t.Errorf("commit:\n%s", commit)
	}
	if !server.says("/services/checkout/history", "rolled back") {
		t.Error("the page History does not say so")
	}
}
