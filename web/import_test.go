package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

func TestAnImportOfTooMuchIsRefusedBriefly(t *testing.T) {
	h := newFixture(t).handler(t)
	descriptors := func(n int, line string) string {
		var b strings.Builder
		b.WriteString("domain: wallet\ndescriptors:\n")
		for i := range n {
			b.WriteString(strings.ReplaceAll(line, "N", fmt.Sprint(i)) + "\n")
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		text string
		code int
		want string
		most int // bytes of the page beside the file, which it holds once
	}{
		"values":     {descriptors(12_000, "- {key: k, value: vN, rate_limit: {unit: day, requests_per_unit: 3}}"), 422, "pasted:1003:3: more than 1000 descriptors", 50_000},
		"duplicates": {descriptors(12_000, "- {key: k}"), 422, "pasted:1:1: and 11949 more problems", 50_000},
		"losses":     {descriptors(900, "- {key: k, value: vN, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 3}}"), 200, "and 700 more; rlc import envoy-ratelimit tells all", 2_000_000},
	} {
		w := paste(h, "/import", url.Values{"text": {c.text}}, nil)
		if page := w.Body.String(); w.Code != c.code || !strings.Contains(page, c.want) || len(page) > len(c.text)+c.most {
			t.Errorf("%s: %d, %d bytes for a file of %d, want %d with %q", name, w.Code, len(page), len(c.text), c.code, c.want)
		}
	}
	if w := paste(h, "/import", url.Values{"text": {descriptors(12_000, "- {key: k}")}}, nil); !strings.Contains(w.Body.String(), "More than 50 errors") {
		t.Error("the verdict counts the errors that are shown")
	}
}

// stalled is a fixture whose first look at the base branch waits for end.
type stalled struct {
	*fixture
	asked      atomic.Bool
	began, end chan struct{}
}

func (f *stalled) Desired() (rlc.Commit, *quotafile.Config) {
	if f.asked.CompareAndSwap(false, true) {
		close(f.began)
		<-f.end
	}
	return f.fixture.Desired()
}

func TestOneFileIsLookedAtAtATime(t *testing.T) {
	f := newFixture(t)
	c, s := f.config(), &stalled{fixture: f, began: make(chan struct{}), end: make(chan struct{})}
	c.Truths = s
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"text": {envoyFile}}
	first := make(chan int, 1)
	go func() { first <- paste(h, "/import", form, nil).Code }()
	select {
	case <-s.began:
	case <-time.After(time.Minute):
		t.Fatal("nothing looked at the base branch")
	}
	if w := paste(h, "/import", form, nil); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "Another file is being looked at") {
		t.Errorf("beside another: %d", w.Code)
	}
	close(s.end)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first: %d", code)
	}
	if w := paste(h, "/import", form, nil); w.Code != http.StatusOK {
		t.Errorf("after the first: %d", w.Code)
	}
}
