package web

import (
	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
)

// bursts says of a what-if whether the burst would have held what was counted by
// the second, and which burst that asks for; else, which peaks nobody sees.
func bursts(b *rlc.Backtest, h rlc.History, a asked, limit rlc.Limit) []string {
	var out []string
	if t := policies.BurstText(b); t != "" {
		out = append(out, t)
	}
	burst, second, ok := a.Suggestion(h, limit.Rate)
	switch {
	case !ok:
	case float64(burst) > float64(second):
		out = append(out, "Suggested is a burst of "+count(float64(burst))+": the highest second that is not left out, "+rate(float64(second))+" req/s, with the headroom, at least a second of the rate. That is "+trim(float64(burst)/float64(limit.Rate), 2)+" seconds of the rate.")
	default:
		out = append(out, "Suggested is a burst of "+count(float64(burst))+": the highest second that is not left out. That is "+trim(float64(burst)/float64(limit.Rate), 2)+" seconds of the rate.")
	}
	return out
}

// sentence makes a clause a sentence; "" stays.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return capital(text) + "."
}
