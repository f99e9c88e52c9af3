package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/openrlc/rlc"
)

// Running is the address of the server that runs on a data folder of this
// machine. The error wraps rlc.ErrNotFound where none does, also where one that
// was killed has left its address behind: another server may answer there now.
func Running(data string) (url string, err error) {
	f, err := os.Open(filepath.Join(data, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: no server runs on %s", rlc.ErrNotFound, data)
	}
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	defer f.Close()
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil: // nobody holds it
		return "", fmt.Errorf("%w: no server runs on %s", rlc.ErrNotFound, data)
	case !errors.Is(err, syscall.EWOULDBLOCK):
		return "", fmt.Errorf("data folder: lock: %w", err)
	}
	b, err := os.ReadFile(filepath.Join(data, "url"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the server on %s is starting, or listens no more: it has no address yet", data)
	}
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
