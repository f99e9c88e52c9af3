package app_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
)

func TestSettingsNameEveryKeyAndThePartsThatAreInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := app.Open(t.Context(), config.Server{Listen: "127.0.0.1:0", Data: dir, Schedule: "5 4 * * *"}, app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := a.Settings(t.Context())
	if len(s.Keys) != len(config.Keys()) || s.Schedule != "5 4 * * *" || s.Next.Hour() != 4 || s.Next.Minute() != 5 || s.Started.IsZero() || s.Version == "" {
		t.Errorf("%d keys, schedule %q, next %s, started %s, version %q", len(s.Keys), s.Schedule, s.Next, s.Started, s.Version)
	}
	for _, k := range s.Keys {
		if k.Key == "schedule" && (k.Value != "5 4 * * *" || k.From != "program" || k.Means == "") {
			t.Errorf("schedule is %+v", k)
		}
	}
	want := map[string]string{"Records": "SQLite", "History": "embedded Prometheus store", "Config repository": "a folder here", "Bus": "within this process", "Reviews": "the pages here", "Sign-in": "the token alone"}
	if len(s.Parts) != len(want) {
		t.Errorf("parts %+v", s.Parts)
	}
	for _, p := range s.Parts {
		if want[p.Name] != p.Engine || p.Trouble != "" || p.Where == "" {
			t.Errorf("part %+v, want engine %q", p, want[p.Name])
		}
	}
	if at := s.Parts[0].Where; at != filepath.Join(dir, "rlc.db") {
		t.Errorf("records are at %s", at)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if p := a.Settings(gone).Parts[0]; p.Trouble == "" {
		t.Errorf("records that do not answer: %+v", p)
	}
}
