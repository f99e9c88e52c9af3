package web

import (
	"slices"
	"strconv"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// multiples is a score's spread as pages show it: in words, drawn, and as a table;
// nil where the score has none.
func multiples(v *visit, x rlc.Score, sheets ui.Pager) *ui.Histogram {
	if sum(x.Spread) == 0 || len(x.Spread) != len(rlc.Multiples())+1 {
		return nil
	}
	h := &ui.Histogram{At: v.timeAs(x.At, "15:04"), Say: spreadSay(x), Sheets: sheets, Wide: bars(x.Spread, 1120), Slim: bars(x.Spread, 340)}
	h.Label = "Histogram of " + plural(sum(x.Spread), "limit", "limits") + " by their multiple of the peak that counts"
	h.Table = ui.Grid{Caption: "Limits by their multiple of the peak that counts", Columns: []ui.Column{{Label: "Times the peak"}, {Label: "Limits", Class: "num"}, {Label: "Share", Class: "num"}, {Label: "Fits"}}}
	for i, n := range x.Spread {
		if n > 0 {
			fits := map[bool]string{true: "yes"}[fitting(i)]
			h.Table.Rows = append(h.Table.Rows, []ui.Cell{{Text: classText(i)}, {Text: count(float64(n))}, {Text: shareText(float64(n), float64(sum(x.Spread)))}, {Text: fits}})
		}
	}
	return h
}

// between are the bounds of a class, as multiples; ok is false for none on a side.
func between(class int) (from, to float64, first, last bool) {
	edges := rlc.Multiples()
	if class > 0 {
		from = edges[class-1]
	}
	if class < len(edges) {
		to = edges[class]
	}
	return from, to, class == 0, class == len(edges)
}

func classText(class int) string {
	from, to, first, last := between(class)
	switch {
	case first:
		return "below " + trim(to, 1) + "×"
	case last:
		return trim(from, 1) + "× and more"
	}
	return trim(from, 1) + "–" + trim(to, 1) + "×"
}

// below is the number of the first class that begins at a multiple.
func below(multiple float64) int { return slices.Index(rlc.Multiples(), multiple) + 1 }

// fitting reports whether the limits of a class fit.
func fitting(class int) bool { return class >= below(rlc.FitLeast) && class < below(rlc.FitMost) }

func sum(all []int) (n int) {
	for _, x := range all {
		n += x
	}
	return n
}

// spreadSay is a spread in words: what fits, what does not on either side, and
// where the middle half lies.
func spreadSay(x rlc.Score) []ui.Part {
	all, s := sum(x.Spread), x.Spread
	under, tight, wide := sum(s[:below(1)]), sum(s[:below(rlc.FitLeast)]), sum(s[below(rlc.FitMost):])
	say := []ui.Part{{Text: count(float64(all - tight - wide)), Bold: true}, {Text: " of " + plural(all, "limit", "limits") + " with a known peak that counts lie at 1.3 to 3 times of it"}}
	if tight > 0 {
		say = append(say, ui.Part{Text: "; "}, ui.Part{Text: count(float64(tight)), Bold: true}, ui.Part{Text: " below, where ordinary growth is dropped"})
		if under > 0 {
			say = append(say, ui.Part{Text: " (" + count(float64(under)) + " of them "}, ui.Part{Text: "below the peak itself", URL: "/services?sort=headroom"}, ui.Part{Text: ")"})
		}
	}
	if wide > 0 {
		say = append(say, ui.Part{Text: "; "}, ui.Part{Text: count(float64(wide)), Bold: true}, ui.Part{Text: " above, where a limit protects little"})
	}
	say = append(say, ui.Part{Text: "."})
	from, _, first, _ := between(nth(s, (all+3)/4))
	_, to, _, last := between(nth(s, all-all/4))
	if all >= 8 && !first && !last {
		say = append(say, ui.Part{Text: " Half of them lie between " + trim(from, 1) + " and " + trim(to, 1) + " times."})
	}
	return say
}

// nth is the class of the nth limit, from the lowest multiple.
func nth(spread []int, n int) int {
	for i, x := range spread {
		if n -= x; n <= 0 {
			return i
		}
	}
	return len(spread) - 1
}

// bars draws a spread in a width of so many units and a height of 154: a bar for
// each class, at least 2 units high where it holds a limit.
func bars(spread []int, width float64) ui.Bars {
	const foot, tall = 132.0, 100.0
	most, each := slices.Max(spread), width/float64(len(spread))
	at := func(multiple float64) float64 { return each * float64(below(multiple)) }
	out := ui.Bars{ViewBox: "0 0 " + place(width) + " 154", Width: place(width), Band: ui.Box{X: place(at(rlc.FitLeast)), Y: "8", W: place(at(rlc.FitMost) - at(rlc.FitLeast)), H: "124"}}
	for i, n := range spread {
		if n == 0 {
			continue
		}
		h := max(2, tall*float64(n)/float64(most))
		out.Bars = append(out.Bars, ui.Bar{Box: ui.Box{X: place(each*float64(i) + each/16), Y: place(foot - h), W: place(each * 7 / 8), H: place(h)}, Tight: i < below(rlc.FitLeast)})
	}
	for _, m := range []float64{.5, 1, 1.3, 2, 3, 4} {
		out.Ticks = append(out.Ticks, ui.Tick{X: place(at(m)), Text: trim(m, 1) + "×", D: "M" + place(at(m)) + " 132V137"})
	}
	under := "limit below the peak"
	if at(1) < 120 { // the words would begin outside
		under = "< peak"
	}
	out.Peak = ui.Tick{X: place(at(1) - 6), Text: under, D: "M" + place(at(1)) + " 8V132"}
	out.Fit = ui.Tick{X: place(at(rlc.FitLeast) + 6), Text: "fits: 1.3–3×"}
	return out
}

// multiplesJSON are a spread's classes; an open side is null.
func multiplesJSON(spread []int) []object {
	out := []object{}
	for i, n := range spread {
		from, to, first, last := between(i)
		one := object{"from": from, "to": to, "limits": n, "fits": fitting(i)}
		if first {
			one["from"] = nil
		}
		if last {
			one["to"] = nil
		}
		out = append(out, one)
	}
	return out
}

// multiplesCSV is /scorecard.csv?by=multiple.
func multiplesCSV(v *visit, spread []int) error {
	var rows [][]string
	for i, n := range spread {
		from, to, first, last := between(i)
		row := []string{float(from), float(to), strconv.Itoa(n), strconv.FormatBool(fitting(i))}
		if first {
			row[0] = ""
		}
		if last {
			row[1] = ""
		}
		rows = append(rows, row)
	}
	return sheet(v, "multiples", []string{"from", "to", "limits", "fits"}, rows)
}
