package store

import (
	"context"
	"database/sql"

	"github.com/openrlc/rlc"
)

// unseen reports whether a quota is held because its run read nothing of its
// traffic: what was known of it before is then still the best there is.
func unseen(c rlc.Change) bool { return c.Held != "" && c.Peak.Rate <= 0 }

// seenBefore is what the newest changes know of the traffic of those quotas whose
// new change saw none. It asks once for each service with such a quota.
func seenBefore(ctx context.Context, tx *sql.Tx, changes []rlc.Change) (map[quota]rlc.Seen, error) {
	seen, asked := map[quota]rlc.Seen{}, map[string]bool{}
	for _, c := range changes {
		if !unseen(c) || asked[c.Service] {
			continue
		}
		asked[c.Service] = true
		before, err := list(ctx, tx, scanChange, `SELECT c.evidence`+latest+`WHERE l.service = $1`, c.Service)
		if err != nil {
			return nil, err
		}
		for _, b := range before {
			if s := b.LastSeen(); s.Peak.Rate > 0 {
				seen[quota{b.Service, rlc.Quota{Bucket: b.Bucket, Region: b.Region}.Place(), b.Key.String()}] = s
			}
		}
	}
	return seen, nil
}
