package external

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ClientConfig is the operator's word on whom policies may ask. Its zero value
// lets them ask nobody: whoever may edit a policy file must not be able to make
// the server call an address of their choice.
type ClientConfig struct {
	Allow []string // hosts, or host:port, that may be asked; none by default
	// Private are networks of private, loopback or link-local addresses that an
	// allowed host may lie in; none by default.
	Private []netip.Prefix
}

// Client asks models. It is safe for concurrent use.
type Client struct {
	allow   []string
	private []netip.Prefix
	http    *http.Client
}

// NewClient returns a client. It holds no connection until it asks.
func NewClient(c ClientConfig) *Client {
	k := &Client{private: c.Private}
	for _, host := range c.Allow {
		k.allow = append(k.allow, strings.ToLower(host))
	}
	// The address is checked when it is dialled, after the name was resolved:
	// a name that resolves elsewhere the second time gains nothing.
	dialer := &net.Dialer{Control: k.control}
	k.http = &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, Proxy: nil,
			MaxIdleConnsPerHost: 2, IdleConnTimeout: 5 * time.Second,
			MaxResponseHeaderBytes: maxAnswer, TLSHandshakeTimeout: DefaultTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it answers with a redirect, which is not followed")
		},
	}
	return k
}

// Close drops idle connections.
func (k *Client) Close() { k.http.CloseIdleConnections() }

// post sends a question and returns the answer's body.
func (k *Client) post(ctx context.Context, target string, body io.Reader) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, body)
	if err != nil {
		return "", err
	}
	if !slices.Contains(k.allow, strings.ToLower(req.URL.Host)) && !slices.Contains(k.allow, strings.ToLower(req.URL.Hostname())) {
		return "", errors.New("the operator does not allow this host")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := k.http.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // the URL is in the policy, its query may be nobody's business
		}
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answers %d", resp.StatusCode)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	if len(answer) > maxAnswer {
		return "", fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	if len(answer) == 0 {
		return "", errors.New("the answer is empty")
	}
	return string(answer), nil
}

// control refuses to connect to an address inside, unless it was allowed.
func (k *Client) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	ip := to.Addr().Unmap().WithZone("")
	if public(ip) || slices.ContainsFunc(k.private, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return nil
	}
	return fmt.Errorf("%s is a private address, which the operator does not allow", ip)
}

// public reports whether an address leads outside. The networks are those that
// net/netip's own predicates leave out and that lead, or may lead, to a host
// inside (RFC 6890, RFC 6052, RFC 3056, RFC 4380).
func public(ip netip.Addr) bool {
	for _, inside := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4",
		"64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "fec0::/10",
	} {
		if netip.MustParsePrefix(inside).Contains(ip) {
			return false
		}
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate()
}
