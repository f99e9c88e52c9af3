package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// answering is a server that answers everything with one document.
func answering(t *testing.T, document string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(document))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Two overrides of one action on one service are told apart.
func TestLiftListsWhomEachOverrideIsForAndWhatItDoes(t *testing.T) {
	at := answering(t, `{"overrides":[
		{"id":"override-1","service":"catalog","match":{"caller":["price-watch"]},"action":"limit","rate":5,"drop_ratio":null,"expires_at":"2026-12-02T06:34:00Z","state":"stands","actor":"token Ana Lima","reason":"INC-917","did_says":"Dropped 2 of 3 requests."},
		{"id":"override-2","service":"catalog","match":{"caller":["web*"],"procedure":["A","B"]},"action":"drop","rate":null,"drop_ratio":0.4,"expires_at":"2026-12-02T06:34:00Z","state":"stands","actor":"token","reason":"INC-918"}]}`)
	const want = "override-1  catalog ← caller=price-watch held to 5 req/s until 2026-12-02T06:34:00Z (stands) by token Ana Lima: INC-917\n    Dropped 2 of 3 requests.\n" +
		"override-2  catalog ← caller=web* procedure=A|B 40 % dropped until 2026-12-02T06:34:00Z (stands) by token: INC-918\n"
	if got, _ := rlcOutput(t, "lift", "--server", at, "--token", "t0ken"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Silence would be read as a mistake: that no limit differs is said, and what does.
func TestRollbackDiffSaysThatNoLimitDiffers(t *testing.T) {
	for document, want := range map[string]string{
		`{"diff":{"differences":[],"policy":[{}]}}`: "no limit and no mode differs; policy.yaml does: ",
		`{"diff":{"differences":[],"policy":[]}}`:   "nothing differs\n",
		`{"diff":{"differences":[{"quota":"callers{caller=a}","old":{"rate":1,"burst":2},"new":{"rate":3,"burst":4}}],"policy":[{}]}}`: "callers{caller=a}: ",
	} {
		got, _ := rlcOutput(t, "rollback", "search", "--diff", "--server", answering(t, document), "--token", "t0ken")
		if !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: %q, want %q", document, got, want)
		}
	}
}

func TestReplayTakesTheServiceAsTheOthersDo(t *testing.T) {
	at := answering(t, `{"from":"2026-12-01T00:00:00Z","until":"2026-12-02T00:00:00Z","step_seconds":60,"offered":10,"callers":[]}`)
	for _, args := range [][]string{{"checkout"}, {"--service", "checkout"}, {"checkout", "--service", "checkout"}} {
		if got, _ := rlcOutput(t, append(append([]string{"replay"}, args...), "--server", at, "--token", "t0ken")...); !strings.Contains(got, "of 10 requests") {
			t.Errorf("%q: %s", args, got)
		}
	}
	for _, args := range [][]string{{}, {"checkout", "--service", "search"}} {
		if out, code := failing(t, append(append([]string{"replay"}, args...), "--server", at)...); code != exitInvalid {
			t.Errorf("%q: exit %d, %s", args, code, out)
		}
	}
}
