package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A full disk is said on every page and by /readyz, until there is room.
func TestAFullDiskIsSaid(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), twoServices(), nil)
	probe := filepath.Join(a.Config.Data, ".room")
	eventually(t, "ready", func() bool { return a.Ready() == nil })
	if err := os.Symlink("/dev/full", probe); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not ready", func() bool {
		return strings.Contains(strings.Join(a.Ready(), "\n"), "the data folder cannot be written to: ")
	})
	if b := a.Banners(); len(b) == 0 || !strings.Contains(b[0].Text, "disk is full") || !strings.Contains(b[0].Detail, "no space left") {
		t.Errorf("banners %+v", b)
	}
	if err := os.Remove(probe); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready again", func() bool { return a.Ready() == nil })
}
