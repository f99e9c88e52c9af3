package follow_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/follow"
)

const oneADay = "apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\ndefaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0.0001, burst: 1}}\n"

func write(t *testing.T, dir, text string) {
	t.Helper()
	file := filepath.Join(dir, "services", "s", "policy.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func outcome(e *follow.Running) enforcer.Outcome {
	return e.Decide(enforcer.Request{Service: "s", Attributes: rlc.Attributes{"caller": "a"}}).Outcome
}

func TestAFolderIsInForceAtTheStartAndFollowedUntilClose(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // another test's client may still be on its way out
	dir := t.TempDir()
	write(t, dir, oneADay)
	e, err := follow.Start(follow.Config{Dir: dir}, enforcer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if got := []enforcer.Outcome{outcome(e), outcome(e)}; got[0] != enforcer.Admit || got[1] != enforcer.Drop {
		t.Errorf("burst 1: %v", got)
	}
	if commit, content := named(t, e.Enforcer); commit != "" || !strings.HasPrefix(content, "sha256:") {
		t.Errorf("a folder's files are of no commit: commit %q, content %q", commit, content)
	}
	write(t, dir, oneADay+"  - {name: all, role: cap, limit: {rate: 1, burst: 1}}\n")
	deadline := time.After(20 * time.Second)
	for e.Version().Number != 2 {
		select {
		case <-deadline:
			t.Fatalf("still %s", e.Version())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// named is how /v1/config names the snapshot in force.
func named(t *testing.T, e *enforcer.Enforcer) (commit, content string) {
	t.Helper()
	rec := httptest.NewRecorder()
	e.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/v1/config", nil))
	var out struct{ Commit, Content string }
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return out.Commit, out.Content
}

func TestASourceThatIsAwayIsNoError(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
	for _, c := range []follow.Config{{Dir: "/no/such/folder"}, {Redis: "redis://127.0.0.1:1"}} {
		e, err := follow.Start(c, enforcer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if got := outcome(e); got != enforcer.Admit {
			t.Errorf("%+v: %s", c, got)
		}
		if reasons, _ := e.Ready(); len(reasons) == 0 {
			t.Errorf("%+v: ready", c)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestExactlyOneSourceIsAskedFor(t *testing.T) {
	for _, c := range []follow.Config{{}, {Dir: "a", Redis: "redis://localhost"}, {Redis: "http://localhost"}} {
		if _, err := follow.Start(c, enforcer.Config{}); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
