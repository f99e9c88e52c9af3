package enforcer_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openrlc/rlc/enforcer"
)

func TestTheServerCutsSlowAndLargeRequestsAndDrains(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	started, release := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(started)
			<-release
		}
		_, _ = io.WriteString(w, "done")
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- enforcer.Serve(ctx, l, h, time.Minute) }()
	base := "http://" + l.Addr().String()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

	req, _ := http.NewRequest("GET", base, nil)
	req.Header.Set("X-Big", strings.Repeat("x", 64<<10))
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("64 KiB of headers: %d", res.StatusCode)
	}

	answer := make(chan string, 1)
	go func() {
		res, err := client.Get(base + "/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		line, _ := bufio.NewReader(res.Body).ReadString('\n')
		answer <- line
	}()
	<-started
	cancel()
	close(release)
	if got := <-answer; got != "done" {
		t.Errorf("the request under way: %q", got)
	}
	if err := <-served; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// serveFor serves h by s until the test ends, and returns the address.
func serveFor(t *testing.T, s enforcer.HTTPServer, most int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, enforcer.Bound(l, most, nil)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// send writes text and never ends it; it returns what comes back until the
// server ends the connection.
func send(t *testing.T, addr, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if errors.Is(err, syscall.ECONNRESET) && len(got) == 0 {
		return "reset" // it was told no more while it still sent
	}
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the server holds on to %.40q: %v", text, err)
	}
	return string(got)
}

func TestASlowClientHoldsNoConnection(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	addr := serveFor(t, enforcer.HTTPServer{Handler: e.Handler(), Header: 50 * time.Millisecond, Body: 200 * time.Millisecond, Idle: 50 * time.Millisecond}, 100)
	for what, x := range map[string]struct{ text, want string }{
		"half a header":        {"POST /v1/check HTTP/1.1\r\nHost: x\r\nX-A: ", ""},
		"nothing":              {"", ""},
		"half a body":          {"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", "408 Request Timeout"},
		"an idle connection":   {"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"},
		"thousands of headers": {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-A: b\r\n", 2_700), "431 Request Header"},
		"a body of a gigabyte": {"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n" + strings.Repeat("x", 65_537), "413 Request Entity Too Large"},
		"a body that is a zip": {"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", "415 Unsupported Media Type"},
		"thousands of fields":  {"GET /v1/check?service=s&" + strings.Repeat("a=b&", 5_400) + " HTTP/1.1\r\nHost: x\r\n\r\n", "431 Request Header"},
	} {
		got := send(t, addr, x.text)
		if got == "reset" && strings.HasPrefix(x.want, "4") {
			continue
		}
		if status, _, _ := strings.Cut(got, "\r\n"); !strings.Contains(status, x.want) || (x.want == "") != (got == "") {
			t.Errorf("%s: %.80q, want %q", what, got, x.want)
		}
	}
}

func TestConnectionsBeyondTheBoundWaitForTheirTurn(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	addr := serveFor(t, enforcer.HTTPServer{Handler: e.Handler()}, 2)
	var held []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	answered := make(chan string, 1)
	go func() {
		c, err := net.Dial("tcp", addr) // the kernel takes it
		if err != nil {
			answered <- err.Error()
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.0\r\n\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		answered <- strings.TrimSpace(line)
	}()
	// A place is free once one is closed, and not before: the third is answered.
	held[0].Close()
	if got := <-answered; got != "HTTP/1.0 200 OK" {
		t.Errorf("the third: %q", got)
	}
	held[1].Close()
}
