package web

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

// The words at the top of a proposal's page, in each state that needs its own.
func TestAProposalsPageSaysHowItStands(t *testing.T) {
	open := rlc.Proposal{Service: "cart", State: rlc.Open, Branch: "rlc/cart"}
	for name, c := range map[string]struct {
		p    func(*rlc.Proposal)
		want string
	}{
		"edited":        {func(p *rlc.Proposal) { p.Human = true }, " A person has committed to the branch, so RLC leaves it alone."},
		"waits":         {func(p *rlc.Proposal) { p.State, p.Reason = rlc.Pending, "waits for its turn" }, " It waits for its turn."},
		"is tried":      {func(p *rlc.Proposal) { p.State, p.Error = rlc.Pending, "the server is away" }, " Publishing failed last: the server is away."},
		"not published": {func(p *rlc.Proposal) { p.State, p.Error = rlc.Failed, "a person's file" }, " It cannot be published: a person's file. The numbers in force stay."},
	} {
		p := open
		c.p(&p)
		say, risk := proposalVerdict(p, nil, 0, 0, false)
		if !strings.HasSuffix(risk, c.want) {
			t.Errorf("%s: %q, want it to end in %q", name, risk, c.want)
		}
		if want := "No quota of cart changes: the files that are rendered from them for other limiters do."; say[0].Text != want {
			t.Errorf("%s: %q, want %q", name, say[0].Text, want)
		}
	}
}
