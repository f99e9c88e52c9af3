package mtls

import "net/netip"

// Callers finds out who sent a request. The zero value believes certificates
// only.
type Callers struct {
	// Addresses and Names list the peers that may speak for others, proxies
	// for one: by address, and by the name that their certificate gives them.
	// Of these the name that they claim is believed.
	Addresses []netip.Prefix
	Names     []string
}

// Of is the caller: what a listed peer claims, else the peer's verified name,
// "" for none. A listed peer that claims nothing speaks for itself. What
// others claim is not heard.
func (c *Callers) Of(verified string, from netip.Addr, claimed string) string {
	if claimed != "" && c.listed(verified, from) {
		return claimed
	}
	return verified
}

func (c *Callers) listed(verified string, from netip.Addr) bool {
	if verified != "" {
		for _, n := range c.Names {
			if n == verified {
				return true
			}
		}
	}
	from = from.Unmap()
	for _, p := range c.Addresses {
		if p.Contains(from) {
			return true
		}
	}
	return false
}
