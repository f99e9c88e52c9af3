package score

import (
	"bufio"
	"fmt"
	"io"
)

// bar is what a kind's scores must and should reach over all series.
type bar struct {
	name      string
	must, aim float64
	least     bool // a value is to be at least the bar, not at most
	of        func(own, base Average) float64
}

// bars are those of a kind under a protocol; none for kinds without any.
func bars(kind, protocol string) []bar {
	rel := func(a, _ Average) float64 { return a.Rel }
	cover := func(a, _ Average) float64 { return a.Cover }
	switch kind + " " + protocol {
	case "predictive weekly":
		return []bar{{"rel", 0.31, 0.26, false, rel}, {"cover", 0.980, 0.985, true, cover}}
	case "predictive daily":
		return []bar{{"rel", 0.28, 0.24, false, rel}, {"cover", 0.985, 0.990, true, cover}}
	case "historical weekly": // with headroom 0.2
		return []bar{
			{"drop", 0.007, 0.004, false, func(a, _ Average) float64 { return a.Drop }},
			{"cover", 0.998, 0.998, true, cover},
			{"alloc / " + Baseline, 0.76, 0.75, false, func(a, base Average) float64 { return a.Alloc / base.Alloc }},
		}
	}
	return nil
}

// verdict says whether v reaches the bar, or by how much it misses it.
func (b bar) verdict(v, bar float64) string {
	missing := v - bar
	if b.least {
		missing = -missing
	}
	if missing <= 0 {
		return reached
	}
	return fmt.Sprintf("off by %.4f", missing)
}

// Missed are the bars that the last method must reach and does not, each as a
// sentence; nil for none, and for a kind or protocol without bars.
func Missed(kind, protocol string, methods []Method) []string {
	if len(methods) < 2 {
		return nil
	}
	base, own := methods[0].Mean(""), methods[len(methods)-1].Mean("")
	var all []string
	for _, b := range bars(kind, protocol) {
		if v := b.of(own, base); b.verdict(v, b.must) != reached {
			all = append(all, fmt.Sprintf("%s, %s: %s is %.4f, %s; the bar is %.3f", kind, protocol, b.name, v, b.verdict(v, b.must), b.must))
		}
	}
	return all
}

// reached is the verdict on a bar that is.
const reached = "reached"

// WriteBars writes as Markdown how the last method stands against the bars of
// its kind, and the worst it comes to with one series left out. The first method
// is the baseline. Nothing is written for a kind or protocol without bars.
func WriteBars(out io.Writer, kind, protocol string, methods []Method) error {
	all := bars(kind, protocol)
	if len(all) == 0 || len(methods) < 2 {
		return nil
	}
	w := bufio.NewWriter(out)
	base, own := methods[0], methods[len(methods)-1]
	fmt.Fprintf(w, "\n### %s, %s: bars\n\n| score | value | must | | aim | | worst with one series left out |\n|---|---:|---:|---|---:|---|---:|\n", kind, protocol)
	for _, b := range all {
		v := b.of(own.Mean(""), base.Mean(""))
		worst := v
		for _, r := range own.Rows {
			x := b.of(own.Mean(r.Series), base.Mean(r.Series))
			if b.least == (x < worst) && x != worst {
				worst = x
			}
		}
		sign := "≤"
		if b.least {
			sign = "≥"
		}
		fmt.Fprintf(w, "| %s | %.4f | %s %.3f | %s | %s %.3f | %s | %.4f |\n", b.name, v, sign, b.must, b.verdict(v, b.must), sign, b.aim, b.verdict(v, b.aim), worst)
	}
	return w.Flush()
}
