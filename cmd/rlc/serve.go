package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
)

func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve [--config FILE]",
		Short: "Run the service; every part that is not configured uses its embedded default",
		Long: `Runs the service until SIGTERM or Ctrl-C, which let requests under way finish
for at most ten seconds and exit 0; a second one ends it at once.

Flags win over the environment (RLC_PROMETHEUS_URL), the environment over the
file, the file over defaults. Everything that is wrong is said at once, and
nothing is started then (exit code 3). "rlc config dump" shows each value and
where it came from, "rlc config example" prints a file with every key.

Prints "listening: http://…" on stdout; /healthz, /readyz and /metrics answer
there.`,
		Example: "  rlc serve\n  rlc serve --config /etc/rlc/rlc.yaml\n  RLC_PROMETHEUS_URL=https://prometheus.example.com rlc serve --data /var/lib/rlc",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s := loadConfig(c)
			for _, p := range s.Problems {
				fmt.Fprintln(os.Stderr, p)
			}
			if err := s.Err(); err != nil {
				return fmt.Errorf("%w; nothing was started", err)
			}
			return serve(c, s)
		},
	}
	configFlags(c)
	wrapArgs(c)
	return c
}

// serve runs the server until the command's context ends.
func serve(c *cobra.Command, s *config.Settings) error {
	log := newLog(s.Server.Log)
	a, err := app.Open(c.Context(), s.Server, app.Options{Log: log, Values: s.Values})
	if err != nil {
		return err
	}
	defer func() {
		if err := a.Close(); err != nil {
			log.Warn("close", "err", err)
		}
	}()
	log.Info("listening", "url", a.URL, "history", a.Prom, "repository", a.Config.Repository.URL, "data", a.Config.Data)
	if file := a.TokenFile(); file != "" {
		log.Info("acting needs the token", "file", file)
	}
	if at := a.MetricsAddr(); at != "" {
		log.Info("metrics", "url", "http://"+at+"/metrics")
	}
	fmt.Fprintf(c.OutOrStdout(), "listening: %s\n", a.URL)
	stop := killSwitches(c.Context(), a, log)
	defer stop()
	err = a.Serve(c.Context())
	if err == nil {
		log.Info("stopped")
	}
	return err
}

func newLog(l config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		level = slog.LevelInfo // config has checked it
	}
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}

// configFlags are --config and one flag for each key.
func configFlags(c *cobra.Command) {
	c.Flags().String("config", "", "configuration `file`, YAML (or RLC_CONFIG); without it everything is embedded")
	for _, k := range config.Keys() {
		kind := "value"
		if k.Secret() {
			kind = "file"
		}
		usage := fmt.Sprintf("`%s` for %s", kind, k.Name)
		if k.Default != "" {
			usage += " (default " + k.Default + ")"
		}
		c.Flags().String(k.Flag(), "", usage)
	}
}

// loadConfig reads the settings from the command's flags, the environment and
// the file that they name.
func loadConfig(c *cobra.Command) *config.Settings {
	in := config.Input{Flags: map[string]string{}}
	in.File, _ = c.Flags().GetString("config")
	if !c.Flags().Changed("config") {
		in.File = os.Getenv("RLC_CONFIG")
	}
	for _, k := range config.Keys() {
		if f := c.Flags().Lookup(k.Flag()); f != nil && f.Changed {
			in.Flags[k.Flag()] = f.Value.String()
		}
	}
	if v, _ := c.Flags().GetBool("verbose"); v && in.Flags["log-level"] == "" {
		in.Flags["log-level"] = "debug"
	}
	return config.Load(in)
}
