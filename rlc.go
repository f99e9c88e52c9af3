// Package rlc is the vocabulary of the Rate Limit Configurator: the nouns that
// its packages share, the contracts that several of them speak, and the error
// values that callers branch on. It imports the standard library only.
//
// Units hold everywhere: a rate is in requests per second, a burst in whole
// requests, a share is between 0 and 1, a time is UTC. Absence is nil, a
// missing sample or ErrAbstain; it is never a zero limit, because a zero limit
// means "admit nothing".
package rlc

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The values that callers branch on. Adapters translate their library's errors
// into these.
var (
	// ErrAbstain says that a policy lacks the evidence for an estimate. The
	// quota in force stands. The wrapping text is the reason.
	ErrAbstain = errors.New("not enough evidence")
	// ErrNotFound says that no such record, file or object exists.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that the thing written to has changed meanwhile.
	ErrConflict = errors.New("changed meanwhile")
	// ErrFenced says that the writer no longer leads: its epoch is stale.
	ErrFenced = errors.New("not the leader")
	// ErrInvalid says that an input was refused; the text names place and fix.
	ErrInvalid = errors.New("invalid")
	// ErrRefused says that a guard refused the act.
	ErrRefused = errors.New("refused by a guard")
	// ErrUnpublishable says that a proposal itself is at fault (a file that would
	// not validate, a target that is somebody else's): no later try can succeed.
	ErrUnpublishable = errors.New("cannot be published")
	// ErrUnavailable says that an engine (a database, a bus) does not answer or
	// is too busy; the same call may succeed later. Whether a write that fails so
	// while it is committed took effect is not known.
	ErrUnavailable = errors.New("not available")
)

// Rate is a number of requests per second, sustained. The zero value admits
// nothing. It is finite and not negative.
type Rate float64

// Burst is the number of requests that may be admitted at one instant above
// the sustained rate. It is at least 1 in a valid limit whose rate is above 0.
type Burst int64

// Ratio is a share between 0 and 1.
type Ratio float64

// MaxRate bounds every rate and burst that is accepted from outside: a
// thousand times the largest fleet on record (80 million requests/s).
const MaxRate = 1e11

// Limit is what a mechanism needs to limit: a rate and a burst. The zero value
// admits nothing; "no limit" is a nil *Limit.
type Limit struct {
	Rate  Rate  `json:"rate"`
	Burst Burst `json:"burst"`
}

// Valid reports whether l can be enforced: rate and burst above 0 (or both 0,
// written by a person: admit nothing), finite, at most MaxRate.
func (l Limit) Valid() error {
	switch r := float64(l.Rate); {
	case math.IsNaN(r) || math.IsInf(r, 0):
		return fmt.Errorf("%w: rate is not a finite number", ErrInvalid)
	case r < 0 || r > MaxRate:
		return fmt.Errorf("%w: rate %s is outside 0 to %s", ErrInvalid, Number(r), Number(MaxRate))
	case l.Burst < 0 || float64(l.Burst) > MaxRate:
		return fmt.Errorf("%w: burst %s is outside 0 to %s", ErrInvalid, Number(l.Burst), Number(MaxRate))
	case r > 0 && l.Burst < 1:
		return fmt.Errorf("%w: burst %s is below 1 beside a rate of %s", ErrInvalid, Number(l.Burst), Number(r))
	}
	return nil
}

// Mode says what becomes of a request over its limit.
type Mode string

// The modes. The empty mode means "as the level above says".
const (
	Shadow  Mode = "shadow"  // counted as a virtual drop and admitted
	Enforce Mode = "enforce" // dropped
)

// Role says how a bucket takes part in a decision.
type Role string

// The roles. Quota buckets partition a service's traffic; caps overlap.
const (
	QuotaRole Role = "quota"
	CapRole   Role = "cap"
)

// Attributes are what is known of a request: "caller", "procedure" and others
// by name. An absent attribute and an empty value are the same thing.
type Attributes map[string]string

// Key is one value of a bucket that counts per attribute: attribute name to
// value, for the attributes in the bucket's Each. Nil for a bucket without.
type Key map[string]string

// String renders the key canonically: "caller=search,procedure=Create", names
// sorted in matching order, with backslash, comma and equals sign escaped. The
// nil key is the empty string.
func (k Key) String() string {
	if len(k) == 0 {
		return ""
	}
	names := make([]string, 0, len(k))
	for n := range k {
		names = append(names, n)
	}
	SortAttributes(names)
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		keyEscape.WriteString(&b, n)
		b.WriteByte('=')
		keyEscape.WriteString(&b, k[n])
	}
	return b.String()
}

var keyEscape = strings.NewReplacer(`\`, `\\`, `,`, `\,`, `=`, `\=`)

// ParseKey reads what Key.String writes. The empty string is the nil key.
func ParseKey(s string) (Key, error) {
	if s == "" {
		return nil, nil
	}
	k := Key{}
	var part strings.Builder
	name, named := "", false
	flush := func() error {
		if !named || name == "" {
			return fmt.Errorf("%w: key %q: want name=value[,name=value]", ErrInvalid, s)
		}
		if _, twice := k[name]; twice {
			return fmt.Errorf("%w: key %q names %q twice", ErrInvalid, s, name)
		}
		k[name] = part.String()
		part.Reset()
		name, named = "", false
		return nil
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			part.WriteByte(s[i])
		case c == '=' && !named:
			name, named = part.String(), true
			part.Reset()
		case c == ',':
			if err := flush(); err != nil {
				return nil, err
			}
		default:
			part.WriteByte(c)
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return k, nil
}

// Equal reports whether two keys name the same counter.
func (k Key) Equal(o Key) bool { return k.String() == o.String() }

// CompareAttributes orders attribute names as matching does: caller, then
// procedure, then by name.
func CompareAttributes(a, b string) int {
	return cmp.Or(cmp.Compare(attributeRank(a), attributeRank(b)), cmp.Compare(a, b))
}

func attributeRank(name string) int {
	switch name {
	case "caller":
		return 0
	case "procedure":
		return 1
	}
	return 2
}

// SortAttributes sorts names by CompareAttributes.
func SortAttributes(names []string) {
	// Names of one bucket are few; insertion keeps this file free of imports.
	for i := 1; i < len(names); i++ {
		for j := i; j > 0 && CompareAttributes(names[j], names[j-1]) < 0; j-- {
			names[j], names[j-1] = names[j-1], names[j]
		}
	}
}

// Window is a span of time, From inclusive, Until exclusive.
type Window struct {
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
}

// Contains reports whether t lies in w.
func (w Window) Contains(t time.Time) bool { return !t.Before(w.From) && t.Before(w.Until) }

// Overlaps reports whether [from, until) and w share an instant.
func (w Window) Overlaps(from, until time.Time) bool {
	return w.From.Before(until) && from.Before(w.Until)
}

// Problem is one finding of a validator, with its place. File, Line and Column
// are 0 or empty where there is no such place; lines and columns start at 1.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning,omitempty"`
}

// String is file:line:col: message; hint. A warning says so.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		fmt.Fprintf(&b, "%s:%d:%d: ", oneLine(p.File), max(p.Line, 1), max(p.Column, 1))
	}
	if p.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString("; ")
		b.WriteString(p.Hint)
	}
	return b.String()
}

// oneLine is s with control characters written out, so that a name cannot
// forge a line of output.
func oneLine(s string) string {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// Version orders snapshots: first by epoch, then by number. The zero value is
// older than every snapshot.
type Version struct {
	Epoch  uint64 // the last RLC-Epoch trailer on the base branch
	Number uint64 // first-parent commits of the base branch
}

// String is "epoch.number".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Epoch, v.Number) }

// Compare is negative when v is older than o, 0 when equal.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Epoch, o.Epoch), cmp.Compare(v.Number, o.Number))
}

// ParseVersion reads what Version.String writes.
func ParseVersion(s string) (Version, error) {
	e, n, ok := strings.Cut(s, ".")
	epoch, err1 := strconv.ParseUint(e, 10, 64)
	number, err2 := strconv.ParseUint(n, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return Version{}, fmt.Errorf("%w: version %q: want epoch.number", ErrInvalid, s)
	}
	return Version{epoch, number}, nil
}

// MarshalText makes a version a string in JSON.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (v *Version) UnmarshalText(b []byte) (err error) {
	*v, err = ParseVersion(string(b))
	return err
}
