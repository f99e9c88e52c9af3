// Package redistest starts real Redis servers for tests.
package redistest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/porttest"
)

// Server is a Redis of its own, on loopback, which keeps nothing over a stop.
type Server struct {
	t    testing.TB
	dir  string
	port string
	Args []string // as given to Start; they may be changed between Stop and Start
	cmd  *exec.Cmd

	roots *x509.CertPool // of a server with TLS; nil: in clear
}

// Start runs a server until the test ends. The arguments go to redis-server,
// with the port for "{port}". A machine without one fails the test and names the package.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, args)
	s.run()
	return s
}

func newServer(t testing.TB, args []string) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), Args: args}
	s.port = freePort(t)
	return s
}

// freePort is a port of loopback for a server.
func freePort(t testing.TB) string {
	_, port, _ := net.SplitHostPort(porttest.Free(t))
	return port
}

// run starts the server until the test ends.
func (s *Server) run() {
	s.t.Helper()
	s.Start()
	s.t.Cleanup(s.Stop)
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// URL is the server's, as RLC is given it.
func (s *Server) URL() string {
	if s.roots != nil {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Start runs the server again after Stop, empty and at the same address.
func (s *Server) Start() {
	s.t.Helper()
	args := append([]string{"--bind", "127.0.0.1", "--port", s.port, "--save", "", "--appendonly", "no", "--dir", s.dir}, s.Args...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{port}", s.port)
	}
	s.cmd = exec.Command("redis-server", args...)
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start redis-server (Debian's package redis-server): %v", err)
	}
	deadline := time.After(20 * time.Second)
	for {
		// A connection is enough.
		c, err := net.Dial("tcp", s.Addr())
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-deadline:
			said, _ := os.ReadFile(log.Name())
			s.t.Fatalf("redis-server at %s: %v\n%s", s.Addr(), err, said)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the server at once and forgets its data. It may be called twice.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Freeze makes the server accept connections and never answer; Thaw ends that.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw is the end of Freeze.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Do runs one command, past the client under test, and returns the answer's
// raw lines: of an array, each element in order.
func (s *Server) Do(args ...string) []string {
	s.t.Helper()
	c, err := s.dial()
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := c.Write([]byte(b.String())); err != nil {
		s.t.Fatal(err)
	}
	out, err := answer(bufio.NewReader(c))
	if err != nil {
		s.t.Fatalf("%s: %v", args[0], err)
	}
	return out
}

// dial connects as clients of the server do.
func (s *Server) dial() (net.Conn, error) {
	if s.roots != nil {
		return tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12})
	}
	return net.Dial("tcp", s.Addr())
}

// answer reads one RESP2 value, flat.
func answer(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	switch line[0] {
	case '+', ':':
		return []string{line[1:]}, nil
	case '-':
		return nil, fmt.Errorf("answered %s", line[1:])
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil {
		return nil, err
	}
	if line[0] == '$' {
		if n < 0 {
			return []string{""}, nil
		}
		text := make([]byte, n+2)
		for got := 0; got < len(text); {
			m, err := r.Read(text[got:])
			if err != nil {
				return nil, err
			}
			got += m
		}
		return []string{string(text[:n])}, nil
	}
	var out []string
	for range n {
		part, err := answer(r)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}
