package quotafile

import (
	"fmt"
	"slices"

	"github.com/openrlc/rlc"
)

// claims refuses a target that an earlier service, or the same one, renders
// already: of two services the later one is broken, and no other.
func (p *parser) claims() {
	owner := map[string]string{}
	p.config.Services = slices.DeleteFunc(p.config.Services, func(s *rlc.Service) bool {
		for _, t := range s.Targets {
			who, taken := owner[t.Path]
			if owner[t.Path] = s.Name; !taken {
				continue
			}
			owner[t.Path] = who
			problem := rlc.Problem{File: PolicyPath(s.Name), Line: 1, Column: 1,
				Message: fmt.Sprintf("target %s is written for service %s already", show(t.Path), show(who)), Hint: "give each service a file of its own"}
			p.report([]rlc.Problem{problem})
			p.config.Broken[s.Name] = append(p.config.Broken[s.Name], problem)
			return true
		}
		return false
	})
}
