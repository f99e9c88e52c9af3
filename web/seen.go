package web

import (
	"github.com/openrlc/rlc/web/ui"
)

// beyond is the highest step of a row whose policy left out a higher one than the
// peak that counts; "" where both are one.
func beyond(r *row) string {
	seen := r.seen()
	if seen.Highest() <= seen.Peak.Rate {
		return ""
	}
	return "highest step " + rate(float64(seen.Highest()))
}

// above says that limits lie below a highest step that policies left out, " " in
// front; "" for none.
func above(storms []*row) string {
	if len(storms) == 0 {
		return ""
	}
	r := storms[0]
	say := " " + quotaName(r.name, r.key) + " lies below a highest step of " + rate(float64(r.seen().Highest())) + " req/s, which the policy leaves out"
	if n := len(storms) - 1; n > 0 {
		say += "; so do " + plural(n, "more", "more")
	}
	return say + "."
}

// staleNote says when the traffic was read that a service's peaks are of, where
// the last run read none for some of its quotas; "" where it read all.
func staleNote(v *visit, t *truth) string {
	n := 0
	var oldest *row
	for i := range t.rows {
		r := &t.rows[i]
		if at := r.stale(); !at.IsZero() {
			if n++; oldest == nil || at.Before(oldest.stale()) {
				oldest = r
			}
		}
	}
	if n == 0 {
		return ""
	}
	return "The last run read no traffic for " + plural(n, "quota", "quotas") + ": what is shown of it was read " + v.time(oldest.stale()).Text + " or later."
}

// unreplayed says why a limit in force was not replayed.
func unreplayed(r *row) ui.Part {
	if r.change != nil && r.change.Failed {
		return ui.Part{Text: "; the last run read no traffic to replay it over."}
	}
	return ui.Part{Text: "; no run has replayed it yet."}
}
