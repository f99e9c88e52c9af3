// Package external asks a team's own model over HTTP. The model sees what a
// policy sees and answers with a limit; whatever goes wrong, the policy abstains
// and says why. docs/policies/external.md holds the two JSON schemas and an
// example server.
package external

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies/historical"
)

// The bounds of one question.
const (
	DefaultTimeout = 5 * time.Second
	MaxTimeout     = 30 * time.Second
	maxAnswer      = 64 << 10 // bytes
	maxText        = 500      // characters of why, look and abstain
	giveUpAfter    = 3        // failures in a row, after which one policy value asks no more
)

// Config says whom to ask.
type Config struct {
	URL     string        // http or https, without user, query secrets or fragment
	Timeout time.Duration // of the whole exchange, DefaultTimeout by default
}

// Policy asks a model. It is safe for concurrent use. A policy value belongs to
// one run: after three failures in a row it asks no more, so that a model that
// is down does not cost a run its time.
type Policy struct {
	url     string
	host    string
	timeout time.Duration
	client  *Client

	mu     sync.Mutex
	failed int   // in a row
	last   error // of them
}

// New checks the configuration. Whether the host may be asked is the client's
// to say, when it is asked: an offline check of the file does not know.
func New(c Config, client *Client) (*Policy, error) {
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		return nil, errors.New("url is blank")
	case err != nil:
		return nil, errors.New("url is not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("url is not an http or https URL")
	case u.User != nil || u.Fragment != "":
		return nil, errors.New("url carries a user or a fragment")
	}
	p := &Policy{url: c.URL, host: u.Host, timeout: c.Timeout, client: client}
	if p.timeout <= 0 {
		p.timeout = DefaultTimeout
	}
	return p, nil
}

// Needs asks for four weeks, and for its answers to be kept.
func (p *Policy) Needs() rlc.Needs {
	return rlc.Needs{Lookback: historical.DefaultWindow, Outside: true}
}

// Propose asks the model, or reads in.Answer where the run was made before. It
// abstains where the historical policy would, and on every failure. What
// history says of the evidence (thin, young, clipped, distorted) holds for the
// model's number too.
func (p *Policy) Propose(ctx context.Context, in rlc.Input) (rlc.Estimate, error) {
	est, err := historical.Evidence(ctx, in)
	if err != nil {
		return est, err
	}
	body := in.Answer
	if body == "" {
		if body, err = p.ask(ctx, in, est); err != nil {
			return est, fmt.Errorf("%w: %w", rlc.ErrAbstain, err)
		}
	}
	est.Answer = body
	answer, err := decode([]byte(body))
	if err != nil {
		return est, fmt.Errorf("%w: the answer of %s: %w", rlc.ErrAbstain, p.host, err)
	}
	if answer.Abstain != "" {
		return est, fmt.Errorf("%w: %s declines: %s", rlc.ErrAbstain, p.host, clip(answer.Abstain))
	}
	p.take(&est, in, answer)
	return est, nil
}

// take puts an answer into the estimate.
func (p *Policy) take(est *rlc.Estimate, in rlc.Input, a Answer) {
	est.Limit.Rate = *a.Rate
	est.Limit.Burst = historical.Burst(*a.Rate, est.Peak.Rate, in.History.Step)
	if est.BurstUnseen = a.Burst == nil; !est.BurstUnseen {
		est.Limit.Burst = *a.Burst
	}
	est.Shadow = est.Shadow || a.Shadow
	est.Why = fmt.Sprintf("model %s %s", p.host, stat.RateText(*a.Rate))
	if a.Why != "" {
		est.Why += ": " + clip(a.Why)
	}
	if look := clip(a.Look); look != "" {
		if est.Look != "" {
			look = est.Look + "; " + look
		}
		est.Look = look
	}
	est.Steps = append(est.Steps,
		rlc.Reason{Rule: "model", Detail: est.Why, Rate: *a.Rate, Acted: true},
		rlc.Reason{Rule: "burst", Detail: "burst " + rlc.Number(est.Limit.Burst), Rate: *a.Rate})
}

// ask puts one question, unless the model has failed too often.
func (p *Policy) ask(ctx context.Context, in rlc.Input, est rlc.Estimate) (string, error) {
	p.mu.Lock()
	failed, last := p.failed, p.last
	p.mu.Unlock()
	if failed >= giveUpAfter {
		return "", fmt.Errorf("%s is not asked any more in this run: %s, the last: %w", p.host, rlc.Plural(failed, "failure"), last)
	}
	question, err := json.Marshal(questionOf(in, est))
	if err != nil {
		return "", fmt.Errorf("write the question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	body, err := p.client.post(ctx, p.url, bytes.NewReader(question))
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", rlc.DurationText(p.timeout))
		}
		p.failed, p.last = p.failed+1, err
		return "", fmt.Errorf("ask %s: %w", p.host, err)
	}
	p.failed, p.last = 0, nil
	return body, nil
}

// Question is what the model is sent: the input of every policy, in JSON. Rates
// are in requests per second, times are RFC 3339 UTC, shares are 0 to 1.
type Question struct {
	Version    int          `json:"version"` // 1
	Service    string       `json:"service"`
	Bucket     string       `json:"bucket"`
	Key        rlc.Key      `json:"key,omitempty"`
	Now        time.Time    `json:"now"`
	Timezone   string       `json:"timezone"`
	Step       float64      `json:"step_seconds"`
	Current    *rlc.Limit   `json:"current"`       // in force; null for none
	Capacity   *rlc.Rate    `json:"capacity_rate"` // less its reserve; null where none is declared
	Contract   *rlc.Limit   `json:"contract"`      // null for none
	WeeklyPeak rlc.Rate     `json:"weekly_peak"`   // highest step of the hours that count
	ValidDays  float64      `json:"valid_days"`
	Coverage   rlc.Ratio    `json:"coverage"`
	Hours      []Hour       `json:"hours"` // ascending; an hour without samples is left out
	Tail       []TailSample `json:"tail"`  // ascending in time: every step at or above tail_floor
	TailFloor  rlc.Rate     `json:"tail_floor"`
	Flags      []rlc.Flag   `json:"flags"` // windows that the historical policy leaves out
	Exclude    []rlc.Window `json:"exclude"`
	Count      []rlc.Window `json:"count"`
}

// Hour is one clock hour of the series.
type Hour struct {
	Start     time.Time `json:"start"`
	Max       rlc.Rate  `json:"max"`
	P99       rlc.Rate  `json:"p99"`
	Mean      rlc.Rate  `json:"mean"`
	Present   int       `json:"present"`
	Expected  int       `json:"expected"`
	Unhealthy bool      `json:"unhealthy"`
	Drops     rlc.Ratio `json:"drops"`
}

// TailSample is one step of the upper part of the series.
type TailSample struct {
	At   time.Time `json:"at"`
	Rate rlc.Rate  `json:"rate"`
}

func questionOf(in rlc.Input, est rlc.Estimate) Question {
	q := Question{
		Version: 1, Service: in.Service, Bucket: in.Bucket, Key: in.Key, Now: in.Now.UTC(), Timezone: "UTC",
		Step: in.History.Step.Seconds(), Current: in.Current, WeeklyPeak: est.Peak.Rate,
		ValidDays: est.ValidDays, Coverage: est.Coverage, TailFloor: in.History.TailFloor,
		Hours: []Hour{}, Tail: []TailSample{},
		Flags: append([]rlc.Flag{}, est.Flags...), Exclude: append([]rlc.Window{}, in.Exclude...), Count: append([]rlc.Window{}, in.Count...),
	}
	if in.Location != nil {
		q.Timezone = in.Location.String()
	}
	if c := in.Capacity; c != nil {
		room := stat.Tidy(c.Rate * rlc.Rate(1-c.Reserve))
		q.Capacity = &room
	}
	if c := in.Contract; c != nil {
		q.Contract = &c.Limit
	}
	for _, h := range in.History.Hours {
		if h.Present > 0 && !math.IsInf(float64(h.Max), 0) {
			q.Hours = append(q.Hours, Hour{h.Start.UTC(), h.Max, h.P99, h.Mean, h.Present, h.Expected, h.Unhealthy, h.Drops})
		}
	}
	for _, s := range in.History.Tail {
		if !math.IsInf(float64(s.Rate), 0) {
			q.Tail = append(q.Tail, TailSample{s.Time.UTC(), s.Rate})
		}
	}
	return q
}

// Answer is what the model sends back: a rate, or why it declines.
type Answer struct {
	Rate    *rlc.Rate  `json:"rate"`    // above 0
	Burst   *rlc.Burst `json:"burst"`   // from 1; left out: as for a historical quota
	Why     string     `json:"why"`     // one line for people
	Look    string     `json:"look"`    // why a person should look at it
	Shadow  bool       `json:"shadow"`  // keep the quota in shadow
	Abstain string     `json:"abstain"` // why there is no rate
}

// decode reads an answer strictly.
func decode(body []byte) (Answer, error) {
	var a Answer
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, fmt.Errorf("not as the schema wants it: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return a, errors.New("something follows the object")
	}
	switch {
	case a.Abstain != "" && (a.Rate != nil || a.Burst != nil):
		return a, errors.New("it has both a rate or burst and a reason to abstain")
	case a.Abstain != "":
		return a, nil
	case a.Rate == nil:
		return a, errors.New("it has neither a rate nor a reason to abstain")
	case !(*a.Rate > 0 && *a.Rate <= rlc.MaxRate):
		return a, fmt.Errorf("a rate of %s is outside 0 (exclusive) to %s", rlc.Number(*a.Rate), rlc.Number(rlc.MaxRate))
	case a.Burst != nil && (*a.Burst < 1 || *a.Burst > rlc.MaxRate):
		return a, fmt.Errorf("a burst of %s is outside 1 to %s", rlc.Number(*a.Burst), rlc.Number(rlc.MaxRate))
	}
	return a, nil
}

// clip makes a text from outside one line of bounded length.
func clip(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\u2028' || r == '\u2029'
	}), " ")
	if r := []rune(s); len(r) > maxText {
		return string(r[:maxText]) + "…"
	}
	return s
}
