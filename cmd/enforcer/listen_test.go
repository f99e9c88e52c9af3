package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

// rateLimit asks over gRPC for caller search.
func (p *process) rateLimit(ctx context.Context, creds credentials.TransportCredentials) (string, error) {
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(creds))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	out, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "caller", Value: "search"}}},
	}})
	return out.GetOverallCode().String(), err
}

// folderOf is a checkout with one service s.
func folderOf(t *testing.T, burst int) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "services/s/policy.yaml", policy("s", burst))
	return dir
}

func TestBothProtocolsChargeTheSameBuckets(t *testing.T) {
	t.Parallel()
	p := launch(t, "--config-dir", folderOf(t, 3))
	p.snapshot("0.1")
	got := p.outcomes(1)
	for range 3 {
		code, err := p.rateLimit(t.Context(), insecure.NewCredentials())
		got += fmt.Sprint(" ", code)
		if err != nil {
			t.Fatal(err)
		}
	}
	if got != "admit OK OK OVER_LIMIT" {
		t.Errorf("burst 3: %s", got)
	}
}

func TestTheTokenIsAskedForOverGRPCToo(t *testing.T) {
	t.Parallel()
	p := launchEnv(t, []string{"RLC_TOKEN=s3cret"}, "--config-dir", folderOf(t, 3))
	if _, err := p.rateLimit(t.Context(), insecure.NewCredentials()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without: %v", err)
	}
	if _, err := p.rateLimit(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer s3cret"), insecure.NewCredentials()); err != nil {
		t.Errorf("with: %v", err)
	}
}

func TestOnlyListedClientsReachEitherListener(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, other := mtlstest.New(t), mtlstest.New(t)
	cert, key := ca.Issue(t, "enforcer", time.Now().Add(time.Hour))
	args := []string{"--config-dir", folderOf(t, 100), "--http", "0.0.0.0:0", "--grpc", "0.0.0.0:0", "--access-log", "-", "--access-log-share", "1"}
	for flag, data := range map[string][]byte{"tls-cert": cert, "tls-key": key, "client-ca": ca.PEM, "clients": []byte("gateway\n")} {
		args = append(args, "--"+flag, mtlstest.Write(t, dir, flag, data))
	}
	p := launch(t, args...)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(p.url, "https://"))
	_, grpcPort, _ := net.SplitHostPort(p.grpc)
	p.grpc = "127.0.0.1:" + grpcPort
	strange := other.Client(t, "gateway")
	strange.RootCAs = ca.Pool()
	for what, c := range map[string]struct {
		tls *tls.Config
		ok  bool
	}{
		"the gateway": {ca.Client(t, "gateway"), true}, "another name": {ca.Client(t, "laptop"), false},
		"no certificate": {ca.Client(t, ""), false}, "another authority": {strange, false},
	} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.tls.Clone(), DisableKeepAlives: true}}
		res, err := client.Get("https://127.0.0.1:" + port + "/v1/check?service=s&caller=a")
		if err == nil {
			res.Body.Close()
		}
		if (err == nil) != c.ok {
			t.Errorf("%s over HTTP: %v", what, err)
		}
		if _, err := p.rateLimit(t.Context(), credentials.NewTLS(c.tls)); (err == nil) != c.ok {
			t.Errorf("%s over gRPC: %v", what, err)
		}
	}
	p.stop()
	if n := strings.Count(p.logged(), `"peer":"gateway"`); n != 2 {
		t.Errorf("%d lines name the gateway:\n%s", n, p.logged())
	}
}

func TestSignalsThrowTheKillSwitches(t *testing.T) {
	t.Parallel()
	p := launch(t, "--config-dir", folderOf(t, 1))
	p.snapshot("0.1")
	if got := p.outcomes(2); got != "admit drop" {
		t.Fatalf("burst 1: %s", got)
	}
	for _, want := range []string{"virtual_drop", "drop"} {
		if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		p.until("/v1/check?service=s&caller=search", func(_ int, body string) bool { return strings.Contains(body, `"outcome":"`+want+`"`) })
	}
	if err := p.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	p.until("/metrics", func(_ int, body string) bool { return strings.Contains(body, `{switch="stop-distribution"} 1`) })
}

func TestTheAccessLogShowsRefusalsAndWhatMatchesNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	p := launch(t, "--config-dir", folderOf(t, 1), "--access-log", file)
	p.snapshot("0.1")
	p.outcomes(2)
	p.get("/v1/check?service=s&procedure=Get")
	p.get("/v1/explain?service=s&caller=search")
	p.stop()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(data)) {
		var v struct{ Bucket, Outcome string }
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got = append(got, v.Bucket+" "+v.Outcome)
	}
	if fmt.Sprint(got) != "[callers drop __unmatched__ admit]" {
		t.Errorf("lines: %v", got)
	}
}

func TestSIGTERMUnderLoadBreaksNoRequest(t *testing.T) {
	t.Parallel()
	p := launch(t, "--config-dir", folderOf(t, 1))
	p.snapshot("0.1")
	// Connections that stand: a new one may wait in the kernel's queue, which
	// nobody can drain, when the listener is closed.
	keeping := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer keeping.CloseIdleConnections()
	var answered, broken atomic.Int64
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() {
			for {
				res, err := keeping.Get(p.url + "/v1/check?service=s&caller=search")
				switch {
				case err == nil:
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					if err != nil {
						broken.Add(1)
					}
					answered.Add(1)
				case errors.Is(err, syscall.ECONNREFUSED):
					return // it no longer listens
				default:
					t.Log(err)
					broken.Add(1)
					return
				}
			}
		})
	}
	deadline := time.After(20 * time.Second)
	for answered.Load() < 200 {
		select {
		case <-deadline:
			t.Fatal("no load")
		case <-time.After(time.Millisecond):
		}
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.logged())
	}
	load.Wait()
	if broken.Load() > 0 {
		t.Errorf("%d requests broken of %d", broken.Load(), answered.Load())
	}
}

func TestASecondSIGTERMEndsItAtOnce(t *testing.T) {
	t.Parallel()
	p := launch(t, "--config-dir", folderOf(t, 1))
	// A body that does not end holds the server for as long as it may.
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /v1/check HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil { // 100 Continue: it is being served
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(20 * time.Second)
	for {
		again, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			break // the first signal has arrived
		}
		again.Close()
		select {
		case <-deadline:
			t.Fatal("still accepts")
		case <-time.After(time.Millisecond):
		}
	}
	select {
	case <-p.done:
		t.Fatal("it did not wait for the request under way")
	default:
	}
	for ended := false; !ended; { // one that comes with the first is part of it
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
			ended = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	if s := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v", p.cmd.ProcessState)
	}
}

func TestFewFileDescriptorsAreSaidAndServedWith(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p := launchBy(t, func(c *exec.Cmd) {
		c.Args = append([]string{"sh", "-c", `ulimit -n 256; exec "$0" "$@"`, c.Path}, c.Args[1:]...)
		c.Path = sh
	}, nil, "--config-dir", folderOf(t, 1000))
	p.snapshot("0.1")
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range 200 {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for _, c := range conns[:50] {
		if _, err := io.WriteString(c, "GET /v1/check?service=s&caller=search HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("answered %q, %v\n%s", line, err, p.logged())
		}
	}
	if code, err := p.rateLimit(t.Context(), insecure.NewCredentials()); err != nil || code != "OK" {
		t.Errorf("over gRPC: %s %v", code, err)
	}
	p.stop()
	for _, want := range []string{"few file descriptors: raise the limit", "limit=256", "connections wait: all that are allowed are open"} {
		if !strings.Contains(p.logged(), want) {
			t.Errorf("the log lacks %q:\n%s", want, p.logged())
		}
	}
}
