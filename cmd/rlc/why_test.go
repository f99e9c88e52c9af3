package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestWhyNamesTheOverrideThatDecidesFirst(t *testing.T) {
	overridden := "true"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"bucket":"callers","key":{"caller":"etl"},"quota":{"bucket":"callers","key":{"caller":"etl"},"mode":"shadow","live":{"rate":7,"burst":15}},
			"overridden":` + overridden + `,"overrides":[{"id":"o","service":"checkout","match":{"caller":["etl"]},"action":"limit","rate":0.1,"burst":null,"drop_ratio":null,"ended_by":null,"expires_at":"2026-12-02T06:34:00Z","actor":"ana","reason":"t2"}]}`))
	}))
	defer s.Close()
	for is, lead := range map[string]string{"true": "Decided by an override", "false": "All to shadow is on, no override is applied; else decided by"} {
		overridden = is
		stdout, _ := rlcOutput(t, "why", "checkout", "--caller", "etl", "--server", s.URL)
		want := lead + ": checkout ← caller=etl held to 0.1 req/s until 2026-12-02T06:34:00Z, set by ana: t2\nCharged to "
		if !strings.HasPrefix(stdout, want) {
			t.Errorf("overridden %s:\n%s\nwant\n%s", is, stdout, want)
		}
	}
}

func TestWhyNamesTheCallerThatWasProbablyMeant(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"bucket":null,"key":{},"quota":null,"unheard":true,"did_you_mean":"price-watch"}`))
	}))
	defer s.Close()
	stdout, _ := rlcOutput(t, "why", "catalog", "--caller", "price-wach", "--server", s.URL)
	if want := "No quota and no counted request names this caller; did you mean price-watch?\n"; !strings.HasPrefix(stdout, want) {
		t.Errorf("%s\nwant\n%s", stdout, want)
	}
}
