package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// The bounds of what people set. They leave room in the document of the
// enforcers for acts of other replicas at the same time, for overrides that end
// over a ramp, and always for a kill switch and for an end.
const (
	mostStanding = enforcer.MostOverrides / 2
	maxStanding  = enforcer.MaxOverridesDocument / 4 * 3 // bytes of all of them as JSON
	maxOverride  = 16 << 10                              // bytes of one as JSON
)

// size is how many bytes an override has in the document of the enforcers.
func size(o rlc.Override) int {
	text, _ := json.Marshal(toEnforcer(o)) // one that cannot be rendered is not valid, which is said elsewhere
	return len(text)
}

// fits refuses an override that has no place beside those that stand, and says
// what to end.
func fits(o rlc.Override, all map[string]rlc.Override, now time.Time) error {
	own := size(o)
	if own > maxOverride {
		return fmt.Errorf("%w: the override has %d bytes as JSON, at most %d: match fewer or shorter values", rlc.ErrInvalid, own, maxOverride)
	}
	n, total, largest := 0, own, 0
	var first, large rlc.Override
	for _, x := range all {
		if !now.Before(x.Until) || x.ID == o.ID {
			continue
		}
		n++
		if bytes := size(x); bytes <= maxOverride { // the document has others only where there is room
			total += bytes
			if bytes > largest {
				largest, large = bytes, x
			}
		}
		if first.ID == "" || x.Until.Before(first.Until) {
			first = x
		}
	}
	switch {
	case n >= mostStanding:
		return fmt.Errorf("%w: %d overrides stand, which is the most; end one first: %s (%s) ends before the others", rlc.ErrRefused, n, first.ID, brief(first))
	case total > maxStanding:
		return fmt.Errorf("%w: the overrides that stand would have %d bytes as JSON, at most %d; end one first: %s (%s) is the largest, %d bytes", rlc.ErrRefused, total, maxStanding, large.ID, brief(large), largest)
	}
	return nil
}

// brief is whom an override is for, cut to a length that a sentence holds.
func brief(o rlc.Override) string {
	text := o.Subject()
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:80], "") + "…"
	}
	return text
}

// overridesDocument is what enforcers read of all overrides at now: those that
// stand, and those that end over a ramp. They would refuse the whole of a
// document that is too large or holds one that is not valid, so what does not
// fit is left out: the largest first, then those that are over, then the
// newest. Those that stand and are left out are returned.
func overridesDocument(all map[string]rlc.Override, shadow bool, now time.Time) (content []byte, left []rlc.Override, err error) {
	doc := enforcer.Overrides{List: []enforcer.Override{}, AllToShadow: shadow}
	room := enforcer.MaxOverridesDocument - 64 // what is around the list
	for _, o := range inOrder(all, now) {
		bytes := size(o) + 1 // a comma
		x := toEnforcer(o)
		if bytes > room || len(doc.List) >= enforcer.MostOverrides || x.Valid() != nil {
			if now.Before(o.Until) {
				left = append(left, o)
			}
			continue
		}
		room -= bytes
		doc.List = append(doc.List, x)
	}
	content, err = json.Marshal(doc)
	return content, left, err
}

// inOrder are the overrides that are not over, those first that have a place in
// the document before others.
func inOrder(all map[string]rlc.Override, now time.Time) (out []rlc.Override) {
	last := map[string]int{}
	for id, o := range all {
		if !now.Before(o.Over()) {
			continue
		}
		out = append(out, o)
		switch {
		case size(o) > maxOverride:
			last[id] = 2
		case !now.Before(o.Until):
			last[id] = 1
		}
	}
	slices.SortFunc(out, func(x, y rlc.Override) int {
		return cmp.Or(cmp.Compare(last[x.ID], last[y.ID]), x.From.Compare(y.From), strings.Compare(x.ID, y.ID))
	})
	return out
}
