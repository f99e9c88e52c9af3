package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// maxSecret bounds a secret's file, in bytes.
const maxSecret = 64 << 10

// Secret is a value that must not be seen: whatever prints it prints whether it
// is set. The zero value is unset.
type Secret struct {
	value string
	file  string // read anew each time; wins over value
}

// Inline is a secret that stands in the configuration itself.
func Inline(value string) Secret { return Secret{value: value} }

// FromFile is a secret that stands in a file of its own.
func FromFile(path string) Secret { return Secret{file: path} }

// IsSet reports whether there is a value or a file to read it from.
func (s Secret) IsSet() bool { return s != Secret{} }

// File is where the secret is read from, "" where it is inline or unset.
func (s Secret) File() string { return s.file }

// Read returns the secret as it is now; "" where it is unset. A file that is
// missing, empty or larger than 64 KiB is an error, which names the file only.
func (s Secret) Read() (string, error) {
	if s.file == "" {
		return s.value, nil
	}
	f, err := os.Open(s.file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxSecret {
		return "", fmt.Errorf("%s: larger than %d bytes", s.file, maxSecret)
	}
	if text := strings.TrimSpace(string(b)); text != "" {
		return text, nil
	}
	return "", fmt.Errorf("%s: %w", s.file, errors.New("the file is empty"))
}

// String says set or unset, and the file.
func (s Secret) String() string {
	switch {
	case s.file != "":
		return "set (file " + s.file + ")"
	case s.value != "":
		return "set"
	}
	return "unset"
}

func (s Secret) GoString() string     { return s.String() }
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// exposed reports whether everybody on the machine may read the file at path.
func exposed(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0
}
