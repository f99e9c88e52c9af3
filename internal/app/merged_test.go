package app_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/planner"
)

// A merged number of an enforced bucket that drops far more than its backtest
// said gets its old number back as a new version, is pinned, and its owners are
// told. A number of the same review that drops little stays.
func TestAMergedQuotaThatDropsTooMuchIsRolledBackAlone(t *testing.T) {
	t.Parallel()
	o := receive(t)
	files := twoServices()
	enforced := strings.Replace(string(policy("checkout", "")), "each: [caller]}", "each: [caller], mode: enforce}", 1)
	files["services/checkout/policy.yaml"] = []byte(enforced)
	a := stagedWith(t, o, time.Hour, files)
	f := join(t, a)
	f.countOf("mobile", "admit", 0)
	f.countOf("mobile", "drop", 0)
	limit := func(caller string) rlc.Limit {
		_, c := a.Desired()
		if q := c.Quota("checkout", "callers", rlc.Key{"caller": caller}); q != nil {
			return q.Limit
		}
		return rlc.Limit{}
	}
	web, mobile := limit("web"), limit("mobile")

	raised := strings.Replace(enforced, "each: [caller]", "each: [caller], guards: {floor: 3000}", 1)
	if _, err := a.Repo.Edit(t.Context(), gitsync.Person{Name: "sam"}, "A floor", rlc.Files{"services/checkout/policy.yaml": []byte(raised)}); err != nil {
		t.Fatal(err)
	}
	a.Nudge()
	eventually(t, "a proposal", func() bool { p := openProposals(t, a, "checkout"); return len(p) == 1 && p[0].State == rlc.Open })
	acceptAll(t, a)
	merged, mergedMobile := limit("web"), limit("mobile")
	if merged == web || mergedMobile == mobile {
		t.Fatalf("the review moved nothing: web %+v, mobile %+v", merged, mergedMobile)
	}
	version, _ := a.Live()

	f.countOf("mobile", "admit", 1000)
	f.countOf("mobile", "drop", 50) // fewer than rollout.min_drops
	eventually(t, "web has its old number back", func() bool {
		f.count("admit", 50) // half of what goes on to come
		f.count("drop", 50)
		return limit("web") == web
	})
	if got := limit("mobile"); got != mergedMobile {
		t.Errorf("mobile is %+v, want the merged %+v: it dropped little", got, mergedMobile)
	}
	eventually(t, "a new version is live", func() bool { v, _ := a.Live(); return v.Compare(version) > 0 })
	eventually(t, "the owner was told", func() bool { return len(o.of("drops")) == 1 })
	told := o.of("drops")[0]
	if !told.Urgent || strings.Join(told.Owners, ",") != "team-a" || !regexp.MustCompile(`callers/caller=web: \d{3,} drops, the backtest says 0$`).MatchString(told.Text) || strings.Contains(told.Text, "mobile") {
		t.Errorf("told %+v", told)
	}
	log := git(t, filepath.Join(a.Config.Data, "config.git"), "log", "-1", "--format=%B", "main")
	if !strings.Contains(log, "RLC-Actor: dana") {
		t.Errorf("commit:\n%s", log)
	}

	var pinned []string
	eventually(t, "what went is pinned", func() bool {
		pins, err := a.Pins(t.Context(), "checkout")
		pinned = nil
		for _, p := range pins {
			pinned = append(pinned, p.Quota)
			if p.Limit != merged || !strings.HasPrefix(p.Reason, "Rolled back by itself: callers/caller=web") {
				t.Errorf("pin %+v", p)
			}
		}
		return err == nil && len(pins) > 0
	})
	if strings.Join(pinned, ", ") != "callers/caller=web" {
		t.Errorf("pinned %v", pinned)
	}
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "three", Service: "checkout", Now: time.Now().UTC().Truncate(time.Second), Actor: "dana"}); err != nil {
		t.Fatal(err)
	}
	if open := openProposals(t, a, "checkout"); len(open) != 0 {
		t.Errorf("the next run puts it up again: %+v", open[0].Changes)
	}
	if n := len(o.of("drops")); n != 1 || o.bad != 0 {
		t.Errorf("told %d times, %d unsigned", n, o.bad)
	}
}
