package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the command, so that it is tested as a
// process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("ENFORCER_TEST_MAIN") == "1" {
		main()
	}
	// The Redis library's look for a cluster ends by itself within a second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, args...)
	c.Env = append(append(os.Environ(), "ENFORCER_TEST_MAIN=1"), env...)
	return c
}

func TestCommandsAnswerWithTheirExitCodes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "secret", "hunter2\n")
	write(t, dir, "whole", "redis://:hunter2@localhost\n")
	secret, whole := filepath.Join(dir, "secret"), filepath.Join(dir, "whole")
	for _, c := range []struct {
		args string
		env  string
		code int
		want string // in stdout or stderr
	}{
		{"--help", "", 0, "enforcer serve [flags]"},
		{"version --nonsense", "", 3, `unexpected argument "--nonsense" of version`},
		{"serve --help", "", 0, "-config-dir folder"},
		{"version", "", 0, "enforcer "},
		{"", "", 3, "want a command"},
		{"surf", "", 3, `unknown command "surf"`},
		{"serve --no-such-flag", "", 3, "no-such-flag"},
		{"serve extra", "", 3, `unexpected argument "extra"`},
		{"serve", "", 3, "nowhere to take snapshots from"},
		{"serve --redis redis://localhost --allow-removals", "", 3, "--allow-removals is for --config-dir"},
		{"serve --redis http://u:hunter2@localhost", "", 3, "neither redis:// nor rediss://"},
		{"serve redis://u:hunter2@localhost", "", 3, `unexpected argument "redis://…"`},
		{"serve", "RLC_REDIS_FILE=/no/such/file", 3, "RLC_REDIS_FILE"},
		{"serve", "RLC_REDIS_FILE=" + secret, 3, "holds no redis:// or rediss:// URL"},
		{"serve --redis redis://localhost", "RLC_REDIS_FILE=" + whole, 3, "--redis gives one too"},
		{"serve --config-dir . --strict", "", 3, "are for counters in --redis"},
		{"serve --config-dir . --redis-ca x.pem", "", 3, "belong to --redis"},
		{"serve --redis redis://localhost --redis-timeout 2s", "", 3, "--redis-timeout 2s is outside 1ms to 1s"},
		{"serve --redis rediss://localhost --redis-ca not-there.pem", "", 3, "authorities of Redis: open not-there.pem"},
		{"serve --redis redis://localhost --strict --local-counters", "", 3, "exclude each other"},
		{"serve --config-dir . --http off --grpc off", "", 3, "both off"},
		{"serve --config-dir . --grpc 0.0.0.0:0", "", 3, "--grpc 0.0.0.0:0 can be reached from other machines"},
		{"serve --config-dir . --tls-cert c", "", 3, "go together"},
		{"serve --config-dir . --client-ca c", "", 3, "--client-ca needs"},
		{"serve --config-dir . --clients c", "", 3, "--clients needs"},
		{"serve --config-dir . --tls-cert " + secret + " --tls-key " + secret, "", 3, "use TLS certificate"},
		{"serve --config-dir . --access-log-share 0.1", "", 3, "--access-log-share needs --access-log"},
		{"serve --config-dir . --access-log - --access-log-share 2", "", 3, "outside 0 to 1"},
		{"serve --config-dir . --access-log-refusals 0", "", 3, "is below 1"},
		{"serve --config-dir . --access-log /no/such/folder/log", "", 1, "open access log"},
		{"serve --config-dir . --hash-key-file " + secret, "", 3, "the hash key has 7 bytes"},
		{"serve --config-dir d --aggregator-ca f", "", 3, "--aggregator-ca needs --aggregator"},
		{"aggregator --help", "", 0, "enforcer aggregator --controller ADDR"},
		{"aggregator --grpc :1", "", 3, "give --controller ADDR"},
		{"controller --help", "", 0, "Usage: enforcer controller"},
		{"controller surf", "", 3, `unexpected argument "surf"`},
		{"serve --config-dir . --http 0.0.0.0:0", "", 3, "can be reached from other machines"},
		{"serve --config-dir . --http nonsense", "", 3, "--http"},
		{"serve", "RLC_ALLOW_REMOVALS=perhaps", 3, "RLC_ALLOW_REMOVALS"},
		{"serve --config-dir . --token-file /no/such/file", "", 3, "--token-file"},
		{"serve --config-dir . --http 127.0.0.1:99999", "", 1, "99999"},
	} {
		t.Run(c.args+" "+c.env, func(t *testing.T) {
			var out strings.Builder
			env := func(name string) string {
				if k, v, _ := strings.Cut(c.env, "="); k == name {
					return v
				}
				return ""
			}
			// What is accepted by mistake ends at once, and is no exit 3.
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			code := run(ctx, strings.Fields(c.args), env, &out, &out)
			if code != c.code || !strings.Contains(out.String(), c.want) {
				t.Errorf("exit %d, want %d; output lacks %q:\n%s", code, c.code, c.want, &out)
			}
			if strings.Contains(out.String(), "hunter2") {
				t.Errorf("a password is shown:\n%s", &out)
			}
		})
	}

	err := command(t, nil, "serve").Run()
	if ee := (*exec.ExitError)(nil); !errors.As(err, &ee) || ee.ExitCode() != 3 {
		t.Errorf("as a process: %v, want exit 3", err)
	}
}

func TestEveryFlagIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/enforcer-api.md")
	if err != nil {
		t.Fatal(err)
	}
	(&settings{}).flags().VisitAll(func(f *flag.Flag) {
		if !strings.Contains(string(doc), "`--"+f.Name) {
			t.Errorf("docs/enforcer-api.md lacks --%s", f.Name)
		}
		if f.Usage == "" {
			t.Errorf("--%s has no help", f.Name)
		}
	})
}

// process is a running enforcer.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	grpc string        // address
	done chan struct{} // closed when it has ended

	mu  sync.Mutex
	log bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// launch starts "enforcer serve" on a free port and waits until it listens.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return launchEnv(t, nil, args...)
}

func launchEnv(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return launchBy(t, func(*exec.Cmd) {}, env, args...)
}

// launchBy lets change alter how the command is started.
func launchBy(t *testing.T, change func(*exec.Cmd), env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, done: make(chan struct{})}
	p.cmd = command(t, append([]string{"RLC_HTTP=127.0.0.1:0", "RLC_GRPC=127.0.0.1:0"}, env...), append([]string{"serve"}, args...)...)
	change(p.cmd)
	p.cmd.Stderr = p
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewReader(out); p.url == "" || p.grpc == ""; {
		line, err := in.ReadString('\n')
		url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening: ")
		if err != nil || !ok {
			t.Fatalf("said %q, %v\n%s", line, err, p.logged())
		}
		if scheme, addr, _ := strings.Cut(url, "://"); strings.HasPrefix(scheme, "grpc") {
			p.grpc = addr
		} else {
			p.url = url
		}
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() { p.stop() })
	return p
}

// stop ends the process as an orchestrator does and returns its exit code.
func (p *process) stop() int {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (p *process) get(path string) (int, string) {
	p.t.Helper()
	res, err := client.Get(p.url + path)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.logged())
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

// until asks again until the answer is as wanted.
func (p *process) until(path string, ok func(status int, body string) bool) {
	p.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		status, body := p.get(path)
		if ok(status, body) {
			return
		}
		select {
		case <-deadline:
			p.t.Fatalf("%s: still %d %s\n%s", path, status, body, p.logged())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) snapshot(want string) {
	p.t.Helper()
	p.until("/v1/config", func(_ int, body string) bool { return strings.Contains(body, `"snapshot":"`+want+`"`) })
}

// outcomes asks n times for caller search.
func (p *process) outcomes(n int) string {
	p.t.Helper()
	var got []string
	for range n {
		res, err := client.Post(p.url+"/v1/check", "application/json", strings.NewReader(`{"service":"s","attributes":{"caller":"search"}}`))
		if err != nil {
			p.t.Fatal(err)
		}
		var a struct{ Outcome string }
		if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
			p.t.Fatal(err)
		}
		res.Body.Close()
		got = append(got, a.Outcome)
	}
	return strings.Join(got, " ")
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func policy(service string, burst int) string {
	return fmt.Sprintf("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: %s\nowners: [team]\ndefaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0.0001, burst: %d}}\n", service, burst)
}

func TestAFolderIsFollowedAndABadOneLeavesTheLastGood(t *testing.T) {
	t.Parallel()
	config, state := t.TempDir(), t.TempDir()
	write(t, config, "services/s/policy.yaml", policy("s", 2))
	p := launch(t, "--config-dir", config, "--state", state, "--zone", "z1", "--name", "e1")
	p.snapshot("0.1")
	if got := p.outcomes(3); got != "admit admit drop" {
		t.Errorf("burst 2: %s", got)
	}
	write(t, config, "services/s/policy.yaml", policy("s", 4))
	p.snapshot("0.2")
	if got := p.outcomes(3); got != "admit admit drop" {
		t.Errorf("burst raised to 4 with two taken: %s", got)
	}

	write(t, config, "services/s/policy.yaml", "half: [")
	p.until("/readyz", func(status int, body string) bool {
		return status == 200 && strings.Contains(body, "the newest snapshot was refused")
	})
	p.snapshot("0.2")
	if got := p.outcomes(1); got != "drop" {
		t.Errorf("a bad folder: %s", got)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit %d after SIGTERM\n%s", code, p.logged())
	}

	// The folder is still bad, then gone: the last good one is served at once.
	again := launch(t, "--config-dir", config, "--state", state)
	again.snapshot("0.2")
	if err := os.RemoveAll(config); err != nil {
		t.Fatal(err)
	}
	again.until("/readyz", func(status int, body string) bool {
		return status == 200 && strings.Contains(body, "cannot be read")
	})
	again.snapshot("0.2")
	// The same content as before is the same snapshot, another is the next.
	write(t, config, "services/s/policy.yaml", policy("s", 4))
	again.until("/readyz", func(_ int, body string) bool { return strings.Contains(body, `"notes":[]`) })
	again.snapshot("0.2")
	write(t, config, "services/s/policy.yaml", policy("s", 5))
	again.snapshot("0.3")
}

func TestItStartsWithoutAnySnapshotAndSaysThatItIsNotReady(t *testing.T) {
	t.Parallel()
	config := t.TempDir() // empty as yet
	p := launch(t, "--config-dir", config)
	if status, body := p.get("/readyz"); status != 503 || !strings.Contains(body, "no snapshot yet") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, _ := p.get("/healthz"); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	if got := p.outcomes(1); got != "admit" {
		t.Errorf("without a snapshot: %s", got)
	}
	write(t, config, "services/s/policy.yaml", policy("s", 2))
	p.until("/readyz", func(status int, _ string) bool { return status == 200 })

	none := launch(t, "--redis", "redis://127.0.0.1:1")
	none.until("/readyz", func(status int, body string) bool {
		return status == 503 && strings.Contains(body, "redis at 127.0.0.1:1")
	})
	if code := none.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestAFolderThatLostMuchIsRefusedUnlessAPersonSaysSo(t *testing.T) {
	t.Parallel()
	config, state := t.TempDir(), t.TempDir()
	for i := range 30 {
		write(t, config, fmt.Sprintf("services/s%02d/policy.yaml", i), policy(fmt.Sprintf("s%02d", i), 2))
	}
	p := launch(t, "--config-dir", config, "--state", state)
	p.snapshot("0.1")
	for i := range 15 {
		if err := os.RemoveAll(filepath.Join(config, "services", fmt.Sprintf("s%02d", i))); err != nil {
			t.Fatal(err)
		}
	}
	p.until("/metrics", func(_ int, body string) bool {
		return strings.Contains(body, `rlc_enforcer_snapshots_refused_total{reason="shrunken"} 1`)
	})
	p.snapshot("0.1")
	p.stop()
	p = launch(t, "--config-dir", config, "--state", state, "--allow-removals")
	p.snapshot("0.2")
}

// ConfigMap and git-sync mounts swap a link to a folder.
func TestAFolderThatIsSwappedBehindALinkIsReadAnew(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	write(t, filepath.Join(base, "one"), "services/s/policy.yaml", policy("s", 2))
	write(t, filepath.Join(base, "two"), "services/s/policy.yaml", policy("s", 3))
	link := filepath.Join(base, "current")
	if err := os.Symlink("one", link); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "--config-dir", link)
	p.snapshot("0.1")
	if err := os.Symlink("two", link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
	p.snapshot("0.2")
}

func TestATokenIsAskedForBeyondLoopback(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "token")
	write(t, filepath.Dir(secret), "token", "s3cret\n")
	p := launch(t, "--config-dir", t.TempDir(), "--http", "0.0.0.0:0", "--grpc", "0.0.0.0:0", "--token-file", secret)
	p.url = strings.Replace(p.url, "[::]", "127.0.0.1", 1)
	if status, _ := p.get("/v1/config"); status != http.StatusUnauthorized {
		t.Errorf("without the token: %d", status)
	}
	if status, _ := p.get("/healthz"); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	req, _ := http.NewRequest("GET", p.url+"/v1/config", nil)
	req.Header.Set("Authorization", "Bearer s3cret")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("with the token: %d", res.StatusCode)
	}
	if strings.Contains(p.logged(), "s3cret") {
		t.Error("the token is in the log")
	}
}
