package enforcer_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of situations in docs/enforcer.md has 23 rows, and the tests that it
// names exist in the packages that it names.
func TestEverySituationOfTheTableHasItsTests(t *testing.T) {
	page, err := os.ReadFile("../docs/enforcer.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| \d+ \|.*$`)
	named := regexp.MustCompile("`([a-z/]+)`:|(Test[A-Z]\\w+)")
	rows := row.FindAllString(string(page), -1)
	if len(rows) != 23 {
		t.Errorf("%d situations, want 23", len(rows))
	}
	for _, line := range rows {
		pkg, tests := "", 0
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if m[1] != "" {
				pkg = m[1]
				continue
			}
			tests++
			if !strings.Contains(testsOf(t, pkg), "\nfunc "+m[2]+"(") {
				t.Errorf("%s has no %s", pkg, m[2])
			}
		}
		if tests == 0 {
			t.Errorf("no test: %s", line)
		}
	}
}

// testsOf is the text of a package's tests.
func testsOf(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
