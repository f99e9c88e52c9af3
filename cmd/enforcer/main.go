// Command enforcer is the data plane: it answers whether a request may pass,
// from the quotas that were approved.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/spell"
)

// The exit codes, as every command of RLC has them.
const (
	exitOK      = 0
	exitError   = 1
	exitInvalid = 3
)

const usage = `The enforcer answers whether a request may pass, from approved quotas.

Usage:
  enforcer serve [flags]     answer Envoy on --grpc and POST /v1/check on --http
  enforcer aggregator [flags]
                             sum the drop-ratio loop of a zone
  enforcer controller [flags]
                             say what the zones are to drop
  enforcer version           print the version

Try it:
  enforcer serve --config-dir ./config --state ./state
  enforcer serve --redis redis://localhost:6379/0 --state ./state
  enforcer serve --config-dir ./config --redis redis://localhost:6379/0
  curl -s localhost:8082/v1/check -d '{"service":"notify","attributes":{"caller":"marketing","procedure":"SendBulk"}}'

"enforcer serve --help" lists the flags, as does --help of the others. Exit codes: 0 ok, 1 error, 3 invalid
input. Data goes to stdout, logs to stderr.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the command with everything it takes from its process.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	var err error
	switch name {
	case "serve":
		err = serve(ctx, args, env, stdout, stderr)
	case "version", "--version":
		if len(args) > 0 {
			err = fmt.Errorf("%w: unexpected argument %q of version", rlc.ErrInvalid, args[0])
			break
		}
		fmt.Fprintln(stdout, "enforcer", version())
	case "help", "--help", "-h":
		fmt.Fprint(stdout, usage)
	case "aggregator":
		err = aggregate(ctx, args, env, stdout, stderr)
	case "controller":
		err = control(ctx, args, env, stdout, stderr)
	case "":
		err = fmt.Errorf("%w: want a command: serve, aggregator, controller or version; see enforcer --help", rlc.ErrInvalid)
	default:
		hint := "see enforcer --help"
		if near := spell.Nearest(name, []string{"serve", "aggregator", "controller", "version", "help"}, mostEdits); near != "" {
			hint = "did you mean " + near + "?"
		}
		err = fmt.Errorf("%w: unknown command %q; %s", rlc.ErrInvalid, name, hint)
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, rlc.ErrInvalid):
		fmt.Fprintln(stderr, "enforcer:", err)
		return exitInvalid
	}
	fmt.Fprintln(stderr, "enforcer:", err)
	return exitError
}

// version is the build's: its tag or commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v += "-" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return v + " " + runtime.Version()
}
