package web

import (
	"cmp"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/web/ui"
)

// today says what the limit that holds now would have done to a history; nil
// where there is none, or where it is what was asked about. A window that a
// person wrote is replayed as one.
func today(r *row, h rlc.History, asked rlc.Limit) ([]ui.Part, error) {
	var b rlc.Backtest
	var name string
	switch force := r.counter(); {
	case r.bucket != nil && r.bucket.Window != nil:
		w := r.bucket.Window
		limit, err := gcra.CompileWindow(r.bucket.Algorithm, *w)
		if err != nil {
			return nil, err
		}
		b, name = backtest.FromHistoryCounted(h, limit), count(float64(w.Requests))+" a "+cmp.Or(w.Per, rlc.DurationText(w.Length))
	case force != nil && (force.Limit != asked || force.Hours != nil || len(force.Windows) > 0):
		b, name = backtest.FromTimed(h, force.Limit, force.Timed), timedText(&force.Limit, force.Timed)
	default:
		return nil, nil
	}
	text := " Today’s " + name + " would have dropped " + atLeast(&b)
	if !b.AtLeast || len(b.Episodes) > 0 { // below the stored detail no episode is known
		text += " in " + plural(len(b.Episodes), "episode", "episodes")
	}
	return []ui.Part{{Text: text + "."}}, nil
}
