package notify_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/notify"
)

var now = time.Date(2026, 12, 2, 6, 0, 0, 0, time.UTC)

// box is an outbox in memory that behaves as the records do: one row for each
// id and target.
type box struct {
	rows []rlc.OutgoingNotice
	sent []string
}

func (b *box) UnsentNotices(context.Context) ([]rlc.OutgoingNotice, error) {
	return slices.Clone(b.rows), nil
}

func (b *box) NoticesSent(_ context.Context, target string, ids []string, _ time.Time) error {
	b.rows = slices.DeleteFunc(b.rows, func(n rlc.OutgoingNotice) bool { return n.Target == target && slices.Contains(ids, n.ID) })
	b.sent = append(b.sent, ids...)
	return nil
}

func (b *box) NoticesFailed(_ context.Context, target string, ids []string, reason string, notBefore time.Time) error {
	for i := range b.rows {
		if b.rows[i].Target == target && slices.Contains(ids, b.rows[i].ID) {
			b.rows[i].Attempts++
			b.rows[i].Error, b.rows[i].NotBefore = reason, notBefore
		}
	}
	return nil
}

// got is what a receiver was sent.
type got struct {
	header http.Header
	body   []byte
}

func receiver(t *testing.T, status func() int) (at string, all *[]got) {
	t.Helper()
	all = &[]got{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*all = append(*all, got{r.Header, b})
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status())
	}))
	t.Cleanup(s.Close)
	return s.URL, all
}

func sender(t *testing.T, b *box, url, kind string, clock *time.Time, set func(*notify.Config)) *notify.Sender {
	t.Helper()
	c := notify.Config{
		Outbox: b, Now: func() time.Time { return *clock },
		Targets: []notify.Target{{Name: "x", Kind: kind, URL: func() (string, error) { return url, nil }, Secret: func() (string, error) { return "s3cret", nil }}},
	}
	if set != nil {
		set(&c)
	}
	s, err := notify.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func note(id string, urgent bool, at time.Time) rlc.OutgoingNotice {
	return rlc.OutgoingNotice{Target: "x", Notice: rlc.Notice{ID: id, Kind: "halt", Service: "checkout", Owners: []string{"team-a"}, At: at, Text: "t <!everyone>", URL: "http://rlc/", Urgent: urgent}}
}

func deliver(t *testing.T, s *notify.Sender) {
	t.Helper()
	if err := s.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestUrgentIsToldAtOnceAndTheRestInOneDigest(t *testing.T) {
	clock := now
	url, all := receiver(t, func() int { return 204 })
	b := &box{rows: []rlc.OutgoingNotice{note("a", false, now), note("b", true, now.Add(time.Second)), note("c", false, now.Add(time.Minute))}}
	s := sender(t, b, url, notify.Webhook, &clock, nil)
	deliver(t, s)
	if !slices.Equal(b.sent, []string{"b"}) {
		t.Fatalf("at once: %v", b.sent)
	}
	first := (*all)[0]
	if want := notify.Signature("s3cret", first.header.Get("X-RLC-Timestamp"), first.body); first.header.Get("X-RLC-Signature") != want || first.header.Get("X-RLC-Delivery") != "b" {
		t.Errorf("headers %v, want signature %s of delivery b", first.header, want)
	}
	clock = now.Add(time.Hour - time.Second)
	deliver(t, s)
	clock = now.Add(time.Hour)
	deliver(t, s)
	deliver(t, s)
	if !slices.Equal(b.sent, []string{"b", "a", "c"}) || len(*all) != 2 {
		t.Fatalf("sent %v in %d messages", b.sent, len(*all))
	}
	var m struct{ Notices []rlc.Notice }
	if err := json.Unmarshal((*all)[1].body, &m); err != nil || len(m.Notices) != 2 || m.Notices[0].ID != "a" {
		t.Errorf("digest %s: %v", (*all)[1].body, err)
	}
}

func TestAFailingTargetIsTriedAgainLater(t *testing.T) {
	clock, status := now, 500
	url, all := receiver(t, func() int { return status })
	b := &box{rows: []rlc.OutgoingNotice{note("a", true, now)}}
	s := sender(t, b, url, notify.Slack, &clock, nil)
	deliver(t, s)
	deliver(t, s) // not yet
	for _, status = range []int{302, 429} {
		clock = b.rows[0].NotBefore
		deliver(t, s)
	}
	wait := b.rows[0].NotBefore.Sub(clock) // the third: 20 s, or down to half of it
	if len(*all) != 3 || b.rows[0].Attempts != 3 || wait < 10*time.Second || wait > 20*time.Second || b.rows[0].Error != "post: the target answers 429" {
		t.Errorf("%d messages, waits %s, %+v", len(*all), wait, b.rows[0])
	}
	status, clock = 200, b.rows[0].NotBefore
	deliver(t, s)
	if len(b.rows) != 0 || len(*all) != 4 {
		t.Errorf("%d left after %d messages", len(b.rows), len(*all))
	}
	if body := string((*all)[0].body); strings.Contains(body, "<!everyone>") || !strings.Contains(body, "team-a") {
		t.Errorf("Slack got %s", body)
	}
}

func TestAURLLeadsNowhereElse(t *testing.T) {
	url, all := receiver(t, func() int { return 200 })
	for name, c := range map[string]struct {
		url string
		set func(*notify.Config)
	}{
		"a host that is not allowed":       {url, func(c *notify.Config) { c.Hosts = []string{"hooks.example.com"} }},
		"a network that is not allowed":    {url, func(c *notify.Config) { c.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }},
		"http to another machine":          {"http://hooks.example.com/", nil},
		"where clouds keep credentials":    {"https://169.254.169.254/latest", nil},
		"another scheme":                   {"file://localhost" + filepath.ToSlash(t.TempDir()), nil},
		"a name that is not a host at all": {"https:///x", nil},
	} {
		clock := now
		b := &box{rows: []rlc.OutgoingNotice{note("a", true, now)}}
		deliver(t, sender(t, b, c.url, notify.Webhook, &clock, c.set))
		if len(b.sent) != 0 || b.rows[0].Attempts != 1 || strings.Contains(b.rows[0].Error, "latest") {
			t.Errorf("%s: %+v", name, b.rows)
		}
	}
	if len(*all) != 0 {
		t.Errorf("%d messages went out", len(*all))
	}
}
