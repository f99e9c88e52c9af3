package demo

import (
	"compress/gzip"
	"embed"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/openrlc/rlc"
)

//go:embed traces/*.csv.gz
var traceFiles embed.FS

const (
	day  = 24 * time.Hour
	week = 7 * day
	// long is the span from which a trace is moved as one piece: what the demo
	// shows, the week that it may go on, and a week of play.
	long = history + 3*week
)

// trace is a recorded series: rates[i] is the mean rate of the step that
// starts at start + i × step, NaN where the recording has none.
type trace struct {
	start time.Time
	step  time.Duration // whole minutes that divide a day
	rates []float64
	days  [7][]int // for a short trace: its whole days by weekday, as indexes into rates
}

// readTrace reads traces/<name>.csv.gz: a header, then timestamp and rate.
func readTrace(name string) (*trace, error) {
	f, err := traceFiles.Open("traces/" + name + ".csv.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", name, err)
	}
	tr, err := parseTrace(z)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", name, err)
	}
	return tr, nil
}

func parseTrace(r io.Reader) (*trace, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = 2
	in.ReuseRecord = true
	if _, err := in.Read(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	tr := &trace{}
	for n := 0; ; n++ {
		row, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		at, err := time.Parse(time.RFC3339, row[0])
		if err != nil {
			return nil, err
		}
		rate, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			return nil, err
		}
		switch n {
		case 0:
			tr.start = at
		case 1:
			if tr.step = at.Sub(tr.start); tr.step < time.Minute || day%tr.step != 0 {
				return nil, fmt.Errorf("a step of %s", rlc.DurationText(tr.step))
			}
		}
		for n > 0 && time.Duration(len(tr.rates))*tr.step < at.Sub(tr.start) {
			tr.rates = append(tr.rates, math.NaN()) // a hole in the recording
		}
		tr.rates = append(tr.rates, rate)
	}
	if len(tr.rates) < 2 {
		return nil, fmt.Errorf("%d samples", len(tr.rates))
	}
	if tr.span() < long {
		perDay := int(day / tr.step)
		first := tr.start.Truncate(day)
		if first.Before(tr.start) {
			first = first.Add(day)
		}
		for i := int(first.Sub(tr.start) / tr.step); i+perDay <= len(tr.rates); i += perDay {
			w := tr.start.Add(time.Duration(i) * tr.step).Weekday()
			tr.days[w] = append(tr.days[w], i)
		}
		for w, days := range tr.days {
			if len(days) == 0 {
				return nil, fmt.Errorf("no whole %s", time.Weekday(w))
			}
		}
	}
	return tr, nil
}

func (tr *trace) span() time.Duration { return time.Duration(len(tr.rates)) * tr.step }

// at is the mean rate of the minute that starts at t, in the trace as seen from
// anchor, and that of the recorded step it lies in; NaN where the recording has
// none. Weekday and time of day are the recording's own.
//
// A long trace is moved by whole weeks, so that it ends within the week that
// begins a week after anchor; before its beginning and after its end it goes
// round by whole weeks. variant takes a part that is so many weeks older. A
// short trace is tiled by whole days: a date gets one of the recorded days of
// its weekday, in turn; variant begins with another one.
func (tr *trace) at(t, anchor time.Time, variant int) (rate, step float64) {
	if tr.days[0] != nil {
		days := tr.days[t.Weekday()]
		weeks := int(t.Unix()/int64(week/time.Second)) + variant
		first := days[((weeks%len(days))+len(days))%len(days)]
		return tr.minute(t.Sub(t.Truncate(day)), first, first+int(day/tr.step))
	}
	end := tr.start.Add(tr.span())
	moved := (anchor.Add(week).Sub(end)+week-1)/week*week + time.Duration(variant)*week
	since := t.Sub(tr.start) - moved
	round := tr.span() / week * week
	for since < 0 {
		since += round
	}
	for since >= tr.span() {
		since -= round
	}
	return tr.minute(since, 0, len(tr.rates))
}

// minute is at for the minute at an offset from step first, within steps
// [first, limit). Within a longer step the rate leans towards the neighbours;
// the mean over the step is the step's rate exactly.
func (tr *trace) minute(offset time.Duration, first, limit int) (rate, step float64) {
	i := first + int(offset/tr.step)
	v := tr.rates[i]
	n := int(tr.step / time.Minute)
	if n == 1 || math.IsNaN(v) {
		return v, v
	}
	lean := 0.0
	if i > first && i+1 < limit {
		lean = slope(v-tr.rates[i-1], tr.rates[i+1]-v, v)
	}
	j := float64(offset % tr.step / time.Minute)
	return v + lean*((j+0.5)/float64(n)-0.5), v // the second factor sums to 0 over a step
}

// slope is the change over a step that neither overshoots a neighbour (van
// Leer's monotonised central difference) nor leaves less than half of the rate
// at one end.
func slope(before, after, rate float64) float64 {
	if !(before*after > 0) { // an extreme, or a neighbour is missing
		return 0
	}
	s := min(2*math.Abs(before), 2*math.Abs(after), math.Abs(before+after)/2, rate)
	return math.Copysign(s, before)
}

// noise is a number in [−1, 1) for a minute of a series: the same one each
// time. Two minutes of a pair have opposite noise, so that pairs cancel.
func noise(seed uint64, minute int64) float64 {
	pair, odd := minute>>1, minute&1
	x := mix(seed ^ mix(uint64(pair)))
	v := float64(x>>11)/(1<<52) - 1
	if odd == 1 {
		return -v
	}
	return v
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
