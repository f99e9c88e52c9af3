package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
)

// The owners of a caller hear of a tightening while its review is open, and of
// an override at once, each message signed.
func TestCallersOwnersHearOfATighteningBeforeItMergesAndOfOverridesAtOnce(t *testing.T) {
	o := receive(t)
	files := twoServices()
	high := strings.Replace(string(policy("checkout", "")), "each: [caller]", "each: [caller], guards: {floor: 3000}", 1)
	files["services/checkout/policy.yaml"] = []byte(high)
	files["services/web/policy.yaml"] = []byte(strings.Replace(string(policy("web", "")), "team-a", "team-web", 1))
	a := stagedWith(t, o, time.Hour, files)

	if _, err := a.Repo.Edit(t.Context(), gitsync.Person{Name: "sam"}, "No floor", rlc.Files{"services/checkout/policy.yaml": policy("checkout", "")}); err != nil {
		t.Fatal(err)
	}
	a.Nudge()
	defer func() {
		if runs, _, err := a.Records.Runs(context.WithoutCancel(t.Context()), rlc.Page{Size: 10}); t.Failed() {
			t.Logf("its runs: %+v, %v", runs, err)
		}
	}()
	eventually(t, "a tightening is proposed", func() bool {
		p := openProposals(t, a, "checkout")
		return len(p) == 1 && p[0].State == rlc.Open
	})
	eventually(t, "owners heard of it", func() bool { return len(o.of("tightening")) == 2 })
	owners := map[string]string{}
	for _, n := range o.of("tightening") {
		caller := "mobile"
		if strings.Contains(n.Text, "tighten web once it is merged: callers/caller=web 3,000 → ") {
			caller = "web"
		}
		owners[caller] = strings.Join(n.Owners, ",")
		if n.Urgent || n.Service != "checkout" || !strings.Contains(n.URL, "/proposals/") {
			t.Errorf("told %+v", n)
		}
	}
	if owners["web"] != "team-web" || owners["mobile"] != "" || len(owners) != 2 {
		t.Errorf("told %v", owners)
	}
	if p := openProposals(t, a, "checkout"); len(p) != 1 {
		t.Errorf("%d open proposals: it was to be told before the merge", len(p))
	}

	if _, err := a.SetOverride(t.Context(), block(time.Hour), "ana"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the override is told", func() bool { return len(o.of("override")) == 1 })
	if n := o.of("override")[0]; !n.Urgent || strings.Join(n.Owners, ",") != "team-a" || !strings.HasPrefix(n.Text, "ana set an override: checkout ← caller=search") {
		t.Errorf("told %+v", n)
	}
	if o.bad != 0 {
		t.Errorf("%d messages were not signed", o.bad)
	}
}

// The same ask from two replicas is one row of the audit log and one notice.
func TestAnAskThatTwoReplicasTookIsToldOnce(t *testing.T) {
	t.Parallel()
	o := receive(t)
	a := staged(t, o, time.Hour)
	at := time.Now().UTC().Truncate(time.Microsecond)
	act := rlc.AuditEntry{ID: "ask-1", At: at, Actor: "rae", Action: "quota.ask", Object: "/services/checkout/buckets/callers?key=caller%3Dweb", Detail: "500 req/s: launch"}
	for range 2 {
		if err := a.Ask(t.Context(), act, rlc.Notice{ID: act.ID, Kind: "ask", Service: "checkout", At: at, Text: "rae asks for 500 req/s"}); err != nil {
			t.Fatal(err)
		}
	}
	log, n, err := a.Records.AuditLog(t.Context(), rlc.AuditFilter{Action: "quota.ask"}, rlc.Page{})
	if err != nil || n != 1 || !log[0].At.Equal(at) || log[0].ID != act.ID || log[0].Detail != act.Detail {
		t.Errorf("%d rows %+v: %v", n, log, err)
	}
	eventually(t, "the owners are told", func() bool { return len(o.of("ask")) > 0 })
	if err := a.Ask(t.Context(), rlc.AuditEntry{ID: "ask-2", At: at, Actor: "rae", Action: "quota.ask"}, rlc.Notice{ID: "ask-2", Kind: "ask", Service: "checkout", At: at, Text: "another"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next ask is told", func() bool { return len(o.of("ask")) > 1 })
	if told := o.of("ask"); len(told) != 2 || told[1].ID != "ask-2" {
		t.Errorf("told %+v", told)
	}
}
