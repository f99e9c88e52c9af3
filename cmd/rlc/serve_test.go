package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/porttest"
)

// service is a running rlc serve.
type service struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	stderr *lockedBuffer
	ended  chan error
}

// lockedBuffer may be read while a process writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startService starts cmd, an rlc serve, and waits until it listens.
func startService(t *testing.T, cmd *exec.Cmd) *service {
	t.Helper()
	s := &service{t: t, cmd: cmd, stderr: &lockedBuffer{}, ended: make(chan error, 1)}
	cmd.Stderr = s.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if at, ok := strings.CutPrefix(lines.Text(), "listening: "); ok {
				listening <- at
			}
		}
		close(listening)
		s.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-s.ended
	})
	select {
	case s.url = <-listening:
	case <-time.After(time.Minute):
	}
	if s.url == "" {
		t.Fatalf("not listening:\n%s", s.stderr)
	}
	return s
}

func serveProgram(env []string, args ...string) *exec.Cmd {
	return program(context.Background(), env, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
}

func (s *service) signal() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
}

// wait is how the process ended.
func (s *service) wait() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		s.ended <- err
		return err
	case <-time.After(time.Minute):
		s.t.Fatalf("does not end:\n%s", s.stderr)
		return nil
	}
}

// ask is the status and the body of an answer; 0 where there is none.
func (s *service) ask(method, url, token string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}

func (s *service) ready() {
	s.t.Helper()
	eventually(s.t, "readiness", func() bool {
		code, text := s.ask("GET", s.url+"/readyz", "")
		if code != 200 && !strings.HasPrefix(text, "not ready\n") {
			s.t.Fatalf("/readyz: %d %q\n%s", code, text, s.stderr)
		}
		return code == 200
	})
}

// halfRequest is a request whose body has not come yet.
func (s *service) halfRequest() net.Conn {
	s.t.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	// 100 Continue says that the request has reached its handler.
	fmt.Fprintf(c, "POST /login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", u.Host)
	line, err := bufio.NewReader(io.LimitReader(c, 25)).ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		s.t.Fatalf("half a request: %q %v", line, err)
	}
	return c
}

// refusing waits until no new connection is taken.
func (s *service) refusing() {
	s.t.Helper()
	eventually(s.t, "the listener is closed", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

// Without any configuration the whole product runs on free ports. A stop lets
// the request under way finish and exits 0.
func TestServeRunsEmbeddedAndDrains(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := startService(t, serveProgram(nil, "--data", data, "--metrics-listen", "127.0.0.1:0"))
	if code, text := s.ask("GET", s.url+"/healthz", ""); code != 200 || text != "ok\n" {
		t.Errorf("/healthz: %d %q", code, text)
	}
	s.ready()
	_, counters, _ := strings.Cut(s.stderr.String(), "msg=metrics url=")
	counters, _, _ = strings.Cut(counters, "\n")
	if code, text := s.ask("GET", counters, ""); code != 200 || !strings.Contains(text, "rlc_runs_total") {
		t.Errorf("%s: %d %.100q", counters, code, text)
	}
	if code, _ := s.ask("GET", strings.TrimSuffix(counters, "/metrics")+"/api/v1/services", ""); code != 404 {
		t.Errorf("the second listener answers more than metrics: %d", code)
	}
	if info, err := os.Stat(filepath.Join(data, "token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("token: %v %v", info, err)
	}

	c := s.halfRequest()
	s.signal()
	s.refusing()
	if _, err := io.WriteString(c, "token=abc"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); err != nil || !strings.Contains(string(answer), "HTTP/1.1 401") {
		t.Errorf("the request under way: %v %.100q", err, answer)
	}
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, s.stderr)
	}

	again := startService(t, serveProgram(nil, "--data", data))
	again.ready()
	again.signal()
	if err := again.wait(); err != nil {
		t.Errorf("the second time: %v\n%s", err, again.stderr)
	}
}

func TestASecondSignalEndsServeAtOnce(t *testing.T) {
	s := startService(t, serveProgram(nil, "--data", t.TempDir()))
	s.halfRequest()
	s.signal()
	s.refusing()
	s.signal()
	exit, ok := s.wait().(*exec.ExitError)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v\n%s", exit, s.stderr)
	}
}

// History that cannot be reached holds quotas; it stops neither the start nor
// the pages, which say so.
func TestServeStartsWithoutItsPrometheus(t *testing.T) {
	closed := porttest.Free(t)
	s := startService(t, serveProgram([]string{"RLC_PROMETHEUS_URL=http://" + closed}, "--data", t.TempDir()))
	s.ready()
	eventually(t, "the page says that history is unreachable", func() bool {
		code, text := s.ask("GET", s.url+"/", "")
		return code == 200 && strings.Contains(text, "History is unreachable: every quota is held as it is.") && strings.Contains(text, closed)
	})
	s.signal()
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, s.stderr)
	}
}

func TestServeReadsItsTokenAgainWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	put := func(token string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	const first, second = "first-token-0123456789", "second-token-0123456789"
	put(first)
	config := filepath.Join(dir, "rlc.yaml")
	if err := os.WriteFile(config, []byte("data: "+filepath.Join(dir, "data")+"\ntoken_file: "+file+"\npoll: 20ms\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := startService(t, serveProgram(nil, "--config", config))
	s.ready()
	act := func(token string) int {
		code, _ := s.ask("POST", s.url+"/api/v1/runs", token)
		return code
	}
	if code := act(first); code/100 != 2 {
		t.Fatalf("acting with the token: %d", code)
	}
	put("short")
	eventually(t, "the page says that the token's file is of no use", func() bool {
		_, text := s.ask("GET", s.url+"/", "")
		return strings.Contains(text, "The token&#39;s file cannot be used")
	})
	if code := act(first); code/100 != 2 {
		t.Errorf("the last good token: %d", code)
	}
	put(second)
	eventually(t, "the new token acts", func() bool { return act(second)/100 == 2 })
	if code := act(first); code != http.StatusUnauthorized {
		t.Errorf("acting with the old token: %d", code)
	}
	s.signal()
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, s.stderr)
	}
	if text := s.stderr.String(); strings.Contains(text, first) || strings.Contains(text, second) {
		t.Errorf("the log holds a token:\n%s", text)
	}
}

// What Prometheus is shown comes from files and is read again when they change.
func TestServeShowsPrometheusItsNewestToken(t *testing.T) {
	shown := make(chan string, 1)
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case shown <- r.Header.Get("X-Scope-OrgID") + " " + r.Header.Get("Authorization"):
		default:
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,"1"]}]}}`, time.Now().Unix())
	}))
	defer prometheus.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "bearer")
	if err := os.WriteFile(file, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startService(t, serveProgram(nil, "--data", filepath.Join(dir, "data"), "--prometheus-url", prometheus.URL, "--prometheus-bearer-file", file, "--prometheus-headers", "{X-Scope-OrgID: payments}"))
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "Prometheus is shown the token "+token, func() bool {
			select {
			case got := <-shown:
				return got == "payments Bearer "+token
			default:
				return false
			}
		})
	}
	s.signal()
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, s.stderr)
	}
}

func TestServeExitsThreeOnABadConfiguration(t *testing.T) {
	for name, args := range map[string][]string{
		"flag":        {"--poll", "never"},
		"part":        {"--repository-url", "relative.git"},
		"no such key": {"--poll-every", "3s"},
	} {
		cmd := serveProgram(nil, append(args, "--data", filepath.Join(t.TempDir(), "data"))...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != exitInvalid {
			t.Errorf("%s: exit %d\n%s", name, code, out)
		}
	}
}

// As the image runs it: an empty root that cannot be written to, no /tmp, no
// HOME, nobody's uid, one folder to write in.
func TestServeWritesOnlyInItsDataFolder(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this test changes root and user: run it as root, as CI does")
	}
	const nobody = 65532
	root := bareRoot(t)
	data := filepath.Join(root, "state")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(data, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	before := files(t, root)
	cmd := &exec.Cmd{
		Path: "/rlc", Args: []string{"/rlc", "serve"}, Dir: "/",
		Env: []string{asProgram + "=1", "RLC_LISTEN=127.0.0.1:0", "RLC_DATA=/state"},
		SysProcAttr: &syscall.SysProcAttr{
			Chroot:     root,
			Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
		},
	}
	s := startService(t, cmd)
	s.ready()
	token, err := os.ReadFile(filepath.Join(data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	if code, text := s.ask("POST", s.url+"/api/v1/runs", strings.TrimSpace(string(token))); code/100 != 2 {
		t.Errorf("a run: %d %s", code, text)
	}
	eventually(t, "the run is over", func() bool {
		_, text := s.ask("GET", s.url+"/api/v1/runs", "")
		return strings.Contains(text, `"result":"ok"`)
	})
	s.signal()
	if err := s.wait(); err != nil {
		t.Errorf("ended with %v\n%s", err, s.stderr)
	}
	if text := s.stderr.String(); strings.Contains(text, "permission denied") || strings.Contains(text, "read-only") || strings.Contains(text, "no such file") {
		t.Errorf("it missed something:\n%s", text)
	}
	for path := range files(t, root) {
		if !before[path] && !strings.HasPrefix(path, data+"/") {
			t.Errorf("written outside the data folder: %s", path)
		}
	}
}

// bareRoot is a folder with this program and the libraries it is linked with,
// and nothing else. (The image's is linked statically.)
func bareRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for dir := root; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // another user passes through
			t.Fatal(err)
		}
	}
	put := func(from, to string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(os.Args[0], filepath.Join(root, "rlc"))
	libraries, _ := exec.Command("ldd", os.Args[0]).Output() // fails on a static program
	for word := range strings.FieldsSeq(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			put(word, filepath.Join(root, word))
		}
	}
	return root
}

func files(t *testing.T, root string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		all[path] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
