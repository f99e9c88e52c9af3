package stat

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// RateText renders a rate for people: whole from 100 on, three significant
// digits below, no trailing zeros, a comma at each
// thousand. "1,840/s", "61.3/s", "0.0833/s".
func RateText(r rlc.Rate) string {
	f := float64(r)
	if math.Abs(f) >= 100 {
		return rlc.Number(math.Round(f)) + "/s"
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', 3, 64), 64)
	if err != nil {
		rounded = f
	}
	return rlc.Number(rounded) + "/s"
}

// ShareText renders a change in percent with its sign, digits behind the point:
// "+30 %", "−4.2 %". The sign is a minus, not a hyphen; what rounds to nothing has none
// but the plus.
func ShareText(share float64, digits int) string {
	text := strconv.FormatFloat(math.Abs(100*share), 'f', digits, 64)
	if share < 0 && strings.Trim(text, "0.") != "" {
		return "−" + text + " %"
	}
	return "+" + text + " %"
}

// TimeText renders a time for people: "2026-11-20 14:00 UTC".
func TimeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// RoundUp rounds a rate up to three significant digits; 0 stays 0. What lies
// within a billionth of such a number counts as it, so that the noise of
// floating point adds no digit.
func RoundUp(r rlc.Rate) rlc.Rate {
	return round3(r, func(x float64) float64 { return math.Ceil(x - 1e-7) })
}

// RoundDown rounds a rate down to three significant digits.
func RoundDown(r rlc.Rate) rlc.Rate {
	return round3(r, func(x float64) float64 { return math.Floor(x + 1e-7) })
}

func round3(r rlc.Rate, whole func(float64) float64) rlc.Rate {
	f := float64(r)
	if f <= 0 || math.IsInf(f, 0) || math.IsNaN(f) {
		return r
	}
	exp := int(math.Floor(math.Log10(f))) - 2
	digits := whole(shift10(f, -exp))
	// The decimal text, not the product, is the nearest float to the number
	// that a person reads.
	out, err := strconv.ParseFloat(strconv.FormatFloat(digits, 'f', 0, 64)+"e"+strconv.Itoa(exp), 64)
	if err != nil {
		return r
	}
	return rlc.Rate(out)
}

// shift10 is f × 10^n, dividing by a whole power where n is negative: 0.1 has
// no exact form, 10 has.
func shift10(f float64, n int) float64 {
	if n < 0 {
		return f / math.Pow10(-n)
	}
	return f * math.Pow10(n)
}

// Tidy drops the noise of floating point from a computed rate: it keeps twelve
// significant digits.
func Tidy(r rlc.Rate) rlc.Rate {
	f, err := strconv.ParseFloat(strconv.FormatFloat(float64(r), 'g', 12, 64), 64)
	if err != nil {
		return r
	}
	return rlc.Rate(f)
}
