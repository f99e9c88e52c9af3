package checks

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// repo is a repository with one service whose policy holds buckets and whose
// quotas are lines.
func repo(buckets, quotas string) rlc.Files {
	files := rlc.Files{"services/checkout/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: checkout\nbuckets:\n" + buckets)}
	if quotas != "" {
		files["services/checkout/quotas.yaml"] = []byte("apiVersion: rlc/v1\nkind: ServiceQuotas\nservice: checkout\nquotas:\n" + quotas)
	}
	return files
}

const (
	callers = "  - {name: callers, each: [caller]}\n"
	search  = "  - {bucket: callers, key: {caller: search}, rate: 100, burst: 200, why: x}\n"
	web     = "  - {bucket: callers, key: {caller: web}, rate: 50, burst: 100, why: x}\n"
)

func of(t *testing.T, base, head rlc.Files) Edit {
	t.Helper()
	check := policies.Builtin().Check
	from, to := quotafile.Parse(base, check), quotafile.Parse(head, check)
	if err := from.Valid(); err != nil {
		t.Fatal(err)
	}
	return Of(from, to)
}

// told is all that an edit says of its one service.
func told(e Edit) string {
	var b strings.Builder
	for _, s := range e.Services {
		for _, c := range s.Changes {
			fmt.Fprintf(&b, "%s: %s\n", c.ID(), verdict(c))
		}
		for _, x := range append(append([]string{}, s.Starts...), s.Notes...) {
			fmt.Fprintln(&b, x)
		}
	}
	return strings.TrimSpace(b.String())
}

func TestAnEditSaysWhatItChanges(t *testing.T) {
	for name, c := range map[string]struct {
		head rlc.Files
		want string
	}{
		"nothing":     {repo(callers, search+web), ""},
		"only why":    {repo(callers, strings.Replace(search, "why: x", "why: y", 1)+web), ""},
		"raised":      {repo(callers, strings.Replace(search, "100", "150", 1)+web), "callers/caller=search: raised from 100/s to 150/s (+50 %) in shadow"},
		"lowered":     {repo(callers, strings.Replace(search, "100", "80", 1)+web), "callers/caller=search: lowered from 100/s to 80/s (−20 %) in shadow"},
		"removed":     {repo(callers, search), "callers/caller=web: to be removed: 50/s"},
		"added":       {repo(callers, search+web+"  - {bucket: callers, key: {caller: zeta}, rate: 7, burst: 14, why: x}\n"), "callers/caller=zeta: new: 7/s, burst 14 in shadow"},
		"other kind":  {repo("  - {name: callers, each: [caller], policy: {kind: predictive}}\n", search+web), "bucket callers: policy changed"},
		"to enforce":  {repo("  - {name: callers, each: [caller], mode: enforce}\n", search), "callers/caller=search: shadow → enforce at 100/s\ncallers/caller=web: to be removed: 50/s\ncallers: shadow → enforce, with 1 limit\nbucket callers: mode changed"},
		"a cap":       {repo(callers+"  - {name: all, role: cap, mode: enforce, limit: {rate: 10, burst: 20}}\n", search+web), "all: new: 10/s, burst 20\nall: new, in enforce\nbucket all: added"},
		"a new key's": {repo("  - {name: callers, each: [caller], mode: enforce, new_key: {limit: {rate: 5, burst: 10}}}\n", search+web), "callers/caller=search: shadow → enforce at 100/s\ncallers/caller=web: shadow → enforce at 50/s\ncallers: shadow → enforce, with 2 limits and one in its policy\nbucket callers: new_key, mode changed"},
		"no limit":    {repo(callers+"  - {name: more, each: [caller], match: {procedure: Pay}, mode: enforce}\n", search+web), "bucket more: added"},
		"unreachable": {rlc.Files{}, "callers/caller=search: to be removed: 100/s\ncallers/caller=web: to be removed: 50/s\nthe service is removed: nothing limits it any more"},
	} {
		if got := told(of(t, repo(callers, search+web), c.head)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// What has no limit drops nothing in enforce: neither unmatched requests nor a bucket
// begins to drop then.
func TestOnlyWhatHasALimitBeginsToDrop(t *testing.T) {
	with := func(line, bucket string) rlc.Files {
		f := repo("  - {name: callers, each: [caller]"+bucket+"}\n", "")
		f["services/checkout/policy.yaml"] = append(f["services/checkout/policy.yaml"], line...)
		return f
	}
	const (
		shadow  = "unmatched: {mode: shadow, limit: {rate: 5, burst: 10}}\n"
		enforce = "unmatched: {mode: enforce, limit: {rate: 5, burst: 10}}\n"
	)
	for name, c := range map[string]struct {
		base, head rlc.Files
		want       []string
	}{
		"the service enforces, unmatched has no limit": {with("", ""), with("defaults: {mode: enforce}\n", ", mode: shadow"), []string{}},
		"a bucket without a quota":                     {with("", ""), with("", ", mode: enforce"), []string{}},
		"unmatched is enforced":                        {with(shadow, ""), with(enforce, ""), []string{"unmatched: shadow → enforce"}},
		"unmatched gets a limit":                       {with("defaults: {mode: enforce}\n", ", mode: shadow"), with(enforce, ""), []string{"unmatched: its limit is new, in enforce"}},
		"a new key gets a limit":                       {with("", ", mode: enforce"), with("", ", mode: enforce, new_key: {limit: {rate: 5, burst: 10}}"), []string{"callers: a limit in its policy is new, in enforce"}},
	} {
		var got []string
		for _, s := range of(t, c.base, c.head).Services {
			got = s.Starts
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// fixed replays every limit against 1,000 requests, of which a limit whose lowest
// hour is below 100/s drops those beyond it.
func fixed(_ context.Context, _ string, q rlc.Quota) (rlc.Backtest, error) {
	if q.Key["caller"] == "new" {
		return rlc.Backtest{}, fmt.Errorf("%w: no history", rlc.ErrNotFound)
	}
	lowest, _ := q.Timed().Rates(q.Limit)
	drops := max(0, 1000-10*float64(lowest))
	return rlc.Backtest{Requests: 1000, Drops: drops, Share: rlc.Ratio(drops / 1000)}, nil
}

func TestAnEditIsBacktestedAndJudged(t *testing.T) {
	enforced := "  - {name: callers, each: [caller], mode: enforce}\n"
	lower := strings.Replace(search, "100", "80", 1)
	added := "  - {bucket: callers, key: {caller: new}, rate: 7, burst: 14, why: x}\n"
	e := of(t, repo(enforced, search+web), repo(enforced, lower+web+added))
	if err := e.Backtest(t.Context(), 10, fixed); err != nil {
		t.Fatal(err)
	}
	c := e.Services[0].Changes[0] // the riskiest: 1000 − 10 × 80 = 200 more drops
	if c.ID() != "callers/caller=search" || c.Backtest.Old.Drops != 0 || c.Backtest.New.Drops != 200 || e.Backtested != 1 || !strings.HasPrefix(e.Note, "1 change not backtested: ") {
		t.Errorf("%+v %q", c, e.Note)
	}
	if got := len(e.Drops(0.1)); got != 1 {
		t.Errorf("%d changes drop more than 10 %%, want 1: 200 of 1000", got)
	}
	if got := len(e.Drops(0.2)); got != 0 {
		t.Errorf("%d changes drop more than 20 %%", got)
	}
	softer := of(t, repo(enforced, lower), repo(callers, strings.Replace(lower, "80", "60", 1)))
	if err := softer.Backtest(t.Context(), 10, fixed); err != nil || len(softer.Drops(0)) != 0 {
		t.Errorf("a change into shadow drops nothing: %v %v", softer.Drops(0), err)
	}
	better := of(t, repo(enforced, lower), repo(enforced, strings.Replace(lower, "80", "90", 1)))
	if err := better.Backtest(t.Context(), 10, fixed); err != nil || len(better.Drops(0)) != 0 {
		t.Errorf("a raise that drops less than before is refused: %v %v", better.Drops(0), err)
	}
}

// One rate for all hours, and then 30/s for the first of them: the rate is the same.
func TestAnEditOfHoursIsToldAndReplayedByThem(t *testing.T) {
	hourly := strings.Replace(search, "burst: 200", "burst: 200, hours: {from: 2026-03-02T00:00:00Z, rates: [30, 100]}", 1)
	if hourly == search {
		t.Fatal(search)
	}
	e := of(t, repo(callers, search), repo(callers, hourly))
	if err := e.Backtest(t.Context(), 10, fixed); err != nil {
		t.Fatal(err)
	}
	const want = "callers/caller=search: unchanged at 100/s in shadow; 30 to 100/s by the hour, 7 of 168 hours of the week lowered (−70 % at most)"
	c := e.Services[0].Changes[0]
	if told(e) != want || c.Backtest.Old.Drops != 0 || c.Backtest.New.Drops != 700 {
		t.Errorf("%s\nwant\n%s\nbacktests %+v, %+v", told(e), want, c.Backtest.Old, c.Backtest.New)
	}
}

func TestWhatCannotBeReplayedIsSaid(t *testing.T) {
	lower := strings.Replace(search, "100", "80", 1)
	away := errors.New("no server")
	e := of(t, repo(callers, search), repo(callers, lower))
	if err := e.Backtest(t.Context(), 10, func(context.Context, string, rlc.Quota) (rlc.Backtest, error) {
		return rlc.Backtest{}, away
	}); !errors.Is(err, away) || e.Note != "nothing was backtested: no server" {
		t.Errorf("%v %q", err, e.Note)
	}
	for name, head := range map[string]rlc.Files{
		"a region's":    repo(callers, search+"  - {bucket: callers, region: eu-1, key: {caller: search}, rate: 9, burst: 18, why: x}\n"),
		"other traffic": repo("  - {name: callers, each: [caller], match: {procedure: Pay}}\n", lower),
	} {
		e := of(t, repo(callers, search), head)
		asked := 0
		err := e.Backtest(t.Context(), 10, func(context.Context, string, rlc.Quota) (rlc.Backtest, error) {
			asked++
			return rlc.Backtest{}, nil
		})
		if err != nil || asked != 0 || e.Note == "" {
			t.Errorf("%s: asked %d times, %v %q", name, asked, err, e.Note)
		}
	}
}

// A comment stays below its limit whatever the edit, and no name is markup.
func TestACommentFitsAndIsInert(t *testing.T) {
	var before, after strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&before, "  - {bucket: callers, key: {caller: %q}, rate: %d, burst: 900000, why: x}\n", fmt.Sprintf("@all <b>%d</b>", i), 1000+i)
		fmt.Fprintf(&after, "  - {bucket: callers, key: {caller: %q}, rate: %d, burst: 900000, why: x}\n", fmt.Sprintf("@all <b>%d</b>", i), 2000+i)
	}
	e := of(t, repo(callers, before.String()), repo(callers, after.String()))
	if n := e.Changes(); n != 1500 {
		t.Fatalf("%d changes", n)
	}
	for _, limit := range []int{60_000, 3_000, 500} {
		text := e.Markdown(limit)
		if len(text) > limit || !strings.Contains(text, "1,500 changes") {
			t.Errorf("%d bytes, limit %d:\n%.300s", len(text), limit, text)
		}
	}
	for line := range strings.Lines(e.Markdown(60_000)) {
		for i, part := range strings.Split(line, "`") {
			if i%2 == 0 && (strings.Contains(part, "@all") || strings.Contains(part, "<b>")) {
				t.Errorf("markup outside of code: %s", line)
			}
		}
	}
}

func TestJUnitCountsWhatFailed(t *testing.T) {
	e := of(t, repo(callers, search+web), repo(callers, strings.Replace(search, "100", "80", 1)+strings.Replace(web, "50", "60", 1)))
	if err := e.Backtest(t.Context(), 1, fixed); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := e.JUnit(&out, e.Services[0].Changes[:1]); err != nil {
		t.Fatal(err)
	}
	var s suite
	if err := xml.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if s.Tests != 3 || s.Failures != 1 || s.Skipped != 1 {
		t.Errorf("%s", out.String())
	}
	broken := Of(quotafile.Parse(nil, nil), quotafile.Parse(rlc.Files{"services/checkout/policy.yaml": []byte("kind: nothing\n")}, nil))
	out.Reset()
	if err := broken.JUnit(&out, nil); err != nil || !strings.Contains(out.String(), `name="services/checkout/policy.yaml"`) || !strings.HasPrefix(broken.Summary(), "invalid: ") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
