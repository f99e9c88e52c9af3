package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/openrlc/rlc"
)

// ProposalsBy returns a page of the proposals that f lets through with their
// changes, the newest first, and how many there are. Open includes Pending.
// Owners are those of the service's summary; a kind is one that computed any of
// the proposal's changes.
func (db *DB) ProposalsBy(ctx context.Context, f rlc.ProposalFilter, p rlc.Page) ([]rlc.Proposal, int, error) {
	var w where
	if f.Service != "" {
		w.add("service = $?", f.Service)
	}
	switch f.State {
	case "":
	case rlc.Open:
		w.add("state IN ('pending', $?)", f.State)
	default:
		w.add("state = $?", f.State)
	}
	if f.Owner != "" {
		w.add("service IN (SELECT name FROM summaries WHERE REPLACE(owner_list, $?, '') <> owner_list)", "\n"+f.Owner+"\n")
	}
	if f.Kind != "" {
		kind, err := json.Marshal(f.Kind)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: kind: %w", rlc.ErrInvalid, err)
		}
		// A text within the JSON has its quotation marks escaped: this is a field.
		w.add(`REPLACE(changes, $?, '') <> changes`, `"policy":`+string(kind))
	}
	total, err := count(ctx, db.read, `SELECT COUNT(*) FROM proposals`+w.String(), w.args...)
	if err != nil {
		return nil, 0, fmt.Errorf("count proposals: %w", err)
	}
	limit, args := w.page(p)
	all, err := list(ctx, db.read, scanProposal,
		`SELECT `+proposalColumns+` FROM proposals`+w.String()+` ORDER BY created DESC, id DESC`+limit, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("list proposals: %w", err)
	}
	return all, total, nil
}
