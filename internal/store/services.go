package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/openrlc/rlc"
)

// SaveSummaries stores the rows of the list of services, in one transaction.
func (db *DB) SaveSummaries(ctx context.Context, all []rlc.ServiceSummary) error {
	return db.transact(ctx, "save summaries", func(tx *sql.Tx) error {
		save, err := tx.PrepareContext(ctx, `
			INSERT INTO summaries (name, search, owner_list, headroom, virtual_drops, drops, offered, quotas, held, unjudged, ready, summary)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
			ON CONFLICT (name) DO UPDATE SET search = excluded.search, owner_list = excluded.owner_list,
				headroom = excluded.headroom, virtual_drops = excluded.virtual_drops, drops = excluded.drops,
				offered = excluded.offered, quotas = excluded.quotas, held = excluded.held,
				unjudged = excluded.unjudged, ready = excluded.ready, summary = excluded.summary`)
		if err != nil {
			return err
		}
		defer save.Close()
		for _, s := range all {
			owners := ""
			if len(s.Owners) > 0 {
				owners = "\n" + strings.Join(s.Owners, "\n") + "\n"
			}
			if err := names(s.Name, owners); err != nil {
				return err
			}
			doc, err := document(s)
			if err != nil {
				return fmt.Errorf("summary of %s: %w", s.Name, err)
			}
			var headroom any
			if s.Headroom != nil {
				headroom = float64(*s.Headroom)
			}
			offered := 0.0 // unknown comes first
			if s.Offered != nil {
				offered = float64(*s.Offered)
			}
			_, err = save.ExecContext(ctx, s.Name, strings.ToLower(s.Name+owners), owners, headroom,
				s.VirtualDrops, s.Drops, offered, s.Desired, s.Held, s.UnjudgedDrops, len(s.Ready), doc)
			if err != nil {
				return fmt.Errorf("summary of %s: %w", s.Name, err)
			}
		}
		return nil
	})
}

func scanSummary(r row) (s rlc.ServiceSummary, err error) {
	var doc string
	if err := r.Scan(&doc); err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(doc), &s); err != nil {
		return s, fmt.Errorf("stored summary: %w", err)
	}
	return s, nil
}

// Summary returns one service's row, or rlc.ErrNotFound.
func (db *DB) Summary(ctx context.Context, service string) (rlc.ServiceSummary, error) {
	s, err := one(ctx, db.read, scanSummary, `SELECT summary FROM summaries WHERE name = $1`, service)
	return s, found(err, "service", service)
}

// summaryOrder lists what summaries can be sorted by.
var summaryOrder = map[string]string{
	"":              "name",
	"name":          "name",
	"headroom":      "headroom",
	"virtual_drops": "virtual_drops",
	"drops":         "drops",
	"offered":       "offered",
	"quotas":        "quotas",
	"held":          "held",
	"unjudged":      "unjudged",
	"ready":         "ready",
}

// Summaries returns a page of the services that f lets through, and how many
// there are. Besides the orders of rlc.ServiceFilter it knows offered, quotas,
// held, unjudged (by their drops) and ready; equals are in order of name, an unknown order is rlc.ErrInvalid.
func (db *DB) Summaries(ctx context.Context, f rlc.ServiceFilter, p rlc.Page) ([]rlc.ServiceSummary, int, error) {
	column, ok := summaryOrder[f.Sort]
	if !ok {
		return nil, 0, fmt.Errorf("%w: services cannot be sorted by %q", rlc.ErrInvalid, f.Sort)
	}
	order := column
	if f.Desc {
		order += " DESC"
	}
	if column == "headroom" {
		order = "headroom IS NULL, " + order // unknown last, either way
	}
	if column != "name" {
		order += ", name"
	}
	var w where
	if f.Query != "" {
		w.add(`search LIKE $? ESCAPE '\'`, "%"+likeText(strings.ToLower(f.Query))+"%")
	}
	if f.Owner != "" {
		// LIKE ignores case in one engine and not in the other; this does not.
		w.add("REPLACE(owner_list, $?, '') <> owner_list", "\n"+f.Owner+"\n")
	}
	if f.Unowned {
		w.add("owner_list = $?", "")
	}
	if f.Some {
		w.add(column+" > $?", 0)
	}
	total := 0
	if !f.Uncounted {
		var err error
		if total, err = count(ctx, db.read, `SELECT COUNT(*) FROM summaries`+w.String(), w.args...); err != nil {
			return nil, 0, fmt.Errorf("count services: %w", err)
		}
	}
	limit, args := w.page(p)
	all, err := list(ctx, db.read, scanSummary, `SELECT summary FROM summaries`+w.String()+` ORDER BY `+order+limit, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("list services: %w", err)
	}
	return all, total, nil
}

var likeEscape = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// likeText makes LIKE match s itself.
func likeText(s string) string { return likeEscape.Replace(s) }

// DropSummaries removes the rows of services that are not in keep.
func (db *DB) DropSummaries(ctx context.Context, keep []string) error {
	kept := make(map[string]bool, len(keep))
	for _, name := range keep {
		kept[name] = true
	}
	return db.transact(ctx, "drop summaries", func(tx *sql.Tx) error {
		have, err := list(ctx, tx, func(r row) (name string, err error) { return name, r.Scan(&name) }, `SELECT name FROM summaries`)
		if err != nil {
			return err
		}
		for _, name := range have {
			if kept[name] {
				continue
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM summaries WHERE name = $1`, name); err != nil {
				return err
			}
		}
		return nil
	})
}
