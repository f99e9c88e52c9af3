package gitsync_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forgetest"
)

const token = "canary-7f3a91-token"

// webServer is git's own server behind net/http with TLS and a token.
type webServer struct {
	*httptest.Server
	path    string                                                              // of the bare repository
	token   string                                                              // that it wants
	asks    atomic.Int64                                                        // requests
	between func(r *http.Request, next http.HandlerFunc, w http.ResponseWriter) // nil, or in place of next
	mu      sync.Mutex                                                          // guards between
}

func newWebServer(t testing.TB, path string) *webServer {
	t.Helper()
	git := forgetest.Git(t, filepath.Dir(path))
	s := &webServer{path: path, token: token}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asks.Add(1)
		s.mu.Lock()
		between, want := s.between, s.token
		s.mu.Unlock()
		serve := func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); user != "robot" || password != want {
				http.Error(w, "who are you, "+r.Header.Get("Authorization")+" "+password, http.StatusUnauthorized)
				return
			}
			git.ServeHTTP(w, r)
		}
		if between != nil {
			between(r, serve, w)
			return
		}
		serve(w, r)
	}))
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	return s
}

// answer puts f before git's server, nil takes it away.
func (s *webServer) answer(f func(r *http.Request, next http.HandlerFunc, w http.ResponseWriter)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.between = f
}

func (s *webServer) config(t testing.TB) gitsync.Config {
	t.Helper()
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600), os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600)); err != nil {
		t.Fatal(err)
	}
	return gitsync.Config{
		URL: s.URL + "/" + filepath.Base(s.path), Dir: filepath.Join(dir, "mirror"),
		User: "robot", TokenFile: filepath.Join(dir, "token"), CAFile: filepath.Join(dir, "ca.pem"),
	}
}

// sshServer is a real sshd on a free port, one process per connection.
type sshServer struct {
	addr, dir, path string
	conns           atomic.Int64
}

func newSSHServer(t testing.TB, path string) *sshServer {
	t.Helper()
	if os.Geteuid() == 0 { // where sshd locks its unprivileged half in
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &sshServer{dir: t.TempDir(), path: path}
	for _, key := range []struct{ name, passphrase string }{{"host", ""}, {"user", ""}, {"locked", "open sesame"}, {"stranger", ""}} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", key.passphrase, "-C", key.name, "-f", filepath.Join(s.dir, key.name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v %s", err, out)
		}
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("authorized", `restrict,command="git-shell -c \"$SSH_ORIGINAL_COMMAND\"" `+read("user.pub")+`restrict,command="git-shell -c \"$SSH_ORIGINAL_COMMAND\"" `+read("locked.pub"))
	write("sshd_config", fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %s/authorized\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nPermitRootLogin yes\nLogLevel ERROR\nPidFile none\nSetEnv SHLVL=3\n", s.dir, s.dir)) // SHLVL: keeps bash from reading the user's .bashrc
	write("passphrase", "open sesame\n")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(s.addr)
	write("known_hosts", fmt.Sprintf("[127.0.0.1]:%s %s", port, read("host.pub")))
	write("wrong_hosts", fmt.Sprintf("[127.0.0.1]:%s %s", port, read("stranger.pub")))
	write("no_hosts", "example.org "+read("host.pub"))
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			f, err := c.(*net.TCPConn).File()
			if err != nil {
				t.Error(err)
				return
			}
			cmd := exec.Command("/usr/sbin/sshd", "-i", "-e", "-f", filepath.Join(s.dir, "sshd_config"))
			cmd.Stdin, cmd.Stdout = f, f
			cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1")
			if err := cmd.Start(); err != nil {
				t.Error(err)
			} else {
				running.Add(1)
				go func() { defer running.Done(); _ = cmd.Wait() }()
			}
			_ = f.Close()
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); running.Wait() })
	return s
}

func (s *sshServer) config(t testing.TB) gitsync.Config {
	t.Helper()
	return gitsync.Config{
		URL: "ssh://root@" + s.addr + s.path, Dir: filepath.Join(t.TempDir(), "mirror"),
		KeyFile: filepath.Join(s.dir, "user"), KnownHostsFile: filepath.Join(s.dir, "known_hosts"),
	}
}
