package enforcer

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/openrlc/rlc"
)

// The files of the state folder. A document is a line "<magic> <sha256 of the
// rest>", then JSON; it is written beside its place, synced, and renamed.
const (
	lastGoodName   = "last-good.snapshot"
	lastGoodMagic  = "rlc-snapshot 1 "
	overridesName  = "last-good.overrides"
	overridesMagic = "rlc-overrides 1 "
	usualName      = "identity.usual"
	usualMagic     = "rlc-identity 1 "
	hashKeyName    = "hash.key"
	killName       = "kill"
	lockName       = "lock"

	stateFileMax = 1 << 30
)

// lastGood is what the file of the last good snapshot holds.
type lastGood struct {
	Saved    time.Time    `json:"saved"`
	Snapshot rlc.Snapshot `json:"snapshot"`
}

// lockState makes this enforcer the only one on its state folder until it
// closes the file: two would overwrite each other's last good snapshot, and
// count each other's keys.
func lockState(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("another enforcer runs on the state folder %s; stop it, or give this one a folder of its own", dir)
	}
	return nil, fmt.Errorf("state folder: lock: %w", err)
}

// saveState puts v into dir so that it survives a crash at any instant: either
// the file before or this one is there, whole.
func saveState(dir, name, magic string, v any) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()

	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	f, err := root.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%s\n%s", magic, hex.EncodeToString(sum[:]), body)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := root.Rename(name+".new", name); err != nil {
		return err
	}
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// loadState reads back what saveState wrote. It fails with rlc.ErrNotFound
// where there is none, and with rlc.ErrInvalid where it is damaged.
func loadState(dir, name, magic string, v any) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state folder: %w", rlc.ErrNotFound)
	} else if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, rlc.ErrNotFound)
	} else if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, stateFileMax+1))
	if err != nil {
		return err
	}
	if len(data) > stateFileMax {
		return fmt.Errorf("%w: %s is larger than %d bytes", rlc.ErrInvalid, name, stateFileMax)
	}
	head, body, ok := bytes.Cut(data, []byte("\n"))
	sum, found := bytes.CutPrefix(head, []byte(magic))
	if !ok || !found {
		return fmt.Errorf("%w: %s has no header of this version", rlc.ErrInvalid, name)
	}
	if want := sha256.Sum256(body); string(sum) != hex.EncodeToString(want[:]) {
		return fmt.Errorf("%w: %s does not match its checksum", rlc.ErrInvalid, name)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %s: %w", rlc.ErrInvalid, name, err)
	}
	return nil
}

// stateKey is the key that sensitive values are hashed with, kept in dir and
// made there if need be. Without a folder it is made anew at each start.
func stateKey(dir string) ([]byte, error) {
	key := make([]byte, 32)
	if dir == "" {
		_, err := rand.Read(key)
		return key, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if kept, err := root.ReadFile(hashKeyName); err == nil && len(kept) == len(key) {
		return kept, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	return key, root.WriteFile(hashKeyName, key, 0o600)
}
