package app

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

func TestAnotherProcessesLoopIsAsked(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	answer := func(path, body string) {
		mux.HandleFunc("GET "+path+"/v1/loop", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
	}
	answer("", `{"buckets":[{"service":"s","bucket":"b","limit":5,"drop_ratio":0.5}],"zones":[{"zone":"z","aggregator":"a","age_seconds":1,"flagged":["n"]}]}`)
	answer("/broken", `{"buckets":`)
	answer("/huge", strings.Repeat(" ", maxLoopState)+"{}")
	mux.Handle("GET /moved/v1/loop", http.RedirectHandler("/v1/loop", http.StatusFound))
	s := httptest.NewServer(mux)
	defer s.Close()

	limit := 5.0
	want := web.LoopState{Buckets: []web.LoopBucket{{Service: "s", Bucket: "b", Limit: &limit, Ratio: 0.5}},
		Zones: []web.LoopZone{{Zone: "z", Name: "a", Age: 1, Flagged: []string{"n"}}}}
	for _, url := range []string{s.URL, s.URL + "/", s.URL + "/v1/loop"} {
		if got, err := askLoop(t.Context(), url); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", url, got, err, want)
		}
	}
	for path, says := range map[string]string{"/none": "404", "/broken": "cannot be read", "/huge": "more than 16 MiB", "/moved": "302"} {
		if got, err := askLoop(t.Context(), s.URL+path); !errors.Is(err, rlc.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %+v, %v; want it unavailable because of %q", path, got, err, says)
		}
	}
	s.Close()
	if _, err := askLoop(t.Context(), s.URL); !errors.Is(err, rlc.ErrUnavailable) {
		t.Errorf("nobody there: %v", err)
	}
}
