package store_test

import (
	"path/filepath"
	"testing"

	"github.com/openrlc/rlc/internal/store"
	"github.com/openrlc/rlc/internal/store/storetest"
)

func TestSQLiteBehavesAsRecordsMust(t *testing.T) {
	storetest.Run(t, func(t *testing.T) *store.DB {
		return openDSN(t, "sqlite:"+filepath.Join(t.TempDir(), "rlc.db"))
	})
}

func TestPostgreSQLBehavesAsRecordsMust(t *testing.T) {
	// Sixty times made anew, the tables would take most of the time.
	model := store.Postgres.Copy(t, "")
	db, err := store.Open(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, func(t *testing.T) *store.DB {
		return openDSN(t, store.Postgres.Copy(t, model))
	})
}

func openDSN(t *testing.T, dsn string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
