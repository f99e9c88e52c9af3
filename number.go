package rlc

import (
	"math"
	"strconv"
	"strings"
)

// Number renders a number for people: every digit it has, a comma at each
// thousand, a true minus and never an exponent. "10,000", "0.05", "−3.5".
func Number[N ~int | ~int64 | ~float64](n N) string {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return Grouped(strconv.FormatFloat(float64(n), 'f', -1, 64))
}

// Grouped puts a comma at each thousand of a number in decimal digits, and a true
// minus in the place of its hyphen: "-1234.5" is "−1,234.5".
func Grouped(digits string) string {
	sign := ""
	if rest, below := strings.CutPrefix(digits, "-"); below {
		sign, digits = "−", rest
	}
	whole, rest, dot := strings.Cut(digits, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if dot {
		whole += "." + rest
	}
	return sign + whole
}
