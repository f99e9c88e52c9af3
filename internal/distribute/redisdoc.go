package distribute

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openrlc/rlc"
)

// A document in Redis is one hash. Its body is a line of JSON, then contents
// byte for byte; a large one is compressed.
const (
	maxPlain   = 128 << 20 // bytes of a body before compression
	maxStored  = 16 << 20  // bytes of a body in Redis
	compressAt = 64 << 10  // bytes of a body from which it is compressed
	maxRefused = 2 << 10   // bytes of an acknowledgement's refusal
	maxAckName = 1 << 10   // bytes of an enforcer's name or zone
)

// The documents of a message, in the order of their keys.
const (
	snapshotDoc = iota
	overridesDoc
	documents
)

var documentNames = [documents]string{"snapshot", "overrides"}

// version is that of a message's document; zero for none.
func (newest *Message) version(doc int) (v rlc.Version) {
	switch {
	case doc == snapshotDoc && newest.Snapshot != nil:
		return newest.Snapshot.Version
	case doc == overridesDoc && newest.Overrides != nil:
		return newest.Overrides.Version
	}
	return v
}

func (newest *Message) has(doc int) bool {
	if doc == snapshotDoc {
		return newest.Snapshot != nil
	}
	return newest.Overrides != nil
}

// head is what tells a document from others.
type head struct {
	version rlc.Version
	content string // hash of what enforcers act on
}

// follows reports whether d is newer than have: false for the same again,
// rlc.ErrConflict for what does not follow.
func (d *document) follows(have head) (newer bool, err error) {
	switch c := d.version.Compare(have.version); {
	case c < 0, c == 0 && d.content != have.content:
		return false, fmt.Errorf("%w: %s %s does not follow %s, which is published", rlc.ErrConflict, d.name, d.version, have.version)
	default:
		return c > 0, nil
	}
}

// document is one as Redis holds it.
type document struct {
	head
	name     string
	sum      string // SHA-256 of the body before compression
	encoding string // plain or gzip
	body     []byte
}

// first is the line before a body's contents.
type first struct {
	Version   rlc.Version `json:"version"`
	Commit    string      `json:"commit,omitempty"`
	RemovedBy string      `json:"removed_by,omitempty"`
	Files     []file      `json:"files,omitempty"`
}

type file struct {
	Name string `json:"name"`
	Size int    `json:"size"`
}

// encode makes the documents of a message; nil where it has none.
func encode(m Message) (out [documents]*document, err error) {
	if s := m.Snapshot; s != nil {
		line, size := first{Version: s.Version}, 0
		for name, text := range s.Files {
			size += len(name) + len(text)
		}
		if size > maxPlain {
			return out, tooLarge(snapshotDoc, s.Version, size)
		}
		var contents bytes.Buffer
		for _, name := range slices.Sorted(maps.Keys(s.Files)) {
			if !utf8.ValidString(name) {
				return out, fmt.Errorf("%w: file name %q is not UTF-8", rlc.ErrInvalid, name)
			}
			line.Files = append(line.Files, file{name, len(s.Files[name])})
			contents.Write(s.Files[name])
		}
		// Who removed something and which commit it was are no part of what
		// enforcers act on: the same files are the same snapshot.
		content := digest(body(line, contents.Bytes()))
		line.Commit, line.RemovedBy = s.Commit, s.RemovedBy
		if out[snapshotDoc], err = pack(snapshotDoc, s.Version, content, body(line, contents.Bytes())); err != nil {
			return out, err
		}
	}
	if o := m.Overrides; o != nil {
		b := body(first{Version: o.Version}, o.Content)
		out[overridesDoc], err = pack(overridesDoc, o.Version, digest(b), b)
	}
	return out, err
}

func body(line first, contents []byte) []byte {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err) // names, numbers and strings always have a JSON form
	}
	return slices.Concat(text, []byte{'\n'}, contents)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func tooLarge(doc int, v rlc.Version, size int) error {
	return fmt.Errorf("%w: %s %s has %d bytes; at most %d are distributed", rlc.ErrInvalid, documentNames[doc], v, size, maxPlain)
}

// pack compresses a large body and holds the bounds.
func pack(doc int, v rlc.Version, content string, plain []byte) (*document, error) {
	d := &document{head: head{v, content}, name: documentNames[doc], sum: digest(plain), encoding: "plain", body: plain}
	if len(plain) > maxPlain {
		return nil, tooLarge(doc, v, len(plain))
	}
	if len(plain) > compressAt {
		var small bytes.Buffer
		w := gzip.NewWriter(&small)
		_, err := w.Write(plain)
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("compress %s: %w", d.name, err)
		}
		d.encoding, d.body = "gzip", small.Bytes()
	}
	if len(d.body) > maxStored {
		return nil, fmt.Errorf("%w: %s %s has %d bytes compressed; at most %d are distributed", rlc.ErrInvalid, d.name, v, len(d.body), maxStored)
	}
	return d, nil
}

// unpack reads a document into m. What is not exactly what was packed fails
// with rlc.ErrInvalid.
func (d *document) unpack(doc int, m *Message) error {
	invalid := func(format string, a ...any) error {
		return fmt.Errorf("%w: published %s %s: %s", rlc.ErrInvalid, documentNames[doc], d.version, fmt.Sprintf(format, a...))
	}
	plain := d.body
	switch d.encoding {
	case "plain":
	case "gzip":
		r, err := gzip.NewReader(bytes.NewReader(d.body))
		if err == nil {
			plain, err = io.ReadAll(io.LimitReader(r, maxPlain+1))
		}
		if err != nil {
			return invalid("%v", err)
		}
	default:
		return invalid("encoding %.20q is not known to this version", d.encoding)
	}
	if len(plain) > maxPlain {
		return invalid("it has more than %d bytes", maxPlain)
	}
	if digest(plain) != d.sum {
		return invalid("it does not match its checksum")
	}
	text, contents, _ := bytes.Cut(plain, []byte{'\n'})
	var line first
	if err := json.Unmarshal(text, &line); err != nil {
		return invalid("%v", err)
	}
	if line.Version != d.version {
		return invalid("it says that it is %s", line.Version)
	}
	if doc == overridesDoc {
		m.Overrides = &Overrides{Version: d.version, Content: slices.Clip(contents)}
		return nil
	}
	s := &rlc.Snapshot{Version: d.version, Commit: line.Commit, RemovedBy: line.RemovedBy, Files: make(rlc.Files, len(line.Files))}
	for _, f := range line.Files {
		if f.Size < 0 || f.Size > len(contents) {
			return invalid("file %.200q is not whole", f.Name)
		}
		s.Files[f.Name], contents = contents[:f.Size:f.Size], contents[f.Size:]
	}
	if len(contents) > 0 || len(s.Files) != len(line.Files) {
		return invalid("its files are not those it lists")
	}
	m.Snapshot = s
	return nil
}

// padded is a number that sorts as text: Lua's numbers end at 2^53.
func padded(n uint64) string { return fmt.Sprintf("%020d", n) }

func paddedVersion(v rlc.Version) string { return padded(v.Epoch) + "." + padded(v.Number) }

// encodeAck is an acknowledgement but for its time, which is Redis's.
func encodeAck(a rlc.Ack) (string, error) {
	if len(a.Enforcer) > maxAckName || len(a.Zone) > maxAckName {
		return "", fmt.Errorf("%w: an enforcer's name or zone has more than %d bytes", rlc.ErrInvalid, maxAckName)
	}
	a.Refused = clip(a.Refused, maxRefused)
	a.At = time.Time{}
	b, err := json.Marshal(a)
	return string(b), err
}

// decodeAck reads an acknowledgement: microseconds, a blank, JSON.
func decodeAck(value string) (a rlc.Ack, err error) {
	at, text, ok := strings.Cut(value, " ")
	us, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || len(text) > 16<<10 {
		return a, fmt.Errorf("%w: an acknowledgement of %d bytes is not one", rlc.ErrInvalid, len(value))
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, fmt.Errorf("%w: acknowledgement: %w", rlc.ErrInvalid, err)
	}
	a.At = time.UnixMicro(us).UTC()
	return a, nil
}

// clip cuts s to at most n bytes, between characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
