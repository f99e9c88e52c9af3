package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/migrations"
)

// migrate brings the schema up to the last of steps. Each step and its version
// row are one transaction, so that a killed migration leaves the version
// before, and of two migrators one waits and then finds the work done.
func (db *DB) migrate(ctx context.Context, steps []migrations.Migration) error {
	err := db.repeat(ctx, "prepare schema", func(tx *sql.Tx) error {
		if db.engine.alone != "" { // IF NOT EXISTS loses races there
			if _, err := tx.ExecContext(ctx, db.engine.alone); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, db.schema(`CREATE TABLE IF NOT EXISTS schema_versions (
			version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied BIGINT NOT NULL)`))
		return err
	})
	if err != nil {
		return err
	}
	for {
		done := false
		err := db.repeat(ctx, "migrate", func(tx *sql.Tx) error {
			have, err := lockSchema(ctx, tx, db)
			if err != nil {
				return err
			}
			if done = have == len(steps); done {
				return nil
			}
			if err := newer(have, len(steps)); err != nil {
				return err
			}
			step := steps[have]
			if _, err := tx.ExecContext(ctx, db.schema(step.SQL)); err != nil {
				return fmt.Errorf("step %s: %w", step.Name, err)
			}
			_, err = tx.ExecContext(ctx, `INSERT INTO schema_versions (version, name, applied) VALUES ($1, $2, `+db.engine.now+`)`, step.Version, step.Name)
			return err
		})
		if err != nil || done {
			return err
		}
	}
}

// lockSchema keeps other migrators out until tx ends and returns the version
// of the schema. The lock is a row of version 0.
func lockSchema(ctx context.Context, tx *sql.Tx, db *DB) (int, error) {
	if err := db.beginPatient(ctx, tx); err != nil {
		return 0, err
	}
	_, err := tx.ExecContext(ctx, `
		INSERT INTO schema_versions (version, name, applied) VALUES (0, 'lock', 0)
		ON CONFLICT (version) DO UPDATE SET name = excluded.name`)
	if err != nil {
		return 0, fmt.Errorf("lock schema: %w", err)
	}
	return schemaVersion(ctx, tx)
}

func schemaVersion(ctx context.Context, tx *sql.Tx) (version int, err error) {
	err = tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(version), 0) FROM schema_versions`).Scan(&version)
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return version, nil
}

// newer refuses records whose schema is ahead of what this program knows.
func newer(have, knows int) error {
	if have > knows {
		return fmt.Errorf("%w: the records have schema version %d and this program knows %d: use a newer rlc", rlc.ErrInvalid, have, knows)
	}
	return nil
}

// schema is the text of a migration as the engine takes it. Lines that begin
// with --sqlite or --postgres are that engine's.
func (db *DB) schema(sql string) string {
	sql = strings.ReplaceAll(sql, "\n--"+db.engine.name+" ", "\n")
	if db.engine.schema == nil {
		return sql
	}
	return db.engine.schema(sql)
}
