package promhistory

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openrlc/rlc"
)

// J11: what a URL's host turns out to be is looked at when it is connected to.
func TestAURLThatLeadsWhereItShouldNotIsNotConnectedTo(t *testing.T) {
	var reached atomic.Int32
	decoy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		_, _ = w.Write([]byte(one))
	}))
	defer decoy.Close()
	at, _ := url.Parse(decoy.URL)
	file := write(t, filepath.Join(t.TempDir(), "secret"), "tiger")
	elsewhere := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for name, c := range map[string]Config{
		"unspecified":        {URL: "http://0.0.0.0:" + at.Port()},
		"unspecified, six":   {URL: "http://[::]:" + at.Port()},
		"zero":               {URL: "http://0:" + at.Port()},
		"decimal":            {URL: "http://2130706433:" + at.Port()},
		"metadata":           {URL: "http://169.254.169.254/latest"},
		"mapped metadata":    {URL: "http://[::ffff:169.254.169.254]/latest"},
		"not in the list":    {URL: decoy.URL, Networks: elsewhere},
		"nor with a CA file": {URL: strings.Replace(decoy.URL, "http:", "https:", 1), Networks: elsewhere, TLS: TLS{CAFile: write(t, filepath.Join(t.TempDir(), "ca"), newAuthority(t).pem)}},
	} {
		c.Auth = Auth{TokenFile: file}
		err := reader(t, c.URL, c).Check(t.Context())
		if !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "tiger") {
			t.Errorf("%s: %v, want it not to be reached", name, err)
		}
		if name != "zero" && name != "decimal" && !errors.Is(err, rlc.ErrRefused) { // these are names to some resolvers only
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	if reached.Load() != 0 {
		t.Errorf("the decoy was reached %d times", reached.Load())
	}
	if err := reader(t, decoy.URL, Config{Networks: append(elsewhere, netip.MustParsePrefix("127.0.0.0/8"))}).Check(t.Context()); err != nil || reached.Load() == 0 {
		t.Errorf("what is in the list: %v", err)
	}
}
