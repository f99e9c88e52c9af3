package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/policies/score"
	"github.com/openrlc/rlc/quotafile"
)

func validateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "validate PATH…",
		Short: "Check config files, without any server",
		Long: `Checks a config repository (a checkout, or a bare one, of which the base branch is
read), a service's folder or a single file, with the same
code that runs before a commit and in the enforcer. Prints every error at once
as file:line:col: message; hint. Exit code 3 says that something is invalid;
warnings alone leave it 0.`,
		Example: "  rlc validate .\n  rlc validate services/checkout services/search/policy.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var all []rlc.Problem
			for _, path := range args {
				if bare(path) {
					parsed, err := readRepository(c.Context(), path)
					if err != nil {
						return err
					}
					all = append(all, parsed.Problems...)
					continue
				}
				problems, err := quotafile.Validate(path, policies.Builtin().Check)
				if err != nil {
					return exit{exitInvalid, err}
				}
				all = append(all, problems...)
				stale, err := staleTargets(path)
				if err != nil {
					return exit{exitInvalid, err}
				}
				all = append(all, stale...)
			}
			bad := 0
			for _, p := range all {
				if !p.Warning {
					bad++
				}
			}
			if out, _ := c.Flags().GetString("output"); out == "json" {
				if all == nil {
					all = []rlc.Problem{}
				}
				if err := writeJSON(c.OutOrStdout(), map[string]any{"problems": all}); err != nil {
					return err
				}
			} else {
				for _, p := range all {
					fmt.Fprintln(c.OutOrStdout(), p)
				}
			}
			if bad > 0 {
				return exit{exitInvalid, fmt.Errorf("%s, %s", rlc.Plural(bad, "error"), rlc.Plural(len(all)-bad, "warning"))}
			}
			fmt.Fprintf(c.ErrOrStderr(), "valid, %s\n", rlc.Plural(len(all), "warning"))
			return nil
		},
	}
	c.Flags().StringP("output", "o", "text", "text or json")
	return c
}

func backtestCommand() *cobra.Command {
	var csv, bucket, key, from, until string
	var rate float64
	var burst int64
	c := &cobra.Command{
		Use:   "backtest (--csv FILE | --service S --bucket B [--key K]) --rate N [--burst N]",
		Short: "What a limit would have dropped",
		Long: `Replays past traffic against a limit. With --csv no server is needed: the file
is timestamp_rfc3339,rps, each row the mean rate over the step that starts at its
timestamp; a missing row is a gap; --from and --until keep the steps that start
between them. With --service the running server replays the
history it has stored.

At one-minute steps the replay sees sustained excess, not bursts within a step.`,
		Example: "  rlc backtest --csv traffic.csv --rate 400\n  rlc backtest --service checkout --bucket callers --key caller=search --rate 400 -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("rate") {
				return exit{exitInvalid, errors.New("--rate is required: requests per second")}
			}
			if !c.Flags().Changed("burst") {
				burst = int64(max(1, math.Ceil(2*rate))) // as a computed quota has it
			}
			limit := rlc.Limit{Rate: rlc.Rate(rate), Burst: rlc.Burst(burst)}
			if err := limit.Valid(); err != nil {
				return exit{exitInvalid, err}
			}
			service, _ := c.Flags().GetString("service")
			var result rlc.Backtest
			switch {
			case csv != "" && service != "":
				return exit{exitInvalid, errors.New("give --csv or --service, not both")}
			case csv != "":
				var err error
				if result, err = backtestCSV(c.InOrStdin(), csv, from, until, limit); err != nil {
					return err
				}
			case service != "" && bucket != "":
				k, err := rlc.ParseKey(key)
				if err != nil {
					return exit{exitInvalid, err}
				}
				body := map[string]any{"service": service, "bucket": bucket, "key": k, "rate": rate, "burst": burst}
				for name, v := range map[string]string{"from": from, "until": until} {
					if v != "" {
						body[name] = v
					}
				}
				if err := dial(c).do(c.Context(), http.MethodPost, "/api/v1/backtest", nil, body, &result); err != nil {
					return err
				}
			default:
				return exit{exitInvalid, errors.New("give --csv FILE, or --service S with --bucket B")}
			}
			if out, _ := c.Flags().GetString("output"); out == "json" {
				if result.Episodes == nil {
					result.Episodes = []rlc.Episode{}
				}
				return writeJSON(c.OutOrStdout(), result)
			}
			return backtestText(c.OutOrStdout(), limit, result)
		},
	}
	serverFlags(c)
	c.Flags().StringVar(&csv, "csv", "", "file of timestamp_rfc3339,rps; - for standard input")
	c.Flags().String("service", "", "a service of the running server")
	c.Flags().StringVar(&bucket, "bucket", "", "its bucket")
	c.Flags().StringVar(&key, "key", "", "the bucket's key, e.g. caller=search")
	c.Flags().StringVar(&from, "from", "", "start of the window, RFC 3339; default: four weeks ago, of a file its first step")
	c.Flags().StringVar(&until, "until", "", "end of the window, RFC 3339; default: now, of a file its last step")
	c.Flags().Float64Var(&rate, "rate", 0, "the limit's rate, requests per second")
	c.Flags().Int64Var(&burst, "burst", 0, "requests admitted at one instant above the rate; default twice the rate")
	c.Flags().StringP("output", "o", "text", "text or json")
	return c
}

// backtestCSV replays the steps of a file that start in [from, until); "" is all of it.
func backtestCSV(stdin io.Reader, file, from, until string, limit rlc.Limit) (rlc.Backtest, error) {
	window, err := backtestWindow(from, until)
	if err != nil {
		return rlc.Backtest{}, err
	}
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return rlc.Backtest{}, exit{exitInvalid, err}
		}
		defer f.Close()
		in = f
	}
	step, start, values, err := backtest.ReadCSV(in)
	if err != nil {
		return rlc.Backtest{}, exit{exitInvalid, fmt.Errorf("%s: %w", file, err)}
	}
	first, last := start, start.Add(time.Duration(len(values)-1)*step)
	for len(values) > 0 && start.Before(window[0]) {
		start, values = start.Add(step), values[1:]
	}
	for len(values) > 0 && !window[1].IsZero() && !start.Add(time.Duration(len(values)-1)*step).Before(window[1]) {
		values = values[:len(values)-1]
	}
	if !slices.ContainsFunc(values, func(v float64) bool { return !math.IsNaN(v) }) {
		return rlc.Backtest{}, exit{exitInvalid, fmt.Errorf("%w: %s has no sample from --from to --until; it goes from %s to %s", rlc.ErrInvalid, file, first.Format(time.RFC3339), last.Format(time.RFC3339))}
	}
	return backtest.Replay(step, backtest.Samples(step, start, values), limit), nil
}

// backtestWindow reads the flags --from and --until, each of which may be "".
func backtestWindow(from, until string) (window [2]time.Time, err error) {
	for i, text := range []string{from, until} {
		if text == "" {
			continue
		}
		if window[i], err = time.Parse(time.RFC3339, text); err != nil {
			return window, exit{exitInvalid, fmt.Errorf("%w: --%s %q is no time; write it as 2026-01-02T15:04:05Z", rlc.ErrInvalid, []string{"from", "until"}[i], text)}
		}
	}
	if until != "" && !window[0].Before(window[1]) {
		return window, exit{exitInvalid, fmt.Errorf("%w: --from %s does not lie before --until %s", rlc.ErrInvalid, from, until)}
	}
	return window, nil
}

func backtestText(w io.Writer, limit rlc.Limit, b rlc.Backtest) error {
	least := ""
	if b.AtLeast {
		least = "at least "
	}
	fmt.Fprintf(w, "A limit of %s with a burst of %s would have dropped %s%s of %s requests (%s) in %s.\n",
		limitText(&limit), rlc.Number(limit.Burst), least, whole(b.Drops), whole(b.Requests), percent(float64(b.Share)), rlc.Plural(len(b.Episodes), "episode"))
	if b.Worst != nil {
		fmt.Fprintf(w, "Worst step: %s at %s.\n", b.Worst.At.UTC().Format(time.RFC3339), stat.RateText(b.Worst.Rate))
	}
	if t := policies.BurstText(&b); t != "" {
		fmt.Fprintln(w, t)
	}
	if len(b.Episodes) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(t, "FROM\tLASTED\tPEAK\tDROPPED\tSHARE")
	for _, e := range b.Episodes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", e.From.UTC().Format(time.RFC3339), rlc.DurationText(e.Until.Sub(e.From)), stat.RateText(e.Peak), whole(e.Drops), percent(float64(e.Share)))
	}
	return t.Flush()
}

func evaluateCommand() *cobra.Command {
	var e policies.Evaluation
	var params []string
	var out string
	var scored bool
	c := &cobra.Command{
		Use:   "evaluate --traces DIR --policy KIND --protocol weekly|daily [--param name=value] --out FILE [--score]",
		Short: "Walk-forward forecasts of a policy on recorded traces",
		Long: `Trains a policy on each origin's past and writes what it forecasts for the time
after it, as series,origin,timestamp,q50,q99: the bare estimate, without guards,
rounding or floor. DIR holds csv/ and origins_weekly.csv or origins_daily.csv.

--score measures the file against what came, beside the highest step × 1.2: over
all series, for each series, and with one series left out at a time. Historical
(with headroom 0.2) and predictive are held against their bars: the command fails
where one is missed that must be reached.`,
		Example: "  rlc evaluate --traces traces --policy historical --protocol weekly --param headroom=0.2 --out forecast.csv\n" +
			"  rlc evaluate --traces traces --policy predictive --protocol daily --out forecast.csv --score",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for flag, v := range map[string]string{"traces": e.Traces, "out": out} {
				if v == "" {
					return exit{exitInvalid, fmt.Errorf("--%s is required", flag)}
				}
			}
			e.Policy.Params = rlc.Params{}
			for _, p := range params {
				name, value, ok := strings.Cut(p, "=")
				if !ok {
					return exit{exitInvalid, fmt.Errorf("--param %q: want name=value", p)}
				}
				e.Policy.Params[name] = paramValue(value)
			}
			e.Progress = func(done, total int, series string) {
				fmt.Fprintf(c.ErrOrStderr(), "%d of %d: %s\n", done, total, series)
			}
			f, err := os.CreateTemp(dirOf(out), ".evaluate-*")
			if err != nil {
				return err
			}
			defer os.Remove(f.Name())
			if err := e.Write(c.Context(), f); err != nil {
				f.Close()
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
			if err := os.Rename(f.Name(), out); err != nil || !scored {
				return err
			}
			forecasts, err := score.ReadForecasts(os.DirFS(filepath.Dir(out)), filepath.Base(out))
			if err != nil {
				return err
			}
			methods, err := score.Score(os.DirFS(e.Traces), e.Protocol, e.Policy.Kind, forecasts)
			if err != nil {
				return err
			}
			if err := score.WriteTables(c.OutOrStdout(), e.Protocol, methods); err != nil || e.Published {
				return err
			}
			if e.Policy.Kind == "historical" && e.Policy.Params["headroom"] != 0.2 {
				return nil // its bars are those of that headroom
			}
			if err := score.WriteBars(c.OutOrStdout(), e.Policy.Kind, e.Protocol, methods); err != nil {
				return err
			}
			if missed := score.Missed(e.Policy.Kind, e.Protocol, methods); missed != nil {
				return errors.New(strings.Join(missed, "; "))
			}
			return nil
		},
	}
	c.Flags().StringVar(&e.Traces, "traces", "", "folder with csv/ and the origins")
	c.Flags().StringVar(&e.Policy.Kind, "policy", "historical", "the policy's kind")
	c.Flags().StringVar(&e.Protocol, "protocol", "weekly", "weekly or daily")
	c.Flags().StringArrayVar(&params, "param", nil, "a parameter of the policy, e.g. headroom=0.2; repeatable")
	c.Flags().StringVar(&out, "out", "", "file to write")
	c.Flags().BoolVar(&scored, "score", false, "score the file and print the tables")
	c.Flags().BoolVar(&e.Published, "published", false, "write the limits that a policy would publish, not the forecast behind them")
	return c
}

func paramValue(s string) any {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f
	}
	if b, err := strconv.ParseBool(s); err == nil {
		return b
	}
	return s
}

func dirOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i+1]
	}
	return "."
}
