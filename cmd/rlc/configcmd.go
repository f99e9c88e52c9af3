package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc/internal/config"
)

func configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Show the service's configuration, or an example of it",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	dump := &cobra.Command{
		Use:   "dump [--config FILE]",
		Short: "Print each effective value and where it came from",
		Long: `Prints what rlc serve would use with the same flags, environment and file, and
where each value came from. Of a secret it says whether it is set. What is wrong
goes to stderr, with exit code 3.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s := loadConfig(c)
			switch format, _ := c.Flags().GetString("output"); format {
			case "table":
				w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "KEY\tVALUE\tFROM")
				for _, v := range s.Values {
					fmt.Fprintf(w, "%s\t%s\t%s\n", v.Key, v.Value, v.Source)
				}
				if err := w.Flush(); err != nil {
					return err
				}
			case "json":
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				if err := e.Encode(map[string]any{"config": s.Values}); err != nil {
					return err
				}
			default:
				return exit{exitInvalid, fmt.Errorf("output %q: want table or json", format)}
			}
			for _, p := range s.Problems {
				fmt.Fprintln(os.Stderr, p)
			}
			return s.Err()
		},
	}
	configFlags(dump)
	dump.Flags().StringP("output", "o", "table", "table or json")
	example := &cobra.Command{
		Use:   "example",
		Short: "Print a commented configuration file with every key",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text := config.Example()
			switch format, _ := c.Flags().GetString("output"); format {
			case "yaml":
			case "markdown":
				text = config.Markdown()
			default:
				return exit{exitInvalid, fmt.Errorf("output %q: want yaml or markdown", format)}
			}
			_, err := fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
	example.Flags().StringP("output", "o", "yaml", "yaml, or markdown: the table in docs/serve.md")
	for _, sub := range []*cobra.Command{dump, example} {
		wrapArgs(sub)
		c.AddCommand(sub)
	}
	wrapArgs(c)
	return c
}
