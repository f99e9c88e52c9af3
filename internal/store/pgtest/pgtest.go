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

	"github.com/openrlc/rlc/internal/disktest"
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

// New is a server of t's own, removed with it: for tests that change what
// others would see.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{}
	t.Cleanup(func() {
		if err := s.remove(); err != nil {
			t.Error("pgtest:", err)
		}
	})
	s.Start(t)
	return s
}

// Main runs the tests, removes the server and returns the exit code.
func (s *Server) Main(m *testing.M) int {
	code := m.Run()
	if err := s.remove(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return max(code, 1)
	}
	return code
}

// remove ends the server and deletes what is its.
func (s *Server) remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
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

// Copy makes a database that begins with what model, the address of another one
// or "" for nothing, holds, and returns its address. Nobody may be connected to
// the model. It goes with the server.
func (s *Server) Copy(t testing.TB, model string) string {
	t.Helper()
	s.Start(t)
	of := "template1"
	if u, err := url.Parse(model); err == nil && model != "" {
		of = strings.TrimPrefix(u.Path, "/")
	}
	name := "t" + strings.ToLower(rand.Text())
	s.exec(t, "CREATE DATABASE "+name+" TEMPLATE "+of)
	return strings.Replace(s.address(), "/postgres?", "/"+name+"?", 1)
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

// Standby starts a second server, removed with t, that follows s: it answers
// reads and holds what s has committed a moment later.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	b := &Server{}
	t.Cleanup(func() {
		if err := b.remove(); err != nil {
			t.Error("pgtest:", err)
		}
	})
	if err := b.prepare(); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	out, err := b.command("pg_basebackup", "-h", s.dir, "-U", "rlc", "-D", filepath.Join(b.dir, "data"), "-R", "-c", "fast", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("pgtest: pg_basebackup: %v: %s", err, out)
	}
	b.Start(t)
	return b
}

// Promote makes a standby a primary once it has caught up with the old one,
// which goes on, as one that was cut off does.
func (s *Server) Promote(t testing.TB, old *Server) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	db, err := sql.Open("pgx", s.address())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer db.Close()
	primary, err := sql.Open("pgx", old.address())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer primary.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var at string
	if err := primary.QueryRowContext(ctx, `SELECT pg_current_wal_lsn()::text`).Scan(&at); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for caught := false; !caught; {
		if err := db.QueryRowContext(ctx, `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, at).Scan(&caught); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
		<-tick.C
	}
	if _, err := db.ExecContext(ctx, `SELECT pg_promote()`); err != nil {
		t.Fatalf("pgtest: promote: %v", err)
	}
}

// ReadOnly makes every transaction of the server read-only, those of sessions
// that are open too, or lets them write again.
func (s *Server) ReadOnly(t testing.TB, on bool) {
	t.Helper()
	s.exec(t, fmt.Sprintf("ALTER SYSTEM SET default_transaction_read_only = %t", on))
	s.exec(t, "SELECT pg_reload_conf()")
}

// SmallDisk is dsn with everything that it makes from then on, beside the log of
// writes, on a disk of so many bytes.
func (s *Server) SmallDisk(t testing.TB, dsn string, bytes int) (small, disk string) {
	t.Helper()
	disk = filepath.Join(s.dir, "small")
	tables := filepath.Join(disk, "tables")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	disktest.Mount(t, disk, bytes)
	if err := os.Mkdir(tables, 0o700); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	if s.cred != nil {
		if err := os.Chown(tables, int(s.cred.Uid), int(s.cred.Gid)); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	s.exec(t, "CREATE TABLESPACE small LOCATION '"+tables+"'")
	return dsn + "&default_tablespace=small", disk
}

// Or is dsn with s as the host to try after it.
func (s *Server) Or(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn
	}
	q := u.Query()
	q.Set("host", q.Get("host")+","+s.dir)
	u.RawQuery = q.Encode()
	return u.String()
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
	if err := s.prepare(); err != nil {
		return err
	}
	out, err := s.command("initdb", "-D", filepath.Join(s.dir, "data"), "-U", "rlc", "--auth=trust", "--no-sync",
		"--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US").CombinedOutput()
	if err != nil {
		dir := s.dir
		s.dir = ""
		return errors.Join(fmt.Errorf("initdb: %w: %s", err, out), os.RemoveAll(dir))
	}
	return nil
}

// prepare makes the folder in which the server will live.
func (s *Server) prepare() error {
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
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	s.dir = dir
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
