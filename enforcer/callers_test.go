package enforcer_test

import (
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

func TestACallersSource(t *testing.T) {
	for _, c := range []struct {
		got  enforcer.CallerSource
		want string
	}{
		{enforcer.FromPeer("", ""), "none"},
		{enforcer.FromPeer("", "mesh"), "none"},
		{enforcer.FromPeer("web", "web"), "peer"},
		{enforcer.FromPeer("web", "mesh"), "header"},
		{enforcer.FromPeer("web", ""), "header"},
		{enforcer.FromAttributes(enforcer.Request{}), "none"},
		{enforcer.FromAttributes(enforcer.Request{Caller: "web"}), "attribute"},
		{enforcer.FromAttributes(enforcer.Request{Attributes: rlc.Attributes{"caller": "web"}}), "attribute"},
	} {
		if c.got.String() != c.want {
			t.Errorf("%v, want %s", c.got, c.want)
		}
	}
}
