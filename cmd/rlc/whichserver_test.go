package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// folder is a data folder; running holds its lock, as the server on it does.
func folder(t *testing.T, dir, name, url, token string, running bool) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"url": url, "token": token, "lock": ""} {
		if err := os.WriteFile(filepath.Join(path, file), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !running {
		return
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
}

// A command asks the server of the folder that it was given or finds here. The
// address that a killed server left behind is nobody's: what answers there now is
// not asked, and is shown no token.
func TestACommandAsksTheServerOfItsFolderOrNone(t *testing.T) {
	for name, c := range map[string]struct {
		made, args string // made: folder=token, ! before the folder of a stopped server
		env        string
		want       string
	}{
		"the folder given":              {made: "a=token-of-a !demo-data=other", args: "--data a", want: "asked URL with token-of-a"},
		"the default of serve, here":    {made: "rlc-data=token-of-it", want: "asked URL with token-of-it"},
		"the one of two that runs":      {made: "!demo-data=old rlc-data=token-of-it", want: "asked URL with token-of-it"},
		"a folder whose server stopped": {made: "!a=token-of-a", args: "--data a", want: "no server runs on a; start it, or name another with --server or --data"},
		"and a token for another":       {made: "!a=token-of-a", args: "--data a --token given", want: "no server runs on a; start it, or name another with --server or --data"},
		"a default that stopped":        {made: "!rlc-data=x", want: "no server runs on rlc-data; start it, or name another with --server or --data"},
		"by the environment":            {made: "!a=x rlc-data=y", env: "a", want: "no server runs on a; start it, or name another with --server or --data"},
		"no folder of that name":        {args: "--data a", want: "no server runs on a: there is no such folder"},
		"two that run":                  {made: "demo-data=x rlc-data=y", want: "servers run on demo-data and on rlc-data: say which with --data"},
		"an address, with its folder":   {made: "a=token-of-a", args: "--data a --server URL", want: "asked URL with token-of-a"},
		"an address of another server":  {made: "a=token-of-a", args: "--data a --server other:1", want: "asked http://other:1 with "},
		"nothing here":                  {want: "asked http://127.0.0.1:8080 with "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			t.Setenv("RLC_DATA", c.env)
			const url = "http://127.0.0.1:12345"
			for made := range strings.FieldsSeq(c.made) {
				at, token, _ := strings.Cut(made, "=")
				stopped := strings.HasPrefix(at, "!")
				folder(t, dir, strings.TrimPrefix(at, "!"), url, token, !stopped)
			}
			command := planCommand()
			fromEnvironment(command)
			if err := command.ParseFlags(strings.Fields(strings.ReplaceAll(c.args, "URL", url))); err != nil {
				t.Fatal(err)
			}
			if err := command.PreRunE(command, nil); err != nil {
				t.Fatal(err)
			}
			cl := dial(command)
			got := fmt.Sprintf("asked %s with %s", cl.server, cl.token)
			if cl.bad != nil {
				got = cl.bad.Error()
				if err := cl.do(t.Context(), http.MethodGet, "/", nil, nil, nil); err != cl.bad {
					t.Errorf("it is asked all the same: %v", err)
				}
			}
			if want := strings.ReplaceAll(c.want, "URL", url); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
}

// What answers and is no RLC server is called that, with its address.
func TestWhatIsNoRLCServerIsCalledThat(t *testing.T) {
	status, body, kind := 0, "", ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer s.Close()
	for _, c := range []struct {
		status     int
		body, want string
		code       int
	}{
		{404, "404 page not found\n", "rlc: URL is not an RLC server, or something stands before it: it answers 404 Not Found\n", exitInvalid},
		{405, `{"status":"error","error":"x"}`, "rlc: URL is not an RLC server, or something stands before it: it answers 405 Method Not Allowed\n", exitInvalid},
		{401, "denied", "rlc: URL is not an RLC server, or something stands before it: it answers 401 Unauthorized\n", exitAuthorised},
		{502, "<html>", "rlc: URL is not an RLC server, or something stands before it: it answers 502 Bad Gateway\n", exitError},
		{200, "<html>", "rlc: URL does not answer like an RLC server: invalid character '<' looking for beginning of value\n", exitError},
		{404, `{"title":"Not found","detail":"There is no service \"x\"."}`, "rlc: Not found: There is no service \"x\"\n", exitInvalid},
		{401, `{"title":"Sign in first"}`, "rlc: Sign in first; asked URL with the token of --token or RLC_TOKEN\n", exitAuthorised},
	} {
		status, body, kind = c.status, c.body, "text/plain"
		got, code := failing(t, "why", "x", "--server", strings.TrimPrefix(s.URL, "http://"), "--token", "some-token-of-a-test")
		if want := strings.ReplaceAll(c.want, "URL", s.URL); got != want || code != c.code {
			t.Errorf("%d %s: exit %d, %swant %s", c.status, c.body, code, got, want)
		}
	}
}
