package web_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// What shadow asks of a person is in the queue: episodes to judge, the most drops
// first, and buckets that lack only somebody's word, each with its reason and the
// page that does it.
func TestTheQueueAsksToJudgeAndToPromote(t *testing.T) {
	f := newFixture(t)
	for name, add := range map[string]func(*rlc.ServiceSummary){
		"checkout": func(s *rlc.ServiceSummary) { s.Unjudged, s.UnjudgedDrops = 3, 9412 },
		"search":   func(s *rlc.ServiceSummary) { s.Unjudged, s.UnjudgedDrops = 1, 12_000 },
		"geo": func(s *rlc.ServiceSummary) {
			s.Ready = []rlc.ReadyBucket{{Bucket: "callers", Since: now.Add(-14 * 24 * time.Hour)}, {Bucket: "a/b", Since: now.Add(-9 * 24 * time.Hour), Share: .0002}}
		},
	} {
		s, err := f.db.Summary(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		add(&s)
		if err := f.db.SaveSummaries(t.Context(), []rlc.ServiceSummary{s}); err != nil {
			t.Fatal(err)
		}
	}
	h := f.handler(t)
	var got struct {
		Needs []struct{ Kind, Service, Text, URL string } `json:"needs_you"`
	}
	if err := json.Unmarshal(get(h, "/overview.json").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, n := range got.Needs {
		if n.Kind == "triage" || n.Kind == "promote" {
			lines = append(lines, strings.Join([]string{n.Kind, n.Service, n.Text, n.URL}, "|"))
		}
	}
	if want := []string{
		"triage|search|1 episode in replay, 12,000 would-be drops: traffic, or not?|/services/search/shadow",
		"triage|checkout|3 episodes in replay, 9,412 would-be drops: traffic, or not?|/services/checkout/shadow",
		"promote|geo / callers|in shadow for 14 d; every check is passed but an owner's word; nothing would have dropped|/services/geo/buckets/callers/promote",
		"promote|geo / a/b|in shadow for 9 d; every check is passed but an owner's word; 0.02\u00a0% would have dropped, every episode judged|/services/geo/buckets/a%2Fb/promote",
	}; !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	holds(t, h, "/", ">Judge</a>", ">Promote</a>")
}
