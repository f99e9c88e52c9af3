package identity

import (
	"net/http"
	"net/netip"
	"strings"
)

// Proxy reads what a proxy in one of Networks says of a person. From anywhere
// else its headers mean nothing.
type Proxy struct {
	Networks []netip.Prefix
	User     string // header of the person's name
	Groups   string // header of the groups, separated by commas; "": none
}

// Who is the person that a trusted proxy names; ok is false where the request
// did not come from one, or it names nobody. A header that came twice names
// nobody: one of the two may be the client's.
func (p *Proxy) Who(r *http.Request) (name string, groups []string, ok bool) {
	if !p.Trusted(r) || len(r.Header.Values(p.User)) != 1 {
		return "", nil, false
	}
	name = strings.TrimSpace(r.Header.Get(p.User))
	if p.Groups != "" {
		if len(r.Header.Values(p.Groups)) > 1 {
			return "", nil, false
		}
		for g := range strings.SplitSeq(r.Header.Get(p.Groups), ",") {
			if g = strings.TrimSpace(g); g != "" {
				groups = append(groups, g)
			}
		}
	}
	return name, groups, name != ""
}

// Trusted reports whether the connection itself comes from a listed network.
func (p *Proxy) Trusted(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	for _, n := range p.Networks {
		if n.Contains(from.Addr().Unmap()) {
			return true
		}
	}
	return false
}
