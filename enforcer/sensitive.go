package enforcer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/openrlc/rlc"
)

// hashed is a sensitive value as it leaves the enforcer: the first 64 bits of
// its HMAC-SHA256 under the enforcer's key, in hexadecimal. Equal values stay
// equal, and nobody without the key finds the value by trying.
func (e *Enforcer) hashed(value string) string {
	mac := hmac.New(sha256.New, e.hashKey)
	mac.Write([]byte(value))
	return "~" + hex.EncodeToString(mac.Sum(nil)[:8])
}

// Reveal is attrs as they may be told: with the values that the service calls
// sensitive hashed, and all of them where no policy says which those are. It is
// attrs itself where there are none.
func (e *Enforcer) Reveal(service string, attrs rlc.Attributes) rlc.Attributes {
	l := e.loaded.Load()
	if l == nil || l.services[service] == nil {
		out := maps.Clone(attrs)
		for name, v := range out {
			if v != "" {
				out[name] = e.hashed(v)
			}
		}
		return out
	}
	return e.conceal(l.services[service].service, attrs)
}

// conceal hashes the values of a service's sensitive attributes. Those that
// mean "no identity" stay what they are.
func (e *Enforcer) conceal(s *service, attrs map[string]string) map[string]string {
	out, copied := attrs, false
	for _, name := range s.Sensitive {
		v := attrs[name]
		if v == "" || slices.Contains(s.Unknown[name], v) {
			continue
		}
		if !copied {
			out, copied = maps.Clone(attrs), true
		}
		out[name] = e.hashed(v)
	}
	return out
}
