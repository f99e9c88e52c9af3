package spell

import (
	"strings"
	"testing"
)

func TestNearestWithinAFewEdits(t *testing.T) {
	words := []string{"policy", "each", "match", "mode"}
	for typed, want := range map[string]string{
		"polcy": "policy", "matc": "match", "eac": "each", "mdoe": "mode",
		"mach": "match", "surprise": "", "x": "", "policy": "policy",
	} {
		if got := Nearest(typed, words, 2); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", typed, got, want)
		}
	}
}

func TestAVariableThatNothingReadsIsTold(t *testing.T) {
	read := []string{"RLC_LISTEN", "RLC_TOKEN", "RLC_TOKEN_FILE"}
	environ := []string{"RLC_LISTN=:1", "RLC_TOKN=x", "RLC_TOKEN=y", "RLC_LISTE=", "RLC_ZONE=z", "HOME=/root", "LISTEN=1", "RLC_TOKEN_FLE=/t"}
	got := strings.Join(Variables("RLC_", environ, read, 2), "\n")
	want := "nothing reads the variable RLC_LISTN; did you mean RLC_LISTEN?\n" +
		"nothing reads the variable RLC_TOKEN_FLE; did you mean RLC_TOKEN_FILE?\n" +
		"nothing reads the variable RLC_TOKN; did you mean RLC_TOKEN?"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
