package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/migrations"
)

// migrate brings the schema up to the last of steps. Each step and its version
// row are one transaction, so that a killed migration leaves the version
// before, and of two migrators one waits and then finds the work done.
func (db *DB) migrate(ctx context.Context, steps []migrations.Migration) error {
	err := db.transact(ctx, "prepare schema", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS schema_versions (
			version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied BIGINT NOT NULL)`)
		return err
	})
	if err != nil {
		return err
	}
	for {
		done := false
		err := db.transact(ctx, "migrate", func(tx *sql.Tx) error {
			var have int
			if err := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(version), 0) FROM schema_versions`).Scan(&have); err != nil {
				return fmt.Errorf("read schema version: %w", err)
			}
			if have > len(steps) {
				return fmt.Errorf("%w: the records have schema version %d and this program knows %d: use a newer rlc", rlc.ErrInvalid, have, len(steps))
			}
			if have == len(steps) {
				done = true
				return nil
			}
			step := steps[have]
			if _, err := tx.ExecContext(ctx, step.SQL); err != nil {
				return fmt.Errorf("step %s: %w", step.Name, err)
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO schema_versions (version, name, applied) VALUES ($1, $2, `+db.now+`)`, step.Version, step.Name)
			return err
		})
		if err != nil || done {
			return err
		}
	}
}
