package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/config"
)

func TestWhatCannotWorkIsRefusedAtTheStart(t *testing.T) {
	long := strings.Repeat("z", 500)
	missing := filepath.Join(t.TempDir(), "nope")
	for _, c := range []struct {
		run  subcommand
		args []string
		want string
	}{
		{aggregate, []string{"--zone", "z", "--controller", "x"}, `--controller: "x" is no host:port`},
		{aggregate, []string{"--zone", "z", "--controller", ":1"}, `--controller: ":1" is no host:port`},
		{aggregate, []string{"--zone", "z", "--controller", "x:70000"}, "--controller: \"x:70000\" is no host:port: a port is 1 to 65535"},
		{aggregate, []string{"--zone", "a\nb", "--controller", "x:1"}, `--zone: "a\nb" holds what cannot be printed`},
		{aggregate, []string{"--zone", long, "--controller", "x:1"}, "--zone: 500 bytes; at most 200"},
		{aggregate, []string{"--zone", "z", "--name", "\x00", "--controller", "x:1"}, "--name: "},
		{control, []string{"--region", "r\n", "--config-dir", "d"}, "--region: "},
		{control, []string{"--region", "r", "--parent", "x"}, `--parent: "x" is no host:port`},
		{control, []string{"--region", "r", "--parent", "127.0.0.1:8085"}, "--parent: 127.0.0.1:8085 is this controller's own --grpc"},
		{control, []string{"--region", "r", "--parent", "localhost:8085"}, "--parent: localhost:8085 is this controller's own --grpc"},
		{control, []string{"--region", "r", "--parent", "127.0.0.1:9", "--grpc", "0.0.0.0:9"}, "--parent: 127.0.0.1:9 is this controller's own --grpc"},
		{serve, []string{"--aggregator", "a,b"}, `--aggregator: "a" is no host:port`},
		{serve, []string{"--aggregator", "a:1,,b:1"}, `--aggregator: "" is no host:port`},
		{serve, []string{"--aggregator", "a:1", "--zone", "a\nb"}, "--zone: "},
		{serve, []string{"--zne", "z"}, "flag provided but not defined: -zne (did you mean --zone?)"},
		{serve, []string{"--redis-url", "redis://x"}, "flag provided but not defined: -redis-url (did you mean --redis?)"},
		{serve, []string{"--nothing"}, "flag provided but not defined: -nothing; see enforcer serve --help"},
		{aggregate, []string{"--contoller", "x:1"}, "flag provided but not defined: -contoller (did you mean --controller?)"},
		{serve, []string{"--config-dir", missing, "--http", "127.0.0.1:0", "--grpc", "off"}, "--config-dir: stat " + missing},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // what is accepted by mistake ends at once
		var out, log bytes.Buffer
		err := c.run(ctx, c.args, func(string) string { return "" }, &out, &log)
		if !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%q: %v, want %q; printed %q", c.args, err, c.want, &out)
		}
	}
	for _, c := range [][2]string{{"127.0.0.2:8085", "127.0.0.1:8085"}, {"127.0.0.1:1", "127.0.0.1:2"}, {"global:8085", "0.0.0.0:8085"}} {
		if err := checkParent(c[0], c[1]); err != nil {
			t.Errorf("parent %s of %s: %v", c[0], c[1], err)
		}
	}
}

func TestThePageOfTheEnforcerListsEveryFlag(t *testing.T) {
	page, err := os.ReadFile("../../docs/enforcer.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| flag | environment | meaning |")
	table, _, _ = strings.Cut(table, "\n\n")
	(&settings{}).flags().VisitAll(func(f *flag.Flag) {
		if !strings.Contains(table, "`--"+f.Name+"`") && !strings.Contains(table, "`--"+f.Name+" ") {
			t.Errorf("the table of docs/enforcer.md lacks --%s", f.Name)
		}
	})
}

// What of rlc's variables is spelt almost like one of a flag here would be told as
// misspelt, though rlc reads it.
func TestNoVariableOfRLCIsTakenForAMisspeltOne(t *testing.T) {
	var environ []string
	for _, k := range config.Keys() {
		environ = append(environ, k.Env()+"=x")
		if k.Secret() {
			environ = append(environ, k.Env()+"_FILE=x")
		}
	}
	var told bytes.Buffer
	misspeltVariables(new(settings).flags(), append(environ, "RLC_ZNE=eu-1"), &told)
	if want := "enforcer: warning: nothing reads the variable RLC_ZNE; did you mean RLC_ZONE?\n"; told.String() != want {
		t.Errorf("%s\nwant %s", told.String(), want)
	}
}

// An address that is taken is told with the flag that names another.
func TestATakenAddressIsToldWithItsFlag(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	at := taken.Addr().String()
	for _, flag := range []string{"--http", "--grpc"} {
		other := map[string]string{"--http": "--grpc", "--grpc": "--http"}[flag]
		var out, log bytes.Buffer
		err := serve(t.Context(), []string{"--config-dir", t.TempDir(), flag, at, other, "off"}, func(string) string { return "" }, &out, &log)
		if err == nil || !strings.HasPrefix(err.Error(), "listen on "+at+": ") || !strings.HasSuffix(err.Error(), "; choose another address with "+flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
