package web

import (
	"strconv"
	"strings"
)

// decimal reads a number that a person typed, as config files take it: digits and at
// most one dot. what is its name at the head of a sentence, and unit what it counts.
// A comma may mean a thousand or a fraction: it is asked for again.
func decimal(text, what, unit string) (float64, error) {
	text = strings.TrimSpace(text)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.Trim(text, "0123456789.") != "" {
		if text == "" {
			return 0, invalid("%s is missing: a number of %s.", what, unit)
		}
		return 0, invalid("%s must be a number of %s in digits, such as 1200 or 80.5, not %s.", what, unit, clipped(text))
	}
	return n, nil
}
