package app

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lock makes this process the only one on the data folder, until it ends or
// closes the file. The error says who is there.
func lock(data string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(data, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("data folder: lock: %w", err)
	}
	where := ""
	if url, err := os.ReadFile(filepath.Join(data, "url")); err == nil {
		where = " at " + strings.TrimSpace(string(url))
	}
	return nil, fmt.Errorf("another rlc runs on %s%s; stop it, or give another folder with --data", data, where)
}

// address is a listener's URL as a browser on this machine can use it.
func address(l net.Listener) string {
	at := l.Addr().String()
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		at = fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return "http://" + at
}
