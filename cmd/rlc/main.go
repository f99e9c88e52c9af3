// Command rlc is the Rate Limit Configurator: it turns weeks of request-rate
// history into quotas that people review.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
)

// The exit codes, the same for every command.
const (
	exitOK         = 0
	exitError      = 1
	exitChanges    = 2 // plan found changes
	exitInvalid    = 3 // the input was refused
	exitRefused    = 4 // a guard refused
	exitAuthorised = 5 // not authorised
)

// exit is an error that carries its code. A nil err prints nothing.
type exit struct {
	code int
	err  error
}

func (e exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exit) Unwrap() error { return e.err }

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	root := command()
	out := &kept{Writer: os.Stdout}
	root.SetOut(out)
	misspeltVariables(os.Environ(), os.Stderr)
	unknown := helpOfCommandsOnly(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = *unknown
	}
	if err == nil {
		err = out.err
	}
	return code(err)
}

// kept keeps the first error of its writes: data that never arrived is no success,
// whoever printed it.
type kept struct {
	io.Writer
	err error
}

func (k *kept) Write(p []byte) (int, error) {
	n, err := k.Writer.Write(p)
	if err != nil && k.err == nil {
		k.err = err
	}
	return n, err
}

func code(err error) int {
	if err == nil {
		return exitOK
	}
	var e exit
	if errors.As(err, &e) {
		if e.err != nil {
			fmt.Fprintln(os.Stderr, "rlc:", rlc.Say(e.err))
		}
		return e.code
	}
	fmt.Fprintln(os.Stderr, "rlc:", rlc.Say(err))
	switch {
	case errors.Is(err, rlc.ErrInvalid):
		return exitInvalid
	case errors.Is(err, rlc.ErrRefused):
		return exitRefused
	}
	return exitError
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "rlc",
		Short: "The Rate Limit Configurator: quotas computed from traffic, reviewed by people",
		Long: `RLC reads weeks of request-rate history, computes a safe quota for every
(service, caller, procedure), commits the numbers to a git repository where
people review them, and hands what is merged to the enforcers. Before a limit
drops anything, it shows what the limit would have dropped.

Start with "rlc demo": the whole loop on one machine.

Data goes to stdout, progress and logs to stderr. Each flag may be given as an
environment variable: --run-deadline is RLC_RUN_DEADLINE, and a secret may come
from the file that RLC_TOKEN_FILE names.

Exit codes: 0 ok, 1 error, 2 changes found (plan), 3 invalid input, 4 a guard
refused, 5 not authorised.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().BoolP("verbose", "v", false, "log what happens inside, to stderr")
	root.AddCommand(demoCommand(), runCommand(), planCommand(), explainCommand(), followCommand(),
		validateCommand(), backtestCommand(), evaluateCommand(), doctorCommand(), auditCommand(), profilesCommand(), importCommand(), exportCommand(), initCommand(), versionCommand(),
		throttleCommand(), liftCommand(), switchCommand())
	root.AddCommand(tokenCommand(), promoteCommand(), rollbackCommand())
	root.AddCommand(replayCommand(), whyCommand())
	root.AddCommand(ciCommand())
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	for _, c := range root.Commands() {
		fromEnvironment(c)
		wrapArgs(c)
	}
	// These read the environment by themselves: they say where a value came from.
	root.AddCommand(serveCommand(), configCommand())
	wrapGroups(root)
	return root
}

// wrapArgs makes a wrong number of arguments an invalid input.
func wrapArgs(c *cobra.Command) {
	check := c.Args
	if check == nil {
		return
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return exit{exitInvalid, fmt.Errorf("%s given; usage: %s", rlc.Plural(len(args), "argument"), c.UseLine())}
		}
		return nil
	}
}

// narrowing are the flags that stand for all where they are left out.
var narrowing = []string{"bucket", "caller", "from", "key", "match", "now", "procedure", "service", "services", "to", "until", "zone"}

// emptied refuses a narrowing flag that is given with nothing in it, as a script does
// with a variable that is not set: what was meant for one would be done to all.
func emptied(c *cobra.Command) error {
	for _, name := range narrowing {
		f := c.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			values = many.GetSlice()
		}
		if len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) == "" }) {
			return fmt.Errorf("--%s is empty, which is not the same as all; give it a value, or leave the flag out", name)
		}
	}
	return nil
}

// fromEnvironment lets RLC_<FLAG> stand in for a flag that was not given, and refuses
// those that were given empty.
func fromEnvironment(c *cobra.Command) {
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		bad := emptied(c)
		for _, name := range commandVariables {
			f := c.Flags().Lookup(name)
			if f == nil || f.Changed {
				continue
			}
			v, err := config.Env(name, "")
			if err == nil && v != "" {
				err = c.Flags().Set(name, v)
			}
			bad = errors.Join(bad, err)
		}
		if bad != nil {
			return exit{exitInvalid, bad}
		}
		return nil
	}
}

func logger(c *cobra.Command) *slog.Logger {
	level := slog.LevelWarn
	if v, _ := c.Flags().GetBool("verbose"); v {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "rlc", app.Version())
			return err
		},
	}
}
