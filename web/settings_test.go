package web_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

// setups are how the fixture's server is set up, with hostile words in it.
type setups struct{}

func (setups) Settings(context.Context) web.Setup {
	s := web.Setup{
		Version: "v1.4.0 9f2c1ab go1.26", Started: runAt.Add(-72 * time.Hour), Leads: true, Schedule: "17 * * * *", Next: now.Add(13 * time.Minute),
		Parts: []web.SetupPart{
			{Name: "Records", Engine: "PostgreSQL", Where: "set (file /run/secrets/dsn)"},
			{Name: "History", Engine: "Prometheus", Where: "https://prometheus.example.com", Trouble: "dial tcp 10.1.2.3:9090: connection refused " + hostile[0], Since: runAt},
			{Name: "Config repository", Engine: "git server", Where: "https://git.example.com/acme/limits, branch main"},
			{Name: "Bus", Engine: "Redis", Where: "redis.url, keys begin with rlc:"},
		},
		Keys: []web.Setting{
			{Key: "listen", Value: "127.0.0.1:8080", From: "default", Source: "default", Means: "Where pages and the API are."},
			{Key: "token", Value: "set (file /run/secrets/token)", From: "environment", Source: "RLC_TOKEN_FILE", Means: "Whoever has it may do everything."},
			{Key: "prometheus.url", Value: "https://prometheus.example.com", From: "file", Source: "/etc/rlc/rlc.yaml:4:8", Means: "The Prometheus that holds history."},
			{Key: "prometheus.server_name", Value: hostile[5], From: "flag", Source: "--prometheus-server-name", Means: "The name of the certificate."},
		},
	}
	return s
}

func TestSettingsSayWhatIsInForceWhereFromAndWhatDoesNotAnswer(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	w := request(h, "GET", "/settings", "", bearer)
	page := strings.Join(strings.Fields(w.Body.String()), " ")
	for _, want := range []string{
		"rlc v1.4.0 9f2c1ab go1.26", "In trouble: History.", "recomputed at 17 * * * * (UTC), ", "2 Dec 06:17</time>, by this replica", "in trouble since 2 Dec 06:00", "connection refused",
		"https://prometheus.example.com", "/etc/rlc/rlc.yaml:4:8", "set (file /run/secrets/token)", "Whoever has it may do everything.", "Stop automation", ">grpc<", "1–4 of 4",
	} {
		if w.Code != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%d: the page does not say %q", w.Code, want)
		}
	}
	w = request(h, "GET", "/settings.csv?show=set&q=PROM", "", bearer)
	want := "key,value,source\r\nprometheus.url,https://prometheus.example.com,/etc/rlc/rlc.yaml:4:8\r\nprometheus.server_name,\"'" + strings.ReplaceAll(hostile[5], `"`, `""`) + "\",'--prometheus-server-name\r\n"
	if got := w.Body.String(); got != want {
		t.Errorf("sheet\n%q, want\n%q", got, want)
	}
	if w := request(h, "GET", "/settings?show=some", "", bearer); w.Code != http.StatusBadRequest {
		t.Errorf("an unknown filter: %d", w.Code)
	}
}

// Whoever may only read sees what runs and whether it answers, and no name of a
// file or a host.
func TestSettingsNameFilesAndHostsToAdministratorsAndOnCallOnly(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	for _, target := range []string{"/settings", "/settings.json", "/settings.csv"} {
		w := get(h, target)
		for _, secret := range []string{"/run/secrets", "example.com", "10.1.2.3", "127.0.0.1:8080", "/etc/rlc", "RLC_TOKEN_FILE", "rlc:"} {
			if w.Code != http.StatusOK || strings.Contains(w.Body.String(), secret) {
				t.Errorf("%d: %s names %s to a viewer", w.Code, target, secret)
			}
		}
		if !strings.Contains(w.Body.String(), "prometheus.url") {
			t.Errorf("%s does not name the keys", target)
		}
	}
	holds(t, h, "/settings", "In trouble: History.", "Sign in</a> as an administrator or on-call", "environment")
}

func TestTheAnswerOfSettingsIsWhole(t *testing.T) {
	h := newFixture(t).handler(t)
	var got struct {
		Version string `json:"version"`
		Next    string `json:"next_run_at"`
		Leads   bool   `json:"leads"`
		Total   int    `json:"total"`
		Config  []struct{ Key, Value, Source string }
		Parts   []struct {
			Name  string  `json:"name"`
			OK    bool    `json:"ok"`
			Error *string `json:"error"`
		} `json:"parts"`
		Switches []rlc.KillSwitch `json:"switches"`
		Profiles []struct {
			Name     string `json:"name"`
			Builtin  bool   `json:"builtin"`
			Services int    `json:"services"`
		} `json:"profiles"`
	}
	if err := json.Unmarshal(request(h, "GET", "/settings.json?per_page=1&page=2", "", bearer).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Total != 4 || len(got.Config) != 1 || got.Config[0].Key != "token" || got.Config[0].Source != "RLC_TOKEN_FILE" || !got.Leads || got.Next != "2026-12-02T06:17:00Z" {
		t.Errorf("answer %+v", got)
	}
	ok := []bool{}
	for _, p := range got.Parts {
		ok = append(ok, p.OK)
	}
	if !slices.Equal(ok, []bool{true, false, true, true}) || len(got.Switches) != 2 {
		t.Errorf("parts %+v, switches %+v", got.Parts, got.Switches)
	}
	var used []string
	for _, p := range got.Profiles {
		if p.Services > 0 {
			used = append(used, p.Name)
		}
	}
	if !slices.Contains(used, "grpc") {
		t.Errorf("profiles %+v", got.Profiles)
	}
}

func TestAServerThatDoesNotTellHasNoSettings(t *testing.T) {
	c := newFixture(t).config()
	c.Settings = nil
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if w := get(h, "/settings"); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}
