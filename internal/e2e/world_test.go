// Package e2e tests the built programs with the engines that they run on in
// production: Debian's Prometheus, PostgreSQL and Redis, and git's own server
// over https. It looks from outside: through HTTP, git and what is printed.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc/gitsync/forgetest"
	"github.com/openrlc/rlc/internal/distribute/redistest"
	"github.com/openrlc/rlc/internal/porttest"
	"github.com/openrlc/rlc/internal/promserver"
	"github.com/openrlc/rlc/internal/store/pgtest"
)

var (
	postgres pgtest.Server
	programs string // the folder of the built programs
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "rlc-e2e")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		programs = dir
		build := exec.Command("go", append(append([]string{"build"}, buildFlags...), "-o", dir+"/", "../../cmd/...")...)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build:", err)
			return 1
		}
		return postgres.Main(m)
	}())
}

const token = "0123456789abcdef-e2e"

// world is everything that one installation consists of.
type world struct {
	t       *testing.T
	dir     string
	redis   *redistest.Server
	dsn     string
	prom    *engine
	promURL string
	targets string // Prometheus' file of the enforcers that it scrapes
	git     *gitServer
	config  string
}

// newWorld starts the engines: 28 days of history, a config repository with two
// services, nothing computed yet. More is further history.
func newWorld(t *testing.T, more ...flow) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), redis: redistest.Start(t), dsn: postgres.DSN(t)}
	w.startPrometheus(more)
	w.git = newGitServer(t, map[string]string{
		"defaults.yaml":                 "apiVersion: rlc/v1\nkind: Defaults\nprofile: rlc\n",
		"services/checkout/policy.yaml": policy("checkout", ""),
		"services/search/policy.yaml":   policy("search", ""),
	})
	w.config = filepath.Join(w.dir, "rlc.yaml")
	w.write(w.config, fmt.Sprintf(`token: %s
store: {dsn: %q}
prometheus: {url: %s}
repository: {url: %s, ca_file: %s}
redis: {url: %s}
poll: 200ms
schedule: "17 3 * * *"
`, token, w.dsn, w.promURL, w.git.url(), w.git.ca, w.redis.URL()))
	return w
}

func policy(service, extra string) string {
	return "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: " + service + "\nowners: [team-a]\n" + extra + "buckets:\n  - {name: callers, each: [caller]}\n"
}

func (w *world) write(path, text string) {
	w.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// peaks are the callers' highest rates of the day.
var peaks = map[string]map[string]float64{"checkout": {"web": 200, "mobile": 500}, "search": {"web": 40}}

// flow is what one caller sends to one service: a rate of each minute.
type flow struct {
	service, caller string
	rate            func(at time.Time) float64
}

// daily is a rate that is highest at noon, a tenth of it at midnight.
func daily(peak float64) func(time.Time) float64 {
	return func(at time.Time) float64 {
		h := float64(at.Hour()) + float64(at.Minute())/60
		return peak * (0.55 - 0.45*math.Cos(2*math.Pi*h/24))
	}
}

// startPrometheus fills a folder with history and starts Debian's Prometheus
// over it, which also scrapes the enforcers and records their rates.
func (w *world) startPrometheus(more []flow) {
	w.t.Helper()
	data := filepath.Join(w.dir, "prometheus")
	store, err := promserver.Open(promserver.Config{Dir: data, Retention: 60 * 24 * time.Hour})
	if err != nil {
		w.t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Minute)
	all := slices.Clone(more)
	for service, callers := range peaks {
		for caller, peak := range callers {
			all = append(all, flow{service, caller, daily(peak)})
		}
	}
	var in []promserver.LabelledSeries
	for _, f := range all {
		in = append(in, promserver.LabelledSeries{
			Labels: map[string]string{"__name__": "rlc:enforcer_requests:rate1m", "service": f.service, "caller": f.caller, "procedure": "Get"},
			Samples: func(yield func(int64, float64) bool) {
				for at := now.Add(-28 * 24 * time.Hour); at.Before(now); at = at.Add(time.Minute) {
					if !yield(at.UnixMilli(), f.rate(at)) {
						return
					}
				}
			},
		})
	}
	if err := store.Backfill(w.t.Context(), in, nil); err != nil {
		w.t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.targets = filepath.Join(w.dir, "targets.json")
	w.write(w.targets, "[]")
	rules := filepath.Join(w.dir, "rules.yml")
	w.write(rules, "groups: [{name: rlc, interval: 5s, rules: [{record: \"rlc:enforcer_requests:rate1m\", expr: \"sum by (service, caller, procedure) (rate(rlc_enforcer_requests_total[1m]))\"}]}]\n")
	file := filepath.Join(w.dir, "prometheus.yml")
	w.write(file, fmt.Sprintf("global: {scrape_interval: 1s}\nrule_files: [%s]\nscrape_configs: [{job_name: rlc-enforcer, file_sd_configs: [{files: [%s], refresh_interval: 1s}]}]\n", rules, w.targets))
	addr := porttest.Free(w.t)
	w.promURL = "http://" + addr
	w.prom = &engine{t: w.t, name: "/usr/bin/prometheus", args: []string{"--config.file=" + file, "--storage.tsdb.path=" + data, "--storage.tsdb.retention.time=10y", "--web.listen-address=" + addr}, ready: w.promURL + "/-/ready"}
	w.prom.start()
}

// engine is a program that is started and stopped in the course of a test.
type engine struct {
	t     *testing.T
	name  string
	args  []string
	ready string
	cmd   *exec.Cmd
	ended <-chan error
	log   bytes.Buffer // read after ended
}

// begin starts cmd and tells when it has ended. The process ends with the
// tests at the latest: it is started on a thread that lives as long as it does,
// because the kernel takes that thread's end for its parent's.
func begin(t *testing.T, cmd *exec.Cmd) (ended <-chan error) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, over := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			over <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return over
}

func (e *engine) start() {
	e.t.Helper()
	e.cmd = exec.Command(e.name, e.args...)
	e.cmd.Stdout, e.cmd.Stderr = &e.log, &e.log
	e.ended = begin(e.t, e.cmd)
	e.t.Cleanup(e.stop)
	eventually(e.t, e.name+" answers", func() bool { code, _ := ask("GET", e.ready, nil); return code == 200 })
}

func (e *engine) stop() {
	if e.cmd == nil {
		return
	}
	_ = e.cmd.Process.Kill() // it may have ended
	<-e.ended
	e.cmd = nil
}

// gitServer is git's own server over https, on one address for all its lives.
type gitServer struct {
	t      *testing.T
	bare   string
	ca     string
	addr   string
	server *httptest.Server
}

func newGitServer(t *testing.T, files map[string]string) *gitServer {
	t.Helper()
	root := t.TempDir()
	g := &gitServer{t: t, bare: filepath.Join(root, "config.git"), addr: porttest.Free(t), ca: filepath.Join(root, "ca.pem")}
	git(t, root, "init", "-q", "--bare", "-b", "main", g.bare)
	clone := filepath.Join(root, "first")
	git(t, root, "init", "-q", "-b", "main", clone)
	for path, text := range files {
		full := filepath.Join(clone, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, clone, "add", "-A")
	git(t, clone, "commit", "-qm", "First configuration")
	git(t, clone, "push", "-q", g.bare, "main")
	g.start()
	if err := os.WriteFile(g.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gitServer) url() string { return "https://" + g.addr + "/config.git" }

func (g *gitServer) start() {
	g.t.Helper()
	l, err := net.Listen("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.server = httptest.NewUnstartedServer(forgetest.Git(g.t, filepath.Dir(g.bare)))
	g.server.Listener.Close()
	g.server.Listener = l
	g.server.StartTLS()
	g.t.Cleanup(sync.OnceFunc(g.server.Close))
}

func (g *gitServer) stop() { g.server.Close() }

// clone is a person's checkout.
func (g *gitServer) clone() string {
	g.t.Helper()
	dir := filepath.Join(g.t.TempDir(), "clone")
	git(g.t, g.bare, "clone", "-q", g.bare, dir)
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=Sam", "GIT_AUTHOR_EMAIL=sam@example.com", "GIT_COMMITTER_NAME=Sam", "GIT_COMMITTER_EMAIL=sam@example.com", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// process is a running rlc or enforcer.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	log   *locked
	ended chan error
}

// locked may be read while a process writes to it.
type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// serve starts rlc serve on a data folder of its own name.
func (w *world) serve(name string, env ...string) *process {
	w.t.Helper()
	return w.launch(env, "rlc", "serve", "--config", w.config, "--listen", "127.0.0.1:0", "--data", filepath.Join(w.dir, name))
}

// edge starts an enforcer, and has Prometheus scrape it.
func (w *world) edge(name string) *process {
	w.t.Helper()
	p := w.launch(nil, "enforcer", "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--redis", w.redis.URL(), "--state", filepath.Join(w.dir, name), "--name", name)
	var have []struct {
		Targets []string `json:"targets"`
	}
	text, err := os.ReadFile(w.targets)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &have); err != nil {
		w.t.Fatal(err)
	}
	have = append(have, struct {
		Targets []string `json:"targets"`
	}{[]string{strings.TrimPrefix(p.url, "http://")}})
	next, err := json.Marshal(have)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(w.targets, string(next))
	return p
}

// launch starts a program and waits until it listens.
func (w *world) launch(env []string, name string, args ...string) *process {
	w.t.Helper()
	p := &process{t: w.t, log: &locked{}, ended: make(chan error, 1)}
	p.cmd = exec.Command(filepath.Join(programs, name), args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.log
	out, in := io.Pipe()
	p.cmd.Stdout = in
	ended := begin(w.t, p.cmd)
	listening := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if at, ok := strings.CutPrefix(lines.Text(), "listening: http"); ok && len(listening) == 0 {
				listening <- "http" + at
			}
		}
		close(listening)
	}()
	go func() {
		err := <-ended
		in.Close()
		p.ended <- err
	}()
	w.t.Cleanup(func() {
		if w.t.Failed() {
			code, snapshot := ask("GET", p.url+"/api/v1/snapshot", nil)
			w.t.Logf("%s %v\nsnapshot: %d %s\n%s", name, args, code, snapshot, p.log)
		}
		_ = p.cmd.Process.Kill() // it may have ended
		p.ended <- <-p.ended
	})
	select {
	case p.url = <-listening:
	case <-time.After(time.Minute):
	}
	if p.url == "" {
		w.t.Fatalf("%s does not listen:\n%s", name, p.log)
	}
	return p
}

// stop ends a process as an operator does.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		p.ended <- err
		if err != nil {
			p.t.Errorf("ended badly: %v\n%s", err, p.log)
		}
	case <-time.After(time.Minute):
		p.t.Fatalf("does not end:\n%s", p.log)
	}
}

// ask is the status and body of an answer; 0 where there is none.
func ask(method, url string, body any) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, err.Error()
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, in)
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
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

// get decodes an answer into out and reports whether there was one.
func (p *process) get(path string, out any) bool {
	code, text := ask("GET", p.url+path, nil)
	return code == 200 && json.Unmarshal([]byte(text), out) == nil
}

// says reports whether a page holds a text.
func (p *process) says(path, text string) bool {
	_, page := ask("GET", p.url+path, nil)
	return strings.Contains(page, text)
}

func (p *process) ready() {
	p.t.Helper()
	eventually(p.t, "readiness", func() bool { code, _ := ask("GET", p.url+"/readyz", nil); return code == 200 })
}

// limit is a rate and a burst in an answer.
type limit struct {
	Rate  float64 `json:"rate"`
	Burst int64   `json:"burst"`
}

type run struct {
	ID       string  `json:"id"`
	Result   string  `json:"result"`
	Finished *string `json:"finished_at"`
	Held     int     `json:"held"`
	Changed  int     `json:"changed"`
}

// compute asks for a run and waits for its end.
func (p *process) compute() run {
	p.t.Helper()
	code, text := ask("POST", p.url+"/api/v1/runs", map[string]string{})
	var asked run
	if err := json.Unmarshal([]byte(text), &asked); err != nil || code/100 != 2 {
		p.t.Fatalf("POST runs: %d %s", code, text)
	}
	var done run
	eventually(p.t, "run "+asked.ID+" is over", func() bool {
		var all struct {
			Runs []run `json:"runs"`
		}
		p.get("/api/v1/runs", &all)
		for _, r := range all.Runs {
			if r.ID == asked.ID && r.Finished != nil {
				done = r
				return true
			}
		}
		return false
	})
	return done
}

// open are the services with an open review.
func (p *process) open() []string {
	var all struct {
		Proposals []struct {
			Service string `json:"service"`
			State   string `json:"state"`
		} `json:"proposals"`
	}
	p.get("/api/v1/proposals?state=open", &all)
	var services []string
	for _, x := range all.Proposals {
		if x.State == "open" {
			services = append(services, x.Service)
		}
	}
	return services
}

// limits are the live limits of a service by caller.
func (p *process) limits(service string) map[string]limit {
	var all struct {
		Buckets []struct {
			Key  map[string]string `json:"key"`
			Live *limit            `json:"live"`
		} `json:"buckets"`
	}
	p.get("/api/v1/services/"+service+"/buckets", &all)
	out := map[string]limit{}
	for _, b := range all.Buckets {
		if b.Live != nil {
			out[b.Key["caller"]] = *b.Live
		}
	}
	return out
}

// inForce is the snapshot that an enforcer has.
func (p *process) inForce() string {
	var c struct {
		Epoch   uint64 `json:"epoch"`
		Version uint64 `json:"version"`
	}
	if !p.get("/v1/config", &c) {
		return ""
	}
	return fmt.Sprintf("%d.%d", c.Epoch, c.Version)
}

// live is the snapshot that every enforcer acknowledged, and how many they are.
func (p *process) live() (snapshot string, enforcers int) {
	var s struct {
		Snapshot  *string           `json:"snapshot"`
		Enforcers []json.RawMessage `json:"enforcers"`
	}
	if p.get("/api/v1/snapshot", &s) && s.Snapshot != nil {
		snapshot = *s.Snapshot
	}
	return snapshot, len(s.Enforcers)
}

// eventually waits for a condition that another process brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never came: %s", what)
		case <-tick.C:
		}
	}
}
