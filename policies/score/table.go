package score

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"

	"github.com/openrlc/rlc"
)

// Row is one series' scores under one method.
type Row struct {
	Series string
	Scores
	Base float64 // pinball of the baseline, highest step × 1.2
}

// Method is what one forecaster scored on every series.
type Method struct {
	Name string
	Rows []Row
}

// Average is Scores over several series: the mean, and the geometric mean of
// the ratios Over, DayOver and Alloc.
type Average struct {
	Scores
	Rel       float64 // geometric mean of pinball / pinball of the baseline
	WorstDrop float64
}

// Baseline is the name of the method that Rel is measured against.
const Baseline = "max × 1.2"

// Score scores forecasts on every series of a protocol, the baseline first and
// the forecasts, named name, second. Every origin must be there.
func Score(dir fs.FS, protocol, name string, forecasts Forecasts) ([]Method, error) {
	splits, err := ReadSplits(dir, protocol)
	if err != nil {
		return nil, err
	}
	base, own := Method{Name: Baseline}, Method{Name: name}
	for len(splits) > 0 {
		n := 1
		for n < len(splits) && splits[n].Series == splits[0].Series {
			n++
		}
		mine := splits[:n]
		splits = splits[n:]
		t, err := ReadTrace(dir, mine[0].Series, mine[0].Step)
		if err != nil {
			return nil, err
		}
		b, err := Series(t, mine, func(s Split) ([]Level, error) { return HighestTimes(1.2, t, s), nil })
		if err != nil {
			return nil, err
		}
		o, err := Series(t, mine, func(s Split) ([]Level, error) {
			levels, ok := forecasts[Origin{s.Series, s.Origin}]
			if !ok {
				return nil, fmt.Errorf("%w: no forecast", rlc.ErrNotFound)
			}
			return levels, nil
		})
		if err != nil {
			return nil, err
		}
		base.Rows = append(base.Rows, Row{t.Name, b, b.Pinball})
		own.Rows = append(own.Rows, Row{t.Name, o, b.Pinball})
	}
	return []Method{base, own}, nil
}

// Mean averages the method's series, without the one named; "" leaves none out.
func (m Method) Mean(without string) Average {
	var a Average
	var n, mases, rel, over, dayOver, alloc float64
	for _, r := range m.Rows {
		if r.Series == without {
			continue
		}
		n++
		a.Pinball += r.Pinball
		a.HourPinball += r.HourPinball
		a.DayPinball += r.DayPinball
		a.Cover += r.Cover
		a.HourCover += r.HourCover
		a.DayCover += r.DayCover
		a.Drop += r.Drop
		if !math.IsNaN(r.MASE) {
			a.MASE += r.MASE
			mases++
		}
		a.Steps += r.Steps
		a.Origins += r.Origins
		a.WorstDrop = max(a.WorstDrop, r.Drop)
		rel += math.Log(r.Pinball / r.Base)
		over += math.Log(max(r.Over, 1e-6))
		dayOver += math.Log(max(r.DayOver, 1e-6))
		alloc += math.Log(max(r.Alloc, 1e-6))
	}
	for _, v := range []*float64{&a.Pinball, &a.HourPinball, &a.DayPinball, &a.Cover, &a.HourCover, &a.DayCover, &a.Drop} {
		*v /= n
	}
	a.MASE /= mases
	a.Rel, a.Over, a.DayOver, a.Alloc = math.Exp(rel/n), math.Exp(over/n), math.Exp(dayOver/n), math.Exp(alloc/n)
	return a
}

const (
	columns = "| pinball | rel | hpin | dpin | cover | hcover | dcover | over | dover | alloc | drop | mase |"
	numbers = "| %.4f | %.3f | %.4f | %.4f | %.4f | %.4f | %.3f | %.2f | %.2f | %.2f | %.5f | %.3f |"
)

// WriteTables writes the methods' averages, each series of the last method, and
// its average with one series left out at a time, as Markdown.
func WriteTables(out io.Writer, protocol string, methods []Method) error {
	w := bufio.NewWriter(out)
	line := func(name string, a Average, last string) {
		fmt.Fprintf(w, "| %s "+numbers+"%s\n", name, a.Pinball, a.Rel, a.HourPinball, a.DayPinball, a.Cover, a.HourCover, a.DayCover,
			a.Over, a.DayOver, a.Alloc, a.Drop, a.MASE, last)
	}
	head := func(first, last string) {
		fmt.Fprintf(w, "| %s %s%s\n|---|%s\n", first, columns, last, strings.Repeat("---:|", strings.Count(columns+last, "|")-1))
	}
	if len(methods) == 0 {
		return nil
	}
	own := methods[len(methods)-1]
	all := own.Mean("")
	fmt.Fprintf(w, "### %s: %d series, %d origins\n\n", protocol, len(own.Rows), all.Origins)
	head("method", " worst drop |")
	for _, m := range methods {
		a := m.Mean("")
		line(m.Name, a, fmt.Sprintf(" %.4f |", a.WorstDrop))
	}
	fmt.Fprintf(w, "\n### %s, by series\n\n", own.Name)
	head("series", "")
	for _, r := range own.Rows {
		line(r.Series, Method{Rows: []Row{r}}.Mean(""), "")
	}
	fmt.Fprintf(w, "\n### %s, one series left out\n\n", own.Name)
	head("without", "")
	for _, r := range own.Rows {
		line(r.Series, own.Mean(r.Series), "")
	}
	return w.Flush()
}
