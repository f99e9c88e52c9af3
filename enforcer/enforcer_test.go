package enforcer_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// noon is when tests begin: on a full minute.
var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

// clock stands still until it is moved.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

// start makes an enforcer on a clock of its own.
func start(t testing.TB, c enforcer.Config) (*enforcer.Enforcer, *clock) {
	t.Helper()
	at := &clock{noon}
	if c.Now == nil {
		c.Now = at.now
	}
	if c.Name == "" {
		c.Name = "e1"
	}
	e, err := enforcer.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e, at
}

// closeIt ends an enforcer, so that another can take its state folder.
func closeIt(t testing.TB, e *enforcer.Enforcer) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

const policyHead = "apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\n"

// policy is a service's policy.yaml; body are its lines after the head.
func policy(service, body string) rlc.Files {
	return rlc.Files{"services/" + service + "/policy.yaml": []byte(policyHead + "service: " + service + "\n" + body)}
}

// quotas is a service's quotas.yaml with these entries of the list.
func quotas(service string, entries ...string) rlc.Files {
	return rlc.Files{"services/" + service + "/quotas.yaml": []byte("apiVersion: rlc/v1\nkind: ServiceQuotas\nservice: " + service + "\nquotas:\n" + strings.Join(entries, ""))}
}

func quota(bucket, key string, rate float64, burst int, more ...string) string {
	s := fmt.Sprintf("  - bucket: %s\n", bucket)
	if key != "" {
		s += fmt.Sprintf("    key: {%s}\n", key)
	}
	s += fmt.Sprintf("    rate: %g\n    burst: %d\n", rate, burst)
	for _, m := range more {
		s += "    " + m + "\n"
	}
	return s + "    why: \"test\"\n"
}

func snap(number uint64, files ...rlc.Files) rlc.Snapshot {
	all := rlc.Files{}
	for _, f := range files {
		maps.Copy(all, f)
	}
	return rlc.Snapshot{Version: rlc.Version{Epoch: 1, Number: number}, Commit: fmt.Sprint("c", number), Files: all}
}

func load(t testing.TB, e *enforcer.Enforcer, s rlc.Snapshot) {
	t.Helper()
	if err := e.Load(s); err != nil {
		t.Fatal(err)
	}
}

// ask sends n requests of cost 1 and counts the outcomes.
func ask(e *enforcer.Enforcer, n int, service string, attrs rlc.Attributes) map[enforcer.Outcome]int {
	got := map[enforcer.Outcome]int{}
	for range n {
		got[e.Decide(enforcer.Request{Service: service, Attributes: attrs}).Outcome]++
	}
	return got
}

func wantOutcomes(t testing.TB, what string, got map[enforcer.Outcome]int, admit, drop, virtual int) {
	t.Helper()
	want := map[enforcer.Outcome]int{}
	for o, n := range map[enforcer.Outcome]int{enforcer.Admit: admit, enforcer.Drop: drop, enforcer.VirtualDrop: virtual} {
		if n > 0 {
			want[o] = n
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// metrics reads /metrics: "name{labels}" to value as written.
func metrics(t testing.TB, e *enforcer.Enforcer) map[string]string {
	t.Helper()
	rec := httptest.NewRecorder()
	e.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", rec.Code, rec.Body)
	}
	body, _ := io.ReadAll(rec.Body)
	out := map[string]string{}
	for line := range strings.Lines(string(body)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok {
			out[name+"}"] = value
		} else if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			out[name] = value
		}
	}
	return out
}

func wantMetrics(t testing.TB, e *enforcer.Enforcer, want map[string]string) {
	t.Helper()
	got := metrics(t, e)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: got %q, want %q", name, got[name], want[name])
		}
	}
}

// series counts the metrics with this name.
func series(m map[string]string, name string) (n int) {
	for k := range m {
		if strings.HasPrefix(k, name+"{") {
			n++
		}
	}
	return n
}

var search = rlc.Attributes{"caller": "search", "procedure": "Get"}
