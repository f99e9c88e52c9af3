package rlc_test

import (
	"errors"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func TestDurationsAreWrittenInDaysAndWeeksToo(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "2m30s": 150 * time.Second, "12h": 12 * time.Hour, "7d": 7 * day, "40d": 40 * day,
		"2w": 14 * day, "1d12h": 36 * time.Hour, "1w1d1h": 8*day + time.Hour, "0.5d": 12 * time.Hour, "0s": 0, "250ms": 250 * time.Millisecond,
	} {
		if got, err := rlc.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "7", "d", "-1h", "-2d", "+1h", "1x", "1h ", "1 d", "1d-1h", "NaNs", "1e3s", "200000d", "99999999w", "15251w1d23h100000h99999999h"} {
		if got, err := rlc.ParseDuration(text); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%q: %s %v, want it refused", text, got, err)
		}
	}
}

// What is shown is what may be typed: no unit of 0, and it reads as the same time.
func TestDurationsAreShownAsTheyAreTyped(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "0s", 10 * time.Second: "10s", time.Minute: "1m", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", 30 * time.Minute: "30m",
		time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", day: "1d", 36 * time.Hour: "36h", 28 * day: "28d", 250 * time.Millisecond: "250ms",
	} {
		got := rlc.DurationText(d)
		if back, err := rlc.ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%v is shown as %q, want %q; it reads as %v (%v)", d, got, want, back, err)
		}
	}
}

// A message about a duration writes it as it is typed, too.
func TestMessagesWriteDurationsAsTheyAreTyped(t *testing.T) {
	w := rlc.WindowLimit{Requests: 10, Length: 366*24*time.Hour + 90*time.Minute}
	if err := w.Valid(); err == nil || err.Error() != "invalid: a window of 8785h30m is outside 1ms to 366d" {
		t.Errorf("a window that is too long: %v", err)
	}
}
