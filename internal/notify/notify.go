// Package notify tells people by webhook: one message at once for what cannot
// wait, a digest for the rest. What is to be told lies in an outbox that
// outlives the process.
package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/dialcheck"
)

// The kinds of target.
const (
	Slack   = "slack"   // Slack's incoming webhooks, and what takes the same
	Webhook = "webhook" // signed JSON
)

// Target is where messages go.
type Target struct {
	Name string // in the outbox; keep it
	Kind string // Slack or Webhook
	// URL is asked with each message, so that a changed file is taken up.
	URL func() (string, error)
	// Secret signs a Webhook's bodies; nil: they are not signed.
	Secret func() (string, error)
}

// Outbox keeps what is to be told. A notice of the same id is told once.
type Outbox interface {
	UnsentNotices(ctx context.Context) ([]rlc.OutgoingNotice, error)
	NoticesSent(ctx context.Context, target string, ids []string, at time.Time) error
	NoticesFailed(ctx context.Context, target string, ids []string, reason string, notBefore time.Time) error
}

// Config is what a sender needs. Outbox is required.
type Config struct {
	Outbox   Outbox
	Targets  []Target
	Hosts    []string         // that a URL may name, "host" or "host:port"; empty allows any
	Networks []netip.Prefix   // that a host may lead to; none: see dialcheck.Dialer
	Digest   time.Duration    // how long what can wait is gathered; 1 hour by default
	Now      func() time.Time // time.Now by default
	Log      *slog.Logger     // discarded by default
}

// Sender delivers what lies in the outbox. Deliver is for one goroutine.
type Sender struct {
	Config
	http http.Client
}

// New checks a configuration.
func New(c Config) (*Sender, error) {
	if c.Outbox == nil {
		return nil, errors.New("notify: Outbox is required")
	}
	for i, t := range c.Targets {
		if t.Name == "" || t.URL == nil || t.Kind != Slack && t.Kind != Webhook {
			return nil, fmt.Errorf("%w: notify target %d needs a name, a URL, and slack or webhook as its kind", rlc.ErrInvalid, i)
		}
	}
	if c.Digest <= 0 {
		c.Digest = time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Sender{Config: c}
	s.http = http.Client{
		Timeout:       10 * time.Second,
		Transport:     &http.Transport{DialContext: dialcheck.Dialer{Networks: c.Networks}.DialContext, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// Names are the targets', for whoever fills the outbox.
func (s *Sender) Names() (names []string) {
	for _, t := range s.Targets {
		names = append(names, t.Name)
	}
	return names
}

// Close gives up idle connections.
func (s *Sender) Close() { s.http.CloseIdleConnections() }

// Deliver sends what is due. The error says that the outbox could not be read
// or written; a target that fails is tried again later, after 5 seconds and
// then ever longer, up to an hour.
func (s *Sender) Deliver(ctx context.Context) error {
	if len(s.Targets) == 0 {
		return nil
	}
	unsent, err := s.Outbox.UnsentNotices(ctx)
	if err != nil {
		return err
	}
	for _, t := range s.Targets {
		for _, batch := range s.due(unsent, t.Name) {
			if err := s.deliver(ctx, t, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// due are a target's messages: each urgent notice, and one digest of the
// others once the oldest has waited long enough.
func (s *Sender) due(unsent []rlc.OutgoingNotice, target string) (batches [][]rlc.OutgoingNotice) {
	now := s.Now()
	var digest []rlc.OutgoingNotice
	for _, n := range unsent {
		switch {
		case n.Target != target || now.Before(n.NotBefore):
		case n.Urgent:
			batches = append(batches, []rlc.OutgoingNotice{n})
		default:
			digest = append(digest, n)
		}
	}
	if len(digest) > 0 && !now.Before(digest[0].At.Add(s.Digest)) {
		batches = append(batches, digest)
	}
	return batches
}

func (s *Sender) deliver(ctx context.Context, t Target, batch []rlc.OutgoingNotice) error {
	ids := make([]string, len(batch))
	attempts := 0
	for i, n := range batch {
		ids[i], attempts = n.ID, max(attempts, n.Attempts)
	}
	err := s.post(ctx, t, batch)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		return s.Outbox.NoticesSent(ctx, t.Name, ids, s.Now().UTC())
	}
	s.Log.Warn("notify", "target", t.Name, "attempt", attempts+1, "err", err)
	return s.Outbox.NoticesFailed(ctx, t.Name, ids, err.Error(), s.Now().UTC().Add(backoff(attempts)))
}

// backoff is 5 s, 10 s, 20 s, … up to an hour, each between half and all of it,
// so that replicas and targets do not come together.
func backoff(attempts int) time.Duration {
	d := min(5*time.Second<<min(attempts, 12), time.Hour)
	return d/2 + rand.N(d/2)
}

// message is the body that a Webhook gets.
type message struct {
	Version int          `json:"version"`
	Notices []rlc.Notice `json:"notices"`
}

func (s *Sender) post(ctx context.Context, t Target, batch []rlc.OutgoingNotice) error {
	target, err := s.url(t)
	if err != nil {
		return err
	}
	var body any = map[string]string{"text": text(batch)}
	if t.Kind == Webhook {
		m := message{Version: 1}
		for _, n := range batch {
			m.Notices = append(m.Notices, n.Notice)
		}
		body = m
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(b))
	if err != nil {
		return errors.New("the URL is not one") // it may hold a secret
	}
	req.Header.Set("Content-Type", "application/json")
	if t.Kind == Webhook {
		if err := s.sign(req, t, batch, b); err != nil {
			return err
		}
	}
	res, err := s.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL
		}
		return fmt.Errorf("post: %w", err)
	}
	defer res.Body.Close()
	io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("post: the target answers %d", res.StatusCode)
	}
	return nil
}

// url reads and checks a target's URL: https, or http on this machine.
func (s *Sender) url(t Target) (string, error) {
	text, err := t.URL()
	if err != nil {
		return "", fmt.Errorf("URL of %s: %w", t.Name, err)
	}
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("%w: the URL of %s is not one", rlc.ErrInvalid, t.Name)
	}
	local := slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, u.Hostname())
	if u.Scheme != "https" && !(u.Scheme == "http" && local) {
		return "", fmt.Errorf("%w: the URL of %s is neither https nor of this machine", rlc.ErrRefused, t.Name)
	}
	if len(s.Hosts) > 0 && !slices.Contains(s.Hosts, u.Host) && !slices.Contains(s.Hosts, u.Hostname()) {
		return "", fmt.Errorf("%w: host %s of %s is not among those allowed", rlc.ErrRefused, u.Host, t.Name)
	}
	return u.String(), nil
}

// sign adds the time, an id that is the same for every attempt, and
// HMAC-SHA256 of "time.body".
func (s *Sender) sign(req *http.Request, t Target, batch []rlc.OutgoingNotice, body []byte) error {
	at := fmt.Sprint(s.Now().Unix())
	id := batch[0].ID
	if len(batch) > 1 || !batch[0].Urgent {
		h := sha256.New()
		for _, n := range batch {
			fmt.Fprintf(h, "%q", n.ID)
		}
		id = "digest-" + hex.EncodeToString(h.Sum(nil)[:12])
	}
	req.Header.Set("X-RLC-Delivery", id)
	req.Header.Set("X-RLC-Timestamp", at)
	if t.Secret == nil {
		return nil
	}
	secret, err := t.Secret()
	if err != nil {
		return fmt.Errorf("secret of %s: %w", t.Name, err)
	}
	req.Header.Set("X-RLC-Signature", Signature(secret, at, body))
	return nil
}

// Signature is what X-RLC-Signature must be for a body sent at a time.
func Signature(secret, timestamp string, body []byte) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(timestamp + "."))
	h.Write(body)
	return "sha256=" + hex.EncodeToString(h.Sum(nil))
}

// text is a message for Slack: one line a notice, at most fifty.
func text(batch []rlc.OutgoingNotice) string {
	var b strings.Builder
	if len(batch) > 1 {
		fmt.Fprintf(&b, "%s to know\n", rlc.Plural(len(batch), "thing"))
	}
	for i, n := range batch {
		if i == 50 {
			fmt.Fprintf(&b, "and %d more", len(batch)-50)
			break
		}
		fmt.Fprintf(&b, "*%s* %s", inert.Replace(n.Service), inert.Replace(n.Text))
		if n.URL != "" {
			fmt.Fprintf(&b, " <%s|look>", n.URL)
		}
		fmt.Fprintf(&b, " (for %s)\n", inert.Replace(cmp.Or(strings.Join(n.Owners, ", "), "nobody: it is unowned")))
	}
	return strings.TrimRight(b.String(), "\n")
}

// inert keeps names from linking, formatting or calling everybody.
var inert = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "*", "∗", "_", "＿", "~", "∼", "`", "ˋ", "\n", " ")
