package web

import (
	"fmt"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// explanationOf is the API's word on a number, which rlc explain prints: what is in force
// now, and then which run computed what, for a quota may have moved since.
func explanationOf(t *truth, r *row) object {
	now := "In force now: " + inForceText(r) + ".\n"
	switch {
	case r.change != nil:
		e := policies.Explain(*r.change)
		return object{"verdict": e.Verdict, "text": now + "Run " + r.change.RunID + " of " + stat.TimeText(r.change.At) + ": " + e.Text()}
	case r.bucket != nil && r.bucket.ByHand():
		verdict := fmt.Sprintf("A person wrote it, in line %d of %s: no run computes it.", r.bucket.Line, quotafile.PolicyPath(t.name))
		return object{"verdict": verdict, "text": now + verdict + "\n"}
	}
	const none = "No run has computed it yet."
	return object{"verdict": none, "text": now + none + "\n"}
}

// inForceText is the limit that holds, with its mode and how that goes by hour.
func inForceText(r *row) string {
	l := r.force()
	if l == nil {
		return "no quota"
	}
	parts := []string{stat.RateText(l.Rate), "burst " + rlc.Number(l.Burst)}
	if h := r.forceTimed().Hours; h != nil {
		parts = append(parts, policies.HoursText(h))
	}
	if r.mode == rlc.Shadow || r.mode == rlc.Enforce {
		parts = append(parts, "in "+string(r.mode))
	}
	return strings.Join(parts, ", ")
}
