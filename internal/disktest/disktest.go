// Package disktest gives tests a disk that is soon full.
package disktest

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Small is an empty folder on a disk of its own that holds so many bytes. It is
// taken away after t. To mount one a process must be root: elsewhere t is
// skipped and says so.
func Small(t testing.TB, bytes int) (folder string) {
	t.Helper()
	folder = t.TempDir()
	Mount(t, folder, bytes)
	return folder
}

// Mount puts such a disk at an empty folder.
func Mount(t testing.TB, folder string, bytes int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a small disk is a mounted tmpfs: this test must be run as root")
	}
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size="+strconv.Itoa(bytes)); err != nil {
		t.Fatalf("mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		// Lazily: a process that was killed may still be letting go of its files.
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount the small disk: %v", err)
		}
	})
}

// Fill writes a file that takes all that is left of a folder's disk. To remove
// the file makes room again.
func Fill(t testing.TB, folder string) (file string) {
	t.Helper()
	file = filepath.Join(folder, "filled")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	return file
}
