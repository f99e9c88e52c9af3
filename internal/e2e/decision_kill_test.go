//go:build fault

package e2e

import (
	"net/http"
	"testing"
)

// A person answers a review and the server is killed between the repository and
// the records: after a restart both say the same, with exactly one audit row.
func TestKilledWhileAPersonDecidesLeavesTheRecordsAndGitAgreed(t *testing.T) {
	w := newWorld(t)
	p := w.serve("rlc")
	p.ready()
	if r := p.compute(); r.Result != "ok" {
		t.Fatalf("%+v", r)
	}
	eventually(t, "two reviews", func() bool { return len(p.open()) == 2 })
	p.stop()
	for _, c := range []struct{ point, service, act, state string }{
		{"after-accept", "checkout", "accept", "accepted"},
		{"after-reject", "search", "reject", "rejected"},
	} {
		p := w.serve("rlc", "RLC_FAULT="+c.point)
		p.ready()
		before := p.decided(c.service)
		if before.State != "open" {
			t.Fatalf("%s before the click: %+v", c.service, before)
		}
		if code, text := ask(http.MethodPost, p.url+"/api/v1/proposals/"+before.ID+"/"+c.act, map[string]string{"reason": "too low"}); code != 0 {
			t.Fatalf("%s: %d %s, want no answer", c.point, code, text)
		}
		p.died()

		p = w.serve("rlc")
		p.ready()
		eventually(t, c.service+" is "+c.state, func() bool { return p.decided(c.service).State == c.state })
		eventually(t, "one audit row of "+before.ID, func() bool { return p.rowsOf(before.ID, "proposal."+c.state) == 1 })
		if code, text := ask(http.MethodPost, p.url+"/api/v1/proposals/"+before.ID+"/"+c.act, map[string]string{"reason": "again"}); code != http.StatusConflict {
			t.Errorf("%s again: %d %s, want a conflict", c.act, code, text)
		}
		p.stop()

		p = w.serve("rlc") // what was mended stays as it is
		p.ready()
		if n := p.rowsOf(before.ID, "proposal."+c.state); n != 1 {
			t.Errorf("%s: %d audit rows after one more start", c.point, n)
		}
		p.stop()
		if commits := git(t, w.git.bare, "for-each-ref", "--format=%(refname)", "refs/heads/rlc/"+c.service); commits != "" {
			t.Errorf("%s: the branch is left: %s", c.point, commits)
		}
	}
	for service, want := range map[string]string{"checkout": "1", "search": "0"} {
		if n := git(t, w.git.bare, "rev-list", "--count", "--grep=RLC-Service: "+service, "main"); n != want {
			t.Errorf("%s: %s commits on the base branch, want %s", service, n, want)
		}
	}
}

// decision is a proposal in an answer.
type decision struct {
	ID      string `json:"id"`
	Service string `json:"service"`
	State   string `json:"state"`
}

// decided is the newest proposal of a service.
func (p *process) decided(service string) decision {
	var all struct {
		Proposals []decision `json:"proposals"`
	}
	p.get("/api/v1/proposals?service="+service, &all)
	for _, x := range all.Proposals {
		if x.Service == service {
			return x
		}
	}
	return decision{}
}

// rowsOf is how many rows of the audit log tell an act on an object.
func (p *process) rowsOf(object, action string) (n int) {
	var log struct {
		Audit []struct {
			Object string `json:"object"`
		} `json:"audit"`
	}
	if !p.get("/api/v1/audit?action="+action, &log) {
		return -1
	}
	for _, e := range log.Audit {
		if e.Object == object {
			n++
		}
	}
	return n
}
