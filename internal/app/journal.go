package app

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openrlc/rlc"
)

// act is one act of an emergency: an override as it then is, or a switch.
type act struct {
	Override *rlc.Override   `json:"override,omitempty"`
	Switch   *rlc.KillSwitch `json:"switch,omitempty"`
	Audit    rlc.AuditEntry  `json:"audit"`
}

// journal keeps acts that the records could not take: one JSON document a line,
// in a file that is synced at each. Whoever holds the emergency's lock may use
// it.
type journal struct {
	path string
	acts []act // not recorded yet, the oldest first
}

// open reads what an earlier process left. A last line that was cut short was
// never acknowledged and is left out.
func (j *journal) open() error {
	f, err := os.Open(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("emergency journal: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var x act
		if json.Unmarshal(lines.Bytes(), &x) != nil || (x.Override == nil) == (x.Switch == nil) {
			continue
		}
		j.acts = append(j.acts, x)
	}
	return lines.Err()
}

// add keeps an act; it is on the disk when add returns nil.
func (j *journal) add(x act) error {
	line, err := json.Marshal(x)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("emergency journal: %w", err)
	}
	// A line that a crash cut short ends before this one begins.
	_, err = f.Write(append(append([]byte{'\n'}, line...), '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("emergency journal: %w", err)
	}
	j.acts = append(j.acts, x)
	return nil
}

// done forgets the oldest act; the file goes with the last.
func (j *journal) done() error {
	j.acts = j.acts[1:]
	if len(j.acts) > 0 {
		return nil // after a crash it is recorded again, which changes nothing
	}
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("emergency journal: %w", err)
	}
	return nil
}

func (a *App) emergencyFile(name string) string { return filepath.Join(a.Config.Data, name) }
