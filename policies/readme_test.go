package policies

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of situations in docs/policies/README.md has 29 rows, and the tests
// that it names exist in the packages that it names.
func TestEverySituationOfTheTableHasItsTests(t *testing.T) {
	page, err := os.ReadFile("../docs/policies/README.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z/]+)`:|(Test[A-Z]\\w+)")
	sources := map[string]string{}
	rows := 0
	for line := range strings.Lines(string(page)) {
		if !regexp.MustCompile(`^\| \d+ \|`).MatchString(line) {
			continue
		}
		rows++
		pkg, tests := "", 0
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if m[1] != "" {
				pkg = m[1]
				continue
			}
			if sources[pkg] == "" {
				files, _ := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
				for _, f := range files {
					text, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					sources[pkg] += string(text)
				}
			}
			tests++
			if !strings.Contains(sources[pkg], "\nfunc "+m[2]+"(") {
				t.Errorf("%s has no %s", pkg, m[2])
			}
		}
		if tests == 0 {
			t.Errorf("no test: %s", line)
		}
	}
	if rows != 29 {
		t.Errorf("%d situations, want 29", rows)
	}
}
