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
	switch force := r.force(); {
	case r.bucket != nil && r.bucket.Window != nil:
		w := r.bucket.Window
		limit, err := gcra.CompileWindow(r.bucket.Algorithm, *w)
		if err != nil {
			return nil, err
		}
		b, name = backtest.FromHistoryCounted(h, limit), count(float64(w.Requests))+" a "+cmp.Or(w.Per, w.Length.String())
	case force != nil && *force != asked:
		b, name = backtest.FromHistory(h, *force), limitText(force)
	default:
		return nil, nil
	}
	return []ui.Part{{Text: " Today’s " + name + " would have dropped " + atLeast(&b) + " in " + plural(len(b.Episodes), "episode", "episodes") + "."}}, nil
}
