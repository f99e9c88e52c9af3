package github_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/forgetest"
	"github.com/openrlc/rlc/gitsync/github"
)

// keyFile writes a new RSA key in a form that GitHub gives out.
func keyFile(t *testing.T, path string) *rsa.PublicKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return &key.PublicKey
}

// claimed checks a JSON Web Token as GitHub does: by the key, and valid now and for
// ten minutes at most.
func claimed(token string, key *rsa.PublicKey, now time.Time) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return fmt.Errorf("%d parts", len(parts))
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature); err != nil {
		return err
	}
	var says struct {
		Iat, Exp int64
		Iss      string
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(text, &says)
	}
	if err != nil || says.Iss != "5" || says.Iat > now.Unix() || says.Exp <= now.Unix() || says.Exp > now.Add(10*time.Minute).Unix() {
		return fmt.Errorf("claims %+v at %d, %v", says, now.Unix(), err)
	}
	return nil
}

// An App shows who it is by its key, works with tokens of an hour that are made anew
// before their end, gives the same to git, and does not storm a server that refuses it.
func TestAnAppWorksWithTokensThatItMakes(t *testing.T) {
	now := time.Date(2026, 3, 18, 10, 3, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "app.pem")
	key := keyFile(t, file)
	var made, asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case r.Method == "POST" && r.URL.Path == "/app/installations/7/access_tokens":
			asked.Add(1)
			if err := claimed(shown, key, now); err != nil {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"token":"ghs_%d","expires_at":%q}`, made.Add(1), now.Add(time.Hour).Format(time.RFC3339))
		case shown != fmt.Sprintf("ghs_%d", made.Load()):
			w.WriteHeader(http.StatusUnauthorized)
		default:
			fmt.Fprint(w, "[]")
		}
	}))
	defer server.Close()
	f, err := github.New(github.Config{Server: forge.Server{URL: server.URL, Now: func() time.Time { return now }}, Repo: forgetest.Repo,
		App: github.App{ID: 5, Installation: 7, KeyFile: file}})
	if err != nil {
		t.Fatal(err)
	}
	for minute := range 121 {
		if _, err := f.List(t.Context()); err != nil {
			t.Fatalf("minute %d: %v", minute, err)
		}
		now = now.Add(time.Minute)
	}
	token, err := f.Token(t.Context()) // 55 minutes each: at 0, 55 and 110
	if err != nil || token != "ghs_3" || made.Load() != 3 {
		t.Errorf("git's password %q, %d tokens made, %v; want the third", token, made.Load(), err)
	}

	was := key
	key = keyFile(t, filepath.Join(t.TempDir(), "other.pem")) // GitHub knows another
	now = now.Add(2 * time.Hour)
	before := asked.Load()
	for range 360 {
		now = now.Add(10 * time.Second)
		if _, err := f.List(t.Context()); err == nil || strings.Contains(err.Error(), "ghs_") {
			t.Fatalf("with a key that is refused: %v", err)
		}
	}
	if n := asked.Load() - before; n < 4 || n > 16 {
		t.Errorf("a refused key was shown %d times in an hour", n)
	}
	key = was
	now = now.Add(15 * time.Minute)
	if _, err := f.List(t.Context()); err != nil {
		t.Errorf("with the key known again: %v", err)
	}
}
