package quotafile

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
)

// claims refuses a target that stands where an earlier service, or the same
// one, renders already, that needs a folder where such a file stands, or the
// other way round. Case makes no difference, as on many people's machines. Of
// two services the later one is broken, and no other.
func (p *parser) claims() {
	files, folders := map[string]string{}, map[string]string{} // by whom
	p.config.Services = slices.DeleteFunc(p.config.Services, func(s *rlc.Service) bool {
		for _, t := range s.Targets {
			file := strings.ToLower(t.Path)
			who, taken := files[file]
			if !taken {
				who, taken = folders[file]
			}
			for dir := path.Dir(file); dir != "." && !taken; dir = path.Dir(dir) {
				who, taken = files[dir]
			}
			if taken {
				problem := rlc.Problem{File: PolicyPath(s.Name), Line: 1, Column: 1,
					Message: fmt.Sprintf("target %s stands where one is written for service %s already", show(t.Path), show(who)), Hint: "give each service a file of its own"}
				p.report([]rlc.Problem{problem})
				p.config.Broken[s.Name] = append(p.config.Broken[s.Name], problem)
				return true
			}
			files[file] = s.Name
			for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
				folders[dir] = s.Name
			}
		}
		return false
	})
}
