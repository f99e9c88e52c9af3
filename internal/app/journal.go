package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

// act is one act of an emergency: an override as it then is, or a switch.
type act struct {
	Override *rlc.Override   `json:"override,omitempty"`
	Switch   *rlc.KillSwitch `json:"switch,omitempty"`
	Audit    rlc.AuditEntry  `json:"audit"`
}

// check refuses what the records would refuse, before the act is acknowledged:
// they may be asked much later.
func (x act) check() error {
	if x.Override != nil {
		if err := store.CheckOverride(*x.Override); err != nil {
			return err
		}
	}
	return store.CheckAudit(x.Audit)
}

// cleaned is the act with texts that the records take, for one that an earlier
// release acknowledged without check.
func (x act) cleaned() act {
	clean := func(text string) string { return strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\x00", "�") }
	x.Audit.Actor, x.Audit.Object, x.Audit.Detail = clean(x.Audit.Actor), clean(x.Audit.Object), clean(x.Audit.Detail)
	if x.Override != nil {
		o := *x.Override
		o.Service, o.EndedBy = clean(o.Service), clean(o.EndedBy)
		x.Override = &o
	}
	return x
}

// journal keeps acts that the records could not take: one JSON document a line,
// in a file that is synced at each. What the disk does not take is kept in
// memory until it does. Whoever holds the emergency's lock may use it.
type journal struct {
	path      string
	acts      []act // not recorded yet, the oldest first
	unwritten int   // how many of acts, the newest, are not in the file
	failed    error // why they are not
}

// open reads what an earlier process left. A line that was cut short was never
// acknowledged and is left out. A file that cannot be read is moved aside and
// told of: nothing in an emergency waits for it.
func (j *journal) open() error {
	text, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		aside := fmt.Sprintf("%s.unread-%d", j.path, time.Now().UnixMilli())
		return fmt.Errorf("emergency journal: %w", errors.Join(err, os.Rename(j.path, aside)))
	}
	for line := range bytes.Lines(text) {
		var x act
		if json.Unmarshal(line, &x) != nil || (x.Override == nil) == (x.Switch == nil) {
			continue
		}
		j.acts = append(j.acts, x)
	}
	return nil
}

// add keeps an act. It is on the disk afterwards unless unwritten says
// otherwise.
func (j *journal) add(x act) {
	j.acts = append(j.acts, x)
	j.unwritten++
	j.write()
}

// write appends to the file what it does not hold yet.
func (j *journal) write() {
	if j.unwritten == 0 {
		return
	}
	var lines []byte
	for _, x := range j.acts[len(j.acts)-j.unwritten:] {
		line, err := json.Marshal(x)
		if err != nil {
			j.failed = err
			return
		}
		// A line that a crash or a full disk cut short ends before this one begins.
		lines = append(append(append(lines, '\n'), line...), '\n')
	}
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.Write(lines)
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if j.failed = err; err == nil {
		j.unwritten = 0
	}
}

// done forgets the act at i; the file goes with the last.
func (j *journal) done(i int) error {
	if i >= len(j.acts)-j.unwritten {
		j.unwritten--
	}
	if j.acts = slices.Delete(j.acts, i, i+1); len(j.acts) > 0 {
		return nil // after a crash it is recorded again, which changes nothing
	}
	j.failed = nil
	if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("emergency journal: %w", err)
	}
	return nil
}

func (a *App) emergencyFile(name string) string { return filepath.Join(a.Config.Data, name) }
