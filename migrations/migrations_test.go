package migrations

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestEmbeddedMigrationsAreNumberedFromOne(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no migrations embedded")
	}
	for i, m := range all {
		if m.Version != i+1 || m.SQL == "" {
			t.Errorf("migration %d is %q, version %d, %d bytes", i+1, m.Name, m.Version, len(m.SQL))
		}
	}
}

func TestAHoleATwinOrAStrangeNameIsRefused(t *testing.T) {
	for name, files := range map[string][]string{
		"a hole":         {"0001_a.sql", "0003_c.sql"},
		"a twin":         {"0001_a.sql", "0001_b.sql"},
		"starts at two":  {"0002_b.sql"},
		"a strange name": {"0001_a.sql", "0002-B.sql"},
	} {
		dir := fstest.MapFS{}
		for _, f := range files {
			dir[f] = &fstest.MapFile{Data: []byte("SELECT 1")}
		}
		if _, err := read(dir); err == nil || !strings.HasPrefix(err.Error(), "migration ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The text that both engines share keeps away from what only one of them knows.
func TestMigrationsUseTheSharedSubset(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		for _, word := range []string{"AUTOINCREMENT", "SERIAL", "WITHOUT ROWID", "JSONB", " BLOB", "TIMESTAMP", "NOW()", "STRICT"} {
			if strings.Contains(strings.ToUpper(m.SQL), word) {
				t.Errorf("%s uses %q", m.Name, strings.TrimSpace(word))
			}
		}
	}
}
