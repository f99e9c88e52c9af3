package scheduler

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

func parse(t *testing.T, spec string) Schedule {
	t.Helper()
	s, err := ParseSchedule(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNextSlot(t *testing.T) {
	for _, c := range []struct{ spec, after, want string }{
		{"30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T02:30:00Z"}, // Europe springs forward: UTC does not
		{"30 2 * * *", "2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z"},
		{"30 2 * * *", "2026-10-25T02:29:59Z", "2026-10-25T02:30:00Z"}, // and falls back: once
		{"30 2 * * *", "2026-10-25T02:30:00Z", "2026-10-26T02:30:00Z"},
		{"*/15 * * * *", "2026-11-29T10:15:00Z", "2026-11-29T10:30:00Z"},
		{"0 6 * * mon", "2026-11-29T10:15:00Z", "2026-11-30T06:00:00Z"},
		{"0 0 29 2 *", "2026-11-29T10:15:00Z", "2028-02-29T00:00:00Z"},
		{"@daily", "2026-11-29T10:15:00Z", "2026-11-30T00:00:00Z"},
		{" @hourly ", "2026-11-29T10:15:00Z", "2026-11-29T11:00:00Z"},
		{"@every 1m", "2026-11-29T10:15:30Z", "2026-11-29T10:16:00Z"},
		{"@every 30m", "2026-11-29T10:15:00Z", "2026-11-29T10:30:00Z"},
		{"@every 24h", "2026-11-29T10:15:00Z", "2026-11-30T00:00:00Z"},
		{"@every 1d", "2026-11-29T10:15:00Z", "2026-11-30T00:00:00Z"},
		{"@every 1w", "2026-11-29T10:15:00Z", "2026-11-30T00:00:00Z"}, // weeks since the year 1, a Monday
	} {
		if got := parse(t, c.spec).Next(at(c.after)); !got.Equal(at(c.want)) {
			t.Errorf("%s after %s: %s, want %s", c.spec, c.after, got, c.want)
		}
	}
}

// A time zone in the time asked about changes nothing: 02:30 is 02:30 UTC also
// in the hour that Paris does not have.
func TestSlotsAreUTCWhateverTheZoneOfTheClock(t *testing.T) {
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, "30 2 * * *")
	var keys []string
	for now, end := at("2026-03-28T00:00:00Z").In(paris), at("2026-03-31T00:00:00Z"); ; {
		now = s.Next(now)
		if now.After(end) {
			break
		}
		keys = append(keys, Slot{Job: "j", Time: now.In(paris)}.Key())
	}
	want := "j@2026-03-28T02:30:00Z j@2026-03-29T02:30:00Z j@2026-03-30T02:30:00Z"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("slots %s, want %s", got, want)
	}
}

func TestSchedulesThatAreRefused(t *testing.T) {
	for _, spec := range []string{
		"", " ", "TZ=0", "CRON_TZ=0", " TZ=UTC * * * * *", "TZ=Europe/Paris 30 2 * * *",
		"0 0 30 2 *", "0 0 31 4 *", // no such day
		"* * * *", "* * * * * *", "60 * * * *", "*/0 * * * *", "1-0 * * * *", "a * * * *",
		"@never", "@every", "@every 1ns", "@every 59s", "@every 90s", "@every -1h", "@every 0", "@every 1x", "@every 9999999999h",
		"* * * *\n*", "* * * * *\x00", "* * * * ＊", strings.Repeat("* ", 5000),
		"* * * * *" + strings.Repeat(" ", 92), // 101 bytes
	} {
		s, err := ParseSchedule(spec)
		if !errors.Is(err, rlc.ErrInvalid) || s != (Schedule{}) {
			t.Errorf("%.40q: %v, %v; want it refused", spec, s, err)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.40q: an error of %d bytes", spec, len(err.Error()))
		}
	}
	if _, err := ParseSchedule("* * * * *" + strings.Repeat(" ", 91)); err != nil {
		t.Errorf("100 bytes: %v", err)
	}
}

func TestTheZeroScheduleIsNeverDue(t *testing.T) {
	var s Schedule
	if got := s.Next(at("2026-11-29T10:15:00Z")); !got.IsZero() {
		t.Errorf("next %s, want none", got)
	}
	if got := s.last(at("2026-11-28T10:15:00Z"), at("2026-11-29T10:15:00Z")); !got.IsZero() {
		t.Errorf("last %s, want none", got)
	}
}

func TestTheLastSlotOfASpan(t *testing.T) {
	for _, c := range []struct{ spec, after, until, want string }{
		{"0 * * * *", "2026-11-29T07:00:00Z", "2026-11-29T10:17:00Z", "2026-11-29T10:00:00Z"},
		{"0 * * * *", "2026-11-29T10:00:00Z", "2026-11-29T10:17:00Z", ""},
		{"0 * * * *", "2026-11-29T09:59:00Z", "2026-11-29T10:00:00Z", "2026-11-29T10:00:00Z"},
		{"0 * * * *", "2026-11-29T11:00:00Z", "2026-11-29T10:00:00Z", ""}, // the clock went back
		{"* * * * *", "2000-01-01T00:00:00Z", "2026-11-29T10:17:30Z", "2026-11-29T10:17:00Z"},
		{"0 0 29 2 *", "2020-11-29T00:00:00Z", "2026-11-29T00:00:00Z", "2024-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2024-11-29T00:00:00Z", "2026-11-29T00:00:00Z", ""},
	} {
		got := parse(t, c.spec).last(at(c.after), at(c.until))
		if want := c.want; (want == "") != got.IsZero() || (want != "" && !got.Equal(at(want))) {
			t.Errorf("%s in (%s, %s]: %s, want %q", c.spec, c.after, c.until, got, want)
		}
	}
}

// Whatever the text: refused, or due at whole minutes that are at least a
// minute apart; never a panic.
func FuzzParseSchedule(f *testing.F) {
	for _, spec := range []string{"TZ=0", "CRON_TZ=0", "0 0 30 2 *", "@every 1ns", "@every 1h30m", "@daily", "*/7 1-5,9 ? jan-dec sun", "0-59/61 * * * *", "30 2 * * *", "@every 2562047h47m"} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		s, err := ParseSchedule(spec)
		if err != nil {
			if !errors.Is(err, rlc.ErrInvalid) {
				t.Fatalf("error %v, want one that says invalid", err)
			}
			return
		}
		now := at("2026-11-29T10:15:30Z")
		for range 3 {
			next := s.Next(now)
			if next.IsZero() {
				return // none within five years
			}
			if !next.After(now) || !next.Equal(next.Truncate(time.Minute)) || next.Location() != time.UTC {
				t.Fatalf("%q: after %s comes %s", spec, now, next)
			}
			now = next
		}
		if _, err := ParseSchedule(s.String()); err != nil {
			t.Fatalf("%q renders as %q: %v", spec, s, err)
		}
	})
}
