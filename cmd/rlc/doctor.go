package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/promhistory"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// lookback is how much history a run reads where no policy needs more.
const lookback = 28 * 24 * time.Hour

// examined is what doctor found for one service.
type examined struct {
	Service  string                `json:"service"`
	Findings []promhistory.Finding `json:"findings"`
}

func doctorCommand() *cobra.Command {
	var repo, service string
	c := &cobra.Command{
		Use:   "doctor --prometheus URL --repo DIR [--service S]",
		Short: "What is wrong with a history source, and what reading it will cost",
		Long: `Checks a Prometheus against the policies of a config repository before the first
run: do the metric and its labels exist, do its names lead to the buckets that the
enforcer would choose, is the retention long enough, are replicas counted twice,
what will the first run cost, and which recording rule makes it cheap. Nothing is
written. Exit code 1 says that a check failed.

How to reach the Prometheus (authentication, certificates, tenant, networks, the label
of an HA pair) may come from the configuration of rlc serve, by --config.`,
		Example: "  rlc doctor --prometheus http://prometheus:9090 --repo . --service checkout\n  rlc doctor --config /etc/rlc/rlc.yaml --repo .",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if repo == "" {
				return exit{exitInvalid, fmt.Errorf("--repo is required; see %q", "rlc doctor --help")}
			}
			parsed, err := readRepository(repo)
			if err != nil {
				return err
			}
			if service != "" && parsed.Service(service) == nil {
				return exit{exitInvalid, fmt.Errorf("%s has no valid service %q; see rlc validate %s", repo, service, repo)}
			}
			history, done, err := openHistory(c)
			if err != nil {
				return err
			}
			defer done()
			var all []examined
			failed := 0
			for _, s := range parsed.Services {
				if service != "" && s.Name != service {
					continue
				}
				found, err := history.Diagnose(c.Context(), rlc.HistoryRequest{Service: s, Profile: parsed.Profiles[s.Profile], Lookback: lookback, Now: time.Now()})
				if err != nil {
					return fmt.Errorf("%s: %w", s.Name, err)
				}
				for _, f := range found {
					if f.Level == promhistory.Fail {
						failed++
					}
				}
				all = append(all, examined{s.Name, found})
			}
			if out, _ := c.Flags().GetString("output"); out == "json" {
				if err := writeJSON(c.OutOrStdout(), map[string]any{"services": all}); err != nil {
					return err
				}
			} else {
				for _, e := range all {
					fmt.Fprintln(c.OutOrStdout(), e.Service)
					for _, f := range e.Findings {
						fmt.Fprintf(c.OutOrStdout(), "  %-4s  %s: %s\n", f.Level, f.Check, f.Text)
						if f.Fix != "" {
							fmt.Fprintf(c.OutOrStdout(), "        %s\n", indent(f.Fix))
						}
					}
				}
			}
			if failed > 0 {
				return exit{exitError, fmt.Errorf("%s failed", plural(failed, "check"))}
			}
			return nil
		},
	}
	historyFlags(c)
	c.Flags().StringVar(&repo, "repo", "", "a checkout of the config repository")
	c.Flags().StringVar(&service, "service", "", "only this service")
	c.Flags().StringP("output", "o", "text", "text or json")
	return c
}

func readRepository(dir string) (*quotafile.Config, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, exit{exitInvalid, err}
	}
	defer root.Close()
	files, err := quotafile.ReadDir(root)
	if err != nil {
		return nil, exit{exitInvalid, err}
	}
	return quotafile.Parse(files, policies.Builtin().Check), nil
}

// indent sets the lines of a fix under its finding.
func indent(s string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n        ")
}
