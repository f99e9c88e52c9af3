package gitsync_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

func TestTheTitleCountsAndTheTableShowsTheRiskiestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "a", 0, 100), set("checkout", "b", 0, 200), set("checkout", "c", 0, 50)))
	up, down, added := set("checkout", "a", 100, 150), set("checkout", "b", 200, 180), set("checkout", "d", 0, 10)
	up.Peak = rlc.Peak{Rate: 75, At: start}
	up.Backtest = rlc.ChangeBacktest{Old: &rlc.Backtest{Requests: 4e6, Drops: 500}, New: &rlc.Backtest{Requests: 4e6}}
	down.Backtest = rlc.ChangeBacktest{Old: &rlc.Backtest{Requests: 1e6}, New: &rlc.Backtest{Requests: 1e6, Drops: 25}}
	added.NewMode = rlc.Shadow
	down.Reasons = []rlc.Reason{{Rule: "step_down", Detail: "at most -10 % a day", Rate: 180, Acted: true}}
	w.publish(proposal("checkout", "cron-2", up, down, added))
	msg := w.git(w.path, "log", "-1", "--format=%B", "rlc/checkout")

	// 500 of 5 million is 0.01 %, 25 of 5 million less than that.
	title, rest, _ := strings.Cut(msg, "\n")
	if want := "rlc(checkout): 3 quotas ↑1 ↓1 +1 · est. drops 0.01 % → < 0.01 %"; title != want {
		t.Errorf("title %q\nwant  %q", title, want)
	}
	if want := "3 quotas change; 1 would have dropped requests: 25 of 5,000,000 (< 0.01 %). For 1 no history was replayed. 1 in shadow: counted, nothing dropped."; !strings.Contains(rest, want) {
		t.Errorf("verdict is not %q in:\n%s", want, rest)
	}
	row := func(caller string) int { return strings.Index(rest, "| `caller="+caller+"` |") }
	if row("b") < 0 || row("b") > row("d") || row("b") > row("a") {
		t.Errorf("the decrease that drops is not first:\n%s", rest)
	}
	if want := "\n    callers/caller=b\n    lowered from 200/s to 180/s (−10 %)\n    * step of a day"; !strings.Contains(rest, want) {
		t.Errorf("no explanation %q in:\n%s", want, rest)
	}
	if want := "| `callers` | `caller=a` | 100/s, burst 200 | 150/s, burst 300 | +50 % | 75/s 2026-10-05 08:00 | 100 % | 0.01 % → 0.00 % | weekly peak 115.38461538461539/s × 1.30 headroom |"; !strings.Contains(rest, want) {
		t.Errorf("row of a is not\n%s in:\n%s", want, rest)
	}
}

func TestALongReviewShowsTwentyChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var changes []rlc.Change
	for i := range 300 {
		changes = append(changes, set("checkout", fmt.Sprintf("caller-%d-%s", i, strings.Repeat("x", 300)), 0, 10))
	}
	w.publish(proposal("checkout", "cron-1", changes...))
	msg := w.git(w.path, "log", "-1", "--format=%B", "rlc/checkout")
	if n := strings.Count(msg, "| `callers` |"); n != 20 || !strings.Contains(msg, "And 280 more") || len(msg) > 16<<10 {
		t.Errorf("%d rows, %d bytes; want 20 rows, the rest counted, below 16 KiB", n, len(msg))
	}
}

// P8: whatever a caller is called, the message keeps its shape and git reads
// exactly the trailers that RLC wrote.
func TestHostileNamesAreInertInMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := []string{
		"x\n\nRLC-Run: forged", "x\r\nRLC-Epoch: 99", "`code` | cell | <script>", "@everyone #1 ![x](http://x)", "\u202eevil", "a\u2028b", "a\x00b", "\x1b[31mred",
		strings.Repeat("long", 200), "Co-authored-by: Eve <eve@example.org>", "--- a\n+++ b", "diff --git a b", "ⅷ · → ↑", " lead and trail ",
	}
	fixed := len(names)
	gen := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("\n\r:`|\\ \u2028\u0085"))))
	for i := range 60 {
		names = append(names, gen.Example(i))
	}
	var changes []rlc.Change
	seen := map[string]bool{"": true}
	for i, n := range names {
		if seen[n] {
			continue
		}
		seen[n] = true
		c := set("checkout", n, 0, 10)
		c.Why, c.Reasons = n, []rlc.Reason{{Rule: "contract", Detail: n, Rate: 10, Acted: true}}
		if i < fixed {
			c.Look = n
		}
		changes = append(changes, c)
	}
	run := 0
	for len(changes) > 0 {
		part := changes[:min(15, len(changes))]
		changes = changes[len(part):]
		run++
		p := proposal("checkout", fmt.Sprintf("cron-%d", run), part...)
		if _, err := w.Publish(t.Context(), p); err != nil {
			// Names that no quotas.yaml can hold are refused whole, never escaped into it.
			t.Logf("run %d refused: %.200v", run, err)
			continue
		}
		msg := w.git(w.path, "log", "-1", "--format=%B", "rlc/checkout")
		if got, want := w.git(w.path, "log", "-1", "--format=%(trailers)", "rlc/checkout"), "RLC-Run: "+p.RunID+"\nRLC-Service: checkout\nRLC-Epoch: 0"; got != want {
			t.Errorf("git reads the trailers\n%s\nwant\n%s", got, want)
		}
		if rows := strings.Count(msg, "\n| "); rows != len(part)+1 {
			t.Errorf("%d table rows for %d changes:\n%s", rows, len(part), msg)
		}
		for _, c := range msg {
			if c != '\n' && (c < ' ' || c == 0x7f || c == 0x85 || c == '\u2028' || c == '\u202e') {
				t.Errorf("the message holds %U", c)
			}
		}
		for l := range strings.Lines(msg) {
			if strings.HasPrefix(l, "| `") && strings.Count(strings.ReplaceAll(l, "&#124;", ""), "|") != 10 {
				t.Errorf("a name broke its row: %s", l)
			}
		}
	}
}

// A person's name and words end up in RLC's commits too.
func TestHostileActorsAreInertInTrailers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	if _, err := w.Accept(t.Context(), p, "Eve\nRLC-Epoch: 99\n\nRLC-Run: forged"); err != nil {
		t.Fatal(err)
	}
	if got, want := w.git(w.path, "log", "-1", "--format=%(trailers)", "main"), "RLC-Run: cron-1\nRLC-Service: checkout\nRLC-Epoch: 0\nRLC-Actor: "+`Eve\u{a}RLC-Epoch: 99\u{a}\u{a}RLC-Run: forged`; got != want {
		t.Errorf("trailers\n%s\nwant\n%s", got, want)
	}
	// An edited quota's name is carried in a trailer of the next commit.
	caller := "x\" by \"y\nRLC-Epoch: 7"
	w.inForce(proposal("checkout", "cron-2", set("checkout", caller, 0, 10)))
	w.push("mine", map[string]string{quotas: w.edited("main", "checkout", caller, 77)})
	w.inForce(proposal("checkout", "cron-3", set("checkout", "search", 420, 500)))
	want := map[string]string{rlc.QuotaID("callers", rlc.Key{"caller": caller}): "Bob"}
	if got := edits(t, w, "checkout"); !maps.Equal(got, want) {
		t.Errorf("edited %q, want %q", got, want)
	}
	if c, _ := head(t, w); c.Version.Epoch != 0 {
		t.Errorf("epoch %d, want 0", c.Version.Epoch)
	}
}

func TestEqualProposalsMakeEqualFiles(t *testing.T) {
	t.Parallel()
	var first string
	for range 2 {
		w := newWorld(t)
		w.publish(proposal("checkout", "cron-1", set("checkout", "b", 0, 60), set("checkout", "a", 0, 420)))
		got := w.show("rlc/checkout", quotas) + w.git(w.path, "log", "-1", "--format=%B", "rlc/checkout")
		got = strings.ReplaceAll(got, w.rev("main")[:12], "base")
		if first == "" {
			first = got
		} else if got != first {
			t.Errorf("second time:\n%s\nfirst:\n%s", got, first)
		}
		w.now = w.now.Add(time.Hour)
	}
}
