package mtls

import (
	"crypto/tls"
	"net/url"
	"strings"
)

// Place is the zone and the region that the certificate of a connection's verified
// peer binds it to, each "" where it binds to none. They stand in the URI that is
// its Name, whose path is read in pairs: spiffe://mesh/region/eu/zone/eu-1a/ns/shop
// is in zone eu-1a of region eu, and spiffe://mesh/ns/zone/sa/shop nowhere. Of two
// zones the first counts.
func Place(s *tls.ConnectionState) (zone, region string) {
	if s == nil || len(s.VerifiedChains) == 0 || len(s.VerifiedChains[0]) == 0 || len(s.VerifiedChains[0][0].URIs) == 0 {
		return "", ""
	}
	rest := strings.TrimPrefix(s.VerifiedChains[0][0].URIs[0].EscapedPath(), "/")
	for rest != "" {
		var key, value string
		key, rest, _ = strings.Cut(rest, "/")
		value, rest, _ = strings.Cut(rest, "/")
		value, err := url.PathUnescape(value)
		switch {
		case err != nil:
		case key == "zone" && zone == "":
			zone = value
		case key == "region" && region == "":
			region = value
		}
	}
	return zone, region
}
