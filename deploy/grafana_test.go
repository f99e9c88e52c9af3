package deploy_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	promql "github.com/prometheus/prometheus/promql/parser"
)

// exported are the names of the metrics that the programs declare: every string
// in their sources that is one.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	name := regexp.MustCompile(`^rlc_[a-z_]+$`)
	all := map[string]bool{}
	for _, root := range []string{"../cmd", "../enforcer", "../internal", "../web"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if text, err := strconv.Unquote(l.Value); err == nil && name.MatchString(text) {
						all[text] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// names are the metrics that an expression selects, a histogram's by its own.
func names(t *testing.T, expr string) (out []string) {
	t.Helper()
	parsed, err := promql.NewParser(promql.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return nil
	}
	promql.Inspect(parsed, func(n promql.Node, _ []promql.Node) error {
		if s, ok := n.(*promql.VectorSelector); ok {
			name := s.Name
			for _, part := range []string{"_sum", "_count", "_bucket"} {
				name = strings.TrimSuffix(name, part)
			}
			out = append(out, name)
		}
		return nil
	})
	return out
}

func TestTheDashboardAsksForWhatIsExported(t *testing.T) {
	var board struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/rlc.json")), &board); err != nil {
		t.Fatal(err)
	}
	have, asked := exported(t), map[string]bool{}
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			for _, name := range names(t, target.Expr) {
				asked[name] = true
				if !have[name] {
					t.Errorf("%s: no program exports %s", p.Title, name)
				}
			}
		}
	}
	for _, name := range []string{"rlc_runs_total", "rlc_held_total", "rlc_proposals_open", "rlc_overrides_active", "rlc_enforcer_requests_total", "rlc_enforcer_fallbacks_total", "rlc_loop_drop_ratio", "rlc_enforcer_snapshot_age_seconds"} {
		if !asked[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestAlertsAskForWhatIsExported(t *testing.T) {
	have := exported(t)
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^\s+expr: (.+)$`).FindAllStringSubmatch(read(t, "alerts/rlc.rules.yaml"), -1) {
		for _, name := range names(t, m[1]) {
			if found++; !have[name] {
				t.Errorf("%s: no program exports %s", m[1], name)
			}
		}
	}
	if found == 0 {
		t.Error("no rule was found")
	}
}
