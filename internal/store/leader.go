package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
)

// Leadership is the name of the leadership whose epoch fences runs: a run that
// carries an epoch below its is refused with rlc.ErrFenced.
const Leadership = "scheduler"

// Lead claims or renews the leadership called name for holder, for ttl from
// now on the database's clock. holder must be unique to the process. It
// returns whether holder leads and the leader's epoch. A new holder gets the
// epoch max(last, minEpoch) + 1; a holder that renews keeps its epoch, also
// after its time ran out if nobody else led meanwhile, unless minEpoch has
// gone above it.
func (db *DB) Lead(ctx context.Context, name, holder string, ttl time.Duration, minEpoch uint64) (epoch uint64, leads bool, err error) {
	if name == "" || holder == "" || ttl <= 0 {
		return 0, false, fmt.Errorf("%w: leadership needs a name, a holder and a time to live", rlc.ErrInvalid)
	}
	err = db.transact(ctx, "lead", func(tx *sql.Tx) error {
		leads = true
		err := tx.QueryRowContext(ctx, `
			INSERT INTO leaders (name, holder, epoch, expires) VALUES ($1, $2, CAST($3 AS BIGINT) + 1, `+db.engine.now+` + $4)
			ON CONFLICT (name) DO UPDATE SET
				holder = excluded.holder,
				expires = excluded.expires,
				epoch = CASE
					WHEN leaders.holder = excluded.holder AND leaders.epoch >= excluded.epoch - 1 THEN leaders.epoch
					WHEN leaders.epoch >= excluded.epoch THEN leaders.epoch + 1
					ELSE excluded.epoch
				END
			WHERE leaders.holder = excluded.holder OR leaders.expires <= `+db.engine.now+`
			RETURNING epoch`, name, holder, int64(minEpoch), ttl.Microseconds()).Scan(&epoch)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		leads = false // somebody else does
		return tx.QueryRowContext(ctx, `SELECT epoch FROM leaders WHERE name = $1`, name).Scan(&epoch)
	})
	if err != nil {
		return 0, false, err
	}
	return epoch, leads, nil
}

// Resign gives up the leadership called name if holder has it. The epoch stays
// known, so that the next holder gets a higher one.
func (db *DB) Resign(ctx context.Context, name, holder string) error {
	return db.transact(ctx, "resign", func(tx *sql.Tx) error {
		// Another holder's name keeps the same process from renewing its epoch.
		_, err := tx.ExecContext(ctx, `UPDATE leaders SET expires = 0, holder = '' WHERE name = $1 AND holder = $2`, name, holder)
		return err
	})
}

// fence refuses a writer whose epoch is below the leader's; 0 passes. With
// hold, the leadership cannot change before tx ends: a leader that was overtaken
// while it wrote is refused at the moment of its commit. To hold is left for the
// end, so that a long transaction does not keep its own replica from renewing.
func fence(ctx context.Context, tx *sql.Tx, epoch uint64, hold bool) error {
	if epoch == 0 {
		return nil
	}
	query := `SELECT epoch FROM leaders WHERE name = $1`
	if hold {
		query = `UPDATE leaders SET epoch = epoch WHERE name = $1 RETURNING epoch`
	}
	var leader uint64
	err := tx.QueryRowContext(ctx, query, Leadership).Scan(&leader)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read leader's epoch: %w", err)
	}
	if leader > epoch {
		return fmt.Errorf("%w: epoch %d, and %d leads", rlc.ErrFenced, epoch, leader)
	}
	return nil
}
