package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// asProgram makes the test binary behave as rlc.
const asProgram = "RLC_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run())
	}
	testscript.Main(m, map[string]func(){"rlc": func() { os.Exit(run()) }})
}

func TestCommands(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", ContinueOnError: true})
}

// program is rlc with args, not yet started.
func program(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	return cmd
}

// server is a running demo.
type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	data   string
	stderr *bytes.Buffer
	ended  chan error
}

// startDemo starts a demo on data and waits until it is ready, or has ended.
func startDemo(t *testing.T, data string, env ...string) *server {
	t.Helper()
	cmd := program(context.Background(), env, "demo", "--listen", "127.0.0.1:0", "--data", data)
	d := &server{t: t, cmd: cmd, data: data, stderr: &bytes.Buffer{}, ended: make(chan error, 1)}
	cmd.Stderr = d.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if url, ok := strings.CutPrefix(lines.Text(), "ready: "); ok {
				ready <- url
			}
		}
		close(ready)
		d.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-d.ended
	})
	select {
	case d.url = <-ready:
	case <-time.After(3 * time.Minute):
		t.Fatalf("the demo is not ready:\n%s", d.stderr)
	}
	return d
}

// stop ends the demo as Ctrl-C does.
func (d *server) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		d.t.Fatal(err)
	}
	select {
	case err := <-d.ended:
		d.ended <- err
		if err != nil {
			d.t.Fatalf("the demo ended badly: %v\n%s", err, d.stderr)
		}
	case <-time.After(30 * time.Second):
		d.t.Fatalf("the demo does not end:\n%s", d.stderr)
	}
}

// get decodes an answer of the API.
func (d *server) get(path string, out any) {
	d.t.Helper()
	res, err := http.Get(d.url + path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		d.t.Fatalf("GET %s: %s %v\n%s", path, res.Status, err, b)
	}
	if err := json.Unmarshal(b, out); err != nil {
		d.t.Fatalf("GET %s: %v\n%s", path, err, b)
	}
}

// rlc runs a command against the demo and returns its output and exit code.
func (d *server) rlc(args ...string) (string, int) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := program(ctx, nil, withData(d.data, args)...)
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		d.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
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

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(90 * time.Second)
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

// withData names the server's folder to a command that asks a server.
func withData(data string, args []string) []string {
	if args[0] == "doctor" {
		return args
	}
	return append(args, "--data", data)
}
