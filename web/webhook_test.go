package web_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openrlc/rlc/web"
)

func hook(t testing.TB, f *fixture, h web.Hook) http.Handler {
	t.Helper()
	c := f.config()
	c.Hook = h
	out, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func signed(secret, body string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(body))
	return hex.EncodeToString(m.Sum(nil))
}

// TestWebhooksProveThemselves sends messages with no, wrong, truncated and
// right proof to each kind, and to one without a secret.
func TestWebhooksProveThemselves(t *testing.T) {
	const secret, body = "a secret of some length", `{"action":"closed"}`
	old := hmac.New(sha1.New, []byte(secret))
	old.Write([]byte(body))
	sha1Sum, sum := hex.EncodeToString(old.Sum(nil)), signed(secret, body)
	set := func() (string, error) { return secret, nil }
	for _, c := range []struct {
		name, kind, header, value string
		secret                    func() (string, error)
		want                      int
	}{
		{"github", "github", "X-Hub-Signature-256", "sha256=" + sum, set, 202},
		{"github, upper case", "github", "X-Hub-Signature-256", "sha256=" + strings.ToUpper(sum), set, 202},
		{"github, none", "github", "", "", set, 401},
		{"github, another secret", "github", "X-Hub-Signature-256", "sha256=" + signed("other", body), set, 401},
		{"github, truncated", "github", "X-Hub-Signature-256", "sha256=" + sum[:32], set, 401},
		{"github, empty", "github", "X-Hub-Signature-256", "sha256=", set, 401},
		{"github, no hex", "github", "X-Hub-Signature-256", "sha256=" + strings.Repeat("zz", 32), set, 401},
		{"github, without its algorithm", "github", "X-Hub-Signature-256", sum, set, 401},
		{"github, SHA-1", "github", "X-Hub-Signature", "sha1=" + sha1Sum, set, 401},
		{"github, SHA-1 under the newer name", "github", "X-Hub-Signature-256", "sha1=" + sha1Sum, set, 401},
		{"github, another forge's header", "github", "X-Gitlab-Token", secret, set, 401},
		{"gitea", "gitea", "X-Gitea-Signature", sum, set, 202},
		{"gitea, another body's", "gitea", "X-Gitea-Signature", signed(secret, body+" "), set, 401},
		{"gitlab", "gitlab", "X-Gitlab-Token", secret, set, 202},
		{"gitlab, the beginning", "gitlab", "X-Gitlab-Token", secret[:5], set, 401},
		{"gitlab, empty", "gitlab", "X-Gitlab-Token", "", set, 401},
		{"no secret", "github", "X-Hub-Signature-256", "sha256=" + signed("", body), func() (string, error) { return "", nil }, 404},
		{"no secret set", "gitlab", "X-Gitlab-Token", "", nil, 404},
		{"a secret that cannot be read", "gitlab", "X-Gitlab-Token", "", func() (string, error) { return "", errors.New("gone") }, 404},
		{"no forge", "", "X-Gitlab-Token", secret, set, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			woken := 0
			w := request(hook(t, newFixture(t), web.Hook{Kind: c.kind, Secret: c.secret, Wake: func() { woken++ }}), "POST", "/hooks/forge", body, func(r *http.Request) {
				r.RemoteAddr = "192.0.2.7:4000"
				if c.header != "" {
					r.Header.Set(c.header, c.value)
				}
			})
			if w.Code != c.want || woken != map[bool]int{true: 1}[c.want == 202] {
				t.Fatalf("%d, woken %d times, want %d\n%s", w.Code, woken, c.want, w.Body)
			}
			if strings.Contains(w.Body.String(), secret) {
				t.Fatal("the answer holds the secret")
			}
		})
	}
}

// FuzzWebhook: whatever is sent, only the right proof wakes, and nothing panics.
func FuzzWebhook(f *testing.F) {
	const secret = "a secret of some length"
	for _, kind := range []string{"github", "gitea", "gitlab", ""} {
		f.Add(kind, "", "")
		f.Add(kind, `{"action":`, "sha256="+signed(secret, `{"action":`))
		f.Add(kind, "\x00\xff", signed(secret, "\x00\xff"))
		f.Add(kind, strings.Repeat("[", 10_000), "sha256=00")
		f.Add(kind, "{}", secret)
	}
	woken := false
	kindNow := ""
	handlers := map[string]http.Handler{}
	f.Fuzz(func(t *testing.T, kind, body, proof string) {
		kindNow = kind
		h := handlers[kindNow]
		if h == nil {
			if len(handlers) > 8 {
				clear(handlers)
			}
			h = hook(t, newFixture(t), web.Hook{Kind: kind, Secret: func() (string, error) { return secret, nil }, Wake: func() { woken = true }})
			handlers[kindNow] = h
		}
		woken = false
		r := httptest.NewRequest("POST", "/hooks/forge", strings.NewReader(body))
		r.Host, r.RemoteAddr = "127.0.0.1:8080", "192.0.2.7:4000"
		for _, name := range []string{"X-Hub-Signature-256", "X-Gitea-Signature", "X-Gitlab-Token"} {
			r.Header[name] = []string{proof}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		want := map[string]bool{"github": strings.EqualFold(proof, "sha256="+signed(secret, body)) && strings.HasPrefix(proof, "sha256="),
			"gitea": strings.EqualFold(proof, signed(secret, body)), "gitlab": proof == secret}[kind]
		if woken != want || (w.Code == 202) != want {
			t.Fatalf("woken %v, %d, want %v", woken, w.Code, want)
		}
	})
}
