package gitsync

import (
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/openrlc/rlc"
)

// J11: what a URL's host turns out to be is looked at when it is connected to,
// and a server there is not asked again soon.
func TestARemoteThatLeadsWhereItShouldNotIsNotConnectedTo(t *testing.T) {
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
	dir := t.TempDir()
	public, private, _ := ed25519.GenerateKey(nil)
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	line := string(ssh.MarshalAuthorizedKey(key))
	hosts := "[0.0.0.0]:" + port + " " + line + "[127.0.0.1]:" + port + " " + line + "169.254.169.254 " + line
	token, keyFile, hostsFile := filepath.Join(dir, "token"), filepath.Join(dir, "key"), filepath.Join(dir, "hosts")
	if err := errors.Join(os.WriteFile(token, []byte("canary"), 0o600), os.WriteFile(keyFile, pem.EncodeToMemory(block), 0o600), os.WriteFile(hostsFile, []byte(hosts), 0o600)); err != nil {
		t.Fatal(err)
	}
	elsewhere := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for url, c := range map[string]Config{
		"https://0.0.0.0:" + port + "/x":         {},
		"https://[::]:" + port + "/x":            {},
		"https://169.254.169.254/x":              {},
		"http://127.0.0.1:" + port + "/x":        {Networks: elsewhere},
		"ssh://git@0.0.0.0:" + port + "/x":       {},
		"ssh://git@169.254.169.254/x":            {},
		"ssh://git@127.0.0.1:" + port + "/x.git": {Networks: elsewhere},
	} {
		c.TokenFile, c.KeyFile, c.KnownHostsFile = token, keyFile, hostsFile
		f := newTestRemote(t, url, c)
		err := f.follow(t.Context())
		if !errors.Is(err, rlc.ErrRefused) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want it refused", url, err)
			continue
		}
		if p := f.pause[fetching]; p.wait != patience {
			t.Errorf("%s: the next try is after %s, want %s: time will not mend it", url, p.wait, patience)
		}
	}
	l.Close()
	<-done
	if reached.Load() != 0 {
		t.Errorf("the decoy was reached %d times", reached.Load())
	}
}
