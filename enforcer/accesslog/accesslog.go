// Package accesslog writes decisions as JSON lines: a share of all, and those
// that somebody will ask about.
package accesslog

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// Config is what a log is built from.
type Config struct {
	Out io.Writer // takes one line a call, from one goroutine; required
	// Reveal is a service's attributes as they may be told: with sensitive
	// values hashed. Required; Enforcer.Reveal.
	Reveal func(service string, attrs rlc.Attributes) rlc.Attributes
	// Share of all decisions that is written, 0 to 1.
	Share float64
	// Most is how many drops and virtual drops are written in a second beside
	// that share, and again how many requests that no quota bucket matches;
	// default 100.
	Most int
	Now  func() time.Time // nil: time.Now
}

// Log writes decisions. It is safe for use by many goroutines. A slow disk
// holds up no decision: lines that find the queue full are counted and left
// out.
type Log struct {
	config Config
	lines  chan []byte
	left   atomic.Uint64 // lines left out since it was last said

	mu     sync.Mutex
	second int64  // that spent counts
	spent  [2]int // lines of this second: refusals, unmatched
}

// queue is how many lines may wait for the disk.
const queue = 1024

// New makes a log; the error wraps rlc.ErrInvalid.
func New(c Config) (*Log, error) {
	switch {
	case c.Out == nil || c.Reveal == nil:
		return nil, fmt.Errorf("%w: an access log needs somewhere to write, and to know what may be told", rlc.ErrInvalid)
	case !(c.Share >= 0 && c.Share <= 1):
		return nil, fmt.Errorf("%w: an access log's share of %g is outside 0 to 1", rlc.ErrInvalid, c.Share)
	case c.Most < 0:
		return nil, fmt.Errorf("%w: an access log of %d lines a second", rlc.ErrInvalid, c.Most)
	}
	if c.Most == 0 {
		c.Most = 100
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Log{config: c, lines: make(chan []byte, queue)}, nil
}

// line is one decision. Limits stand in /v1/config; what was left is not
// worth a line.
type line struct {
	Time       string            `json:"time"`
	Service    string            `json:"service"`
	Bucket     string            `json:"bucket"`
	Key        rlc.Key           `json:"key,omitempty"`
	Outcome    enforcer.Outcome  `json:"outcome"`
	Failure    string            `json:"failure,omitempty"`
	Attributes map[string]string `json:"attributes"`
	Cost       int64             `json:"cost"`
	Peer       string            `json:"peer,omitempty"`
	Snapshot   string            `json:"snapshot"`
	Sampled    bool              `json:"sampled"` // part of the share of all, whatever the outcome
}

// Decided writes a decision or leaves it out. Peer is the verified name of who
// asked, "" for none. A look is no request and is never written.
func (l *Log) Decided(peer string, r enforcer.Request, d enforcer.Decision) {
	if r.Peek {
		return
	}
	sampled := l.config.Share > 0 && rand.Float64() < l.config.Share
	if !sampled && !l.asked(d) {
		return
	}
	attrs := l.config.Reveal(r.Service, r.Attributes)
	told := make(map[string]string, len(attrs))
	for name, v := range attrs {
		told[name] = clip(v)
	}
	b, err := json.Marshal(line{
		Time: l.config.Now().UTC().Format("2006-01-02T15:04:05.000Z"), Service: clip(r.Service), Bucket: d.Bucket, Key: clipKey(d.Key), Outcome: d.Outcome, Failure: d.Failure,
		Attributes: told, Cost: max(r.Cost, 1), Peer: clip(peer), Snapshot: d.Version.String(), Sampled: sampled,
	})
	if err != nil {
		return // no value of a line is beyond JSON
	}
	select {
	case l.lines <- append(b, '\n'):
	default:
		l.left.Add(1)
	}
}

// asked reports whether somebody will ask about a decision, and this second
// has room for it.
func (l *Log) asked(d enforcer.Decision) bool {
	kind := 0
	switch {
	case d.Outcome != enforcer.Admit:
	case d.Bucket == enforcer.Unmatched:
		kind = 1
	default:
		return false
	}
	second := l.config.Now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	if second != l.second {
		l.second, l.spent = second, [2]int{}
	}
	if l.spent[kind] >= l.config.Most {
		l.left.Add(1)
		return false
	}
	l.spent[kind]++
	return true
}

// Run writes until ctx ends, and then what is still queued. Once a second it
// says how many lines were left out. It returns nil; an output that fails is
// tried again with each line.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case b := <-l.lines:
			l.write(b)
		case <-tick.C:
			l.say()
		case <-ctx.Done():
			for {
				select {
				case b := <-l.lines:
					l.write(b)
				default:
					l.say()
					return nil
				}
			}
		}
	}
}

func (l *Log) write(b []byte) {
	if _, err := l.config.Out.Write(b); err != nil {
		l.left.Add(1)
	}
}

// say tells how many lines were left out since it was last told.
func (l *Log) say() {
	n := l.left.Swap(0)
	if n == 0 {
		return
	}
	b := fmt.Appendf(nil, `{"time":%q,"left_out":%d}`+"\n", l.config.Now().UTC().Format("2006-01-02T15:04:05.000Z"), n)
	if _, err := l.config.Out.Write(b); err != nil {
		l.left.Add(n)
	}
}

// most bytes of a value that a line carries.
const most = 256

// clip cuts a long value; the mark says so.
func clip(s string) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func clipKey(k rlc.Key) rlc.Key {
	for _, v := range k {
		if len(v) > most {
			out := make(rlc.Key, len(k))
			for name, v := range k {
				out[name] = clip(v)
			}
			return out
		}
	}
	return k
}
