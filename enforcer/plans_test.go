package enforcer_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// plans is the snapshot that docs/plans.md shows, to the letter.
func plans(t *testing.T) rlc.Snapshot {
	t.Helper()
	page, err := os.ReadFile("../docs/plans.md")
	if err != nil {
		t.Fatal(err)
	}
	const name = "services/storefront/policy.yaml"
	_, rest, named := strings.Cut(string(page), "`"+name+"`:\n\n```yaml\n")
	text, _, ended := strings.Cut(rest, "```\n")
	if !named || !ended {
		t.Fatalf("the page has no %s", name)
	}
	files := rlc.Files{name: []byte(text)}
	return rlc.Snapshot{Version: rlc.Version{Epoch: 1, Number: 1}, Files: files}
}

func TestTheExampleOfPlansDoesWhatItsPageSays(t *testing.T) {
	morning := time.Date(2026, 11, 2, 7, 0, 0, 0, time.UTC) // 08:00 in Paris
	fresh := func(t *testing.T) (*enforcer.Enforcer, *clock) {
		e, at := start(t, enforcer.Config{})
		at.t = morning
		load(t, e, plans(t))
		return e, at
	}
	// burst sends n requests at one instant: how many were admitted, and by whom
	// the last one was refused.
	burst := func(e *enforcer.Enforcer, n int, attrs rlc.Attributes) (admitted int, last enforcer.Decision) {
		for range n {
			if last = e.Decide(enforcer.Request{Service: "storefront", Attributes: attrs}); last.Outcome == enforcer.Admit {
				admitted++
			}
		}
		return admitted, last
	}
	for _, c := range []struct {
		name     string
		n        int
		attrs    rlc.Attributes
		admitted int
		bucket   string
	}{
		{"free", 12, rlc.Attributes{"plan": "free", "tenant": "t1"}, 10, "free"},
		{"pro", 120, rlc.Attributes{"plan": "pro", "tenant": "t"}, 100, "pro"},
		{"enterprise", 1100, rlc.Attributes{"plan": "enterprise", "tenant": "t"}, 1000, "enterprise"},
		{"the exception", 4100, rlc.Attributes{"plan": "enterprise", "tenant": "acme"}, 4000, "acme"},
		{"anonymous", 8, rlc.Attributes{"ip": "192.0.2.7"}, 5, "anonymous"},
		{"another plan", 5000, rlc.Attributes{"plan": "gold", "tenant": "t"}, 5000, enforcer.Unmatched},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := fresh(t)
			if got, last := burst(e, c.n, c.attrs); got != c.admitted || last.Bucket != c.bucket {
				t.Errorf("%d of %d admitted, the last by %s; want %d, %s", got, c.n, last.Bucket, c.admitted, c.bucket)
			}
			// Whoever else comes has a counter of their own.
			for _, other := range []rlc.Attributes{{"plan": "free", "tenant": "t2"}, {"ip": "192.0.2.8"}} {
				if got, _ := burst(e, 1, other); got != 1 {
					t.Errorf("%v pays for others", other)
				}
			}
		})
	}

	t.Run("a day beside a rate", func(t *testing.T) {
		e, at := fresh(t)
		free := rlc.Attributes{"plan": "free", "tenant": "t1"}
		admitted, last := 0, enforcer.Decision{}
		for range 5 * 3600 {
			at.advance(time.Second / 5)
			n, d := burst(e, 1, free)
			admitted, last = admitted+n, d
		}
		// 09:00 in Paris: fifteen hours until midnight.
		if admitted != 1000 || last.Bucket != "free-daily" || last.RetryAfter != 15*time.Hour {
			t.Errorf("%d admitted, then %s for %s; want 1000, free-daily for 15h", admitted, last.Bucket, last.RetryAfter)
		}
		at.t = morning.AddDate(0, 0, 1)
		if n, d := burst(e, 12, free); n != 10 || d.Bucket != "free" {
			t.Errorf("the next morning %d admitted, the last by %s; want 10, free", n, d.Bucket)
		}
	})

	t.Run("an address is told to nobody", func(t *testing.T) {
		e, _ := fresh(t)
		_, last := burst(e, 8, rlc.Attributes{"ip": "192.0.2.7"})
		top := e.Top("storefront", "anonymous", 5)
		if len(top) != 1 || top[0].Drops != 3 {
			t.Fatalf("top: %+v", top)
		}
		text := fmt.Sprint(metrics(t, e)) + last.Key.String() + top[0].Key.String()
		if strings.Contains(text, "192.0.2.7") || !strings.Contains(last.Key.String(), "~") {
			t.Errorf("the address, or no hash, in %s", text)
		}
	})
}
