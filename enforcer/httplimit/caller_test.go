package httplimit_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/httplimit"
)

// What stands between the marks is printed in docs/callers.md.

// [caller]

// Caller sends requests again that were refused, within a budget.
type Caller struct {
	Client *http.Client
	budget atomic.Int64 // tenths of a retry; each request earns one tenth
}

// Do sends r, which has no body, at most four times. It waits as long as the
// server says, else a random time below a ceiling that doubles from 0.1 s.
func (c *Caller) Do(r *http.Request) (*http.Response, error) {
	if c.budget.Load() < 100 { // ten retries at most are saved up
		c.budget.Add(1)
	}
	for try := 0; ; try++ {
		res, err := c.Client.Do(r)
		again := err != nil || res.StatusCode == 429 || res.StatusCode == 503
		if !again || try == 3 || r.Context().Err() != nil {
			return res, err
		}
		if c.budget.Add(-10) < 0 { // everybody's retries together stay below a tenth
			c.budget.Add(10)
			return res, err
		}
		wait := rand.N(100 * time.Millisecond << try) // full jitter
		if err == nil {
			if s, bad := strconv.Atoi(res.Header.Get("Retry-After")); bad == nil {
				wait = time.Duration(s) * time.Second // has jitter already
			}
		}
		if !sleep(r.Context(), wait) {
			return res, err // there is no time left to try again
		}
		if err == nil {
			res.Body.Close()
		}
	}
}

// sleep reports false, at once where ctx would end before d is over.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// [/caller]

func TestTheDocumentedCallerIsTheTestedOne(t *testing.T) {
	doc, err := os.ReadFile("../../docs/callers.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("caller_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "// [caller]\n\n")
	code, _, _ = strings.Cut(code, "\n// [/caller]")
	if !strings.Contains(string(doc), "```go\n"+code+"```\n") {
		t.Error("docs/callers.md does not print the tested caller")
	}
}

// overHTTP answers a client's requests by h, in the test's own goroutines.
type overHTTP struct {
	h    http.Handler
	sent *int
}

func (o overHTTP) RoundTrip(r *http.Request) (*http.Response, error) {
	*o.sent++
	return serve(o.h, r).Result(), nil
}

func TestTheCallerWaitsAsLongAsItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		h := limiter(t, httplimit.Config{Enforcer: decides(t, enforcer.Config{Now: time.Now}, byCaller), Attributes: fixed}).Wrap(hello)
		c := &Caller{Client: &http.Client{Transport: overHTTP{h, &sent}}}
		c.budget.Store(100)
		// 0.5/s with burst 2: each one after the second waits, and is served by
		// its second try at the latest when it comes back after t.
		for i := range 5 {
			r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://s/x", nil)
			res, err := c.Do(r)
			if err != nil || res.StatusCode != 200 {
				t.Fatalf("request %d: %v %v", i, res, err)
			}
			res.Body.Close()
		}
		if sent > 8 {
			t.Errorf("%d sent for five", sent)
		}
	})
}

func TestTheCallersRetriesAreATenthOfItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		away := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
		c := &Caller{Client: &http.Client{Transport: overHTTP{away, &sent}}}
		for range 1000 {
			r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://s/x", nil)
			if res, err := c.Do(r); err == nil {
				res.Body.Close()
			}
		}
		if sent != 1100 {
			t.Errorf("%d sent for 1000, want 1100", sent)
		}
	})
}

func TestTheCallerDoesNotWaitPastItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		hourly := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(429)
		})
		c := &Caller{Client: &http.Client{Transport: overHTTP{hourly, &sent}}}
		c.budget.Store(100)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		r, _ := http.NewRequestWithContext(ctx, "GET", "http://s/x", nil)
		res, err := c.Do(r)
		if err != nil || res.StatusCode != 429 || sent != 1 || time.Since(began) > 0 {
			t.Errorf("%v, %v, %d sent, %v passed", res, err, sent, time.Since(began))
		}
	})
}
