package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// episodes are the part of a change that lists leave out.
type episodes struct {
	Old []rlc.Episode `json:"old"`
	New []rlc.Episode `json:"new"`
}

// split renders a change as its two columns.
func split(c rlc.Change) (evidence, eps string, err error) {
	var e episodes
	for _, side := range []struct {
		test **rlc.Backtest
		eps  *[]rlc.Episode
	}{{&c.Backtest.Old, &e.Old}, {&c.Backtest.New, &e.New}} {
		if *side.test != nil {
			light := **side.test
			*side.eps, light.Episodes = light.Episodes, nil
			*side.test = &light
		}
	}
	if evidence, err = document(c); err != nil {
		return "", "", err
	}
	eps, err = document(e)
	return evidence, eps, err
}

// scanChange reads a change without its episodes.
func scanChange(r row) (c rlc.Change, err error) {
	var evidence string
	if err := r.Scan(&evidence); err != nil {
		return c, err
	}
	if err := json.Unmarshal([]byte(evidence), &c); err != nil {
		return c, fmt.Errorf("stored change: %w", err)
	}
	return c, nil
}

// scanWhole reads a change with its episodes.
func scanWhole(r row) (c rlc.Change, err error) {
	var evidence, eps string
	if err := r.Scan(&evidence, &eps); err != nil {
		return c, err
	}
	var e episodes
	if err := json.Unmarshal([]byte(evidence), &c); err != nil {
		return c, fmt.Errorf("stored change: %w", err)
	}
	if err := json.Unmarshal([]byte(eps), &e); err != nil {
		return c, fmt.Errorf("stored episodes: %w", err)
	}
	if c.Backtest.Old != nil {
		c.Backtest.Old.Episodes = e.Old
	}
	if c.Backtest.New != nil {
		c.Backtest.New.Episodes = e.New
	}
	return c, nil
}

// addChanges stores a run's changes, and moves each quota's newest one unless
// that belongs to a later now.
func addChanges(ctx context.Context, tx *sql.Tx, run rlc.Run, changes []rlc.Change) error {
	before, err := heldBefore(ctx, tx, run.Service)
	if err != nil {
		return fmt.Errorf("read newest changes: %w", err)
	}
	seen, err := seenBefore(ctx, tx, changes)
	if err != nil {
		return fmt.Errorf("read what was last seen: %w", err)
	}
	add, err := tx.PrepareContext(ctx, `
		INSERT INTO changes (run_id, service, bucket, quota_key, at, held, logged, policy_id, estimate_rate, estimate_burst, estimate_hours, evidence, episodes, moved)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`)
	if err != nil {
		return err
	}
	defer add.Close()
	newest, err := tx.PrepareContext(ctx, `
		INSERT INTO latest_changes (service, bucket, quota_key, run_id, at, held) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (service, bucket, quota_key) DO UPDATE SET run_id = excluded.run_id, at = excluded.at, held = excluded.held
		WHERE latest_changes.at <= excluded.at`)
	if err != nil {
		return err
	}
	defer newest.Close()
	for i := range changes {
		c := changes[i]
		c.RunID = run.ID
		key := c.Key.String()
		place := rlc.Quota{Bucket: c.Bucket, Region: c.Region}.Place() // a region's own quota is another one
		if s, ok := seen[quota{c.Service, place, key}]; ok && unseen(c) && !s.At.After(c.At) {
			c.Seen = &s
		}
		if err := names(c.Service, place, key, c.Held); err != nil {
			return err
		}
		evidence, eps, err := split(c)
		if err != nil {
			return fmt.Errorf("change of %s: %w", c.ID(), err)
		}
		var rate, burst, hours any
		if c.Estimate != nil {
			rate, burst = float64(c.Estimate.Rate), int64(c.Estimate.Burst)
		}
		if h := c.Forecast.Hours(); h != nil {
			if hours, err = document(h); err != nil {
				return fmt.Errorf("hours of %s: %w", c.ID(), err)
			}
		}
		logged := c.Moves() || c.Held != before[quota{c.Service, place, key}]
		at := micros(c.At)
		if _, err := add.ExecContext(ctx, run.ID, c.Service, place, key, at, c.Held, logged, c.PolicyID, rate, burst, hours, evidence, eps, c.Moves()); err != nil {
			return fmt.Errorf("change of %s: %w", c.ID(), err)
		}
		if _, err := newest.ExecContext(ctx, c.Service, place, key, run.ID, at, c.Held); err != nil {
			return fmt.Errorf("change of %s: %w", c.ID(), err)
		}
	}
	return nil
}

type quota struct{ service, bucket, key string }

// heldBefore returns why each quota of service ("" for all) is held as of its
// newest change.
func heldBefore(ctx context.Context, tx *sql.Tx, service string) (map[quota]string, error) {
	type held struct {
		quota
		why string
	}
	var w where
	if service != "" {
		w.add("service = $?", service)
	}
	rows, err := list(ctx, tx, func(r row) (h held, err error) {
		return h, r.Scan(&h.service, &h.bucket, &h.key, &h.why)
	}, `SELECT service, bucket, quota_key, held FROM latest_changes`+w.String(), w.args...)
	before := make(map[quota]string, len(rows))
	for _, h := range rows {
		before[h.quota] = h.why
	}
	return before, err
}

// RunChanges returns a page of a run's changes, ordered by service, bucket and
// key, and how many there are; heldOnly leaves out those that were decided.
func (db *DB) RunChanges(ctx context.Context, runID string, heldOnly bool, p rlc.Page) ([]rlc.Change, int, error) {
	var w where
	w.add("run_id = $?", runID)
	if heldOnly {
		w.add("held <> $?", "")
	}
	return db.changes(ctx, &w, "service, bucket, quota_key", p)
}

// ChangeLog returns a page of one quota's history, newest first, and how many
// entries it has: the changes that moved it, and those whose reason for
// holding it differs from the one before. A region's own quota is asked for by
// its place, "bucket@region", in place of the bucket.
func (db *DB) ChangeLog(ctx context.Context, service, bucket string, key rlc.Key, p rlc.Page) ([]rlc.Change, int, error) {
	var w where
	w.add("service = $?", service)
	w.add("bucket = $?", bucket)
	w.add("quota_key = $?", key.String())
	w.add("logged = $?", true)
	return db.changes(ctx, &w, "at DESC, run_id DESC", p)
}

func (db *DB) changes(ctx context.Context, w *where, order string, p rlc.Page) ([]rlc.Change, int, error) {
	total, err := count(ctx, db.read, `SELECT COUNT(*) FROM changes`+w.String(), w.args...)
	if err != nil {
		return nil, 0, fmt.Errorf("count changes: %w", err)
	}
	limit, args := w.page(p)
	all, err := list(ctx, db.read, scanWhole, `SELECT evidence, episodes FROM changes`+w.String()+` ORDER BY `+order+limit, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("list changes: %w", err)
	}
	return all, total, nil
}

const latest = ` FROM latest_changes l JOIN changes c
	ON c.run_id = l.run_id AND c.service = l.service AND c.bucket = l.bucket AND c.quota_key = l.quota_key `

// LatestChanges returns the newest change of each of a service's quotas,
// sorted by quota id, without the episodes of their backtests (nil). A quota
// whose bucket or caller is gone keeps its last one until it is pruned.
func (db *DB) LatestChanges(ctx context.Context, service string) ([]rlc.Change, error) {
	all, err := list(ctx, db.read, scanChange, `SELECT c.evidence`+latest+`WHERE l.service = $1`, service)
	if err != nil {
		return nil, fmt.Errorf("list newest changes of %q: %w", service, err)
	}
	slices.SortFunc(all, func(a, b rlc.Change) int { return cmp.Compare(a.ID(), b.ID()) })
	return all, nil
}

// LatestChange returns one quota's newest change whole, or rlc.ErrNotFound. A
// region's own quota is asked for by its place, "bucket@region".
func (db *DB) LatestChange(ctx context.Context, service, bucket string, key rlc.Key) (rlc.Change, error) {
	c, err := one(ctx, db.read, scanWhole, `
		SELECT c.evidence, c.episodes`+latest+`WHERE l.service = $1 AND l.bucket = $2 AND l.quota_key = $3`,
		service, bucket, key.String())
	return c, found(err, "change of", service+" "+rlc.QuotaID(bucket, key))
}

// WithEpisodes returns changes of lists whole, in their order: one that is no
// longer stored stays as it is.
func (db *DB) WithEpisodes(ctx context.Context, changes []rlc.Change) ([]rlc.Change, error) {
	const most = 1000 // of one statement
	type id struct {
		run string
		quota
	}
	whole := map[id]rlc.Change{}
	named := func(c rlc.Change) id {
		return id{c.RunID, quota{c.Service, rlc.Quota{Bucket: c.Bucket, Region: c.Region}.Place(), c.Key.String()}}
	}
	for part := range slices.Chunk(changes, most) {
		var places []string
		var args []any
		for _, c := range part {
			n, of := len(args), named(c)
			places = append(places, fmt.Sprintf("($%d, $%d, $%d, $%d)", n+1, n+2, n+3, n+4))
			args = append(args, of.run, of.service, of.bucket, of.key)
		}
		found, err := list(ctx, db.read, scanWhole, `SELECT evidence, episodes FROM changes
			WHERE (run_id, service, bucket, quota_key) IN (VALUES `+strings.Join(places, ", ")+`)`, args...)
		if err != nil {
			return nil, fmt.Errorf("read episodes: %w", err)
		}
		for _, c := range found {
			whole[named(c)] = c
		}
	}
	out := slices.Clone(changes)
	for i, c := range out {
		if w, ok := whole[named(c)]; ok {
			out[i] = w
		}
	}
	return out, nil
}

// Recent returns the estimates of a service's quotas since a time, by quota id,
// each list oldest first. Runs in which the policy abstained are left out.
func (db *DB) Recent(ctx context.Context, service string, since time.Time) (map[string][]rlc.RecentEstimate, error) {
	type estimate struct {
		id string
		rlc.RecentEstimate
	}
	rows, err := list(ctx, db.read, func(r row) (e estimate, err error) {
		var bucket string
		var key rlc.Key
		var hours sql.NullString
		err = r.Scan(&bucket, keyText{&key}, instant{&e.At}, &e.PolicyID, &e.Limit.Rate, &e.Limit.Burst, &hours)
		e.id = rlc.QuotaID(bucket, key)
		if err == nil && hours.Valid {
			err = json.Unmarshal([]byte(hours.String), &e.Hours)
		}
		return e, err
	}, `SELECT bucket, quota_key, at, policy_id, estimate_rate, estimate_burst, estimate_hours FROM changes
		WHERE service = $1 AND at >= $2 AND estimate_rate IS NOT NULL ORDER BY at, run_id`, service, micros(since))
	if err != nil {
		return nil, fmt.Errorf("list recent estimates of %q: %w", service, err)
	}
	recent := map[string][]rlc.RecentEstimate{}
	for _, e := range rows {
		recent[e.id] = append(recent[e.id], e.RecentEstimate)
	}
	return recent, nil
}
