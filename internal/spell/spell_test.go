package spell

import "testing"

func TestNearestWithinAFewEdits(t *testing.T) {
	words := []string{"policy", "each", "match", "mode"}
	for typed, want := range map[string]string{
		"polcy": "policy", "matc": "match", "eac": "each", "mdoe": "mode",
		"surprise": "", "x": "", "policy": "policy",
	} {
		if got := Nearest(typed, words, 2); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", typed, got, want)
		}
	}
}
