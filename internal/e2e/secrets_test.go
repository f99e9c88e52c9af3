package e2e

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openrlc/rlc/internal/porttest"
)

// parrot answers as servers do that must not be repeated: what it was sent,
// secrets and all. It describes itself as an OpenID Connect provider.
func parrot(t *testing.T) (server *httptest.Server, ca string) {
	t.Helper()
	p := httptest.NewUnstartedServer(nil)
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/.well-known/openid-configuration" {
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": "http://" + r.Host, "authorization_endpoint": "http://" + r.Host + "/authorize", "token_endpoint": "http://" + r.Host + "/token", "jwks_uri": "http://" + r.Host + "/keys"})
			return
		}
		body, _ := io.ReadAll(r.Body) // what is not heard is not repeated
		said := fmt.Sprintf("%s %v %s", r.URL, r.Header, body)
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": "invalid_request", "error_description": said, "message": said})
	})
	t.Cleanup(p.Close)
	return p, filepath.Join(t.TempDir(), "ca.pem")
}

// Every kind of secret that the product takes is planted, whatever can fail
// fails, with servers that repeat what they were sent; afterwards none is found
// in logs, the repository, the records, pages, metrics, errors, `config dump`,
// the data folder or the arguments of a process.
func TestNoSecretLeaves(t *testing.T) {
	w := newWorld(t)
	canaries := map[string]string{}
	plant := func(kind string) string {
		canaries[kind] = fmt.Sprintf("canary-%d-of-a-%s", 4711+len(canaries), strings.ReplaceAll(kind, " ", "-"))
		return canaries[kind]
	}
	secrets := t.TempDir()
	file := func(kind, text string) string {
		path := filepath.Join(secrets, strings.ReplaceAll(kind, " ", "-"))
		w.write(path, text+"\n")
		return path
	}
	forge, ca := parrot(t)
	forge.StartTLS()
	w.write(ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: forge.Certificate().Raw})))
	issuer, _ := parrot(t)
	issuer.Start()
	hook, _ := parrot(t)
	repeat, refused := hook.Config.Handler, atomic.Int32{}
	hook.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repeat.ServeHTTP(w, r)
		refused.Add(1)
	})
	hook.Start()

	redis := plant("redis password")
	w.redis.Do("CONFIG", "SET", "requirepass", redis)
	dsn := w.dsn + " password=" + plant("postgresql password")
	if u, err := url.Parse(w.dsn); err == nil && u.Scheme != "" {
		u.User = url.UserPassword(u.User.Username(), canaries["postgresql password"])
		dsn = u.String()
	}
	canaries["server token"] = token
	listen := porttest.Free(t)
	w.write(w.config, fmt.Sprintf(`token: %s
listen: %s
store: {dsn: %q}
prometheus: {url: %s, user: rlc, password_file: %s}
repository: {url: %s, ca_file: %s, user: rlc, token_file: %s}
redis: {url: %q}
forge: {kind: gitea, url: %s, repository: a/config, ca_file: %s, token_file: %s, webhook_secret_file: %s}
oidc: {issuer: %s, client_id: rlc, client_secret_file: %s, public_url: "http://%s"}
roles: {admins: nobody}
notify: {webhook_file: %s, secret_file: %s, digest: 1s}
poll: 200ms
schedule: "17 3 * * *"
`, token, listen, dsn, w.promURL, file("prometheus", plant("prometheus password")), w.git.url(), w.git.ca, file("git", plant("git token")),
		"redis://:"+redis+"@"+w.redis.Addr(), forge.URL, ca, file("forge", plant("forge token")), file("hook", plant("webhook secret")),
		issuer.URL, file("oidc", plant("oidc client secret")), listen,
		file("notify", hook.URL+"/"+plant("notify url")), file("sign", plant("notify secret"))))
	user := plant("sensitive value")
	clone := w.git.clone()
	w.write(filepath.Join(clone, "services/search/policy.yaml"), "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: search\nowners: [team-a]\nsensitive: [user]\nbuckets:\n  - {name: users, each: [user], mode: enforce, limit: {rate: 1, burst: 1}}\n")
	git(t, clone, "commit", "-qam", "People are limited, and not named")
	git(t, clone, "push", "-q", "origin", "main")

	server := w.launch(nil, "rlc", "serve", "--config", w.config, "--data", filepath.Join(w.dir, "first"))
	server.ready()
	edge := w.launch([]string{"RLC_REDIS_FILE=" + file("edge", "redis://:"+redis+"@"+w.redis.Addr())}, "enforcer", "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--state", filepath.Join(w.dir, "edge"), "--name", "edge")
	var heard []string // what was answered
	hear := func(r *http.Response, err error) string {
		if err != nil {
			return ""
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, r.Request.URL.Path+": "+string(b))
		return string(b)
	}
	call := func(method, path string, body any) string {
		_, text := ask(method, server.url+path, body)
		heard = append(heard, path+": "+text)
		return text
	}

	// A session by the form, an API token by the API, each used well and badly.
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	hear(browser.PostForm(server.url+"/login", url.Values{"token": {token}, "name": {"Ana Lima"}}))
	at, err := url.Parse(server.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range jar.Cookies(at) {
		canaries["session cookie"] = c.Value
	}
	var made struct {
		Token string `json:"token"`
	}
	if _, text := ask("POST", server.url+"/api/v1/tokens", map[string]any{"name": "ci", "role": "bot", "ttl_seconds": 3600}); json.Unmarshal([]byte(text), &made) != nil || made.Token == "" || canaries["session cookie"] == "" {
		t.Fatalf("no API token or no session: %s %v", text, canaries)
	}
	canaries["api token"] = made.Token
	for _, path := range []string{"/services/none?token=" + made.Token, "/api/v1/overrides/none/keep"} {
		req, _ := http.NewRequest("POST", server.url+path, strings.NewReader("{"))
		req.Header.Set("Authorization", "Bearer "+made.Token)
		hear(browser.Do(req))
	}
	hear(browser.Get(server.url + "/login/provider"))
	for _, c := range jar.Cookies(at) {
		if strings.HasSuffix(c.Name, "_state") {
			hear(browser.Get(server.url + "/login/callback?code=x&state=" + c.Value))
		}
	}
	call("POST", "/hooks/forge", map[string]string{"ref": "main"})

	// Runs that cannot be put up; notices that cannot be told; people refused.
	call("POST", "/api/v1/runs", map[string]string{})
	call("POST", "/api/v1/overrides", map[string]any{"service": "checkout", "match": map[string]string{"caller": "web"}, "action": "block", "ttl_seconds": 600, "reason": "INC-1"})
	eventually(t, "the enforcer limits people", func() bool {
		code, text := ask("POST", edge.url+"/v1/check", map[string]any{"service": "search", "attributes": map[string]string{"user": user}})
		return code == 429 && text != ""
	})
	eventually(t, "the forge refused, and so did whom to tell", func() bool {
		return strings.Contains(server.log.String(), "proposal not published") && refused.Load() > 0
	})
	pages := []string{"/", "/services", "/services/checkout", "/services/search", "/services/checkout/history", "/proposals", "/runs", "/audit", "/audit.json", "/emergency", "/metrics", "/readyz", "/api/v1/snapshot", "/api/v1/tokens", "/api/v1/services/search/buckets", "/api/v1/runs", "/api/v1/proposals", "/api/openapi.json"}
	look := func() {
		for _, path := range pages {
			call("GET", path, nil)
		}
		for _, path := range []string{"/metrics", "/v1/config", "/v1/top", "/readyz", "/v1/explain?service=search"} {
			_, text := ask("GET", edge.url+path, nil)
			heard = append(heard, "enforcer "+path+": "+text)
		}
	}
	look()
	of, err := url.Parse(w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	query := of.Query()
	schema := query.Get("search_path")
	query.Del("search_path") // libpq knows it not
	of.RawQuery = query.Encode()
	records, err := exec.Command("pg_dump", "--inserts", "--schema="+schema, of.String()).CombinedOutput()
	if err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, records)
	}

	// Everything away: the errors of each client.
	w.prom.stop()
	w.git.stop()
	w.redis.Stop()
	call("POST", "/api/v1/runs", map[string]string{})
	postgres.Kill(t)
	eventually(t, "not ready without records", func() bool { code, _ := ask("GET", server.url+"/readyz", nil); return code == 503 })
	look()
	dump, err := exec.Command(filepath.Join(programs, "rlc"), "config", "dump", "--config", w.config).CombinedOutput()
	if err != nil {
		t.Fatalf("config dump: %v\n%s", err, dump)
	}
	postgres.Start(t)

	places := map[string]string{"answers": strings.Join(heard, "\n"), "records": string(records), "config dump": string(dump), "rlc's log": server.log.String(), "the enforcer's log": edge.log.String(),
		"git": git(t, w.git.bare, "log", "-p", "--all")}
	for _, p := range []*process{server, edge} {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		places["arguments"] += string(line)
	}
	for _, dir := range []string{"first", "edge"} {
		err := filepath.WalkDir(filepath.Join(w.dir, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			places["data folder"] += string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	kinds := []string{}
	for kind, secret := range canaries {
		kinds = append(kinds, kind)
		for place, text := range places {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("the %s is in %s: …%q…", kind, place, text[max(0, i-120):min(len(text), i+len(secret)+20)])
			}
		}
	}
	slices.Sort(kinds)
	t.Logf("%d secrets planted (%s), looked for in %d places, %d answers", len(kinds), strings.Join(kinds, ", "), len(places), len(heard))
	if len(kinds) < 12 {
		t.Errorf("%d kinds of secrets", len(kinds))
	}
}
