package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// seriesAtOnce is how many series one statement reads.
const seriesAtOnce = 500

// EachDayOf is EachDay of several series in as few statements as may be: the
// days of one series come after each other, ascending.
func (db *DB) EachDayOf(ctx context.Context, ids []rlc.SeriesID, from, until time.Time, use func(*rlc.SeriesDay) error) error {
	from = from.UTC().Truncate(24 * time.Hour)
	var name, data sql.RawBytes // looked at before the next row, not copied
	var id rlc.SeriesID
	var day, sealed time.Time
	var d rlc.SeriesDay
	columns := []any{&name, instant{&day}, instant{&sealed}, &data}
	scan := func(r row) (none struct{}, err error) {
		if err := r.Scan(columns...); err != nil {
			return none, err
		}
		if string(name) != string(id) {
			id = rlc.SeriesID(name)
		}
		if d, err = decodeDay(day, data, d); err != nil {
			return none, fmt.Errorf("stored day %s of series %s: %w", day.Format(time.DateOnly), id, err)
		}
		d.Series, d.Sealed = id, sealed
		return none, use(&d)
	}
	for len(ids) > 0 {
		some := ids[:min(len(ids), seriesAtOnce)]
		ids = ids[len(some):]
		args := []any{micros(from), micros(until)}
		var in strings.Builder
		for i, id := range some {
			if i > 0 {
				in.WriteString(", ")
			}
			fmt.Fprintf(&in, "$%d", i+3)
			args = append(args, string(id))
		}
		if _, err := list(ctx, db.read, scan, `SELECT series, day, sealed, data FROM series_days
			WHERE day >= $1 AND day < $2 AND series IN (`+in.String()+`) ORDER BY series, day`, args...); err != nil {
			return fmt.Errorf("days of %d series: %w", len(some), err)
		}
	}
	return nil
}
