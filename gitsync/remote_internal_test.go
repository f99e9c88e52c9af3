package gitsync

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/storage/memory"
	"golang.org/x/crypto/ssh"

	"github.com/openrlc/rlc"
)

// D12.
func TestOnlyHarmlessURLsAreRemotes(t *testing.T) {
	dir := t.TempDir()
	for _, url := range []string{
		"", "ext::sh -c touch% /tmp/x", "ext::https://example.org/x", "fd::17", "git://example.org/x", "file:///etc", "file://localhost/etc", "ftp://example.org/x",
		"https://", "https:///x", "https:example.org/x", "https://example.org", "https://example.org/", "http://example.org/x.git", "http://127.0.0.1.example.org/x",
		"https://user:canary@example.org/x", "https://:canary@example.org/x", "https://@example.org/x", "https://us er@example.org/x", "https://-u@example.org/x",
		"https://example.org/x.git?a=b", "https://example.org/x.git#f", "https://example.org/x.git#", "https://example.org/../x", "https://example.org/a/%2e%2e/x", "https://example.org/a%0ab", "https://example.org/a b", "https://example.org/a\nb", "https://example.org/\u202ex", "https://exämple.org/x",
		"https://-oProxyCommand=x/y", "https://example.org:0/x", "https://example.org:x/x", "https://example.org:99999/x", "https://exa_mple$(id).org/x", "https://example.org//x", " https://example.org/x", "https://example.org/x\x00",
		"ssh://-oProxyCommand=touch%20x/y", "ssh://git@-oProxyCommand=x/y", "ssh://git@example.org/x'y", "ssh://git@example.org/$(id)", "ssh://git@example.org/`id`", "ssh://git@example.org/x;id", "ssh://git@example.org", "ssh://-l@example.org/x", "ssh://git:canary@example.org/x",
		"git@example.org:-x", "git@example.org:", "git@-oProxyCommand=x:y", "-oProxyCommand=x:y", "--upload-pack=touch /tmp/x", "git@example.org:x y", "git@example.org:x'y", "git@example.org:../x", "git+ssh://git@example.org/x", "ssh+git://x/y",
	} {
		_, err := Open(t.Context(), Config{URL: url, Dir: dir, KeyFile: "/k", KnownHostsFile: "/h"})
		if Remote(url) {
			_, err = parseAddress(url, nil, false)
		}
		if !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", url, err)
		} else if strings.Contains(err.Error(), "canary") || strings.ContainsAny(err.Error(), "\n\x00\u202e") {
			t.Errorf("%q: the error %q shows what it should not", url, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("refused URLs left %v", left)
	}
	for url, want := range map[string]address{
		"https://example.org/x.git":             {"https", "", "example.org", "", "/x.git"},
		"https://bob@Example.org:8443/a/b%20c/": {"https", "bob", "example.org", "8443", "/a/b%20c"},
		"http://127.0.0.1:3000/x":               {"http", "", "127.0.0.1", "3000", "/x"},
		"http://[::1]:3000/x":                   {"http", "", "::1", "3000", "/x"},
		"ssh://git@example.org:2222/srv/x.git":  {"ssh", "git", "example.org", "2222", "/srv/x.git"},
		"ssh://example.org/~/x.git":             {"ssh", "", "example.org", "", "~/x.git"},
		"git@example.org:group/sub-group/x.git": {"ssh", "git", "example.org", "", "group/sub-group/x.git"},
		"git@example.org:/srv/x.git":            {"ssh", "git", "example.org", "", "/srv/x.git"},
		"x.y@[2001:db8::1]:x.git":               {"ssh", "x.y", "2001:db8::1", "", "x.git"},
	} {
		got, err := parseAddress(url, nil, false)
		if err != nil || got != want || !Remote(url) {
			t.Errorf("%s became %+v, %v; want %+v", url, got, err, want)
		}
	}
	if _, err := parseAddress("http://example.org/x", nil, true); err != nil {
		t.Errorf("http, allowed: %v", err)
	}
	for host, ok := range map[string]bool{"example.org": true, "EXAMPLE.org": true, "example.org:443": true, "example.org:8443": false, "example.com": false, "org": false} {
		if _, err := parseAddress("https://example.org/x", []string{"a", host}, false); (err == nil) != ok {
			t.Errorf("host list %s: %v, want allowed %v", host, err, ok)
		}
	}
	for url, missing := range map[string]Config{
		"https://example.org/x":   {},
		"git@example.org:x":       {Dir: dir, KeyFile: "/k"},
		"ssh://git@example.org/x": {Dir: dir, KnownHostsFile: "/h"},
	} {
		missing.URL = url
		if _, err := Open(t.Context(), missing); !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), "needs") {
			t.Errorf("%s with %+v: %v, want it to say what it needs", url, missing, err)
		}
	}
}

func newTestRemote(t *testing.T, url string, c Config) *remote {
	t.Helper()
	c.URL, c.Dir, c.Branch, c.Log = url, t.TempDir(), "main", slog.New(slog.DiscardHandler)
	f, err := openRemote(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.mirror(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

// D7: a server that refuses is asked ever more rarely, up to 15 minutes, and at
// once when the token changed.
func TestARefusingServerIsAskedEverMoreRarely(t *testing.T) {
	for status, root := range map[int]error{http.StatusUnauthorized: rlc.ErrRefused, http.StatusForbidden: rlc.ErrRefused, http.StatusNotFound: rlc.ErrNotFound} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			http.Error(w, r.Header.Get("Authorization")+" canary", status)
		}))
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte("canary\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := newTestRemote(t, server.URL+"/x.git", Config{TokenFile: file})
		now := time.Date(2026, 10, 5, 8, 0, 0, 0, time.UTC)
		f.clock = func() time.Time { return now }
		for range 24 * 60 * 6 { // a day of asking every 10 seconds
			err := f.follow(t.Context())
			if !errors.Is(err, root) || strings.Contains(err.Error(), "canary") {
				t.Fatalf("%d: error %v, want %v and no token", status, err, root)
			}
			now = now.Add(10 * time.Second)
		}
		// At 15 minutes with up to half of it off: 96 to 192 a day, and the way there.
		if asked < 96 || asked > 205 {
			t.Errorf("%d: asked %d times in a day, want about 130", status, asked)
		}
		if p := f.pause[fetching]; p.wait != patienceEnd || p.until.Sub(now) > patienceEnd {
			t.Errorf("%d: waits %s until %s, want 15m at most", status, p.wait, p.until.Sub(now))
		}
		before := asked
		if err := os.WriteFile(file, []byte("canary-2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _ = f.follow(t.Context()); asked != before+1 {
			t.Errorf("%d: a new token was tried %d times, want once and at once", status, asked-before)
		}
		if p := f.pause[fetching]; p.wait != patience {
			t.Errorf("%d: after a new token the wait is %s, want %s", status, p.wait, patience)
		}
		server.Close()
	}
}

// A server that accepts and says nothing, or drips, is given up on.
func TestASilentOrSlowServerIsGivenUpOn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close() // held open until the listener closes
		}
	}()
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = io.WriteString(w, "001e# service=git-upload-pack\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer slow.Close()
	keys := t.TempDir()
	public, private, _ := ed25519.GenerateKey(nil)
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for name, data := range map[string][]byte{"key": pem.EncodeToMemory(block), "hosts": append([]byte("[127.0.0.1]:"+port+" "), ssh.MarshalAuthorizedKey(key)...)} {
		if err := os.WriteFile(filepath.Join(keys, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, url := range []string{"http://" + l.Addr().String() + "/x", slow.URL + "/x", "ssh://git@" + l.Addr().String() + "/x"} {
		f := newTestRemote(t, url, Config{Timeout: 200 * time.Millisecond, KeyFile: filepath.Join(keys, "key"), KnownHostsFile: filepath.Join(keys, "hosts")})
		if err := f.follow(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "200ms") {
			t.Errorf("%s: %v, want it to say that 200ms passed", url, err)
		}
	}
}

// D10: what is too large is refused before it is inflated or kept.
func TestAPackThatIsTooLargeIsRefused(t *testing.T) {
	st := memory.NewStorage()
	var hashes []plumbing.Hash
	put := func(data []byte) {
		o := st.NewEncodedObject()
		o.SetType(plumbing.BlobObject)
		w, _ := o.Writer()
		_, _ = w.Write(data)
		_ = w.Close()
		h, _ := st.SetEncodedObject(o)
		hashes = append(hashes, h)
	}
	pack := func() []byte {
		var b bytes.Buffer
		if _, err := packfile.NewEncoder(&b, st, false).Encode(hashes, 0); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	put([]byte("small"))
	small := pack()
	put(bytes.Repeat([]byte{'0'}, maxObject+1)) // 64 KiB deflated
	bomb := pack()
	hashes = hashes[:1]
	for i := range 40 {
		put(append(bytes.Repeat([]byte{'0'}, 1<<20), byte(i)))
	}
	many := pack()
	truncated, flipped := small[:len(small)-5], bytes.Clone(small)
	flipped[len(small)-1] ^= 1
	for name, c := range map[string]struct {
		pack  []byte
		limit int64
		want  string
	}{
		"whole":       {small, 1 << 20, ""},
		"bytes":       {small, 20, "more than 20 bytes"},
		"one object":  {bomb, 64 << 20, "limit 67108864"},
		"all objects": {many, 2 << 20, "too large together"},
		"truncated":   {truncated, 1 << 20, "broken"},
		"flipped":     {flipped, 1 << 20, "broken"},
		"none":        {[]byte("PACK\x00\x00\x00\x02\xff\xff\xff\xff"), 1 << 20, "4294967295 objects, limit 41"},
		"text":        {[]byte("<html>"), 1 << 20, "broken"},
	} {
		f := newTestRemote(t, "https://example.org/x", Config{})
		err := receive(f.dir, bytes.NewReader(c.pack), c.limit, 41)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if left, _ := filepath.Glob(filepath.Join(f.dir, "*.tmp")); left != nil {
			t.Errorf("%s: left %v", name, left)
		}
		if left, _ := filepath.Glob(filepath.Join(f.dir, "objects/pack/tmp*")); left != nil {
			t.Errorf("%s: left %v", name, left)
		}
	}
}
