package rlc

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Override is an emergency limit that a person set, for a while. Enforcers act
// on it within seconds, without a commit; it is above every quota, so no run
// changes what it does.
type Override struct {
	ID      string              `json:"id"`
	Service string              `json:"service"` // "*" is every service
	Match   map[string][]string `json:"match"`   // attribute to a pattern or a list of values, as in a policy; empty is every request
	Action  string              `json:"action"`  // limit, drop, block or lift

	Rate      *Rate  `json:"rate"`       // limit: requests per second; 0 admits none
	Burst     *Burst `json:"burst"`      // limit: nil is one second of the rate
	DropRatio Ratio  `json:"drop_ratio"` // drop: the share

	From        time.Time `json:"from"`
	Until       time.Time `json:"until"`        // exclusive
	RampSeconds int       `json:"ramp_seconds"` // 0 is a minute; see Over
	Actor       string    `json:"actor"`        // who set it
	Reason      string    `json:"reason"`
	EndedBy     string    `json:"ended_by"` // who ended it before its time; "" for nobody
}

// Stands reports whether the override acts at now.
func (o Override) Stands(now time.Time) bool { return !now.Before(o.From) && now.Before(o.Until) }

// Over is when it leaves no trace any more: requests above their old limit
// come back little by little once it has ended.
func (o Override) Over() time.Time {
	switch {
	case o.Action == "lift":
		return o.Until
	case o.RampSeconds > 0:
		return o.Until.Add(time.Duration(o.RampSeconds) * time.Second)
	}
	return o.Until.Add(time.Minute)
}

// Touches reports whether requests that a bucket of this match and key counts
// may be the override's, and whether all of them are. Of attributes that
// neither names nothing is known: then only some may be.
func (o Override) Touches(match map[string]Pattern, key Key) (some, all bool) {
	all = true
	for name, want := range o.Match {
		may, every := true, false
		if value, known := key[name]; known {
			may = covers(want, value)
			every = may
		} else if p, known := match[name]; known {
			may, every = overlap(want, p)
		}
		if !may {
			return false, false
		}
		all = all && every
	}
	return true, all
}

// Meets reports whether one request can be both overrides'.
func (o Override) Meets(x Override) bool {
	match := make(map[string]Pattern, len(x.Match))
	for name, p := range x.Match {
		match[name] = patternOf(p)
	}
	some, _ := o.Touches(match, nil)
	return some && (o.Service == x.Service || o.Service == "*" || x.Service == "*")
}

// patternOf is a pattern as people write it.
func patternOf(p []string) Pattern {
	switch {
	case len(p) != 1:
		return Pattern{Kind: List, Values: p}
	case p[0] == "absent":
		return Pattern{Kind: Absent}
	case p[0] == "*":
		return Pattern{Kind: Present}
	case strings.HasSuffix(p[0], "*"):
		return Pattern{Kind: Prefix, Values: []string{strings.TrimSuffix(p[0], "*")}}
	}
	return Pattern{Kind: Exact, Values: p}
}

// overlap reports whether a pattern, as people write it, can fit a value that
// another fits, and whether it fits all of them.
func overlap(want []string, p Pattern) (some, all bool) {
	switch p.Kind {
	case Absent:
		some = covers(want, "")
		return some, some
	case Exact, List:
		all = true
		for _, value := range p.Values {
			fits := covers(want, value)
			some, all = some || fits, all && fits
		}
		return some, all
	}
	begin := "" // of every value that p fits
	if p.Kind == Prefix && len(p.Values) > 0 {
		begin = p.Values[0]
	}
	if len(want) == 1 && strings.HasSuffix(want[0], "*") {
		prefix := strings.TrimSuffix(want[0], "*")
		all = strings.HasPrefix(begin, prefix)
		return all || strings.HasPrefix(prefix, begin), all
	}
	absent := len(want) == 1 && want[0] == "absent"
	return !absent && slices.ContainsFunc(want, func(v string) bool { return strings.HasPrefix(v, begin) }), false
}

// Matches reports whether the override is for a request of its service with
// these attributes, as enforcers match: those that mean "no identity" are to be
// left out.
func (o Override) Matches(attrs Attributes) bool {
	for name, want := range o.Match {
		if !covers(want, attrs[name]) {
			return false
		}
	}
	return true
}

// covers reports whether a pattern, as people write it, fits a value; "" is an
// absent attribute.
func covers(pattern []string, value string) bool {
	if len(pattern) == 1 {
		p := pattern[0]
		switch {
		case p == "absent":
			return value == ""
		case strings.HasSuffix(p, "*"):
			return value != "" && strings.HasPrefix(value, strings.TrimSuffix(p, "*"))
		}
	}
	return value != "" && slices.Contains(pattern, value)
}

// Does is the action in words, as what happens to its subject: "held to 500 req/s".
func (o Override) Does() string {
	switch {
	case o.Action == "limit" && o.Rate != nil:
		return "held to " + Number(*o.Rate) + " req/s"
	case o.Action == "drop":
		return Number(math.Round(1e6*float64(o.DropRatio))/1e4) + " % dropped"
	case o.Action == "block":
		return "blocked"
	case o.Action == "lift":
		return "drops lifted"
	}
	return o.Action
}

// Subject is whom it is for, in words: "checkout ← caller=search".
func (o Override) Subject() string {
	service := o.Service
	if service == "*" {
		service = "every service"
	}
	names := make([]string, 0, len(o.Match))
	for name := range o.Match {
		names = append(names, name)
	}
	SortAttributes(names)
	parts := make([]string, 0, len(names))
	for _, name := range names {
		parts = append(parts, name+"="+strings.Join(o.Match[name], "|"))
	}
	if len(parts) == 0 {
		return service + " ← everybody"
	}
	return service + " ← " + strings.Join(parts, " ")
}

// The kill switches of the configurator.
const (
	// StopAutomation computes, publishes, merges and distributes nothing any
	// more. Overrides still work.
	StopAutomation = "stop-automation"
	// AllToShadow has every enforcer drop nothing: every verdict is virtual, and
	// no override is applied.
	AllToShadow = "all-to-shadow"
)

// KillSwitch is one of them, and who has thrown it.
type KillSwitch struct {
	Name   string    `json:"name"`
	On     bool      `json:"on"`
	Actor  string    `json:"actor,omitempty"` // who set it last; the file's name where a file holds it
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"` // zero: it was never thrown
}
