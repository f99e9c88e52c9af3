package enforcer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
	"github.com/openrlc/rlc/internal/jsontext"
)

// Action is what an override does to the requests that it matches.
type Action string

// The actions.
const (
	// LimitAction holds them, together, to a rate and a burst, as one more cap.
	LimitAction Action = "limit"
	// DropAction drops a share of them at random.
	DropAction Action = "drop"
	// BlockAction drops them all.
	BlockAction Action = "block"
	// LiftAction makes the verdicts of their quota buckets virtual. Caps and
	// other overrides stand.
	LiftAction Action = "lift"
)

// Overrides are the emergency limits in force: the document that travels beside
// the snapshot, as JSON.
type Overrides struct {
	List []Override `json:"overrides"`
	// AllToShadow throws the kill switch of this name while the document is in
	// force.
	AllToShadow bool `json:"all_to_shadow,omitempty"`
}

// Override is an emergency limit that a person set, for a while.
type Override struct {
	ID      string             `json:"id"`      // unique in the document
	Service string             `json:"service"` // its name, or "*" for every service
	Match   map[string]Pattern `json:"match"`   // attribute to pattern; empty matches every request
	Action  Action             `json:"action"`

	Rate      *rlc.Rate  `json:"rate,omitempty"`       // limit: requests per second; 0 admits none
	Burst     *rlc.Burst `json:"burst,omitempty"`      // limit: nil is one second of the rate, at least 1
	DropRatio rlc.Ratio  `json:"drop_ratio,omitempty"` // drop: the share, above 0 and at most 0.999

	From   time.Time `json:"from"`
	Until  time.Time `json:"until"` // exclusive; at most MaxOverride after From
	Actor  string    `json:"actor"` // whose act it is
	Reason string    `json:"reason"`
	// RampSeconds is how long after Until the requests that are above their old
	// limit come back little by little; 0 is DefaultRamp. Not for lift.
	RampSeconds int `json:"ramp_seconds,omitempty"`
}

// The bounds of overrides.
const (
	MaxOverride          = 7 * 24 * time.Hour // how long one may stand
	DefaultRamp          = time.Minute
	MostOverrides        = 1000    // in a document
	MaxOverridesDocument = 1 << 20 // bytes of it
	maxRamp              = time.Hour
	maxText              = 1024  // bytes of an id, actor or reason
	mostDropped          = 0.999 // a share; a person who wants all of it says block
)

// Pattern is what an attribute is compared with: as in a policy a value, a
// prefix that ends in "*", "*" or "absent"; or a list of values. In JSON it is
// a string or a list of strings. A sensitive attribute is compared by the hash
// of its value, which is what people see of it.
type Pattern []string

// MarshalJSON implements json.Marshaler.
func (p Pattern) MarshalJSON() ([]byte, error) {
	if len(p) == 1 {
		return json.Marshal(p[0])
	}
	return json.Marshal([]string(p))
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Pattern) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil && !bytes.Equal(b, []byte("null")) {
		*p = Pattern{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil || len(list) == 0 {
		return errors.New("a pattern is a string, or a list of at least one")
	}
	*p = list
	return nil
}

// compile is the pattern as the matcher has it.
func (p Pattern) compile() (rlc.Pattern, error) {
	for _, v := range p {
		switch {
		case v == "":
			return rlc.Pattern{}, errors.New("a pattern is empty; write absent for requests without the attribute")
		case len(v) > maxValue:
			return rlc.Pattern{}, fmt.Errorf("a pattern has %d bytes; at most %d", len(v), maxValue)
		case len(p) > 1 && (v == "absent" || strings.Contains(v, "*")):
			return rlc.Pattern{}, fmt.Errorf("%q in a list; a list holds exact values", v)
		}
	}
	if len(p) == 0 {
		return rlc.Pattern{}, errors.New("a pattern is empty")
	}
	if len(p) > 1 {
		return rlc.Pattern{Kind: rlc.List, Values: p}, nil
	}
	switch v := p[0]; {
	case v == "absent":
		return rlc.Pattern{Kind: rlc.Absent}, nil
	case v == "*":
		return rlc.Pattern{Kind: rlc.Present}, nil
	case strings.IndexByte(v, '*') == len(v)-1:
		return rlc.Pattern{Kind: rlc.Prefix, Values: []string{v[:len(v)-1]}}, nil
	case strings.Contains(v, "*"):
		return rlc.Pattern{}, fmt.Errorf("%q is not a pattern; a star may only end one", v)
	}
	return rlc.Pattern{Kind: rlc.Exact, Values: p}, nil
}

// limit is what a limit override admits.
func (o Override) limit() rlc.Limit {
	l := rlc.Limit{Rate: *o.Rate}
	switch {
	case o.Burst != nil:
		l.Burst = *o.Burst
	case l.Rate > 0:
		l.Burst = rlc.Burst(max(math.Ceil(float64(l.Rate)), 1))
	}
	return l
}

// namesCallers reports whether the override is for callers by name: a value, a
// prefix or a list, not for all that have a name or for those that have none.
func (o Override) namesCallers() bool {
	p, ok := o.Match["caller"]
	return ok && !slices.Equal(p, Pattern{"*"}) && !slices.Equal(p, Pattern{"absent"})
}

// ramp is how long after its end an override's requests come back.
func (o Override) ramp() time.Duration {
	switch {
	case o.Action == LiftAction:
		return 0
	case o.RampSeconds == 0:
		return DefaultRamp
	}
	return time.Duration(o.RampSeconds) * time.Second
}

// Valid reports whether the override can be enforced: rlc.ErrInvalid with what
// is wrong.
func (o Override) Valid() error {
	if text := o.wrong(); text != "" {
		return fmt.Errorf("%w: %s", rlc.ErrInvalid, text)
	}
	return nil
}

func (o Override) wrong() string {
	for _, field := range []struct{ name, value string }{{"id", o.ID}, {"service", o.Service}, {"actor", o.Actor}, {"reason", o.Reason}} {
		switch {
		case strings.TrimSpace(field.value) == "":
			return field.name + " is missing"
		case len(field.value) > maxText:
			return fmt.Sprintf("%s has %d bytes; at most %d", field.name, len(field.value), maxText)
		}
	}
	switch {
	case o.From.IsZero() || o.Until.IsZero():
		return "from and until are required"
	case !o.Until.After(o.From):
		return "until is not after from"
	case o.Until.Sub(o.From) > MaxOverride:
		return fmt.Sprintf("it stands for %s; at most %s", rlc.DurationText(o.Until.Sub(o.From)), rlc.DurationText(MaxOverride))
	case o.RampSeconds < 0 || time.Duration(o.RampSeconds)*time.Second > maxRamp || o.RampSeconds > 0 && o.Action == LiftAction:
		return fmt.Sprintf("ramp_seconds %s is outside 0 to %s, or beside lift", rlc.Number(o.RampSeconds), rlc.Number(maxRamp.Seconds()))
	case len(o.Match) > 16:
		return "match names more than 16 attributes"
	}
	if text := o.wrongAction(); text != "" {
		return text
	}
	if _, err := o.matcher(); err != nil {
		return err.Error()
	}
	return ""
}

func (o Override) wrongAction() string {
	switch o.Action {
	case LimitAction, DropAction, BlockAction, LiftAction:
	default:
		return fmt.Sprintf("action %q; want limit, drop, block or lift", o.Action)
	}
	if o.Action != LimitAction && (o.Rate != nil || o.Burst != nil) {
		return fmt.Sprintf("rate or burst beside %s", o.Action)
	}
	if o.Action != DropAction && o.DropRatio != 0 {
		return fmt.Sprintf("drop_ratio beside %s", o.Action)
	}
	switch {
	case o.Action == LimitAction && o.Rate == nil:
		return "limit needs a rate"
	case o.Action == LimitAction:
		if err := o.limit().Valid(); err != nil {
			return strings.TrimPrefix(err.Error(), rlc.ErrInvalid.Error()+": ")
		}
	case o.Action == DropAction && !(o.DropRatio > 0 && o.DropRatio <= mostDropped):
		return fmt.Sprintf("drop_ratio %g is outside 0 to %g; to drop everything, block", float64(o.DropRatio), mostDropped)
	}
	return ""
}

// matcher compiles what the override matches.
func (o Override) matcher() (*match.Matcher, error) {
	b := rlc.Bucket{Name: "override", Match: map[string]rlc.Pattern{}}
	for name, p := range o.Match {
		if name == "" || len(name) > maxName {
			return nil, fmt.Errorf("an attribute's name has %d bytes; want 1 to %d", len(name), maxName)
		}
		c, err := p.compile()
		if err != nil {
			return nil, fmt.Errorf("match %s: %w", name, err)
		}
		b.Match[name] = c
	}
	m, problems := match.Compile(&rlc.Service{Buckets: []rlc.Bucket{b}})
	if len(problems) > 0 {
		return nil, errors.New(problems[0].Message)
	}
	return m, nil
}

// ParseOverrides reads the document strictly: unknown, doubled and misspelt
// names, a second value, text that is not UTF-8 and entries that are not valid
// are refused, and with them the whole document (rlc.ErrInvalid).
func ParseOverrides(content []byte) (Overrides, error) {
	var o Overrides
	invalid := func(format string, args ...any) (Overrides, error) {
		return Overrides{}, fmt.Errorf("%w: overrides: %w", rlc.ErrInvalid, fmt.Errorf(format, args...))
	}
	switch {
	case len(content) > MaxOverridesDocument:
		return invalid("%d bytes; at most %d", len(content), MaxOverridesDocument)
	case !utf8.Valid(content):
		return invalid("not valid UTF-8")
	}
	if err := tidy(content); err != nil {
		return invalid("%w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return invalid("%s", jsontext.Of(err))
	}
	switch {
	case o.List == nil:
		return invalid(`want {"overrides": [...]}`)
	case len(o.List) > MostOverrides:
		return invalid("%d entries; at most %d", len(o.List), MostOverrides)
	}
	seen := map[string]bool{}
	for i, x := range o.List {
		if text := x.wrong(); text != "" {
			return invalid("entry %d (%.100q): %s", i+1, x.ID, text)
		}
		if seen[x.ID] {
			return invalid("entry %d: id %.100q is given twice", i+1, x.ID)
		}
		seen[x.ID] = true
	}
	return o, nil
}

// tidy refuses what the decoder lets pass: names given twice, names in another
// case, a second value, and deep nesting.
func tidy(content []byte) error {
	const deepest = 6
	known := []string{"overrides", "all_to_shadow", "id", "service", "match", "action", "rate", "burst", "drop_ratio", "from", "until", "actor", "reason", "ramp_seconds"}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.UseNumber()
	token := func(depth int) (json.Token, error) {
		t, err := dec.Token()
		if err == io.EOF && depth > 1 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			err = errors.New(jsontext.Of(err))
		}
		return t, err
	}
	var value func(depth int, names []string) error
	value = func(depth int, names []string) error {
		if depth > deepest {
			return fmt.Errorf("nested deeper than %d", deepest)
		}
		t, err := token(depth)
		if err != nil {
			return err
		}
		if t == nil {
			return errors.New("null; leave the name out instead")
		}
		open, ok := t.(json.Delim)
		if !ok {
			return nil
		}
		seen := map[string]bool{}
		for dec.More() {
			inner := names
			if open == '{' {
				t, err := token(depth + 1)
				if err != nil {
					return err
				}
				name, _ := t.(string)
				switch {
				case seen[name]:
					return fmt.Errorf("%.100q is given twice", name)
				case names != nil && !slices.Contains(names, name):
					return fmt.Errorf("unknown name %.100q", name)
				case name == "match":
					inner = nil // attributes, called as people please
				}
				seen[name] = true
			}
			if err := value(depth+1, inner); err != nil {
				return err
			}
		}
		_, err = token(depth + 1)
		return err
	}
	if err := value(1, known); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}
