package web

import (
	"regexp"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/spell"
	"github.com/openrlc/rlc/web/ui"
)

// mostEdits is how far a misspelt name may be from the one that was meant.
const mostEdits = 2

// noService is what to say of an override for a service that no policy and no
// metric knows; "" where one does, or where policies cannot be read now.
func (s *server) noService(name string) string {
	_, desired := s.Truths.Desired()
	if name == "*" || desired == nil {
		return ""
	}
	if _, err := s.known(name); err == nil {
		return ""
	}
	var names []string
	for _, svc := range desired.Services {
		names = append(names, svc.Name)
	}
	if s.Onboarding != nil {
		unmanaged, _, _ := s.Onboarding.Unmanaged() // what was seen is named beside an error, too
		names = append(names, unmanaged...)
	}
	if slices.Contains(names, name) {
		return ""
	}
	return "there is no service " + name + meant(name, names)
}

// noCaller is what to say of an override for callers that neither a quota nor
// what was counted names. It is "" where that cannot be told: for a prefix, for
// requests without a caller, where nothing is counted by caller, and where some
// callers are counted together.
func (s *server) noCaller(svc *rlc.Service, o rlc.Override, counted ...[]rlc.Count) string {
	caller, near := s.unheard(svc, o.Match["caller"], counted...)
	if caller == "" {
		return ""
	}
	text := "no quota and no traffic of the last hour names a caller " + caller
	if near != "" {
		text += "; did you mean " + near + "?"
	}
	return text
}

// unheard is the first of these callers where neither a quota of a service nor what
// was counted names one of them, and the name that was probably meant; "" and "" where
// one does, or where that cannot be told: see noCaller.
func (s *server) unheard(svc *rlc.Service, callers []string, counted ...[]rlc.Count) (caller, near string) {
	byCaller := func(b rlc.Bucket) bool { return slices.Contains(b.Each, "caller") }
	if len(callers) == 0 || !slices.ContainsFunc(svc.Buckets, byCaller) {
		return "", ""
	}
	var names []string
	for _, b := range svc.Buckets {
		if p := b.Match["caller"]; p.Kind == rlc.Prefix {
			if slices.ContainsFunc(callers, func(c string) bool { return strings.HasPrefix(c, p.Values[0]) }) {
				return "", ""
			}
		} else {
			names = append(names, p.Values...)
		}
	}
	_, desired := s.Truths.Desired()
	if desired == nil {
		return "", ""
	}
	for _, q := range desired.Quotas[svc.Name] {
		names = append(names, q.Key["caller"])
	}
	for _, counts := range counted {
		for _, c := range counts {
			if strings.HasPrefix(c.Key["caller"], "__") {
				return "", ""
			}
			names = append(names, c.Key["caller"])
		}
	}
	for _, caller := range callers {
		if caller == "absent" || strings.Contains(caller, "*") || slices.Contains(names, caller) {
			return "", ""
		}
	}
	return callers[0], spell.Nearest(callers[0], names, mostEdits)
}

func meant(name string, names []string) string {
	if near := spell.Nearest(name, names, mostEdits); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// notThere is how an answer says that there is no service of a name.
var notThere = regexp.MustCompile(`^There is no service "((?:[^"\\\\]|\\\\.)*)"`)

// nearest adds to the text of such an answer the service that was probably meant,
// of those that who may see; any other text stays as it is. Of a service that has
// traffic and no policy it says that, and where the first is made.
func (s *server) nearest(who identity, text string) (string, ui.Link) {
	m := notThere.FindStringSubmatch(text)
	_, desired := s.Truths.Desired()
	if m == nil || desired == nil {
		return text, ui.Link{}
	}
	names := slices.Clone(s.unmanagedFor(who))
	if slices.Contains(names, m[1]) {
		return m[1] + " has traffic and no policy: no limit counts its requests.", ui.Link{Text: "Its first policy", URL: serviceURL(m[1]) + "/onboard"}
	}
	for _, svc := range desired.Services {
		if s.maySee(who, svc.Name) {
			names = append(names, svc.Name)
		}
	}
	near := meant(m[1], names)
	if near == "" {
		return text, ui.Link{}
	}
	return strings.TrimSuffix(text, ".") + near, ui.Link{}
}
