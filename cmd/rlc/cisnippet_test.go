package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The snippets call rlc ci with flags that it has, in an image that is named.
func TestTheSnippetsForCIUseFlagsThatExist(t *testing.T) {
	files, err := filepath.Glob("../../deploy/ci/*.yml")
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "RLC_CI_IMAGE") {
			t.Errorf("%s does not say where rlc and git come from", file)
		}
		calls := 0
		for line := range strings.Lines(string(text)) {
			_, args, ok := strings.Cut(line, " rlc ci --")
			if !ok {
				continue
			}
			calls++
			args = strings.ReplaceAll("--"+args, "$POST", "--post")
			if err := ciCommand().ParseFlags(strings.Fields(args)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		if calls != 1 {
			t.Errorf("%s calls rlc ci %d times", file, calls)
		}
	}
}
