package policies

import (
	"slices"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func TestAHandoverWithinHoursLooksLikeARename(t *testing.T) {
	at := monday.Add(-5 * day)
	before := func(peak float64, from, until time.Time) rlc.History {
		return recorded(monday, 28, func(x time.Time) float64 {
			if x.Before(from) || !x.Before(until) {
				return 0
			}
			return peak * usual(x) / 100
		})
	}
	start := monday.Add(-28 * day)
	life := func(id string, h rlc.History) Life { return LifeOf(id, "callers", h) }
	old := life("old", before(100, start, at))
	cases := map[string]struct {
		lives []Life
		want  []Rename
	}{
		"three hours later, a bit more": {[]Life{old, life("new", before(120, at.Add(3*hour), monday))}, []Rename{{"old", "new", at.Add(3 * hour)}}},
		"overlapping by two hours":      {[]Life{old, life("new", before(100, at.Add(-2*hour), monday))}, []Rename{{"old", "new", at.Add(-2 * hour)}}},
		"a day later":                   {[]Life{old, life("new", before(100, at.Add(day), monday))}, nil},
		"a tenth of the rate":           {[]Life{old, life("new", before(10, at, monday))}, nil},
		"the new one was there before":  {[]Life{old, life("new", before(100, start, monday))}, nil},
		"the old one goes on":           {[]Life{life("old", before(100, start, monday)), life("new", before(100, at, monday))}, nil},
		"the nearest rate wins":         {[]Life{old, life("a", before(150, at, monday)), life("b", before(101, at, monday))}, []Rename{{"old", "b", at}}},
	}
	for name, c := range cases {
		if got := Renames(c.lives, start, monday); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	// Quiet nights are no end: a caller of office hours, asked about at two in
	// the morning, beside one that began in the evening.
	office := recorded(monday, 28, func(x time.Time) float64 {
		if h := x.Hour(); h < 9 || h >= 17 {
			return 0
		}
		return 100
	})
	evening := before(100, monday.Add(-9*hour), monday)
	if got := Renames([]Life{life("office", office), life("evening", evening)}, start, monday); got != nil {
		t.Errorf("a quiet night: %v", got)
	}
	other := life("new", before(100, at, monday))
	other.Bucket = "create"
	if got := Renames([]Life{old, other}, start, monday); got != nil {
		t.Errorf("another bucket: %v", got)
	}
}
