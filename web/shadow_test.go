package web

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// An empty list of episodes says which of its reasons holds.
func TestNoEpisodesHaveOneReason(t *testing.T) {
	service := func(mode rlc.Mode) *truth {
		return &truth{name: "geo", service: &rlc.Service{Name: "geo", Buckets: []rlc.Bucket{{Name: "callers", Mode: mode}}}}
	}
	replayed := []shadowQuota{{}}
	for _, c := range []struct {
		title, reason string
		sh            shadowed
	}{
		{"No quota is in shadow", "Every limit of geo drops", shadowed{truth: service(rlc.Enforce)}},
		{"Nothing has been replayed yet", "No run has yet.", shadowed{truth: service(rlc.Shadow)}},
		{"No episodes in the past", "1 quota in shadow replayed over four weeks until noon: nothing lies above their limits. What enforcers count", shadowed{truth: service(rlc.Shadow), quotas: replayed, live: rlc.Count{Offered: 9, VirtualDrops: 3}}},
		{"No episodes", "1 quota in shadow replayed over four weeks until noon: nothing lies above", shadowed{truth: service(rlc.Shadow), quotas: replayed, live: rlc.Count{Offered: 9}}},
		// The policy is gone or unreadable; what is in force is in shadow.
		{"Nothing has been replayed yet", "Episodes come from", shadowed{truth: &truth{name: "geo", rows: []row{{mode: rlc.Shadow}}}}},
	} {
		if got := noEpisodes("geo", &c.sh, ui.Time{Text: "noon"}); got.Title != c.title || !strings.Contains(got.Reason, c.reason) || got.Fix.URL == "" {
			t.Errorf("%+v, want %s: %s", got, c.title, c.reason)
		}
	}
}
