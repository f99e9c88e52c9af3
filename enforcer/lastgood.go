package enforcer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/openrlc/rlc"
)

// The last-good file: a line "rlc-snapshot 1 <sha256 of the rest>", then the
// snapshot as JSON. It is written beside its place, synced, and renamed.
const (
	lastGoodName  = "last-good.snapshot"
	lastGoodTemp  = "last-good.snapshot.new"
	lastGoodMagic = "rlc-snapshot 1 "
	lastGoodMax   = 1 << 30
)

// lastGood is what the file holds.
type lastGood struct {
	Saved    time.Time    `json:"saved"`
	Snapshot rlc.Snapshot `json:"snapshot"`
}

// saveLastGood puts the snapshot into dir so that it survives a crash at any
// instant: either the file before or this one is there, whole.
func saveLastGood(dir string, g lastGood) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()

	body, err := json.Marshal(g)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	f, err := root.OpenFile(lastGoodTemp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%s\n%s", lastGoodMagic, hex.EncodeToString(sum[:]), body)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := root.Rename(lastGoodTemp, lastGoodName); err != nil {
		return err
	}
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// loadLastGood reads the file back. It fails with rlc.ErrNotFound where there
// is none, and with rlc.ErrInvalid where it is damaged.
func loadLastGood(dir string) (g lastGood, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return g, fmt.Errorf("state folder: %w", rlc.ErrNotFound)
	} else if err != nil {
		return g, err
	}
	defer root.Close()
	f, err := root.Open(lastGoodName)
	if errors.Is(err, fs.ErrNotExist) {
		return g, fmt.Errorf("last good snapshot: %w", rlc.ErrNotFound)
	} else if err != nil {
		return g, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, lastGoodMax+1))
	if err != nil {
		return g, err
	}
	if len(data) > lastGoodMax {
		return g, fmt.Errorf("%w: last good snapshot is larger than %d bytes", rlc.ErrInvalid, lastGoodMax)
	}
	head, body, ok := bytes.Cut(data, []byte("\n"))
	sum, magic := bytes.CutPrefix(head, []byte(lastGoodMagic))
	if !ok || !magic {
		return g, fmt.Errorf("%w: last good snapshot has no header of this version", rlc.ErrInvalid)
	}
	if want := sha256.Sum256(body); string(sum) != hex.EncodeToString(want[:]) {
		return g, fmt.Errorf("%w: last good snapshot does not match its checksum", rlc.ErrInvalid)
	}
	if err := json.Unmarshal(body, &g); err != nil {
		return g, fmt.Errorf("%w: last good snapshot: %w", rlc.ErrInvalid, err)
	}
	return g, nil
}
