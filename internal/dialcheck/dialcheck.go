// Package dialcheck connects to where a URL may lead and nowhere else.
//
// A host in a URL is a name until the moment somebody connects: what it was
// found to be earlier says nothing. The address is therefore looked at between
// name and connection, for every connection, by the system's own dialer.
package dialcheck

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/openrlc/rlc"
)

// Dialer connects by TCP. The zero value refuses the addresses to which no name
// of another machine leads in good faith: unspecified ones, multicast,
// link-local ones, where clouds keep the credentials of machines, and this
// machine, unless the name itself says so (localhost, 127.0.0.1, ::1).
type Dialer struct {
	// Networks are the only addresses connected to. None: the zero value's rule.
	Networks []netip.Prefix
	// Timeout is that of one connection; 20 s by default.
	Timeout time.Duration

	resolver *net.Resolver // nil: the system's
}

// DialContext connects to addr, "host:port". An address that is not allowed is
// rlc.ErrRefused, and nothing was sent to it.
func (d Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: address %q: %w", rlc.ErrInvalid, addr, err)
	}
	timeout := d.Timeout
	if timeout <= 0 {
		timeout = 20 * time.Second
	}
	dialer := net.Dialer{Timeout: timeout, Resolver: d.resolver, Control: func(network, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil || !strings.HasPrefix(network, "tcp") {
			return fmt.Errorf("%w: a connection by %s to %q", rlc.ErrRefused, network, address)
		}
		return d.check(host, at.Addr().Unmap().WithZone(""))
	}}
	return dialer.DialContext(ctx, network, addr)
}

// check says why an address that host was found to have is not connected to.
func (d Dialer) check(host string, ip netip.Addr) error {
	if len(d.Networks) > 0 {
		if slices.ContainsFunc(d.Networks, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return nil
		}
		return fmt.Errorf("%w: %s is in none of the networks that are allowed", rlc.ErrRefused, ip)
	}
	kind := ""
	switch {
	case ip.IsUnspecified():
		kind = "no address of a server"
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		kind = "an address of many"
	case ip.IsLinkLocalUnicast():
		kind = "link-local"
	case ip.IsLoopback() && !local(host):
		kind = "this machine, which the name does not say"
	default:
		return nil
	}
	return fmt.Errorf("%w: %s is %s", rlc.ErrRefused, ip, kind)
}

// local reports whether a name says itself that it is this machine.
func local(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
