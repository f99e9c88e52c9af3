// Package porttest gives tests ports for the programs they start.
package porttest

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// The ports lie below those that Linux gives to connections and to listeners
// that name none (32768 and up): nothing takes one by chance between its
// choice and the start of the program that was told to listen there.
const (
	lowest  = 12000
	highest = 32000
)

// Free is a loopback address, host:port, that nobody listens on. It is this
// test's alone until the test ends, also beside other test processes of the
// same user.
func Free(t testing.TB) (addr string) {
	t.Helper()
	for range 1000 {
		if addr, ok := take(t, strconv.Itoa(lowest+rand.IntN(highest-lowest))); ok {
			return addr
		}
	}
	t.Fatal("no port is free on the loopback address")
	return ""
}

// take makes a port this test's, or tells that it is somebody's. The lock is
// the process's: it ends with it, however that ends.
func take(t testing.TB, port string) (addr string, ok bool) {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "rlc-test-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, port), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			t.Fatal(err)
		}
		return "", false
	}
	addr = net.JoinHostPort("127.0.0.1", port)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		f.Close()
		return "", false
	}
	l.Close()
	t.Cleanup(func() { f.Close() })
	return addr, true
}
