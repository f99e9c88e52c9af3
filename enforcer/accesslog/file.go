package accesslog

import (
	"fmt"
	"os"
	"time"
)

// File appends to a file. When the file is moved away or removed, as log
// rotation does, it is opened anew within a second. One goroutine writes.
type File struct {
	path   string
	file   *os.File
	looked time.Time
}

// Open opens or makes the file, readable by its owner and group.
func Open(path string) (*File, error) {
	f := &File{path: path}
	return f, f.open()
}

func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("open access log: %w", err)
	}
	if f.file != nil {
		f.file.Close()
	}
	f.file, f.looked = file, time.Now()
	return nil
}

// Write appends b.
func (f *File) Write(b []byte) (int, error) {
	if now := time.Now(); now.Sub(f.looked) >= time.Second {
		f.looked = now
		mine, err1 := f.file.Stat()
		there, err2 := os.Stat(f.path)
		if err1 != nil || err2 != nil || !os.SameFile(mine, there) {
			if err := f.open(); err != nil {
				return 0, err
			}
		}
	}
	return f.file.Write(b)
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
