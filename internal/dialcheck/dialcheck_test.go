package dialcheck

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/openrlc/rlc"
)

func TestWhichAddressesANameMayLeadTo(t *testing.T) {
	for _, c := range []struct {
		host, ip string
		ok       bool
	}{
		{"prom.example", "192.0.2.7", true},
		{"prom.example", "10.1.2.3", true}, // private networks are where servers are
		{"prom.example", "fd00::7", true},
		{"localhost", "127.0.0.1", true},
		{"LOCALHOST.", "::1", true},
		{"a.localhost", "127.0.0.1", true},
		{"127.0.0.1", "127.0.0.1", true},
		{"::1", "::1", true},
		{"::ffff:127.0.0.1", "::ffff:127.0.0.1", true},
		{"prom.example", "127.0.0.1", false},
		{"prom.example", "127.8.8.8", false},
		{"prom.example", "::1", false},
		{"prom.example", "::ffff:127.0.0.1", false},
		{"2130706433", "127.0.0.1", false}, // in decimal
		{"0x7f.1", "127.0.0.1", false},
		{"localhost.example", "127.0.0.1", false},
		{"0", "0.0.0.0", false},
		{"0.0.0.0", "0.0.0.0", false},
		{"::", "::", false},
		{"169.254.169.254", "169.254.169.254", false},
		{"prom.example", "169.254.169.254", false},
		{"prom.example", "::ffff:169.254.169.254", false},
		{"prom.example", "fe80::1%eth0", false},
		{"prom.example", "224.0.0.1", false},
		{"prom.example", "ff02::1", false},
		{"prom.example", "255.255.255.255", false},
	} {
		err := Dialer{}.check(c.host, netip.MustParseAddr(c.ip).Unmap().WithZone(""))
		if c.ok != (err == nil) || err != nil && !errors.Is(err, rlc.ErrRefused) {
			t.Errorf("%s at %s: %v, want allowed %t", c.host, c.ip, err, c.ok)
		}
	}
	only := Dialer{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")}}
	for ip, ok := range map[string]bool{"10.9.9.9": true, "127.0.0.1": true, "127.0.0.2": false, "192.0.2.7": false, "::1": false} {
		if err := only.check("prom.example", netip.MustParseAddr(ip)); ok != (err == nil) {
			t.Errorf("with a list, %s: %v, want allowed %t", ip, err, ok)
		}
	}
}

// names is a resolver whose every name has the address that next gives.
func names(next func() netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			var size [2]byte
			for {
				if _, err := io.ReadFull(theirs, size[:]); err != nil {
					return
				}
				question := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(theirs, question); err != nil {
					return
				}
				end := 12 // of the name
				for question[end] != 0 {
					end += 1 + int(question[end])
				}
				end += 5 // root, type, class
				answer := append([]byte{}, question[:end]...)
				copy(answer[2:12], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
				if question[end-3] == 1 { // A
					answer[7] = 1
					answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
					ip := next().As4()
					answer = append(answer, ip[:]...)
				}
				if _, err := theirs.Write(binary.BigEndian.AppendUint16(nil, uint16(len(answer)))); err != nil {
					return
				}
				if _, err := theirs.Write(answer); err != nil {
					return
				}
			}
		}()
		return ours, nil
	}}
}

// A name that was harmless when it was first looked up, and is this machine
// when it is connected to.
func TestANameThatChangesItsAddressIsCaughtAtTheConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var reached atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	asked := 0
	d := Dialer{resolver: names(func() netip.Addr {
		if asked++; asked == 1 {
			return netip.MustParseAddr("192.0.2.7")
		}
		return netip.MustParseAddr("127.0.0.1")
	})}
	if found, err := d.resolver.LookupHost(t.Context(), "rebind.example"); err != nil || found[0] != "192.0.2.7" {
		t.Fatalf("%v, %v", found, err)
	}
	for _, host := range []string{"rebind.example", "2130706433", "0", "0.0.0.0", "[::]"} {
		if c, err := d.DialContext(t.Context(), "tcp", host+":"+port); err == nil {
			t.Errorf("%s is connected to", host)
			c.Close()
		} else if host == "rebind.example" && !errors.Is(err, rlc.ErrRefused) {
			t.Errorf("%s: %v, want it refused", host, err)
		}
	}
	l.Close()
	<-done
	if reached.Load() != 0 {
		t.Errorf("this machine was reached %d times", reached.Load())
	}
}

func TestWhatIsNamedPlainlyIsConnectedTo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dialer{}.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := (Dialer{}).DialContext(t.Context(), "tcp", "no port"); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("no port: %v", err)
	}
	if _, err := (Dialer{}).DialContext(t.Context(), "unix", "/tmp/x:1"); err == nil {
		t.Error("a socket in the file system is connected to")
	}
}
