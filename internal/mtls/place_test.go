package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

// A zone and a region are what the name's path says, in pairs.
func TestACertificateBindsToItsPlace(t *testing.T) {
	ca := mtlstest.New(t)
	for _, c := range []struct{ name, zone, region string }{
		{"spiffe://mesh/region/eu/zone/eu-1a/ns/shop", "eu-1a", "eu"},
		{"spiffe://mesh/ns/shop/zone/eu-1a", "eu-1a", ""},
		{"spiffe://mesh/region/eu", "", "eu"},
		{"spiffe://mesh/zone/a%2Fb", "a/b", ""},
		{"spiffe://mesh/zone/a/zone/b", "a", ""},
		{"spiffe://mesh/ns/zone/sa/region", "", ""}, // neither is the key of a pair
		{"spiffe://mesh/ns/shop/zone", "", ""},
		{"spiffe://mesh/zone", "", ""},
		{"spiffe://mesh", "", ""},
		{"zone/eu-1a", "", ""}, // no URI
	} {
		data, _ := ca.Issue(t, c.name, time.Now().Add(time.Hour))
		block, _ := pem.Decode(data)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		shown := tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		if zone, region := Place(&shown); zone+region != "" {
			t.Errorf("%s: %q, %q of a certificate that nobody verified", c.name, zone, region)
		}
		shown.VerifiedChains = [][]*x509.Certificate{{cert}}
		if zone, region := Place(&shown); zone != c.zone || region != c.region {
			t.Errorf("%s: zone %q, region %q; want %q, %q", c.name, zone, region, c.zone, c.region)
		}
	}
	if zone, region := Place(nil); zone+region != "" {
		t.Errorf("without TLS: %q, %q", zone, region)
	}
}
