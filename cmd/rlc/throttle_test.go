package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestThrottleWarnsOfANameThatNothingKnows(t *testing.T) {
	const warning = "there is no service chekout; did you mean checkout?"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("preview") == "" {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = w.Write([]byte(`{"id":"override-1","expires_at":"2026-12-02T06:34:00Z","known":false,"warning":"` + warning + `"}`))
	}))
	defer s.Close()
	for extra, says := range map[string]string{"--dry-run": `"known"`, "-o=json": `"override-1"`, "--server=" + s.URL: "rlc lift override-1"} {
		stdout, stderr := rlcOutput(t, "throttle", "chekout", "--block", "--ttl", "1m", "--reason", "INC-1", "--server", s.URL, "--token", "t0ken", extra)
		if stderr != "warning: "+warning+"\n" || !strings.Contains(stdout, says) {
			t.Errorf("%s: stdout %q, stderr %q", extra, stdout, stderr)
		}
	}
}
