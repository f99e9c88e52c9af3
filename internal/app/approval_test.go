package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/planner"
)

// decisions are the audit rows about a proposal, "action by actor".
func decisions(t *testing.T, a *app.App, id string) (out []string) {
	t.Helper()
	rows, _, err := a.Records.AuditLog(t.Context(), rlc.AuditFilter{Object: id}, rlc.Page{Size: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range rows {
		if e.Object == id {
			out = append(out, e.Action+" by "+e.Actor)
		}
	}
	return out
}

// An approval or a rejection that ended between git and the records (C11) is
// found in git and recorded with one audit row; one that git refuses leaves
// neither a decision nor a row.
func TestADecisionThatWasCutShortIsRecordedOnceOrNotAtAll(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), twoServices(), nil)
	if _, err := a.Compute(t.Context(), planner.Ask{}); err != nil {
		t.Fatal(err)
	}
	of := func(service string) (p rlc.Proposal) {
		eventually(t, service+" is up", func() bool {
			all := openProposals(t, a, service)
			if len(all) == 1 {
				p = all[0]
			}
			return p.State == rlc.Open
		})
		return p
	}
	checkout, search := of("checkout"), of("search")

	hook := filepath.Join(a.Config.Repository.URL, "hooks", "update")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, hook, []byte("#!/bin/sh\necho not now >&2\nexit 1\n"))
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := a.Accept(t.Context(), checkout.ID, "", "dana"); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("accepted against the hook: %v", err)
	}
	if err := a.Reject(t.Context(), search.ID, "dana", "too high"); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("rejected against the hook: %v", err)
	}
	for _, p := range []rlc.Proposal{checkout, search} {
		now, err := a.Records.ProposalByID(t.Context(), p.ID)
		if err != nil || now.State != rlc.Open || len(decisions(t, a, p.ID)) != 0 {
			t.Errorf("%s is %s with %v (%v), want it open without a decision", p.Service, now.State, decisions(t, a, p.ID), err)
		}
	}
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}

	// What Accept and Reject do before the records hear of it.
	if _, err := a.Repo.Accept(t.Context(), checkout, "dana"); err != nil {
		t.Fatal(err)
	}
	if err := a.Repo.Reject(t.Context(), search, "dana", "too high"); err != nil {
		t.Fatal(err)
	}
	a.Nudge()
	want := map[string]string{checkout.ID: "proposal.accepted by dana", search.ID: "proposal.rejected by somebody with access to the repository"}
	for id, row := range want {
		eventually(t, row, func() bool { return strings.Join(decisions(t, a, id), ", ") == row })
	}
	if err := a.Accept(t.Context(), checkout.ID, "", "eve"); err == nil {
		t.Error("accepted twice")
	}
	for id, row := range want {
		if got := strings.Join(decisions(t, a, id), ", "); got != row {
			t.Errorf("audit of %s: %s, want %s", id, got, row)
		}
	}
}
