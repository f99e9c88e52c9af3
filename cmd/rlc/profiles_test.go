package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// What is printed of a built-in profile is the file of the same profile.
func TestAPrintedProfileIsTheProfile(t *testing.T) {
	for name, want := range quotafile.BuiltinProfiles() {
		text, _ := rlcOutput(t, "profiles", name)
		parsed := quotafile.Parse(rlc.Files{"profiles/" + name + ".yaml": []byte(text)}, nil)
		if len(parsed.Problems) > 0 {
			t.Fatalf("%s: %v\n%s", name, parsed.Problems, text)
		}
		for a, source := range want.Attributes {
			if source.Join == "" { // there is nothing to join
				source.Join = "/"
				want.Attributes[a] = source
			}
		}
		if got := parsed.Profiles[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", name, got, want)
		}
	}
	if out, code := failing(t, "profiles", "grcp"); code != exitInvalid || out != "rlc: there is no built-in profile \"grcp\": want envoy, grpc, http, istio, rlc\n" {
		t.Errorf("exit %d: %s", code, out)
	}
}

func TestHistoryPageHoldsTheTableOfBuiltInProfiles(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "history.md"))
	if err != nil {
		t.Fatal(err)
	}
	if table, _ := rlcOutput(t, "profiles", "-o", "markdown"); !strings.Contains(string(page), table) {
		t.Errorf("docs/history.md does not hold what rlc profiles -o markdown prints:\n%s", table)
	}
	for name, p := range quotafile.BuiltinProfiles() {
		text, _ := rlcOutput(t, "profiles")
		for _, q := range asked(p) {
			if !strings.Contains(text, q[1]) {
				t.Errorf("rlc profiles leaves out %s of %s", q[0], name)
			}
		}
	}
}
