package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/audit"
	"github.com/openrlc/rlc/internal/promhistory"
)

// lookback is how much history a run reads where no policy needs more.
const lookback = 28 * 24 * time.Hour

// examined is what doctor found for one service.
type examined struct {
	Service  string                `json:"service"`
	Findings []promhistory.Finding `json:"findings"`
}

func doctorCommand() *cobra.Command {
	var repo, profile, service string
	c := &cobra.Command{
		Use:   "doctor --prometheus URL (--repo DIR | --profile P) [--service S]",
		Short: "What is wrong with a history source, and what reading it will cost",
		Long: `Checks a Prometheus against the policies of a config repository before the first
run: do the metric and its labels exist, do its names lead to the buckets that the
enforcer would choose, is the retention long enough, are replicas counted twice,
what will the first run cost, which recording rule makes it cheap, and are enforcers
scraped at all. Nothing is written. Exit code 1 says that a check failed, 3 that there is no service to look at.

--repo is a checkout of the config repository, or a bare one, of which the base
branch is read; a server may hold it. --profile asks the same of the services that
the metrics of a profile name (see "rlc profiles"), where there is no repository.

How to reach the Prometheus (authentication, certificates, tenant, networks, the label
of an HA pair) may come from the configuration of rlc serve, by --config.`,
		Example: "  rlc doctor --prometheus http://prometheus:9090 --repo . --service checkout\n  rlc doctor --prometheus http://prometheus:9090 --profile istio\n  rlc doctor --config /etc/rlc/rlc.yaml --repo .",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if (repo == "") == (profile == "") {
				return exit{exitInvalid, fmt.Errorf("say either --repo, the config repository, or --profile; see %q", "rlc doctor --help")}
			}
			var requests []rlc.HistoryRequest
			var err error
			if repo != "" {
				if requests, err = requestsOf(c.Context(), repo, service); err != nil {
					return err
				}
			}
			history, done, err := openHistory(c)
			if err != nil {
				return err
			}
			defer done()
			if profile != "" {
				if requests, err = requestsBy(c.Context(), history, profile, service); err != nil {
					return err
				}
			}
			return examine(c, history, requests)
		},
	}
	historyFlags(c)
	c.Flags().StringVar(&repo, "repo", "", "the config repository: a checkout, or a bare one")
	c.Flags().StringVar(&profile, "profile", "", "in place of a repository: a built-in profile or a profile's `file`")
	c.Flags().StringVar(&service, "service", "", "only this service")
	c.Flags().StringP("output", "o", "text", "text or json")
	return c
}

// requestsOf asks for the services of a config repository, or one of them.
func requestsOf(ctx context.Context, repo, only string) (all []rlc.HistoryRequest, err error) {
	parsed, err := readRepository(ctx, repo)
	if err != nil {
		return nil, err
	}
	for _, s := range parsed.Services {
		if only == "" || s.Name == only {
			all = append(all, rlc.HistoryRequest{Service: s, Profile: parsed.Profiles[s.Profile], Lookback: lookback, Now: time.Now()})
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case only != "":
		return nil, exit{exitInvalid, fmt.Errorf("%s has no valid service %q; see rlc validate %s", repo, only, repo)}
	}
	return nil, exit{exitInvalid, fmt.Errorf("%s has no valid service: nothing was looked at; rlc init makes first policies, rlc validate says what is invalid", repo)}
}

// anyService stands for a service where the metrics name none: what is asked about
// it tells which metrics there are.
const anyService = "SERVICE"

// requestsBy asks for the services that the metrics of a profile name, or for one.
func requestsBy(ctx context.Context, history *promhistory.Reader, profile, only string) (all []rlc.HistoryRequest, err error) {
	p, err := profileOf(profile)
	if err != nil {
		return nil, exit{exitInvalid, err}
	}
	now := time.Now()
	names := []string{only}
	if only == "" {
		if names, err = history.Services(ctx, p, now.Add(-lookback), now); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		names = []string{anyService}
	}
	for _, name := range names {
		s, err := audit.New(&rlc.Service{Name: name, Unknown: p.Unknown}, nil, eachOf(p))
		if err != nil {
			return nil, err
		}
		all = append(all, rlc.HistoryRequest{Service: s.Service, Profile: p, Lookback: lookback, Now: now})
	}
	return all, nil
}

// examine prints what is found of each service.
func examine(c *cobra.Command, history *promhistory.Reader, requests []rlc.HistoryRequest) error {
	all, failed := []examined{}, 0
	scraped, err := history.Scraped(c.Context(), time.Now())
	if err != nil {
		scraped = promhistory.Finding{Check: "enforcers", Level: promhistory.Warn, Text: err.Error()}
	}
	for _, r := range requests {
		found, err := history.Diagnose(c.Context(), r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Service.Name, err)
		}
		for _, f := range found {
			if f.Level == promhistory.Fail {
				failed++
			}
		}
		all = append(all, examined{r.Service.Name, found})
	}
	if out, _ := c.Flags().GetString("output"); out == "json" {
		if err := writeJSON(c.OutOrStdout(), map[string]any{"services": all, "enforcers": scraped}); err != nil {
			return err
		}
	} else {
		for _, e := range all {
			name := e.Service
			if name == anyService {
				name += " (the metrics name no service; it stands for any)"
			}
			fmt.Fprintln(c.OutOrStdout(), name)
			for _, f := range e.Findings {
				finding(c, f)
			}
		}
		fmt.Fprintln(c.OutOrStdout(), "the enforcers of every service")
		finding(c, scraped)
	}
	if failed > 0 {
		return exit{exitError, fmt.Errorf("%s failed", rlc.Plural(failed, "check"))}
	}
	return nil
}

// finding prints one.
func finding(c *cobra.Command, f promhistory.Finding) {
	fmt.Fprintf(c.OutOrStdout(), "  %-4s  %s: %s\n", f.Level, f.Check, f.Text)
	if f.Fix != "" {
		fmt.Fprintf(c.OutOrStdout(), "        %s\n", indent(f.Fix))
	}
}

// indent sets the lines of a fix under its finding.
func indent(s string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n        ")
}
