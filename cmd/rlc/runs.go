package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// runAnswer is a run as the API shows it.
type runAnswer struct {
	ID       string     `json:"id"`
	Trigger  string     `json:"trigger"`
	Started  time.Time  `json:"started_at"`
	Finished *time.Time `json:"finished_at"`
	Result   string     `json:"result"`
	Detail   string     `json:"detail"`
	Held     int        `json:"held"`
	Changed  int        `json:"changed"`
}

// askFlags are the flags of a command that computes.
func askFlags(c *cobra.Command) {
	c.Flags().String("service", "", "only this service")
	c.Flags().String("now", "", "compute as of this time, RFC 3339; nothing later is read")
	serverFlags(c)
}

func ask(c *cobra.Command) (map[string]any, error) {
	service, _ := c.Flags().GetString("service")
	now, _ := c.Flags().GetString("now")
	body := map[string]any{}
	if service != "" {
		body["service"] = service
	}
	if now != "" {
		if _, err := time.Parse(time.RFC3339, now); err != nil {
			return nil, exit{exitInvalid, fmt.Errorf("--now %q: want RFC 3339, e.g. 2026-11-29T06:00:00Z", now)}
		}
		body["now"] = now
	}
	return body, nil
}

func runCommand() *cobra.Command {
	var strict bool
	c := &cobra.Command{
		Use:   "run",
		Short: "Recompute quotas and publish proposals",
		Long: `Asks the running server for one recalculation and waits for its end. What
changes is published for review, one proposal per service; nothing is in force
before a person accepts it.

Exit code 1: the run failed. 4: the fleet breaker refused it. A degraded run, which
held some quotas because their history could not be read whole and put up the
others, is 0; with --strict it is 4.`,
		Example: "  rlc run\n  rlc run --service checkout\n  rlc run --now 2026-11-29T06:00:00Z",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			body, err := ask(c)
			if err != nil {
				return err
			}
			cl := dial(c)
			var run runAnswer
			if err := cl.do(c.Context(), http.MethodPost, "/api/v1/runs", nil, body, &run); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "run %s\n", run.ID)
			for tick := time.NewTicker(300 * time.Millisecond); run.Finished == nil; {
				select {
				case <-c.Context().Done():
					tick.Stop()
					return fmt.Errorf("interrupted; the run goes on at the server: %s/runs/%s", cl.server, run.ID)
				case <-tick.C:
				}
				if err := cl.do(c.Context(), http.MethodGet, "/api/v1/runs/"+url.PathEscape(run.ID), nil, nil, &run); err != nil && !strings.Contains(err.Error(), "not found") {
					tick.Stop()
					return err
				}
			}
			if out, _ := c.Flags().GetString("output"); out == "json" {
				if err := writeJSON(c.OutOrStdout(), run); err != nil {
					return err
				}
				return run.verdict(strict)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %s changed, %d held", run.Result, rlc.Plural(run.Changed, "quota"), run.Held)
			if run.Detail != "" {
				fmt.Fprintf(c.OutOrStdout(), "; %s", run.Detail)
			}
			fmt.Fprintln(c.OutOrStdout())
			return run.verdict(strict)
		},
	}
	askFlags(c)
	c.Flags().BoolVar(&strict, "strict", false, "exit code 4 where the run is degraded, too")
	c.Flags().StringP("output", "o", "text", "text or json")
	return c
}

// verdict gives a run that is over its exit code. A degraded one did what it could:
// only strict takes it for a refusal.
func (r *runAnswer) verdict(strict bool) error {
	switch rlc.Result(r.Result) {
	case rlc.ResultRefused:
		return exit{code: exitRefused}
	case rlc.ResultFailed:
		return exit{code: exitError}
	case rlc.ResultDegraded:
		if strict {
			return exit{code: exitRefused}
		}
	}
	return nil
}

// planAnswer is what a run would propose.
type planAnswer struct {
	Run     runAnswer    `json:"run"`
	Changes []rlc.Change `json:"changes"`
}

func planCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan",
		Short: "Show what a run would propose, writing nothing",
		Long: `Computes like "rlc run" and writes nothing. Exit code 2 says that quotas would
change, 0 that none would.

--policy takes a draft of the service's policy.yaml in place of the one on the base
branch: see before you push it what a run would propose by it, and what the limits
that it writes by hand would have dropped.`,
		Example: "  rlc plan\n  rlc plan --service checkout -o yaml\n  rlc plan --service checkout --policy services/checkout/policy.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out, _ := c.Flags().GetString("output")
			if out != "table" && out != "json" && out != "yaml" {
				return exit{exitInvalid, fmt.Errorf("--output %q: want table, json or yaml", out)}
			}
			body, err := ask(c)
			if err != nil {
				return err
			}
			if file, _ := c.Flags().GetString("policy"); file != "" {
				if body["service"] == nil {
					return exit{exitInvalid, errors.New("--policy needs --service: whose policy.yaml it is")}
				}
				text, err := os.ReadFile(file)
				if err != nil {
					return exit{exitInvalid, err}
				}
				body["policy"] = string(text)
			}
			var plan planAnswer
			if err := dial(c).do(c.Context(), http.MethodPost, "/api/v1/plan", nil, body, &plan); err != nil {
				return err
			}
			moving := plan.Changes[:0:0]
			for _, ch := range plan.Changes {
				if ch.Moves() {
					moving = append(moving, ch)
				}
			}
			switch out {
			case "json":
				err = writeJSON(c.OutOrStdout(), plan)
			case "yaml":
				err = planYAML(c.OutOrStdout(), plan.Changes)
			default:
				err = planTable(c.OutOrStdout(), plan)
			}
			if err == nil && len(moving) > 0 {
				return exit{code: exitChanges}
			}
			return err
		},
	}
	askFlags(c)
	c.Flags().String("policy", "", "a `file`: a draft of the service's policy.yaml")
	c.Flags().StringP("output", "o", "table", "table, json or yaml (the quotas as quotas.yaml would hold them)")
	return c
}

func planTable(w io.Writer, plan planAnswer) error {
	t := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tQUOTA\tIN FORCE\tPROPOSED\tΔ\tDROPS IN FORCE\tDROPS PROPOSED\tWHY")
	held, same := 0, 0
	for _, ch := range plan.Changes {
		if ch.Held != "" {
			held++
		}
		if !ch.Moves() {
			if ch.Held == "" {
				same++
			}
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", ch.Service, ch.ID(), limitText(ch.Old), limitText(ch.New), delta(ch), dropsText(ch.Backtest.Old), dropsText(ch.Backtest.New), ch.Why)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d of %d quotas would change, %d stay, %d held\n", len(plan.Changes)-held-same, len(plan.Changes), same, held)
	for _, ch := range plan.Changes {
		if ch.Held != "" {
			fmt.Fprintf(w, "held: %s %s: %s: %s\n", ch.Service, ch.ID(), ch.Held, ch.HeldWhy)
		}
	}
	return err
}

// planYAML prints each service's quotas as its quotas.yaml would be.
func planYAML(w io.Writer, changes []rlc.Change) error {
	var order []string
	by := map[string][]rlc.Quota{}
	for _, ch := range changes {
		if _, seen := by[ch.Service]; !seen {
			order = append(order, ch.Service)
			by[ch.Service] = nil
		}
		if q := ch.Quota(); q != nil {
			by[ch.Service] = append(by[ch.Service], *q)
		}
	}
	for i, s := range order {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		if _, err := w.Write(quotafile.MarshalQuotas(s, by[s])); err != nil {
			return err
		}
	}
	return nil
}

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain SERVICE BUCKET [KEY]",
		Short: "Every step from samples to a quota's number",
		Long: `Explains a quota as the last run computed it: the same steps as on the bucket's
page and in the review. KEY names one value of a bucket that counts per caller
or procedure: caller=search or caller=search,procedure=Create. Without it the keys
of such a bucket are listed, with exit code 3.`,
		Example: "  rlc explain checkout callers caller=web-frontend",
		Args:    cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error {
			q := url.Values{}
			if len(args) == 3 {
				key, err := rlc.ParseKey(args[2])
				if err != nil {
					return exit{exitInvalid, err}
				}
				q.Set("key", key.String())
			}
			var answer struct {
				Explanation struct {
					Text string `json:"text"`
				} `json:"explanation"`
				severalQuotas
			}
			var raw json.RawMessage
			path := "/api/v1/services/" + url.PathEscape(args[0]) + "/buckets/" + url.PathEscape(args[1])
			if err := dial(c).do(c.Context(), http.MethodGet, path, q, nil, &raw); err != nil {
				return err
			}
			if out, _ := c.Flags().GetString("output"); out == "json" {
				return writeJSON(c.OutOrStdout(), raw)
			}
			if err := json.Unmarshal(raw, &answer); err != nil {
				return err
			}
			if len(answer.Quotas) > 0 {
				return answer.ask(c.OutOrStdout(), args[0], args[1])
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), strings.TrimRight(answer.Explanation.Text, "\n"))
			return err
		},
	}
	serverFlags(c)
	c.Flags().StringP("output", "o", "text", "text or json")
	return c
}

// severalQuotas is the API's answer for a bucket that has a quota for each key,
// where no key was named: the first page of them.
type severalQuotas struct {
	Quotas []struct {
		Key rlc.Key `json:"key"`
	} `json:"quotas"`
	Total int `json:"total"`
}

// ask lists the keys, one a line, and refuses: one of them has to be named.
func (s *severalQuotas) ask(w io.Writer, service, bucket string) error {
	for _, q := range s.Quotas {
		if _, err := fmt.Fprintln(w, q.Key); err != nil {
			return err
		}
	}
	which := "name one of the keys above"
	if s.Total > len(s.Quotas) {
		which = fmt.Sprintf("name one of its keys, of which the first %d are above", len(s.Quotas))
	}
	return exit{exitInvalid, fmt.Errorf("bucket %s of %s has %s: %s", bucket, service, rlc.Plural(s.Total, "quota"), which)}
}

func followCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "follow",
		Short: "Accept a base branch whose history was rewritten",
		Long: `When somebody rewrites the base branch of the config repository, RLC stops
computing and distributing and says so on every page. Look at the branch; then
this command lets RLC follow the new history, in your name.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return dial(c).do(c.Context(), http.MethodPost, "/api/v1/follow", nil, map[string]any{}, nil)
		},
	}
	serverFlags(c)
	return c
}

func limitText(l *rlc.Limit) string {
	if l == nil {
		return "—"
	}
	return rlc.Number(l.Rate) + "/s"
}

func delta(c rlc.Change) string {
	switch {
	case c.New == nil:
		return ""
	case c.Old == nil || c.Old.Rate == 0:
		return "new"
	}
	return stat.ShareText(float64(c.New.Rate)/float64(c.Old.Rate)-1, 0) + policies.HoursDelta(&c)
}

func dropsText(b *rlc.Backtest) string {
	if b == nil {
		return "—"
	}
	least := ""
	if b.AtLeast {
		least = "≥ "
	}
	return fmt.Sprintf("%s%s (%s)", least, whole(b.Drops), percent(float64(b.Share)))
}

// whole is a number of requests for people.
func whole(n float64) string { return rlc.Number(math.Round(n)) }

func percent(share float64) string {
	switch p := share * 100; {
	case p == 0:
		return "0 %"
	case p < 0.01:
		return "< 0.01 %"
	default:
		return fmt.Sprintf("%.2f %%", p)
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
