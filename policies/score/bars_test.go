package score

import (
	"strings"
	"testing"
)

func TestBarsSayWhatIsReachedAndHowFarTheRestIs(t *testing.T) {
	row := func(series string, drop, cover, alloc float64) Row {
		return Row{Series: series, Scores: Scores{Drop: drop, Cover: cover, Alloc: alloc, Pinball: 1, Over: 1, DayOver: 1, MASE: 1}, Base: 1}
	}
	methods := []Method{
		{Name: Baseline, Rows: []Row{row("a", 0, 1, 10), row("b", 0, 1, 10)}},
		{Name: "historical", Rows: []Row{row("a", 0.002, 1, 7), row("b", 0.010, 0.997, 7)}},
	}
	var out strings.Builder
	if err := WriteBars(&out, "historical", "weekly", methods); err != nil {
		t.Fatal(err)
	}
	// drop (0.002 + 0.010) / 2, without a 0.010; cover (1 + 0.997) / 2, without a
	// 0.997; alloc 7 / 10 either way.
	want := `
### historical, weekly: bars

| score | value | must | | aim | | worst with one series left out |
|---|---:|---:|---|---:|---|---:|
| drop | 0.0060 | ≤ 0.007 | reached | ≤ 0.004 | off by 0.0020 | 0.0100 |
| cover | 0.9985 | ≥ 0.998 | reached | ≥ 0.998 | reached | 0.9970 |
| alloc / max × 1.2 | 0.7000 | ≤ 0.760 | reached | ≤ 0.750 | reached | 0.7000 |
`
	if out.String() != want {
		t.Errorf("%s\nwant %s", out.String(), want)
	}
	if missed := Missed("historical", "weekly", methods); missed != nil {
		t.Errorf("missed: %q", missed)
	}
	methods[1].Rows[1].Drop = 0.013 // (0.002 + 0.013) / 2
	if missed := Missed("historical", "weekly", methods); len(missed) != 1 || missed[0] != "historical, weekly: drop is 0.0075, off by 0.0005; the bar is 0.007" {
		t.Errorf("missed: %q", missed)
	}
	out.Reset()
	if err := WriteBars(&out, "recent", "weekly", methods); err != nil || out.Len() > 0 {
		t.Errorf("a kind without bars: %q, %v", out.String(), err)
	}
}
