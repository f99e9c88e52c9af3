package ui

import "testing"

// A number stays in one line with its unit, a mark with its word.
func TestWordsThatBelongTogetherStayTogether(t *testing.T) {
	for text, want := range map[string]string{
		"counted in 24 h, 0.19 % of 1.91 billion": "counted in 24\u00a0h, 0.19\u00a0% of 1.91\u00a0billion",
		"1,900 req/s; 2 have, 3 minutes, 4 sides": "1,900\u00a0req/s; 2 have, 3 minutes, 4 sides",
		"every 60 s.": "every 60\u00a0s.", "nothing": "nothing", "": "",
	} {
		if got := kept(text); got != want {
			t.Errorf("%q is kept as %q, want %q", text, got, want)
		}
	}
	for after, want := range map[string]string{"": "", "for review": " for review", "; the next": "; the next", ".": "."} {
		if got := following(after); got != want {
			t.Errorf("%q follows as %q, want %q", after, got, want)
		}
	}
}
