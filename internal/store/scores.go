package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
)

// scoresFor is how long scores are kept.
const scoresFor = 100 * 24 * time.Hour

// SaveScores stores the scores of one day in place of those that it had, and
// drops those that are older than a hundred days.
func (db *DB) SaveScores(ctx context.Context, day time.Time, all []rlc.Score) error {
	return db.transact(ctx, "save scores", func(tx *sql.Tx) error {
		if err := take(ctx, tx, "scores"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM scores WHERE day = $1 OR day < $2`, micros(day), micros(day.Add(-scoresFor))); err != nil {
			return err
		}
		for _, s := range all {
			s.Day = day
			if err := names(s.Owner); err != nil {
				return err
			}
			doc, err := document(s)
			if err != nil {
				return fmt.Errorf("score of %q: %w", s.Owner, err)
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO scores (day, fleet, owner, document) VALUES ($1, $2, $3, $4)`, micros(day), s.Fleet, s.Owner, doc); err != nil {
				return fmt.Errorf("score of %q: %w", s.Owner, err)
			}
		}
		return nil
	})
}

// Scores are those of the days from from on, by day, the fleet's first, then by
// owner.
func (db *DB) Scores(ctx context.Context, from time.Time) ([]rlc.Score, error) {
	all, err := list(ctx, db.read, scanDocument[rlc.Score], `SELECT document FROM scores WHERE day >= $1 ORDER BY day, fleet DESC, owner`, micros(from))
	if err != nil {
		return nil, fmt.Errorf("list scores: %w", err)
	}
	return all, nil
}
