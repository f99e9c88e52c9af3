package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
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
