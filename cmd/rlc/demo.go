package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc/internal/demo"
)

func demoCommand() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "The whole loop on one machine, on 28 days of real traffic",
		Long: `Runs everything with embedded parts: 28 days of real request-rate traces in a
Prometheus store, SQLite, a bare config repository, and an in-process enforcer
that live traffic is replayed through, one caller in a retry storm.

Prints "ready: http://…" on stdout when the first quotas are accepted and one
proposal is open. Ctrl-C ends it; it starts again on the same data. To begin
afresh, remove the data folder.`,
		Example: "  rlc demo\n  rlc demo --listen 127.0.0.1:9000 --data /tmp/rlc",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Ready, o.Progress, o.Log = c.OutOrStdout(), os.Stderr, logger(c)
			return demo.Run(c.Context(), o)
		},
	}
	c.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:8080", "address of pages and API; port 0 takes a free one")
	c.Flags().StringVar(&o.Data, "data", "demo-data", "folder for everything; it is created")
	c.Flags().BoolVar(&o.Calm, "calm", false, "live traffic without the retry storm")
	return c
}
