package forgetest

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Git serves the bare repositories below root over HTTP, by git's own upload-pack
// and receive-pack (gitprotocol-http(5)): whoever asks may read and write. Where
// git-http-backend would be started for each request and start them, it is one
// process less for each, and nothing tidies up after a push.
func Git(t testing.TB, root string) http.Handler {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME="+t.TempDir())
	mux := http.NewServeMux()
	serve := func(w http.ResponseWriter, r *http.Request, dir, service, kind string, args ...string) {
		bare := filepath.Join(root, filepath.Clean("/"+dir))
		if _, err := os.Stat(filepath.Join(bare, "HEAD")); err != nil || service != "git-upload-pack" && service != "git-receive-pack" {
			http.NotFound(w, r)
			return
		}
		version := r.Header.Get("Git-Protocol")
		w.Header().Set("Content-Type", "application/x-"+service+"-"+kind)
		w.Header().Set("Cache-Control", "no-cache")
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = unpacked
		}
		if kind == "advertisement" {
			body = nil
			if !strings.Contains(version, "version=2") || service == "git-receive-pack" {
				line := "# service=" + service + "\n"
				fmt.Fprintf(w, "%04x%s0000", len(line)+4, line)
			}
		}
		cmd := exec.CommandContext(r.Context(), "git", append([]string{"-c", "receive.autogc=false", strings.TrimPrefix(service, "git-"), "--stateless-rpc"}, append(args, bare)...)...)
		cmd.Env = append(env, "GIT_PROTOCOL="+version)
		cmd.Stdin, cmd.Stdout = body, w
		_ = cmd.Run() // what went wrong is said in the answer
	}
	mux.HandleFunc("GET /{path...}", func(w http.ResponseWriter, r *http.Request) {
		dir, found := strings.CutSuffix(r.PathValue("path"), "/info/refs")
		if !found {
			http.NotFound(w, r)
			return
		}
		serve(w, r, dir, r.URL.Query().Get("service"), "advertisement", "--http-backend-info-refs")
	})
	mux.HandleFunc("POST /{path...}", func(w http.ResponseWriter, r *http.Request) {
		dir, service := filepath.Split(r.PathValue("path"))
		serve(w, r, dir, service, "result")
	})
	return mux
}
