package rlc

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// DurationText writes a duration as people and ParseDuration write it: no unit that
// is 0, whole days as days. "30m", "1h30m", "1m30s", "28d".
func DurationText(d time.Duration) string {
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// ParseDuration reads a duration as people write it: 90s, 2m30s, 12h, 7d, 2w, 1d12h.
// The units are those of time.ParseDuration, and days of 24 hours and weeks of
// seven days. There are no negative ones.
func ParseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%w: %q: want a duration with its unit, such as 30s, 15m, 12h, 7d or 2w", ErrInvalid, text)
	var sum time.Duration
	for rest := text; rest != "" || text == ""; {
		number := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if number <= 0 {
			return 0, wrong
		}
		end := strings.IndexFunc(rest[number:], func(r rune) bool { return r >= '0' && r <= '9' || r == '.' })
		if end < 0 {
			end = len(rest) - number
		}
		unit, times := rest[number:number+end], time.Duration(1)
		switch unit {
		case "d":
			unit, times = "h", 24
		case "w":
			unit, times = "h", 7*24
		}
		d, err := time.ParseDuration(rest[:number] + unit)
		if err != nil || d > (math.MaxInt64-sum)/times {
			return 0, wrong
		}
		sum += d * times
		rest = rest[number+end:]
	}
	return sum, nil
}
