package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// SaveSeries makes stored series known by name, in one transaction.
func (db *DB) SaveSeries(ctx context.Context, all []rlc.SeriesKey) error {
	return db.transact(ctx, "save series", func(tx *sql.Tx) error {
		save, err := tx.PrepareContext(ctx, `
			INSERT INTO series (id, service, bucket, quota_key) VALUES ($1, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET service = excluded.service, bucket = excluded.bucket, quota_key = excluded.quota_key`)
		if err != nil {
			return err
		}
		defer save.Close()
		for _, s := range all {
			key := s.Key.String()
			if err := names(string(s.ID), s.Service, s.Bucket, key); err != nil {
				return err
			}
			if _, err := save.ExecContext(ctx, string(s.ID), s.Service, s.Bucket, key); err != nil {
				return fmt.Errorf("series %s: %w", s.ID, err)
			}
		}
		return nil
	})
}

// SeriesOf returns a service's stored series, by bucket and key.
func (db *DB) SeriesOf(ctx context.Context, service string) ([]rlc.SeriesKey, error) {
	all, err := list(ctx, db.read, func(r row) (s rlc.SeriesKey, err error) {
		return s, r.Scan(&s.ID, &s.Service, &s.Bucket, keyText{&s.Key})
	}, `SELECT id, service, bucket, quota_key FROM series WHERE service = $1 ORDER BY bucket, quota_key, id`, service)
	if err != nil {
		return nil, fmt.Errorf("list series of %q: %w", service, err)
	}
	return all, nil
}

// SeriesNamed returns the stored series of a bucket's key: none, one, or several
// where the policy or the profile has changed since the first was stored.
func (db *DB) SeriesNamed(ctx context.Context, service, bucket string, key rlc.Key) ([]rlc.SeriesKey, error) {
	all, err := list(ctx, db.read, func(r row) (s rlc.SeriesKey, err error) {
		return s, r.Scan(&s.ID, &s.Service, &s.Bucket, keyText{&s.Key})
	}, `SELECT id, service, bucket, quota_key FROM series WHERE service = $1 AND bucket = $2 AND quota_key = $3 ORDER BY id`, service, bucket, key.String())
	if err != nil {
		return nil, fmt.Errorf("series of %q, %s: %w", service, rlc.QuotaID(bucket, key), err)
	}
	return all, nil
}

// daysAtOnce is how many days one statement stores.
const daysAtOnce = 50

// SaveDays stores days of series, replacing those that are there, in one
// transaction; of two of the same series and day the later one. A day that
// breaks the rules of rlc.SeriesDay (hours on the hour, rates finite,
// everything ascending) refuses them all.
func (db *DB) SaveDays(ctx context.Context, days []rlc.SeriesDay) error {
	packed := make([]rlc.PackedDay, len(days))
	for i := range days {
		d := &days[i]
		data, err := db.PackDay(nil, d)
		if err != nil {
			return fmt.Errorf("save days: %w", err)
		}
		packed[i] = rlc.PackedDay{Series: d.Series, Day: d.Day, Sealed: d.Sealed, Data: data}
	}
	return db.SavePacked(ctx, packed)
}

// PackDay appends a day's Data to b, a fifth of what the day takes. A day that
// breaks the rules of rlc.SeriesDay is rlc.ErrInvalid.
func (db *DB) PackDay(b []byte, d *rlc.SeriesDay) ([]byte, error) {
	b, err := appendDay(b, d)
	if err != nil {
		return b, fmt.Errorf("series %s, day %s: %w", d.Series, d.Day.Format(time.DateOnly), err)
	}
	return b, nil
}

// SavePacked is SaveDays of days that PackDay has packed. It costs least, and so
// does reading them, where the days of a series come one after the other and
// series by ID.
func (db *DB) SavePacked(ctx context.Context, days []rlc.PackedDay) error {
	return db.transact(ctx, "save days", func(tx *sql.Tx) error {
		var many *sql.Stmt // for daysAtOnce
		var args []any
		for rest := days; len(rest) > 0; {
			n := apart(rest[:min(len(rest), daysAtOnce)])
			args = args[:0]
			for i := range rest[:n] {
				d := &rest[i]
				args = append(args, string(d.Series), micros(d.Day), micros(d.Sealed), d.Data)
			}
			save := many
			if save == nil || n < daysAtOnce {
				var err error
				if save, err = tx.PrepareContext(ctx, saveDays(n)); err != nil {
					return err
				}
				defer save.Close()
				if n == daysAtOnce {
					many = save
				}
			}
			if _, err := save.ExecContext(ctx, args...); err != nil {
				return fmt.Errorf("series %s to %s: %w", rest[0].Series, rest[n-1].Series, err)
			}
			rest = rest[n:]
		}
		return nil
	})
}

// apart is how many of the days come before one that is of the same series and
// day as one of them: a statement may not touch a row twice.
func apart(days []rlc.PackedDay) int {
	type id struct {
		series rlc.SeriesID
		day    int64
	}
	var seen map[id]bool // once they do not ascend
	for i := range days {
		if seen == nil && (i == 0 || days[i-1].Compare(days[i]) < 0) {
			continue
		}
		if seen == nil {
			seen = make(map[id]bool, len(days))
			for _, d := range days[:i] {
				seen[id{d.Series, micros(d.Day)}] = true
			}
		}
		key := id{days[i].Series, micros(days[i].Day)}
		if seen[key] {
			return i
		}
		seen[key] = true
	}
	return len(days)
}

// saveDays is the statement that stores n days.
func saveDays(n int) string {
	var b strings.Builder
	b.WriteString(`INSERT INTO series_days (series, day, sealed, data) VALUES `)
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "($%d, $%d, $%d, $%d)", 4*i+1, 4*i+2, 4*i+3, 4*i+4)
	}
	b.WriteString(` ON CONFLICT (series, day) DO UPDATE SET sealed = excluded.sealed, data = excluded.data`)
	return b.String()
}

// Days returns the stored days of a series that share an instant with
// [from, until), ascending. A day that cannot be decoded is an error.
func (db *DB) Days(ctx context.Context, id rlc.SeriesID, from, until time.Time) ([]rlc.SeriesDay, error) {
	var days []rlc.SeriesDay
	err := db.EachDay(ctx, id, from, until, func(d *rlc.SeriesDay) error {
		days = append(days, *d)
		d.Hours, d.Tail = nil, nil // ours now
		return nil
	})
	return days, err
}

// EachDay hands on what Days returns, one day at a time. The day, its hours and
// its tail are the callee's until it returns: the next is decoded in their room.
func (db *DB) EachDay(ctx context.Context, id rlc.SeriesID, from, until time.Time, use func(*rlc.SeriesDay) error) error {
	from = from.UTC().Truncate(24 * time.Hour)
	var data sql.RawBytes // decoded before the next row, not copied
	var d rlc.SeriesDay
	_, err := list(ctx, db.read, func(r row) (none struct{}, err error) {
		var day, sealed time.Time
		if err := r.Scan(instant{&day}, instant{&sealed}, &data); err != nil {
			return none, err
		}
		if d, err = decodeDay(day, data, d); err != nil {
			return none, fmt.Errorf("stored day %s: %w", day.Format(time.DateOnly), err)
		}
		d.Series, d.Sealed = id, sealed
		return none, use(&d)
	}, `SELECT day, sealed, data FROM series_days WHERE series = $1 AND day >= $2 AND day < $3 ORDER BY day`,
		string(id), micros(from), micros(until))
	if err != nil {
		return fmt.Errorf("days of series %s: %w", id, err)
	}
	return nil
}

// SealedUntil returns, for each of a service's series with stored days, the end
// of what is sealed: its newest day's, the only one that is looked at.
func (db *DB) SealedUntil(ctx context.Context, service string) (map[rlc.SeriesID]time.Time, error) {
	type sealed struct {
		id rlc.SeriesID
		at time.Time
	}
	rows, err := list(ctx, db.read, func(r row) (s sealed, err error) {
		return s, r.Scan(&s.id, instant{&s.at})
	}, `SELECT s.id, d.sealed FROM series s JOIN series_days d ON d.series = s.id
		AND d.day = (SELECT MAX(x.day) FROM series_days x WHERE x.series = s.id) WHERE s.service = $1`, service)
	if err != nil {
		return nil, fmt.Errorf("sealed series of %q: %w", service, err)
	}
	until := make(map[rlc.SeriesID]time.Time, len(rows))
	for _, s := range rows {
		until[s.id] = s.at
	}
	return until, nil
}

// PruneDays removes days that ended at or before the given time, and the names
// of series of which nothing is left.
func (db *DB) PruneDays(ctx context.Context, before time.Time) error {
	return db.tidy(ctx, "prune days", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM series_days WHERE day <= $1`, micros(before.Add(-24*time.Hour))); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM series_days d WHERE d.series = series.id)`)
		return err
	})
}
