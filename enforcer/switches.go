package enforcer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Switch is a kill switch. It works with everything else away: by a file, which
// is looked at every second, or by a method, which a signal calls. All to shadow
// may come with the overrides, too, for a whole fleet.
type Switch string

// The switches.
const (
	// AllToShadow drops nothing any more: every verdict is virtual, and no
	// override is applied.
	AllToShadow Switch = "all-to-shadow"
	// StopDistribution refuses every newer snapshot. Overrides still come in:
	// they are what people act with in an incident.
	StopDistribution Switch = "stop-distribution"
)

// Switches lists them.
func Switches() []Switch { return []Switch{AllToShadow, StopDistribution} }

// killFileMax bounds what is read of the kill file, in bytes.
const killFileMax = 4096

// thrown is who has thrown a switch.
type thrown struct {
	byHand, byFile, byDocument bool
}

func (t thrown) on() bool { return t.byHand || t.byFile || t.byDocument }

// Switch throws a switch, or lets go of it. A switch that the kill file holds
// stays on until the file lets go of it, too. What is thrown so does not
// outlive the process; the file does.
func (e *Enforcer) Switch(s Switch, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.switches[s]
	t.byHand = on
	e.throw(s, t, "by hand")
}

// Switched reports whether a switch is on.
func (e *Enforcer) Switched(s Switch) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.switches[s].on()
}

// throw sets a switch. The caller holds the lock.
func (e *Enforcer) throw(s Switch, t thrown, by string) {
	before := e.switches[s]
	if t == before {
		return
	}
	e.switches[s] = t
	if t.on() == before.on() {
		return
	}
	e.log.Warn("kill switch", "switch", string(s), "on", t.on(), "by", by)
	if s == AllToShadow {
		e.renew(e.now())
	}
}

// lookAtKillFile throws the switches that the kill file names, and lets go of
// those that it does not. Without a file, nothing is thrown by it.
func (e *Enforcer) lookAtKillFile() {
	path := e.config.KillFile
	if path == "" && e.config.StateDir != "" {
		path = filepath.Join(e.config.StateDir, killName)
	}
	if path == "" {
		return
	}
	data, err := readKillFile(path)
	var named []Switch
	switch {
	case err == nil:
		named = killed(data)
	case !errors.Is(err, fs.ErrNotExist):
		// Somebody wanted a switch thrown, or the disk fails: nobody knows which,
		// so none is thrown and none let go of, but it is said.
		e.killFileFailed(err)
		return
	}
	e.killFileFailed(nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range Switches() {
		t := e.switches[s]
		t.byFile = slices.Contains(named, s)
		e.throw(s, t, fmt.Sprintf("the file %s", path))
	}
}

// killFileFailed says once, and at Ready as long as it lasts, that the kill file
// is there and cannot be read; nil that it can, or is not there.
func (e *Enforcer) killFileFailed(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	e.mu.Lock()
	before := e.killUnreadable
	e.killUnreadable = text
	e.mu.Unlock()
	if text != "" && text != before {
		e.log.Error("the kill file cannot be read: it throws no switch and lets go of none", "error", err)
	}
}

func readKillFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, killFileMax))
}

// killed lists the switches that a kill file names, one a line; lines that
// begin with # are left out. A file that names none, an empty one say, is
// somebody in a hurry: all to shadow.
func killed(data []byte) []Switch {
	var named []Switch
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		word := Switch(strings.ToLower(strings.TrimSpace(lines.Text())))
		if slices.Contains(Switches(), word) && !slices.Contains(named, word) {
			named = append(named, word)
		}
	}
	if named == nil {
		named = []Switch{AllToShadow}
	}
	return named
}
