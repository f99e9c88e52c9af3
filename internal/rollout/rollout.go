package rollout

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// State is where a promotion stands.
type State string

// The states. Growing is the only one that moves by itself.
const (
	Growing    State = "growing"
	Halted     State = "halted"      // no verdict could be had: zones stay as they are until a person promotes again
	RolledBack State = "rolled_back" // drops were not what the backtest said: all in shadow again
	Done       State = "done"        // enforced everywhere that was asked for
)

// Promotion is a bucket on its way from shadow to enforce, as a named person
// approved it. Zones that nobody named stay in shadow.
type Promotion struct {
	ID       string    `json:"id"`
	Service  string    `json:"service"`
	Bucket   string    `json:"bucket"`
	Actor    string    `json:"actor"` // who approved it
	State    State     `json:"state"`
	Plan     []string  `json:"plan"`     // zones in order; empty: everywhere at once
	All      bool      `json:"all"`      // after the last of Plan everywhere
	Reached  int       `json:"reached"`  // how many of Plan enforce
	Fleet    []string  `json:"fleet"`    // zones that enforcers reported when it began
	Expected rlc.Ratio `json:"expected"` // share of requests that the backtest drops
	Stage    time.Time `json:"stage"`    // when the last zone was added
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"` // zero while it grows
	Why      string    `json:"why"`   // the last verdict, for people
	Commit   string    `json:"commit"`
}

// Zones is what policy.yaml says now: nil is everywhere.
func (p Promotion) Zones() []string {
	if p.everywhere() {
		return nil
	}
	return p.Plan[:p.Reached]
}

func (p Promotion) everywhere() bool { return p.All && p.Reached > len(p.Plan) || len(p.Plan) == 0 }

// Over reports whether nothing more happens by itself.
func (p Promotion) Over() bool { return p.State != Growing }

// EnforcedSince is when a bucket went from shadow to enforce, as far as its
// promotions, the newest first, tell; zero where they do not.
func EnforcedSince(promotions []Promotion, bucket string) time.Time {
	for _, p := range promotions {
		if p.Bucket == bucket && p.State != RolledBack {
			return p.Started
		}
	}
	return time.Time{}
}

// stages is how many steps there are: the zones, and everywhere.
func (p Promotion) stages() int {
	if p.All || len(p.Plan) == 0 {
		return len(p.Plan) + 1
	}
	return len(p.Plan)
}

// Begin starts a promotion with its first zone, or where Reached says that
// zones enforce already, with the next.
func Begin(p Promotion, now time.Time) (Promotion, error) {
	for i, z := range p.Plan {
		if z == "" || slices.Contains(p.Plan[:i], z) {
			return p, fmt.Errorf("%w: zone %q is empty or named twice", rlc.ErrInvalid, z)
		}
	}
	if len(p.Plan) == 0 && !p.All {
		return p, fmt.Errorf("%w: name zones, or say that all are meant", rlc.ErrInvalid)
	}
	p.State, p.Reached, p.Stage, p.Started = Growing, min(p.Reached+1, p.stages()), now, now
	p.Why = "the first stage began"
	return p, nil
}

// Seen is what enforcers counted of the bucket since the stage began.
type Seen struct {
	Known   bool // the counters could be read
	Offered float64
	Drops   float64
}

// Act is what is to be done.
type Act string

// The acts.
const (
	Wait Act = "wait"
	Grow Act = "grow" // commit the next stage
	End  Act = "end"  // nothing is left to grow
	Halt Act = "halt" // stop: no verdict
	Back Act = "back" // commit shadow
)

// Judge compares what was counted with the backtest. Too many drops lead back
// at once; growth waits for the soak, and without a verdict at its end it
// stops: not knowing is never a yes.
func Judge(p Promotion, s Seen, now time.Time, r Rules) (Act, string) {
	if p.State != Growing {
		return Wait, p.Why
	}
	r = r.Complete()
	expected := float64(p.Expected) * s.Offered * p.reach()
	if s.Known && TooMany(s.Drops, expected, r) {
		return Back, fmt.Sprintf("%s drops in %s, the backtest says %s: more than %g times as many",
			figure(s.Drops), span(now.Sub(p.Stage)), figure(expected), r.Factor)
	}
	if now.Sub(p.Stage) < r.Soak {
		return Wait, fmt.Sprintf("soaking until %s: %s drops so far", p.Stage.Add(r.Soak).UTC().Format("15:04 UTC"), figure(s.Drops))
	}
	if !s.Known || s.Offered <= 0 {
		return Halt, "no verdict: no counter of this bucket could be read during the soak"
	}
	said := fmt.Sprintf("%s drops of %s requests, the backtest says %s", figure(s.Drops), figure(s.Offered), figure(expected))
	if p.Reached >= p.stages() {
		return End, said
	}
	return Grow, said
}

// span is how long a stage has lasted: "40 s", "4 min".
func span(d time.Duration) string {
	if d < 2*time.Minute {
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	}
	return fmt.Sprintf("%d min", int(d.Minutes()))
}

// TooMany reports whether drops exceed what the backtest expects by the factor.
func TooMany(drops, expected float64, r Rules) bool {
	r = r.Complete()
	return drops >= r.MinDrops && drops > r.Factor*expected
}

// reach is the share of the fleet's zones that enforce.
func (p Promotion) reach() float64 {
	zones := p.Zones()
	if zones == nil || len(p.Fleet) == 0 {
		return 1
	}
	n := 0
	for _, z := range zones {
		if slices.Contains(p.Fleet, z) {
			n++
		}
	}
	return float64(n) / float64(len(p.Fleet))
}

// Advance is the promotion after an act.
func Advance(p Promotion, a Act, why string, now time.Time) Promotion {
	p.Why = why
	switch a {
	case Grow:
		p.Reached++
		p.Stage = now
	case End:
		p.State, p.Ended = Done, now
	case Halt:
		p.State, p.Ended = Halted, now
	case Back:
		p.State, p.Ended = RolledBack, now
	}
	return p
}

func figure(n float64) string { return fmt.Sprintf("%.0f", math.Round(n)) }

// Pin keeps runs from proposing a number again that was rolled back.
type Pin struct {
	ID      string    `json:"id"`
	Service string    `json:"service"`
	Quota   string    `json:"quota"` // its ID: "bucket/caller=search"
	Limit   rlc.Limit `json:"limit"` // that is not proposed again
	Band    float64   `json:"band"`  // nor one so near to it, as a relative change: twice the deadband
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// Holds reports whether a number is the pinned one, or too near to it.
func (p Pin) Holds(l rlc.Limit) bool {
	return near(float64(p.Limit.Rate), float64(l.Rate), p.Band) && near(float64(p.Limit.Burst), float64(l.Burst), p.Band)
}

func near(was, is, band float64) bool {
	return was == is || was != 0 && math.Abs(is-was)/was <= band
}
