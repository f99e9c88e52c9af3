package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// checkAnswer is one line of the checklist.
type checkAnswer struct {
	Text  string `json:"text"`
	OK    bool   `json:"ok"`
	Found string `json:"found"`
	Fix   string `json:"fix"`
}

func promoteCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "promote SERVICE BUCKET",
		Short: "Take a bucket from shadow to enforce, zone by zone",
		Long: `Asks the running server to enforce a bucket: at once in the first --zone, then
in one after the other as each has soaked, and with --all everywhere in the end.
Drops above the backtest lead back to shadow by themselves. Exit code 4 says
that the checklist refuses; it is printed either way. With --check nothing is
changed.`,
		Example: "  rlc promote checkout callers --zone eu-1 --zone eu-2 --all\n  rlc promote checkout callers --check",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			zones, _ := c.Flags().GetStringSlice("zone")
			all, _ := c.Flags().GetBool("all")
			only, _ := c.Flags().GetBool("check")
			if len(zones) == 0 && !all && !only {
				return exit{exitInvalid, fmt.Errorf("name zones with --zone, or say --all")}
			}
			cl := dial(c)
			path := servicePath(args[0]) + "/buckets/" + url.PathEscape(args[1]) + "/promote"
			var gate struct {
				Open   bool          `json:"open"`
				Checks []checkAnswer `json:"checks"`
			}
			if err := cl.do(c.Context(), http.MethodGet, path, nil, nil, &gate); err != nil {
				return err
			}
			printChecks(c.ErrOrStderr(), gate.Checks)
			if only {
				if !gate.Open {
					return exit{code: exitRefused}
				}
				return nil
			}
			var p struct {
				State string   `json:"state"`
				Zones []string `json:"zones"`
			}
			if err := cl.do(c.Context(), http.MethodPost, path, nil, map[string]any{"zones": zones, "all": all}, &p); err != nil {
				return err
			}
			where := "everywhere"
			if p.Zones != nil {
				where = "in " + strings.Join(p.Zones, ", ")
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: enforced %s; %s/services/%s/history says how it goes on\n", p.State, where, cl.server, url.PathEscape(args[0]))
			return nil
		},
	}
	serverFlags(c)
	c.Flags().StringSlice("zone", nil, "a zone; repeat it, in the order in which they follow")
	c.Flags().Bool("all", false, "in the end everywhere")
	c.Flags().Bool("check", false, "only print the checklist")
	return c
}

func servicePath(service string) string { return "/api/v1/services/" + url.PathEscape(service) }

func printChecks(w io.Writer, checks []checkAnswer) {
	for _, ch := range checks {
		sign := "✔"
		if !ch.OK {
			sign = "✖"
		}
		fmt.Fprintf(w, "%s %s: %s", sign, ch.Text, ch.Found)
		if ch.Fix != "" {
			fmt.Fprintf(w, "; %s", ch.Fix)
		}
		fmt.Fprintln(w)
	}
}
