// Command curves draws what the simulator sees, as SVG that is readable on
// light and dark pages:
//
//	go run ./enforcer/loop/sim/curves docs/loop
package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/openrlc/rlc/enforcer/loop/sim"
)

// nodes and seed are those of every drawing.
const (
	nodes = 500
	seed  = 2026
)

// curve is one line: a run, or what it was offered.
type curve struct {
	name  string
	class string // of the style sheet
	run   sim.Result
	load  bool // draw the offered load
}

// drawing is one file.
type drawing struct {
	file, title string
	from, until time.Duration
	zero        time.Duration // the time that the axis calls 0
	top         float64       // of the scale, in limits
	curves      []curve
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: curves FOLDER")
		os.Exit(3)
	}
	if err := os.MkdirAll(os.Args[1], 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "curves:", err)
		os.Exit(1)
	}
	for _, d := range drawings() {
		if err := os.WriteFile(filepath.Join(os.Args[1], d.file), []byte(d.svg()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "curves:", err)
			os.Exit(1)
		}
	}
}

func drawings() []drawing {
	step := func(rate float64, d sim.Design) (sim.Result, time.Duration) {
		c, at := sim.StepTo(seed, nodes, rate)
		c.Design = d
		return sim.Do(c), at
	}
	compare := func(file, title string, rate, top float64) drawing {
		ours, at := step(rate, sim.Loop)
		naive, _ := step(rate, sim.Naive)
		shares, _ := step(rate, sim.Shares)
		return drawing{file, title, at - 2*time.Second, at + 14*time.Second, at, top, []curve{
			{"offered", "offered", ours, true},
			{"shares with ten saved seconds", "shares", shares, false},
			{"as first published", "naive", naive, false},
			{"this loop", "ours", ours, false},
		}}
	}
	dies := 12 * time.Second
	dead := sim.One(seed, nodes, sim.Limit, sim.Jump(sim.Base, 5*sim.Limit, dies+10*time.Second), dies+40*time.Second)
	dead.Events = map[time.Duration]func(*sim.Run){
		dies:                  (*sim.Run).KillController,
		dies + 30*time.Second: (*sim.Run).StartController,
	}
	cut := sim.One(seed, nodes, sim.Limit, sim.Flat(3*sim.Limit), 50*time.Second)
	cut.Events = map[time.Duration]func(*sim.Run){
		15 * time.Second: func(r *sim.Run) { r.Cut(0, true) },
		40 * time.Second: func(r *sim.Run) { r.Cut(0, false) },
	}
	uneven := func(d sim.Design) sim.Result {
		c := sim.One(seed, nodes, sim.Limit, sim.Flat(0.9*sim.Limit), 32*time.Second)
		c.Design = d
		c.Streams[0].Node = sim.OnOff(nodes)
		return sim.Do(c)
	}
	onOff, onOffShares := uneven(sim.Loop), uneven(sim.Shares)
	wave := sim.One(seed, nodes, sim.Limit, sim.Wave(0, 3*sim.Limit, 12*time.Second, time.Second), 36*time.Second)
	deadRun, cutRun, waveRun := sim.Do(dead), sim.Do(cut), sim.Do(wave)
	return []drawing{
		compare("step15.svg", "22,000 to 367,000 requests/s, limit 24,000", 367_000, 16),
		compare("step1.5.svg", "22,000 to 36,000 requests/s, limit 24,000", 36_000, 1.8),
		{"controller.svg", "The controller dies at 0 s, the load grows fivefold at 10 s, it returns at 30 s", dies - 2*time.Second, dies + 40*time.Second, dies, 5.5,
			[]curve{{"offered", "offered", deadRun, true}, {"admitted", "ours", deadRun, false}}},
		{"partition.svg", "One of three zones is cut off from 0 s to 25 s, at three times the limit", 13 * time.Second, 50 * time.Second, 15 * time.Second, 3.3,
			[]curve{{"offered", "offered", cutRun, true}, {"admitted", "ours", cutRun, false}}},
		{"uneven.svg", "Nodes that are busy four seconds of sixteen, together at 0.9 of the limit", 12 * time.Second, 30 * time.Second, 12 * time.Second, 1.2,
			[]curve{{"offered", "offered", onOff, true}, {"shares with ten saved seconds", "shares", onOffShares, false}, {"this loop", "ours", onOff, false}}},
		{"wave.svg", "0 and three times the limit, each for half a second", 10 * time.Second, 30 * time.Second, 12 * time.Second, 3.3,
			[]curve{{"offered", "offered", waveRun, true}, {"admitted", "ours", waveRun, false}}},
	}
}

// The picture, in pixels.
const (
	width, height           = 760, 300
	left, right, above, low = 52, 16, 58, 34
)

const style = `<style>
text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:14px;font-weight:600}
.axis{stroke:#999}.grid{stroke:#8884;stroke-width:1}.limit{stroke:#777;stroke-dasharray:5 4}
polyline{fill:none;stroke-width:2;stroke-linejoin:round}
.offered{stroke:#999;stroke-width:1.2}.naive{stroke:#c2571a}.shares{stroke:#8250c4}.ours{stroke:#0b6bcb}
@media(prefers-color-scheme:dark){text{fill:#ddd}.naive{stroke:#f0924f}.shares{stroke:#b794f4}.ours{stroke:#5aa9f5}}
</style>`

// window is the width of the mean that is drawn.
const window = 200 * time.Millisecond

func (d drawing) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">%s`, width, height, html.EscapeString(d.title), style)
	fmt.Fprintf(&b, "\n"+`<text class="title" x="%d" y="20">%s</text>`, left, html.EscapeString(d.title))
	x := func(t time.Duration) float64 {
		return left + float64(t-d.from)/float64(d.until-d.from)*(width-left-right)
	}
	y := func(v float64) float64 { return height - low - min(v, d.top)/d.top*(height-above-low) }
	for v, by := 0.0, nice(d.top); v <= d.top; v += by {
		fmt.Fprintf(&b, "\n"+`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%g ×</text>`, left, width-right, y(v), y(v), left-6, y(v)+4, v)
	}
	for at := 0 * time.Second; d.zero+at <= d.until; at += seconds(d.until - d.from) {
		fmt.Fprintf(&b, "\n"+`<text x="%.1f" y="%d" text-anchor="middle">%g s</text>`, x(d.zero+at), height-12, at.Seconds())
	}
	fmt.Fprintf(&b, "\n"+`<line class="limit" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, width-right, y(1), y(1))
	legend := left
	for _, c := range d.curves {
		fmt.Fprintf(&b, "\n"+`<polyline class="%s" points="%d,40 %d,40"/><text x="%d" y="44">%s</text>`, c.class, legend, legend+18, legend+24, html.EscapeString(c.name))
		legend += 44 + 7*len(c.name)
		per := c.run.Admitted
		if c.load {
			per = c.run.Offered
		}
		fmt.Fprintf(&b, "\n"+`<polyline class="%s" points="`, c.class)
		for at := d.from; at+window <= d.until; at += window / 2 {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(at+window/2), y(sim.Rate(per, at, at+window)/sim.Limit))
		}
		b.WriteString(`"/>`)
	}
	b.WriteString("\n</svg>\n")
	return b.String()
}

// nice is a step of the scale that gives four to eight lines.
func nice(top float64) float64 {
	for _, by := range []float64{0.25, 0.5, 1, 2, 4} {
		if math.Floor(top/by) <= 8 {
			return by
		}
	}
	return 8
}

// seconds is a step of the time axis.
func seconds(span time.Duration) time.Duration {
	if span > 20*time.Second {
		return 5 * time.Second
	}
	return 2 * time.Second
}
