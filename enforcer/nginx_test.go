package enforcer_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/porttest"
)

// nginx runs deploy/nginx.conf, as it is documented, on free ports before this
// enforcer and this upstream, until the test ends. It returns its URL.
func nginx(t *testing.T, enforcer, upstream string) string {
	t.Helper()
	addr := porttest.Free(t)
	conf, err := os.ReadFile("../deploy/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	text := string(conf)
	for from, to := range map[string]string{"127.0.0.1:8082": enforcer, "127.0.0.1:9000": upstream, "127.0.0.1:8000": addr} {
		if !strings.Contains(text, from) {
			t.Fatalf("deploy/nginx.conf lacks %s", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	dir := t.TempDir()
	text = strings.ReplaceAll(text, "50ms", "10s") // a busy machine is no enforcer that is away
	head := fmt.Sprintf("daemon off;\nworker_processes 1;\npid %[1]s/pid;\nerror_log stderr;\nevents {worker_connections 64;}\nhttp {\naccess_log off;\n", dir)
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		head += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(head+text+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/sbin/nginx", "-e", "stderr", "-p", dir, "-c", file)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("nginx: %s", &log)
		}
	})
	deadline := time.After(20 * time.Second)
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return "http://" + addr
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("nginx ended: %v\n%s", err, &log)
		case <-deadline:
			t.Fatalf("nginx does not listen\n%s", &log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestARealNginxLimitsByTheDocumentedConfiguration(t *testing.T) {
	e, _ := start(t, enforcer.Config{PagesURL: "https://rlc.example"})
	load(t, e, snap(7, policy("checkout", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0.5, burst: 2}}\n")))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- enforcer.Serve(ctx, l, e.Handler(), time.Second) }()
	stop := func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "served") }))
	defer upstream.Close()
	base := nginx(t, l.Addr().String(), upstream.Listener.Addr().String())

	for i := range 4 {
		r, _ := http.NewRequest("POST", base+"/pay?service=else&caller=mallory", strings.NewReader("a body"))
		// A client cannot claim to be somebody else, nor add attributes.
		r.Header.Set("X-RLC-Attr-Caller", fmt.Sprint("mallory-", i))
		r.Header.Set("X-RLC-Attr-Tenant", "big")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
			list, err := httpsfv.UnmarshalList(res.Header.Values(name))
			if err != nil || len(list) != 1 || list[0].(httpsfv.Item).Value != "checkout/callers" {
				t.Errorf("request %d: %s: %q %v", i, name, res.Header.Values(name), err)
			}
		}
		if i < 2 {
			if res.StatusCode != 200 || string(body) != "served" || res.Header.Get("Retry-After") != "" {
				t.Errorf("request %d: %d %s %v", i, res.StatusCode, body, res.Header)
			}
			continue
		}
		after, err := strconv.Atoi(res.Header.Get("Retry-After"))
		if res.StatusCode != 429 || err != nil || after < 2 || after > 4 || res.Header.Get("Content-Type") != "application/problem+json" ||
			res.Header.Get("X-Rlc-Bucket") != "callers" || res.Header.Get("X-Rlc-Snapshot") != "1.7" ||
			res.Header.Get("Link") != `<https://rlc.example/services/checkout/buckets/callers?key=caller%3D127.0.0.1>; rel="help"` {
			t.Errorf("request %d: %d %s %v", i, res.StatusCode, body, res.Header)
		}
	}
	stop()
	res, err := http.Get(base + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 200 || string(body) != "served" {
		t.Errorf("with the enforcer away: %d %s", res.StatusCode, body)
	}
}
