// Package pgtest runs a private PostgreSQL server for the tests of one process.
//
//	var postgres pgtest.Server
//
//	func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }
//
//	func TestX(t *testing.T) { db, err := store.Open(t.Context(), postgres.DSN(t)) … }
//
// The server is Debian's, the newest that is installed; it starts with the
// first test that asks for it, listens on a socket in a folder of its own, and
// ends with the process, also where that is killed. As root it runs as
// postgres or nobody: the server refuses to be root.
package pgtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// Server is a PostgreSQL server. The zero value is one that has not started.
// Methods may be called concurrently.
type Server struct {
	mu   sync.Mutex
	dir  string // holds the data folder and the socket; "" before the first start
	bin  string
	cred *syscall.Credential // nil: as whom the tests run
	run  *process            // nil while it is down
}

// process is one life of the server.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	log   bytes.Buffer // read after ended
}

// Main runs the tests, removes the server and returns the exit code.
func (s *Server) Main(m *testing.M) int {
	code := m.Run()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	if s.dir != "" {
		if err := os.RemoveAll(s.dir); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			return max(code, 1)
		}
	}
	return code
}

// DSN makes an empty schema and returns the address under which everything is
// in it. It goes with the server. Its order of text is en-US, which is not that
// of bytes.
func (s *Server) DSN(t testing.TB) string {
	t.Helper()
	s.Start(t)
	schema := "t" + strings.ToLower(rand.Text())
	s.exec(t, "CREATE SCHEMA "+schema)
	return s.address() + "&search_path=" + schema
}

// Start starts the server if it is down and waits until it answers.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		return
	}
	if err := s.start(t.Context()); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
}

// Kill ends the server as pg_ctl stop -m immediate does: no transaction ends,
// no buffer is written, and its next start recovers.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

func (s *Server) address() string {
	q := url.Values{"host": {s.dir}, "user": {"rlc"}}
	return "postgres:///postgres?" + q.Encode()
}

func (s *Server) exec(t testing.TB, statement string) {
	t.Helper()
	db, err := sql.Open("pgx", s.address())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("pgtest: %s: %v", statement, err)
	}
}

func (s *Server) start(ctx context.Context) error {
	if s.dir == "" {
		if err := s.initialise(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	p := &process{ended: make(chan struct{})}
	// Nobody here survives a power cut, so nothing is forced to the disk; a
	// commit still reaches the kernel before it is acknowledged.
	p.cmd = s.command("postgres", "-D", filepath.Join(s.dir, "data"), "-k", s.dir, "-c", "listen_addresses=",
		"-c", "fsync=off", "-c", "autovacuum=off", "-c", "shared_buffers=32MB", "-c", "max_connections=100")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT // stop immediately
	started := make(chan error)
	go func() {
		// The signal comes when the thread that started the server ends.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start: %w", err)
	}
	s.run = p
	db, err := sql.Open("pgx", s.address())
	if err != nil {
		return err
	}
	defer db.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			s.run = nil
			return fmt.Errorf("the server ended: %s", p.log.String())
		case <-ctx.Done():
			s.stop()
			return fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

// stop ends the server immediately and waits for it.
func (s *Server) stop() {
	if s.run == nil {
		return
	}
	_ = s.run.cmd.Process.Signal(syscall.SIGQUIT)
	<-s.run.ended
	s.run = nil
}

// initialise makes the cluster.
func (s *Server) initialise() error {
	bin, err := programs()
	if err != nil {
		return err
	}
	s.bin = bin
	dir, err := os.MkdirTemp("", "rlc-pg") // short: a socket's path ends at 107 bytes
	if err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if s.cred, err = servant(); err == nil {
			err = os.Chown(dir, int(s.cred.Uid), int(s.cred.Gid))
		}
	}
	if err == nil {
		s.dir = dir
		var out []byte
		out, err = s.command("initdb", "-D", filepath.Join(dir, "data"), "-U", "rlc", "--auth=trust", "--no-sync",
			"--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("initdb: %w: %s", err, out)
		}
	}
	if err != nil {
		s.dir = ""
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

// programs is the folder of the newest server that is installed.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", err
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	if len(found) > 0 {
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", errors.New("no PostgreSQL server is installed: apt-get install postgresql")
	}
	return filepath.Dir(path), nil
}

// servant is whom the server runs as where the tests run as root.
func servant() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
	}
	return nil, errors.New("as root: no user postgres or nobody to run the server as")
}
