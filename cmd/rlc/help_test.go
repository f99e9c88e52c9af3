package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// every are all commands below c, itself included.
func every(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, every(sub)...)
	}
	return all
}

// Each command explains itself: what it is, how it is called, and of each flag
// what it is.
func TestEachCommandExplainsItself(t *testing.T) {
	root := command()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range every(root) {
		var out bytes.Buffer
		c.SetOut(&out)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		path := c.CommandPath()
		if !strings.Contains(out.String(), "Usage:\n  "+path) {
			t.Errorf("%s --help has no usage:\n%s", path, out.String())
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: in one line, without a full stop: %q", path, c.Short)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch {
			case f.Hidden:
			case f.Usage == "":
				t.Errorf("%s --%s says nothing", path, f.Name)
			case !strings.Contains(out.String(), "--"+f.Name):
				t.Errorf("%s --help leaves out --%s", path, f.Name)
			case f.Value.Type() == "duration" && !strings.ContainsAny(f.DefValue, "smh"):
				t.Errorf("%s --%s is a time without a unit: %q", path, f.Name, f.DefValue)
			}
		})
	}
}

// The shells' completions are scripts that name the program.
func TestCompletionIsWrittenForEachShell(t *testing.T) {
	for shell, has := range map[string]string{"bash": "__start_rlc", "zsh": "#compdef rlc", "fish": "complete -c rlc", "powershell": "-CommandName 'rlc'"} {
		if out, _ := rlcOutput(t, "completion", shell); !strings.Contains(out, has) {
			t.Errorf("%s: no %q in\n%.300s", shell, has, out)
		}
	}
	out, _ := rlcOutput(t, "__complete", "prom")
	if !strings.HasPrefix(out, "promote\tTake a bucket from shadow to enforce") {
		t.Errorf("prom completes to\n%s", out)
	}
}

// promote prints the checklist and asks for exactly what was said.
func TestPromoteAsksForTheZonesThatWereNamed(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		if _, err := body.ReadFrom(r.Body); err != nil {
			t.Error(err)
		}
		asked = append(asked, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, strings.TrimSpace(body.String())))
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"open":true,"checks":[{"text":"two weeks in shadow","ok":true,"found":"20 days"}]}`)
			return
		}
		fmt.Fprint(w, `{"state":"soaking","zones":["eu-1"]}`)
	}))
	defer server.Close()
	out, errs := rlcOutput(t, "promote", "checkout", "callers", "--zone", "eu-1", "--zone", "eu-2", "--all", "--server", server.URL, "--token", "some-token-of-a-test")
	if want := "soaking: enforced in eu-1; " + server.URL + "/services/checkout/history says how it goes on\n"; out != want || !strings.Contains(errs, "✔ two weeks in shadow: 20 days\n") {
		t.Errorf("told:\n%s%s", out, errs)
	}
	want := "GET /api/v1/services/checkout/buckets/callers/promote \nPOST /api/v1/services/checkout/buckets/callers/promote {\"all\":true,\"zones\":[\"eu-1\",\"eu-2\"]}"
	if got := strings.Join(asked, "\n"); got != want {
		t.Errorf("asked:\n%s\nwant\n%s", got, want)
	}
}

// acts are those that would disturb the scripts: they change what all see.
func (d *server) acts() {
	d.t.Helper()
	does := func(want int, says string, args ...string) string {
		d.t.Helper()
		out, code := d.rlc(args...)
		if code != want || !strings.Contains(out, says) {
			d.t.Errorf("rlc %s: exit %d, want %d with %q\n%s", strings.Join(args, " "), code, want, says, out)
		}
		return out
	}
	does(exitOK, "rolled back: snapshot ", "rollback", "orders", "--reason", "the walk is undone")
	for _, name := range []string{"all-to-shadow", "stop-automation"} {
		does(exitOK, name+": on, by ", "switch", name, "on", "--reason", "INC-1")
		does(exitOK, name+": on, by ", "switch")
		does(exitOK, name+": off", "switch", name, "off", "--reason", "INC-1 is over")
		does(exitOK, name+": off", "switch")
	}
	made := does(exitOK, "owner, until ", "token", "create", "revoked-soon", "--role", "owner", "--services", "orders", "--ttl", "1h")
	_, id, _ := strings.Cut(made, "token ")
	id, _, _ = strings.Cut(id, ",")
	lines := strings.Split(strings.TrimSpace(made), "\n")
	secret := lines[len(lines)-1]
	does(exitInvalid, "", "rollback", "orders", "--to", "000000", "--reason", "it is let in, the revision is none", "--token", secret)
	does(exitOK, "is revoked", "token", "revoke", id)
	does(exitAuthorised, "", "rollback", "orders", "--to", "000000", "--reason", "it is not let in", "--token", secret)
}

// A word that is no command is named, with what was meant, whatever flags
// follow it.
func TestAWordThatIsNoCommandIsNamed(t *testing.T) {
	for args, want := range map[string]string{
		"import envoy --out x":  `rlc: unknown command "import envoy"; did you mean envoy-ratelimit?`,
		"export istoi --repo x": `rlc: unknown command "export istoi"; did you mean istio?`,
		"token creat ci":        `rlc: unknown command "token creat"; did you mean create?`,
		"config show":           `rlc: unknown command "config show"; see "rlc config --help"`,
		"whatif --help":         `rlc: unknown command "whatif"; see "rlc --help"`,
		"token creat --help":    `rlc: unknown command "token creat"; did you mean create?`,
		"help plann":            `rlc: unknown command "plann"; did you mean plan?`,
		"plann --service x":     `rlc: unknown command "plann"; did you mean plan?`,
		"import --nothing":      `rlc: unknown flag: --nothing; see "rlc import --help"`,
	} {
		if got, code := failing(t, strings.Fields(args)...); got != want+"\n" || code != exitInvalid {
			t.Errorf("rlc %s: exit %d, %s\nwant %s", args, code, got, want)
		}
	}
}

// Of a bucket with several quotas the keys are listed, one of which is needed.
func TestExplainWithoutAKeyListsTheKeys(t *testing.T) {
	answer := `{"bucket":"callers","quotas":[{"key":{"caller":"orders"}},{"key":{"caller":"web"}}],"page":1,"per_page":50,"total":2}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }))
	defer server.Close()
	for total, which := range map[string]string{"2": "name one of the keys above", "70": "name one of its keys, of which the first 2 are above"} {
		answer = strings.Replace(answer, `"total":2`, `"total":`+total, 1)
		got, code := failing(t, "explain", "checkout", "callers", "--server", server.URL, "--token", "some-token-of-a-test")
		if want := "caller=orders\ncaller=web\nrlc: bucket callers of checkout has " + total + " quotas: " + which + "\n"; got != want || code != exitInvalid {
			t.Errorf("exit %d:\n%s\nwant\n%s", code, got, want)
		}
		answer = strings.Replace(answer, `"total":`+total, `"total":2`, 1)
	}
}

func TestInitWithoutAPrometheusNamesItsOwnFlag(t *testing.T) {
	got, code := failing(t, "init", "--profile", "istio", "--out", t.TempDir(), "--config", written(t, "rlc.yaml", "log:\n  level: %s\n", "warn"))
	if want := "rlc: --from-prometheus (or prometheus.url by --config) is required; see \"rlc init --help\"\n"; got != want || code != exitInvalid {
		t.Errorf("exit %d: %s\nwant %s", code, got, want)
	}
}

// failing runs the program and gives what it says and its exit code.
func failing(t *testing.T, args ...string) (said string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := program(ctx, nil, args...)
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); !exited {
		t.Fatalf("rlc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
