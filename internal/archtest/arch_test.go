package archtest

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"sort"
	"strings"
	"testing"
)

const module = "github.com/openrlc/rlc"

// floors is the house: a package imports packages of lower floors only, and on
// its own floor only those named beside it. Floors count in halves, so that the
// arithmetic between nouns and logic is 1.
var floors = map[string]struct {
	floor  int
	beside []string
}{
	"":               {0, nil}, // the vocabulary
	"migrations":     {0, nil},
	"internal/fault": {0, nil},

	"internal/stat":          {1, nil},
	"internal/spell":         {1, nil},
	"internal/escape":        {1, nil},
	"internal/disktest":      {1, nil},
	"internal/porttest":      {1, nil},
	"internal/jsontext":      {1, nil},
	"internal/dialcheck":     {1, nil},
	"internal/mtls":          {1, nil},
	"internal/bidi":          {1, nil},
	"internal/mtls/mtlstest": {1, nil},
	"enforcer/gcra":          {1, nil},
	"enforcer/gcra/gcratest": {1, []string{"enforcer/gcra"}},

	"enforcer/match":       {2, nil},
	"enforcer/loop":        {2, nil},
	"enforcer/loop/sim":    {2, []string{"enforcer/loop"}},
	"policies/historical":  {2, nil},
	"policies/contractual": {2, nil},
	"policies/capacity":    {2, nil},
	"policies/predictive":  {2, []string{"policies/historical"}},
	"policies/recent":      {2, []string{"policies/historical"}},
	"policies/expression":  {2, []string{"policies/historical"}},
	"policies/external":    {2, []string{"policies/historical"}},
	"policies/score":       {2, nil},
	"policies":             {2, []string{"policies/historical", "policies/contractual", "policies/capacity", "policies/predictive", "policies/recent", "policies/expression", "policies/external", "policies/score"}},
	"internal/backtest":    {2, nil},
	"quotafile":            {2, []string{"enforcer/match"}},
	"internal/planner":     {2, []string{"policies", "internal/backtest", "quotafile", "enforcer/match"}},
	"internal/review":      {2, []string{"policies"}},
	"internal/checks":      {2, []string{"policies", "quotafile", "internal/review"}},
	"internal/scheduler":   {2, nil},
	"internal/audit":       {2, []string{"policies", "internal/backtest", "enforcer/match"}},
	"internal/envoyconfig": {2, nil},
	"internal/redisconn":   {2, nil},
	"internal/rollout":     {2, nil},

	"internal/store":                {3, nil},
	"internal/store/storetest":      {3, []string{"internal/store"}},
	"internal/store/pgtest":         {3, nil},
	"internal/promserver":           {3, nil},
	"internal/promhistory":          {3, nil},
	"gitsync":                       {3, nil},
	"gitsync/forge":                 {3, nil},
	"gitsync/github":                {3, []string{"gitsync/forge"}},
	"gitsync/gitlab":                {3, []string{"gitsync/forge"}},
	"gitsync/gitea":                 {3, []string{"gitsync/forge"}},
	"gitsync/forgetest":             {3, []string{"gitsync", "gitsync/forge"}},
	"internal/identity":             {3, nil},
	"internal/identity/issuertest":  {3, nil},
	"internal/distribute":           {3, nil},
	"internal/notify":               {3, nil},
	"internal/distribute/redistest": {3, nil},
	"enforcer":                      {3, []string{"enforcer/memory"}},
	"enforcer/memory":               {3, nil},
	"enforcer/accesslog":            {3, []string{"enforcer"}},
	"enforcer/follow":               {3, []string{"enforcer", "internal/distribute"}},
	"enforcer/rls":                  {3, []string{"enforcer"}},
	"enforcer/httplimit":            {3, []string{"enforcer"}},
	"enforcer/grpclimit":            {3, []string{"enforcer"}},
	"enforcer/loopstate":            {3, []string{"enforcer"}},
	"enforcer/loopwire":             {3, []string{"enforcer/loopwire/looppb"}},
	"enforcer/loopwire/looppb":      {3, nil},
	"enforcer/countertest":          {3, []string{"enforcer"}},
	"enforcer/redis":                {3, []string{"enforcer"}},
	"web":                           {3, []string{"web/ui"}},
	"web/ui":                        {3, nil},

	"internal/config": {4, nil},
	"internal/app":    {4, []string{"internal/config"}},
	"internal/demo":   {4, []string{"internal/app", "internal/config"}},

	"deploy":       {5, nil}, // tests only
	"internal/e2e": {5, nil}, // tests only
	"cmd/rlc":      {5, nil},
	"cmd/enforcer": {5, nil},

	"enforcer/loop/sim/curves": {5, nil}, // draws the documentation's figures

	"docs/policies/external": {5, nil}, // an example that stands alone
}

// libraries lists, for each outside module, the packages that may import it.
var libraries = map[string][]string{
	"github.com/a-h/templ":             {"web", "web/ui"},
	"github.com/go-git/":               {"gitsync"},
	"github.com/google/go-github":      {"gitsync/github"},
	"gitlab.com/gitlab-org/api":        {"gitsync/gitlab"},
	"code.gitea.io/sdk/gitea":          {"gitsync/gitea"},
	"github.com/hmarr/codeowners":      {"gitsync"},
	"modernc.org/sqlite":               {"internal/store"},
	"github.com/jackc/pgx":             {"internal/store", "internal/store/pgtest"},
	"cel.dev/cel-go":                   {"policies/expression"},
	"github.com/robfig/cron":           {"internal/scheduler", "policies"}, // policies: whether a freeze holds
	"github.com/redis/rueidis":         {"internal/distribute", "internal/redisconn", "enforcer/redis"},
	"go.yaml.in/yaml":                  {"quotafile", "internal/config", "internal/envoyconfig"},
	"github.com/prometheus/prometheus": {"internal/promserver"},
	// Remote read's messages and chunks; the engine stays with the embedded server.
	"github.com/prometheus/prometheus/prompb":        {"internal/promserver", "internal/promhistory"},
	"github.com/prometheus/prometheus/tsdb/chunkenc": {"internal/promserver", "internal/promhistory"},
	"github.com/prometheus/client_golang/api":        {"internal/promhistory"},
	// The metric types are a vocabulary of their own: whoever counts speaks it.
	"github.com/prometheus/client_golang/prometheus": {"enforcer", "enforcer/rls", "cmd/enforcer", "internal/app", "internal/demo", "internal/promserver", "web"},
	"github.com/prometheus/client_model":             {"internal/promserver", "enforcer"},
	"github.com/prometheus/common":                   {"internal/promserver", "internal/promhistory", "enforcer"},
	"github.com/klauspost/compress":                  {"internal/demo", "internal/promserver"},
	"github.com/golang/snappy":                       {"internal/promserver", "internal/promhistory"},
	"golang.org/x/sync":                              nil,               // anybody
	"golang.org/x/net":                               {"internal/bidi"}, // the frames of HTTP/2
	"github.com/spf13/cobra":                         {"cmd/rlc"},
	"github.com/spf13/pflag":                         {"cmd/rlc"}, // cobra's flags: their kinds and errors
	"golang.org/x/sys":                               {"gitsync"},
	"github.com/coreos/go-oidc":                      {"internal/identity"},
	"golang.org/x/oauth2":                            {"internal/identity"},
	"github.com/go-jose/go-jose":                     {"internal/identity/issuertest"},
	"golang.org/x/crypto":                            {"gitsync"}, // ssh
	"google.golang.org/grpc":                         {"enforcer/rls", "enforcer/grpclimit", "enforcer/loopwire", "enforcer/loopwire/looppb", "internal/bidi"},
	"google.golang.org/genproto/googleapis/rpc":      {"enforcer/grpclimit"}, // the details of a refusal
	"github.com/envoyproxy/go-control-plane/envoy":   {"enforcer/rls"},
	"google.golang.org/protobuf":                     {"enforcer/rls", "enforcer/grpclimit", "internal/promserver", "internal/promhistory", "enforcer/loopwire", "enforcer/loopwire/looppb"},
	"github.com/gogo/protobuf":                       {"internal/promserver"},
}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
	Module     *struct{ Path string }
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,Standard,Module"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		if ee, ok := err.(*exec.ExitError); ok {
			t.Fatalf("go list: %v\n%s", err, ee.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatalf("go list: %v", err)
		}
		all = append(all, p)
	}
	return all
}

// room is a package's path inside the module, "" for the root; ok is false for
// other modules.
func room(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, p := range list(t, "./...") {
		from, _ := room(p.ImportPath)
		if from == "internal/archtest" {
			continue
		}
		f, known := floors[from]
		if !known {
			t.Errorf("package %q has no floor: add it to the table, on purpose", from)
			continue
		}
		for _, imp := range p.Imports {
			to, ours := room(imp)
			if !ours {
				continue
			}
			switch g, known := floors[to]; {
			case !known:
				t.Errorf("%q imports %q, which has no floor", from, to)
			case g.floor > f.floor:
				t.Errorf("%q (floor %d) imports %q (floor %d): an arrow upwards", from, f.floor, to, g.floor)
			case g.floor == f.floor && !slices.Contains(f.beside, to):
				t.Errorf("%q imports %q on its own floor", from, to)
			}
		}
	}
}

func TestVocabularyUsesTheStandardLibraryOnly(t *testing.T) {
	for _, p := range list(t, ".") {
		for _, imp := range p.Imports {
			if strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
				t.Errorf("the root package imports %q", imp)
			}
		}
	}
}

func TestOutsideLibrariesStayInTheirAdapters(t *testing.T) {
	for _, p := range list(t, "./...") {
		from, _ := room(p.ImportPath)
		for _, imp := range p.Imports {
			if _, ours := room(imp); ours || !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
				continue
			}
			if problem := allowed(from, imp); problem != "" {
				t.Error(problem)
			}
		}
	}
}

func allowed(from, imp string) string {
	best := ""
	for prefix := range libraries {
		if strings.HasPrefix(imp, prefix) && len(prefix) > len(best) {
			best = prefix
		}
	}
	if best == "" {
		return fmt.Sprintf("%q imports %q, a library that no package is listed for", from, imp)
	}
	if users := libraries[best]; users != nil && !slices.Contains(users, from) {
		return fmt.Sprintf("%q imports %q, which belongs to %s", from, imp, strings.Join(users, ", "))
	}
	return ""
}

// The enforcer's binary and the packages that a service embeds stay small: no
// configurator package, no store, no git, no Prometheus engine.
func TestEnforcerImportsNoConfigurator(t *testing.T) {
	forbidden := []string{"policies", "gitsync", "web", "internal/store", "internal/planner", "internal/promserver", "internal/promhistory", "internal/app", "internal/demo", "migrations"}
	outside := []string{"github.com/go-git/", "modernc.org/sqlite", "github.com/prometheus/prometheus/", "github.com/jackc/"}
	for _, p := range list(t, "./cmd/enforcer", "./enforcer/...") {
		from, _ := room(p.ImportPath)
		bad := map[string]bool{}
		for _, dep := range p.Deps {
			to, ours := room(dep)
			for _, f := range forbidden {
				if ours && (to == f || strings.HasPrefix(to, f+"/")) {
					bad[to] = true
				}
			}
			for _, o := range outside {
				if strings.HasPrefix(dep, o) {
					bad[dep] = true
				}
			}
		}
		names := make([]string, 0, len(bad))
		for n := range bad {
			names = append(names, n)
		}
		sort.Strings(names)
		if len(names) > 0 {
			t.Errorf("%q depends on %s", from, strings.Join(names, ", "))
		}
	}
}

// A table that names rooms which are gone teaches a wrong house.
func TestFloorTableNamesOnlyWhatExists(t *testing.T) {
	have := map[string]bool{}
	for _, p := range list(t, "./...") {
		r, _ := room(p.ImportPath)
		have[r] = true
	}
	for r := range floors {
		if !have[r] {
			t.Errorf("the table has %q, the house has not", r)
		}
	}
}
