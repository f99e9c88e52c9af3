package store

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

// Whoever has the records' own password still cannot rewrite the log by the
// way: each engine refuses it.
func TestTheAuditLogOnlyGrows(t *testing.T) {
	for name, dsn := range map[string]string{"SQLite": "sqlite:" + file(t), "PostgreSQL": Postgres.DSN(t)} {
		t.Run(name, func(t *testing.T) {
			db := openDSN(t, dsn)
			if err := db.AddAudit(t.Context(), rlc.AuditEntry{ID: "e1", Actor: "ada", Action: "a.b"}); err != nil {
				t.Fatal(err)
			}
			for _, sql := range []string{`UPDATE audit SET actor = 'eve'`, `DELETE FROM audit WHERE id = 'e1'`} {
				if _, err := db.write.ExecContext(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "only grows") {
					t.Errorf("%s: %v", sql, err)
				}
			}
			all, total, err := db.Audit(t.Context(), rlc.Page{})
			if err != nil || total != 1 || all[0].Actor != "ada" {
				t.Errorf("the log holds %+v, %v", all, err)
			}
		})
	}
}
