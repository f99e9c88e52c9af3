package stat

// Pinball is the loss of a forecast of the q-quantile: q for each unit that the
// value lies above it, 1 − q for each unit below. Its expectation is least at
// the true quantile.
func Pinball(q, value, forecast float64) float64 {
	if d := value - forecast; d > 0 {
		return q * d
	} else {
		return (q - 1) * d
	}
}
