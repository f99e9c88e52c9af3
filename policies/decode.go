package policies

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// decoder reads a kind's parameters strictly: whatever a kind did not ask for
// is unknown.
type decoder struct {
	kind     string
	params   rlc.Params
	asked    []string
	problems []rlc.Problem
}

func (d *decoder) problem(message, hint string) {
	d.problems = append(d.problems, rlc.Problem{Message: message, Hint: hint})
}

func (d *decoder) failed() bool { return len(d.problems) > 0 }

func (d *decoder) get(name string) (any, bool) {
	d.asked = append(d.asked, name)
	v, ok := d.params[name]
	return v, ok
}

// number reads a finite number between low and high.
func (d *decoder) number(name string, low, high float64) (float64, bool) {
	v, ok := d.get(name)
	if !ok {
		return 0, false
	}
	var f float64
	switch v := v.(type) {
	case float64:
		f = v
	case int:
		f = float64(v)
	default:
		d.problem(fmt.Sprintf("%s is not a number", name), "write a plain number: 0.3 for 30 %")
		return 0, false
	}
	if !(f >= low && f <= high) { // NaN too
		d.problem(fmt.Sprintf("%s %s is out of range", name, rlc.Number(f)), fmt.Sprintf("%s to %s", rlc.Number(low), rlc.Number(high)))
		return 0, false
	}
	return f, true
}

// text reads a string.
func (d *decoder) text(name string) (string, bool) {
	v, ok := d.get(name)
	if !ok {
		return "", false
	}
	s, ok := v.(string)
	if !ok {
		d.problem(fmt.Sprintf("%s is not a text", name), "")
	}
	return s, ok
}

// duration reads "28d", "2w" or what Go reads, between low and high.
func (d *decoder) duration(name string, low, high time.Duration) (time.Duration, bool) {
	hint := fmt.Sprintf("%s to %s, as in 28d, 4w, 36h or 5s", rlc.DurationText(low), rlc.DurationText(high))
	v, ok := d.get(name)
	if !ok {
		return 0, false
	}
	s, ok := v.(string)
	if !ok {
		d.problem(fmt.Sprintf("%s is not a duration", name), hint)
		return 0, false
	}
	out, err := rlc.ParseDuration(s)
	if err != nil {
		d.problem(fmt.Sprintf("%s %q is not a duration", name, s), hint)
		return 0, false
	}
	if out < low || out > high {
		d.problem(fmt.Sprintf("%s %s is out of range", name, s), hint)
		return 0, false
	}
	return out, true
}

// time reads an RFC 3339 time or a date.
func (d *decoder) time(name string) (time.Time, bool) {
	v, ok := d.get(name)
	if !ok {
		return time.Time{}, false
	}
	if t, ok := v.(time.Time); ok {
		return t.UTC(), true
	}
	s, _ := v.(string)
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), true
		}
	}
	d.problem(fmt.Sprintf("%s is not a time", name), "as in 2026-11-27T00:00:00Z or 2026-11-27")
	return time.Time{}, false
}

// finish adds a problem for every parameter that nobody asked for.
func (d *decoder) finish() []rlc.Problem {
	var unknown []string
	for name := range d.params {
		if !slices.Contains(d.asked, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	hint := "it has no parameters"
	if len(d.asked) > 0 {
		hint = "known: " + strings.Join(d.asked, ", ")
	}
	for _, name := range unknown {
		d.problem(fmt.Sprintf("unknown parameter %q of policy %s", name, d.kind), hint)
	}
	return d.problems
}
