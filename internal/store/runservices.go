package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/openrlc/rlc"
)

// moved is whether a change would alter quotas.yaml. Rows of an older program
// do not say so: there it is what was decided and logged, which holds a quota
// that was only released, too.
const moved = `COALESCE(moved, logged AND held = '')`

// ofRun are the conditions of a filter on a run's changes.
func ofRun(runID string, f rlc.RunFilter) where {
	var w where
	w.add("run_id = $?", runID)
	if f.Service != "" {
		w.add("service = $?", f.Service)
	}
	if f.Query != "" {
		w.add(`LOWER(service) LIKE $? ESCAPE '\'`, "%"+likeText(strings.ToLower(f.Query))+"%")
	}
	return w
}

// only is the condition that f.Only sets, on a change or, as a sum, on a
// service. An unknown one is rlc.ErrInvalid.
func only(f rlc.RunFilter, changed, held string) (string, error) {
	switch f.Only {
	case "":
		return "", nil
	case "changed":
		return changed, nil
	case "held":
		return held, nil
	}
	return "", fmt.Errorf("%w: of a run changed or held can be shown, not %q", rlc.ErrInvalid, f.Only)
}

// byService sums up a run's changes by service.
const byService = `SELECT service, COUNT(*) AS quotas,
	SUM(CASE WHEN ` + moved + ` THEN 1 ELSE 0 END) AS moves,
	SUM(CASE WHEN held <> '' THEN 1 ELSE 0 END) AS holds FROM changes`

// RunTotals counts the services that a run looked at and that f.Query and
// f.Service let through; f.Only is not looked at.
func (db *DB) RunTotals(ctx context.Context, runID string, f rlc.RunFilter) (rlc.RunTotals, error) {
	w := ofRun(runID, f)
	if !storable(w.args) {
		return rlc.RunTotals{}, nil // a sum over no rows is a row
	}
	t, err := one(ctx, db.read, func(r row) (t rlc.RunTotals, err error) {
		return t, r.Scan(&t.Services, &t.Changed, &t.Held)
	}, `SELECT COUNT(*), COALESCE(SUM(CASE WHEN moves > 0 THEN 1 ELSE 0 END), 0), COALESCE(SUM(CASE WHEN holds > 0 THEN 1 ELSE 0 END), 0)
		FROM (`+byService+w.String()+` GROUP BY service) s`, w.args...)
	if err != nil {
		return t, fmt.Errorf("count the services of run %q: %w", runID, err)
	}
	return t, nil
}

// RunServices returns a page of the services that a run looked at, by name,
// each with why its quotas are held, the most first, and with the proposal that
// the run made. It is one statement, whose cost grows with the changes of the
// run and, beyond their sums, with the page.
func (db *DB) RunServices(ctx context.Context, runID string, f rlc.RunFilter, p rlc.Page) ([]rlc.RunService, error) {
	having, err := only(f, " HAVING SUM(CASE WHEN "+moved+" THEN 1 ELSE 0 END) > 0", " HAVING SUM(CASE WHEN held <> '' THEN 1 ELSE 0 END) > 0")
	if err != nil {
		return nil, err
	}
	w := ofRun(runID, f)
	limit, args := w.page(p)
	type line struct {
		rlc.RunService
		held   rlc.HeldFor
		sample string
	}
	lines, err := list(ctx, db.read, func(r row) (l line, err error) {
		return l, r.Scan(&l.Service, &l.Quotas, &l.Changed, &l.Held, &l.Proposal, &l.State, &l.held.Rule, &l.held.Quotas, &l.sample)
	}, `WITH page AS (`+byService+w.String()+` GROUP BY service`+having+` ORDER BY service`+limit+`),
		why AS (
			SELECT c.service, c.held, COUNT(*) AS quotas
			FROM page JOIN changes c ON c.run_id = $1 AND c.service = page.service
			WHERE c.held <> '' GROUP BY c.service, c.held)
		SELECT page.service, page.quotas, page.moves, page.holds, COALESCE(p.id, ''), COALESCE(p.state, ''),
			COALESCE(why.held, ''), COALESCE(why.quotas, 0), COALESCE((
				SELECT c.evidence FROM changes c WHERE c.run_id = $1 AND c.service = why.service AND c.held = why.held
				ORDER BY c.bucket, c.quota_key LIMIT 1), '')
		FROM page LEFT JOIN why ON why.service = page.service
			LEFT JOIN proposals p ON p.service = page.service AND p.run_id = $1
		ORDER BY page.service, why.quotas DESC, why.held`, args...)
	if err != nil {
		return nil, fmt.Errorf("list the services of run %q: %w", runID, err)
	}
	var out []rlc.RunService
	for _, l := range lines {
		if len(out) == 0 || out[len(out)-1].Service != l.Service {
			out = append(out, l.RunService)
		}
		if l.held.Rule == "" {
			continue
		}
		var c struct {
			Why    string `json:"held_why"`
			Failed bool   `json:"failed"`
		}
		if err := json.Unmarshal([]byte(l.sample), &c); err != nil {
			return nil, fmt.Errorf("stored change of %s: %w", l.Service, err)
		}
		l.held.Why, l.held.Failed = c.Why, c.Failed
		last := &out[len(out)-1]
		last.Because = append(last.Because, l.held)
	}
	return out, nil
}

// RunQuotas returns a page of what a run found for each quota, ordered by
// service, bucket and key, and how many fit.
func (db *DB) RunQuotas(ctx context.Context, runID string, f rlc.RunFilter, p rlc.Page) ([]rlc.Change, int, error) {
	condition, err := only(f, moved, "held <> ''")
	if err != nil {
		return nil, 0, err
	}
	w := ofRun(runID, f)
	if condition != "" {
		w.conditions = append(w.conditions, condition)
	}
	return db.changes(ctx, &w, "service, bucket, quota_key", p)
}
