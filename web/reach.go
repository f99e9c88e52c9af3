package web

import (
	"strings"

	"github.com/openrlc/rlc/web/ui"
)

// reach says who hears of overrides and switches, where that is not every
// enforcer there may be; "" for all of them.
func (s *server) reach() string {
	if !s.Alone {
		return ""
	}
	return "only this server's own enforcer hears of it, since redis.url is not set: one that follows a folder does not"
}

// warnings joins what is to be said beside an act; "" for nothing.
func warnings(texts ...string) string {
	var out []string
	for _, t := range texts {
		if t != "" {
			out = append(out, t)
		}
	}
	return strings.Join(out, "; ")
}

// reachSign is reach beside the enforcers that have the newest overrides.
func (s *server) reachSign() ui.Sign {
	return ui.Sign{Level: "warn", Before: "Only this server's own enforcer hears of overrides and switches", Soft: "redis.url is not set; one that follows a folder hears of none"}
}

// reporting says on how many enforcers something is, by what reached this
// server.
func (s *server) reporting(acks int) string {
	if s.Alone {
		return "on this server's own enforcer; one that follows a folder does not report"
	}
	return "on " + plural(acks, "enforcer", "enforcers")
}
