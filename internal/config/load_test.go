package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/config"
)

const password = "hunter2-hunter2-hunter2"

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func env(pairs map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := pairs[name]; return v, ok }
}

// said is every problem, with the file's folder cut off.
func said(s *config.Settings, file string) []string {
	var all []string
	for _, p := range s.Problems {
		all = append(all, strings.ReplaceAll(p.String(), filepath.Dir(file)+"/", ""))
	}
	return all
}

func TestFlagsWinOverEnvironmentOverFileOverDefault(t *testing.T) {
	file := write(t, "rlc.yaml", "listen: 127.0.0.1:1\npoll: 3s\nschedule: '1 * * * *'\nlog:\n  level: warn\n", 0o600)
	s := config.Load(config.Input{
		File:  file,
		Env:   env(map[string]string{"RLC_POLL": "4s", "RLC_SCHEDULE": "2 * * * *"}),
		Flags: map[string]string{"schedule": "3 * * * *"},
	})
	if err := s.Err(); err != nil {
		t.Fatal(err, s.Problems)
	}
	want := map[string][2]string{
		"listen":            {"127.0.0.1:1", file + ":1:9"},
		"poll":              {"4s", "RLC_POLL"},
		"schedule":          {"3 * * * *", "--schedule"},
		"log.level":         {"warn", file + ":5:10"},
		"retention":         {"40d", "default"},
		"repository.branch": {"main", "default"},
	}
	for _, v := range s.Values {
		if w, ok := want[v.Key]; ok && w != [2]string{v.Value, v.Source} {
			t.Errorf("%s is %s from %s, want %v", v.Key, v.Value, v.Source, w)
		}
		delete(want, v.Key)
	}
	if len(want) > 0 {
		t.Errorf("not shown: %v", want)
	}
	c := s.Server
	if c.Listen != "127.0.0.1:1" || c.Poll != 4*time.Second || c.Schedule != "3 * * * *" || c.Log.Level != "warn" || c.Retention != 40*24*time.Hour {
		t.Errorf("server: %+v", c)
	}
}

func TestEverythingWrongIsSaidAtOnceWithItsPlace(t *testing.T) {
	file := write(t, "rlc.yaml", `listen: 127.0.0.1
prometheus:
  ulr: http://x
  url: ftp://x
  query_timeout: 30
  max_queries: "4"
pol: 3s
poll: -3s
retention: 1h
schedule: 0 0 30 2 *
store: [a, b]
repository:
  branch: 2024
  branch: main
redis:
  url: http://h
token: abc
run_deadline:
log: debug
`, 0o600)
	s := config.Load(config.Input{File: file, Env: env(map[string]string{"RLC_SCRAPE": "often", "RLC_STORE_DSN": "mysql://u:" + password + "@h"}), Flags: map[string]string{"log-format": "xml"}})
	want := []string{
		`rlc.yaml:1:9: listen: "127.0.0.1": want host:port, such as 127.0.0.1:8080`,
		`rlc.yaml:3:3: unknown key "prometheus.ulr"; did you mean prometheus.url?`,
		`rlc.yaml:4:8: prometheus.url: want http://host:port or https://host:port`,
		`rlc.yaml:5:18: prometheus.query_timeout: "30": want a duration with its unit, such as 30s, 15m, 12h, 40d or 2w`,
		`rlc.yaml:6:16: prometheus.max_queries: want a whole number`,
		`rlc.yaml:7:1: unknown key "pol"; did you mean poll?`,
		`rlc.yaml:8:7: poll: "-3s": want a duration with its unit, such as 30s, 15m, 12h, 40d or 2w`,
		`rlc.yaml:9:12: retention: 1h is outside 1d to 1825d`,
		`rlc.yaml:10:11: schedule: invalid: schedule "0 0 30 2 *": such a date never comes`,
		`rlc.yaml:11:8: store: want a mapping (key: value)`,
		`rlc.yaml:13:11: repository.branch: want text: write the value in quotes`,
		`rlc.yaml:14:3: repository.branch: given twice, first in line 13`,
		`rlc.yaml:16:8: redis.url: want redis://[user:password@]host[:port][/database], or rediss:// for TLS`,
		`rlc.yaml:17:8: token: the token has 3 characters, want at least 16; make one with: openssl rand -hex 16`,
		`rlc.yaml:18:14: run_deadline: no value: leave the key out for its default`,
		`rlc.yaml:19:6: log: want a mapping (key: value)`,
		`RLC_SCRAPE: scrape: "often": want a duration with its unit, such as 30s, 15m, 12h, 40d or 2w`,
		`RLC_STORE_DSN: store.dsn: engine "mysql": want sqlite:/path/of/file.db or postgres://…`,
		`--log-format: log.format: "xml": want text, json`,
	}
	got := said(s, file)
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("said %q\nwant %q", g, w)
		}
	}
	if err := s.Err(); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("error: %v", err)
	}
}

func TestWhatYAMLHasAndAConfigurationMustNotIsRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"alias", "listen: &a 127.0.0.1:1\nmetrics_listen: *a\n", "rlc.yaml:1:9: listen: anchors and aliases are not read: write the value out"},
		{"merge", "<<: {listen: x}\n", "rlc.yaml:1:1: a key that is not a name"},
		{"second document", "poll: 3s\n---\npoll: 4s\n", "rlc.yaml:2:1: a second document; one file holds one document: remove what follows ---"},
		{"no mapping", "- listen\n", "rlc.yaml:1:1: the file: want a mapping (key: value)"},
		{"not YAML", "listen: [\n", "rlc.yaml:1:1: not YAML: did not find expected node content"},
		{"tab", "poll: 3s\n\tx: 1\n", "rlc.yaml:2:1: not YAML: found a tab character that violates indentation"},
		{"group as a key", "prometheus.url: http://x\npoll: {a: 1}\n", "rlc.yaml:2:7: poll: want one value"},
		{"both forms", "token: 0123456789abcdef\ntoken_file: /x\n", "rlc.yaml:2:1: token_file: given beside its other form in line 1; give one of them"},
		{"control character", "repository: {branch: \"a\\u0007\"}\n", "rlc.yaml:1:22: repository.branch: control characters and spaces around a value are not read"},
		{"not a number", "poll: .nan\n", "rlc.yaml:1:7: poll: want text: write the value in quotes"},
		{"leading zero", "prometheus: {max_queries: 0100}\n", "rlc.yaml:1:27: prometheus.max_queries: \"0100\": want a whole number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, "rlc.yaml", c.text, 0o600)
			s := config.Load(config.Input{File: file, Env: env(nil)})
			got := said(s, file)
			if len(got) == 0 || got[0] != c.want || s.Err() == nil {
				t.Errorf("said %q, %v\nwant %q", got, s.Err(), c.want)
			}
		})
	}
}

func TestAnEmptyFileIsAllDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "prometheus:\n"} {
		s := config.Load(config.Input{File: write(t, "rlc.yaml", text, 0o644), Env: env(nil)})
		if err := s.Err(); err != nil || len(s.Problems) > 0 {
			t.Errorf("%q: %v %v", text, err, s.Problems)
		}
		if s.Server.Listen != "127.0.0.1:8080" || s.Server.Repository.URL != filepath.Join(s.Server.Data, "config.git") {
			t.Errorf("%q: %+v", text, s.Server)
		}
	}
	s := config.Load(config.Input{File: "/nonexistent/rlc.yaml", Env: env(nil)})
	if got := said(s, "/x"); len(got) != 1 || got[0] != "--config: open /nonexistent/rlc.yaml: no such file or directory" || s.Err() == nil {
		t.Errorf("a missing file: %q", got)
	}
}

func TestASecretIsReadFromItsFileAndNeverShown(t *testing.T) {
	file := write(t, "token", password+"\n", 0o600)
	s := config.Load(config.Input{Env: env(map[string]string{"RLC_TOKEN_FILE": file, "RLC_STORE_DSN": "postgres://rlc:" + password + "@db/rlc"})})
	if err := s.Err(); err != nil {
		t.Fatal(err, s.Problems)
	}
	if got, err := s.Server.Token.Read(); got != password || err != nil {
		t.Errorf("token %q, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("another-token-of-length"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Server.Token.Read(); got != "another-token-of-length" || err != nil {
		t.Errorf("after a change: token %q, %v", got, err)
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", s, s.Server, s.Server, s.Server.Store), fmt.Sprint(s.Values)} {
		if strings.Contains(text, password) {
			t.Errorf("a secret is shown: %s", text)
		}
	}
	for _, v := range s.Values {
		switch v.Key {
		case "token":
			if v.Value != "set (file "+file+")" || v.Source != "RLC_TOKEN_FILE" {
				t.Errorf("%+v", v)
			}
		case "store.dsn":
			if v.Value != "set" || v.Source != "RLC_STORE_DSN" {
				t.Errorf("%+v", v)
			}
		}
	}

	both := config.Load(config.Input{Env: env(map[string]string{"RLC_TOKEN_FILE": file, "RLC_TOKEN": password})})
	if got := said(both, "/x"); len(got) != 1 || got[0] != "RLC_TOKEN_FILE: given beside RLC_TOKEN; give one of them" {
		t.Errorf("both forms: %q", got)
	}
	gone := config.Load(config.Input{Flags: map[string]string{"token-file": "/nonexistent/token"}, Env: env(nil)})
	if got := said(gone, "/x"); len(got) != 1 || got[0] != "--token-file: token: open /nonexistent/token: no such file or directory" {
		t.Errorf("a missing file: %q", got)
	}
}

func TestHowWeShowPrometheusWhoWeAre(t *testing.T) {
	token := write(t, "bearer", password, 0o644)
	file := write(t, "rlc.yaml", "prometheus:\n  url: https://prometheus\n  bearer_file: "+token+"\n  headers: {X-Scope-OrgID: payments}\n  thanos: true\n", 0o644)
	s := config.Load(config.Input{File: file, Env: env(map[string]string{"RLC_PROMETHEUS_SERVER_NAME": "p.internal"})})
	if got := said(s, token); len(got) != 1 || got[0] != "bearer:1:1: warning: everybody on this machine can read prometheus.bearer_file; chmod o-r bearer" {
		t.Errorf("said %q", got)
	}
	p := s.Server.Prometheus
	want := config.Prometheus{
		URL: "https://prometheus", BearerFile: token, Headers: map[string]string{"X-Scope-OrgID": "payments"}, Thanos: true,
		ServerName: "p.internal", QueryTimeout: 30 * time.Second, ServiceTimeout: 5 * time.Minute, MaxQueries: 4,
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
	for text, want := range map[string]string{
		"{user: u}":                     "rlc.yaml:1:20: prometheus.user: prometheus.password_file belongs with it",
		"{bearer_file: /no/such}":       "rlc.yaml:1:27: prometheus.bearer_file: open /no/such: no such file or directory",
		"{headers: {authorization: x}}": "rlc.yaml:1:23: prometheus.headers: Authorization is a secret: use prometheus.bearer_file or prometheus.user",
		"{headers: {'A b': x}}":         `rlc.yaml:1:23: prometheus.headers: header "A b" cannot be sent`,
		"{headers: {A: 1}}":             "rlc.yaml:1:23: prometheus.headers: want a mapping (name: text); write numbers in quotes",
		"{headers: [A]}":                "rlc.yaml:1:23: prometheus.headers: want a mapping (name: text)",
		"{thanos: 'yes'}":               "rlc.yaml:1:22: prometheus.thanos: want true or false",
		"{cert_file: /dev/null}":        "rlc.yaml:1:25: prometheus.cert_file: prometheus.key_file belongs with it",
	} {
		file := write(t, "rlc.yaml", "prometheus: "+text, 0o600)
		if got := said(config.Load(config.Input{File: file, Env: env(nil)}), file); len(got) != 1 || got[0] != want {
			t.Errorf("%s: said %q\nwant %q", text, got, want)
		}
	}
	s = config.Load(config.Input{Env: env(nil), Flags: map[string]string{"prometheus-headers": "{A: b, C: d}"}})
	if err := s.Err(); err != nil || s.Server.Prometheus.Headers["C"] != "d" {
		t.Errorf("headers by flag: %v %+v", s.Problems, s.Server.Prometheus)
	}
}

func TestWhatEverybodyCanReadIsWarnedOf(t *testing.T) {
	inline := "token: " + password + "\n"
	if s := config.Load(config.Input{File: write(t, "rlc.yaml", inline, 0o640), Env: env(nil)}); len(s.Problems) > 0 {
		t.Errorf("a file of its owner's: %v", s.Problems)
	}
	file := write(t, "rlc.yaml", inline, 0o644)
	s := config.Load(config.Input{File: file, Env: env(nil)})
	if got := said(s, file); len(got) != 1 || !strings.Contains(got[0], "warning: everybody on this machine can read token") || s.Err() != nil {
		t.Errorf("a readable file with a secret: %q, %v", got, s.Err())
	}
	for at, told := range map[string]int{"redis://redis.internal:6379/0": 0, "redis://rlc@redis.internal": 0, "redis://rlc:" + password + "@redis.internal": 1, "redis://:" + password + "@redis.internal": 1} {
		file := write(t, "rlc.yaml", "redis: {url: \""+at+"\"}\n", 0o644)
		if got := said(config.Load(config.Input{File: file, Env: env(nil)}), file); len(got) != told {
			t.Errorf("%s: %q, want %d warnings", at, got, told)
		}
	}
	token := write(t, "token", password, 0o644)
	s = config.Load(config.Input{File: write(t, "rlc.yaml", "token_file: "+token+"\n", 0o644), Env: env(nil)})
	if got := said(s, token); len(got) != 1 || got[0] != "token:1:1: warning: everybody on this machine can read token; chmod o-r token" || s.Err() != nil {
		t.Errorf("a readable secret's file: %q, %v", got, s.Err())
	}
}

func TestCompleteRefusesWhatLoadRefuses(t *testing.T) {
	for _, c := range []config.Server{
		{Listen: "nowhere"}, {Poll: -1}, {RunDeadline: time.Millisecond}, {Schedule: "TZ=UTC * * * * *"},
		{Redis: config.Redis{URL: config.Inline("http://h")}}, {Redis: config.Redis{CAFile: "load_test.go"}}, {Redis: config.Redis{Prefix: "a b"}}, {Prometheus: config.Prometheus{URL: "http://u:p@h"}},
		{Repository: config.Repository{URL: "https://u:p@h/config.git"}}, {Prometheus: config.Prometheus{MaxQueries: -1}},
	} {
		if err := c.Complete(); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// uncomment takes every key of the example into use.
func uncomment(text string) string {
	return regexp.MustCompile(`(?m)^#(\S|  )`).ReplaceAllString(text, "$1")
}

func TestTheExampleNamesEveryKeyAtItsDefault(t *testing.T) {
	s := config.Load(config.Input{File: write(t, "rlc.yaml", config.Example(), 0o644), Env: env(nil)})
	if len(s.Problems) > 0 {
		t.Errorf("as it is: %v", s.Problems)
	}
	for _, v := range s.Values {
		if v.Source != "default" {
			t.Errorf("as it is, %s comes from %s", v.Key, v.Source)
		}
	}
	file := write(t, "rlc.yaml", uncomment(config.Example()), 0o600)
	s = config.Load(config.Input{File: file, Env: env(nil)})
	for _, p := range s.Problems {
		// The files that it names are not on this machine, and of two ways to
		// say who we are it shows both.
		if !strings.Contains(p.Message, "no such file") && !strings.Contains(p.Message, "given beside prometheus.user") {
			t.Errorf("uncommented: %s", p)
		}
	}
	given := map[string]bool{}
	for _, v := range s.Values {
		given[v.Key] = v.Source != "default"
	}
	fresh := &config.Server{Data: "/var/lib/rlc"}
	if err := fresh.Complete(); err != nil {
		t.Fatal(err)
	}
	for _, k := range config.Keys() {
		if !given[k.Name] {
			t.Errorf("%s: in the example: %t", k.Name, given[k.Name])
		}
		if k.Means == "" || k.Consequence == "" || (k.Default == "") == (k.Unset == "") || (k.Default == "" && k.Example == "") {
			t.Errorf("%s is not documented whole: %+v", k.Name, k)
		}
	}
}

func TestTheOperatorsPageAndTheExampleFileAreFresh(t *testing.T) {
	page, err := os.ReadFile("../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), config.Markdown()) {
		t.Error("the table in docs/serve.md is stale: put there what rlc config example -o markdown prints")
	}
	example, err := os.ReadFile("../../deploy/rlc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(example) != config.Example() {
		t.Error("stale: rlc config example >deploy/rlc.yaml")
	}
}

// Whatever the file holds, reading it ends with values that are whole.
func FuzzLoad(f *testing.F) {
	f.Add("listen: 127.0.0.1:1\nprometheus: {url: http://x}\n")
	f.Add(uncomment(config.Example()))
	f.Add("a: &a [*a]\n<<: *a\n? {x: y}\n: z\n")
	f.Add("---\n...\n---\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, "rlc.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := config.Load(config.Input{File: file, Env: env(nil)})
		if len(s.Values) != len(config.Keys()) {
			t.Errorf("%d values", len(s.Values))
		}
		if s.Err() == nil && s.Server.Complete() != nil {
			t.Errorf("accepted, and not complete: %v", s.Server.Complete())
		}
	})
}

// A key whose group is still commented out names the groups that it may stand below.
func TestAKeyWithoutItsGroupNamesTheGroups(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rlc.yaml")
	for text, want := range map[string]string{
		"  max_queries: 4\n": "prometheus:", "  url: https://prometheus.example.com\n": "prometheus: or repository: or redis: or forge:",
	} {
		if err := os.WriteFile(file, []byte("# of the example:\n#prometheus:\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := config.Load(config.Input{File: file, Env: func(string) (string, bool) { return "", false }})
		if len(s.Problems) != 1 || s.Problems[0].Line != 3 || s.Problems[0].Hint != "it stands below "+want+": write that line above it, too (where it is commented out, uncomment both)" {
			t.Errorf("%q: %+v", text, s.Problems)
		}
	}
}
