package review

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)

// change moves a caller's quota; old 0 makes it new.
func change(caller string, old, new rlc.Rate) rlc.Change {
	c := rlc.Change{
		Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": caller}, At: now,
		New: &rlc.Limit{Rate: new, Burst: rlc.Burst(2 * new)}, Policy: "historical", PolicyID: "5f1c",
		Peak: rlc.Peak{Rate: new / 1.3, At: now.Add(-50 * time.Hour)}, Why: "weekly peak × 1.30 headroom",
		Reasons: []rlc.Reason{
			{Rule: "weekly_peak", Detail: "highest of four weeks", Rate: new / 1.3, Acted: true},
			{Rule: "headroom", Detail: "× 1.30", Rate: new, Acted: true}, {Rule: "step_down", Detail: "at most −10 % a day", Rate: new},
		},
		Backtest: rlc.ChangeBacktest{New: &rlc.Backtest{Requests: 1e6, Step: 60}},
	}
	if old > 0 {
		c.Old, c.Backtest.Old = &rlc.Limit{Rate: old, Burst: rlc.Burst(2 * old)}, &rlc.Backtest{Requests: 1e6, Drops: 100}
	}
	return c
}

// proposal holds a rise, a fall that is capped, and a new quota in shadow.
func proposal() rlc.Proposal {
	up, down, added := change("web/frontend", 100, 150), change("search", 200, 180), change("mobile", 0, 10)
	down.Backtest.Old.Drops = 0
	down.Backtest.New.Bursts = &rlc.Bursts{Hours: 672, Highest: rlc.Peak{Rate: 420, At: now.Add(-50 * time.Hour)}, Holds: 240}
	down.Reasons[2] = rlc.Reason{Rule: "step_down", Detail: "at most −10 % a day", Rate: 180, Acted: true}
	added.NewMode, added.Look = rlc.Shadow, "only 3 days of history"
	return rlc.Proposal{
		ID: "cron-1-checkout", RunID: "cron-1", Service: "checkout", State: rlc.Open, Branch: "rlc/checkout",
		Base: "5a17b0c0ffee", Content: "9f86d081884c", Created: now, Changes: []rlc.Change{up, down, added},
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

func TestAReviewReadsLikeItsGoldenFile(t *testing.T) {
	p := proposal()
	// 100 of 2 million requests of quotas that exist, and 1 million of the new one.
	if got, want := Title(p.Service, p.Changes), "rlc(checkout): 3 quotas ↑1 ↓1 +1 · est. drops < 0.01 % → 0.00 %"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
	golden(t, "plain.md", Title(p.Service, p.Changes)+"\n\n"+Body(p, About{}))
	golden(t, "forge.md", Body(p, About{
		Service: &rlc.Service{Name: "checkout", Buckets: []rlc.Bucket{{Name: "callers", Mode: rlc.Enforce}}},
		Owners:  func(caller string) []string { return map[string][]string{"search": {"team-search"}}[caller] },
		Because: "callers/caller=mobile: only 3 days of history", Page: "https://rlc.example/proposals/cron-1-checkout", Forge: true,
	}))
}

// A cap counts its quotas' requests once more: they are not twice as many for it. What
// it would drop is told.
func TestRequestsUnderACapAreCountedOnce(t *testing.T) {
	quota, limit := change("web", 0, 50), change("web", 0, 200)
	quota.Backtest.Old, limit.Backtest.Old = nil, nil
	quota.Old, limit.Old = nil, nil
	quota.Backtest.New, limit.Backtest.New = &rlc.Backtest{Requests: 1000, Drops: 10}, &rlc.Backtest{Requests: 1000, Drops: 40}
	limit.Bucket, limit.Key, limit.Cap = "all", nil, true
	if got := Verdict([]rlc.Change{quota, limit}); !strings.Contains(got, "50 of 1,000 (5.00 %)") {
		t.Errorf("%s", got)
	}
	if got := Verdict([]rlc.Change{limit}); !strings.Contains(got, "40 of 1,000 (4.00 %)") {
		t.Errorf("a cap alone: %s", got)
	}
}

func TestTheTitleTellsRemovals(t *testing.T) {
	gone := change("old", 100, 100)
	gone.Remove = true
	if got, want := Title("s", []rlc.Change{gone}), "rlc(s): 1 quota −1 · est. drops 0.01 % → 0.00 %"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Body(rlc.Proposal{Changes: []rlc.Change{gone}}, About{}); !strings.Contains(got, "| removed |") {
		t.Errorf("the table does not say removed:\n%s", got)
	}
}

func TestAReviewOfHoursSaysWhichFall(t *testing.T) {
	c := change("search", 130, 130)
	c.NewTimed.Hours = &rlc.QuotaHours{From: now, Rates: make([]rlc.Rate, 168)}
	for i := range c.NewTimed.Hours.Rates {
		c.NewTimed.Hours.Rates[i] = 130
		if i%24 >= 12 {
			c.NewTimed.Hours.Rates[i] = 117
		}
	}
	c.Reasons = append(c.Reasons, rlc.Reason{Rule: "hours", Detail: "84 hours at most −10 % in 24 h", Rate: 130, Acted: true})
	c.Backtest.New.Drops = 7
	if got, want := Title("checkout", []rlc.Change{c}), "rlc(checkout): 1 quota ↓1 · est. drops 0.01 % → < 0.01 %"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
	if got, want := Risk([]rlc.Change{c}), "Risk: look closely. 1 decrease would have dropped requests."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	got := Body(rlc.Proposal{Changes: []rlc.Change{c}}, About{})
	for _, want := range []string{
		"| 130/s, burst 260 | 130/s, burst 260, 117 to 130/s by the hour | +0 %, 84 h to −10 % |",
		"### Callers tightened\n\n- caller `search` in `callers/caller=search`: unchanged at 130/s; 117 to 130/s by the hour, 84 of 168 hours of the week lowered (−10 % at most)\n",
		"- ✖ hours of the week: callers/caller=search: 84 hours at most −10 % in 24 h\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// A gate that wants a person to approve has moved no number, and is no guard that
// changed nothing.
func TestAGuardThatAsksForAPersonIsNotToldToHaveChangedNothing(t *testing.T) {
	cut := change("a", 200, 180)
	gate := policies.BlastGate{}
	gate.Add(cut)
	changes := []rlc.Change{cut}
	gate.Mark(changes)
	const why = "1 of 1 quota lowered, more than 20 %; the fleet's total is lowered by 10.0 %, more than 5 %: a person must approve"
	want := []Guard{
		{Name: "step of a day", OK: true, Detail: "changed nothing"}, {Name: "blast gate", Detail: "callers/caller=a: " + why},
		{Name: "nothing goes from shadow to enforce", OK: true},
	}
	if got := Guards(nil, changes); !slices.Equal(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	if got := policies.Explain(changes[0]).Text(); !strings.Contains(got, "! blast gate") {
		t.Errorf("the gate stands as if it had nothing to say:\n%s", got)
	}
}

func TestRiskNamesTheWorst(t *testing.T) {
	fall, drops, look := change("a", 200, 180), change("b", 200, 180), change("c", 100, 150)
	drops.Backtest.New.Drops = 5
	look.Look = "x"
	rise := change("d", 100, 150)
	left := change("e", 100, 150)
	left.Backtest.New.Drops = 1
	short := change("f", 100, 150)
	short.Backtest.New.Bursts = &rlc.Bursts{Hours: 600, Over: 2}
	fresh := change("h", 0, 150) // no burst held anything before
	fresh.Backtest.New.Bursts = &rlc.Bursts{Hours: 600, Over: 2}
	as := change("g", 100, 150)
	as.Backtest.New.Bursts, as.Backtest.Old.Bursts = &rlc.Bursts{Hours: 600, Over: 2}, &rlc.Bursts{Hours: 600, Over: 2}
	for want, all := range map[string][]rlc.Change{
		"Risk: look closely. 1 decrease would have dropped requests.":                                               {rise, look, drops},
		"Risk: look closely. 2 decreases would have dropped requests.":                                              {drops, drops},
		"Risk: moderate. 1 change asks for a look; the column Why says what at.":                                    {fall, look},
		"Risk: low. The proposed limits leave some peaks above them; the quota's page lists the episodes.":          {fall, left},
		"Risk: low. No decrease would have dropped anything.":                                                       {fall, rise},
		"Risk: moderate. 1 burst would not hold the highest second that was counted, and held more of them before.": {left, short, as},
		"Risk: moderate. 1 new burst would not hold the highest second that was counted.":                           {fresh},
		"Risk: low.": {rise},
	} {
		if got := Risk(all); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Whatever a caller is called: rows keep their cells, nothing is markup, a
// mention or the end of the hidden comment.
func TestHostileNamesAreInert(t *testing.T) {
	for _, name := range []string{
		"a | b", "`code`", "<script>alert(1)</script>", "<!-- x -->", "-->", "</details>", "@everyone", "#1", "![x](http://x)", "[x](javascript:1)",
		"x\n\n# head", "x\r\nRLC-Run: forged", "\u202eevil", "a\u200bb", "a\x00b", "\x1b[31mred", "&lt;", "~~x~~ **y** _z_", "https://evil.example", "www.evil.example",
		strings.Repeat("long ", 200), strings.Repeat("`|", 200), "\xff\xfe", "$(rm -rf /)", "'; rm -rf /; '",
	} {
		t.Run(name[:min(len(name), 20)], func(t *testing.T) { inert(t, name) })
	}
	rapid.Check(t, func(t *rapid.T) {
		inert(t, rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("\n\r|`<>@#\\[]!-")))).Draw(t, "name"))
	})
}

func inert(t rapid.TB, name string) {
	p := proposal()
	p.Service, p.RunID, p.Base, p.Branch, p.Content = name, name, name, name, name
	for i := range p.Changes {
		c := &p.Changes[i]
		c.Key, c.Why, c.Look, c.Policy = rlc.Key{"caller": name}, name, name, name
		for j := range c.Reasons {
			c.Reasons[j].Detail = name
		}
	}
	s := Body(p, About{Because: name, Owners: func(string) []string { return []string{name} }, Page: "https://rlc.example/p"})
	if len(s) > MaxBytes {
		t.Errorf("%d bytes", len(s))
	}
	inCode := false
	frame := strings.Builder{}
	for l := range strings.Lines(s) {
		if strings.HasPrefix(l, "    ") {
			continue // an indented block: code
		}
		if strings.HasPrefix(l, "| `") && strings.Count(l, "|") != 10 {
			t.Errorf("a name broke its row: %s", l)
		}
		// What is left outside code spans is prose.
		var prose strings.Builder
		for _, c := range l {
			if c == '`' {
				inCode = !inCode
				continue
			}
			if !inCode {
				prose.WriteRune(c)
			}
		}
		if inCode {
			t.Fatalf("a code span does not end: %s", l)
		}
		frame.WriteString(prose.String())
		rest := strings.NewReplacer("<details><summary>", "", "</summary>", "", "</details>", "", "<!-- rlc:content", "", "-->", "", "<https://", "", "\\<", "", "\\>", "", "\\[", "", "\\]", "", "\\!", "").Replace(prose.String())
		if page := strings.HasPrefix(l, "- Charts and episodes: "); !page && strings.ContainsAny(rest, "<>@[]!") {
			t.Errorf("markup is left in %q", l)
		}
		if strings.Contains(rest, "http://") || strings.Contains(rest, "://evil") {
			t.Errorf("a link is left in %q", l)
		}
	}
	for _, c := range s {
		if c != '\n' && (c < ' ' || c == 0x7f || c == 0x85 || c == '\u2028' || c == '\u202e' || c == '\u200b') {
			t.Errorf("the body holds %U", c)
		}
	}
	// The page, the fold and its summary, the hidden comment.
	frames := 6 + strings.Count(frame.String(), `\<`)
	if !strings.HasSuffix(s, " -->\n") || strings.Count(frame.String(), "<") != frames {
		t.Errorf("the body's frame is broken:\n%s", frame.String())
	}
}

func TestThousandsOfChangesFitAForge(t *testing.T) {
	p := proposal()
	p.Changes = nil
	for i := range 2000 {
		c := change(fmt.Sprintf("%s-%d", strings.Repeat("\u202e", 300), i), 200, 180)
		c.Why, c.Look = strings.Repeat("|@", 300), strings.Repeat("#\u202e", 300)
		for range 10 {
			c.Reasons = append(c.Reasons, rlc.Reason{Rule: "contract", Detail: strings.Repeat("€", 300), Rate: 1, Acted: true})
		}
		p.Changes = append(p.Changes, c)
	}
	s := Body(p, About{Because: strings.Repeat("@", 1000), Owners: func(string) []string { return slicesOf("\u202e@team", 100) }, Forge: true})
	if len(s) > MaxBytes || !strings.Contains(s, "more with less risk") || !strings.HasSuffix(s, "<!-- rlc:content 9f86d081884c -->\n") {
		t.Errorf("%d bytes, want at most %d, with the rest counted and the hash at the end", len(s), MaxBytes)
	}
}

func slicesOf(s string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// A team's review holds each proposal in whole while there is room, and is one text
// that closes what it opens where there is not.
func TestATeamsReviewNamesEveryProposal(t *testing.T) {
	p := proposal()
	body := "## one\n\n" + Body(p, About{})
	if got, want := TeamBody([]string{body, "## two\n"}), strings.TrimRight(body, "\n")+"\n\n## two\n\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("## service %03d\n\n%s", i, Body(p, About{})))
	}
	got := TeamBody(many)
	if len(got) > MaxBytes || strings.Count(got, "<details>") != strings.Count(got, "</details>") {
		t.Errorf("%d bytes of at most %d, %d details opened, %d closed", len(got), MaxBytes, strings.Count(got, "<details>"), strings.Count(got, "</details>"))
	}
	for i := range many {
		if !strings.Contains(got, fmt.Sprintf("## service %03d\n", i)) {
			t.Errorf("service %03d is not named", i)
		}
	}
}
