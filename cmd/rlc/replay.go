package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/quotafile"
)

// replayAnswer is what POST /api/v1/replay answers, as far as the table needs.
type replayAnswer struct {
	From     time.Time `json:"from"`
	Unseen   []string  `json:"unseen"` // quotas of keys without traffic
	Until    time.Time `json:"until"`
	Step     float64   `json:"step_seconds"`
	Offered  float64   `json:"offered"`
	Refused  float64   `json:"refused"`
	Share    float64   `json:"share"`
	Highest  *rlc.Peak `json:"highest_admitted"`
	Capacity *float64  `json:"capacity"`
	Callers  []struct {
		Bucket  string     `json:"bucket"`
		Key     rlc.Key    `json:"key"`
		Offered float64    `json:"offered"`
		Refused float64    `json:"refused"`
		Share   float64    `json:"share"`
		Quota   float64    `json:"by_quota"`
		Caps    float64    `json:"by_caps"`
		First   *time.Time `json:"first"`
	} `json:"callers"`
}

func replayCommand() *cobra.Command {
	var from, until, quotas string
	c := &cobra.Command{
		Use:   "replay SERVICE [--from T] [--until T] [--quotas FILE]",
		Short: "All callers of a service together against all its buckets",
		Long: `Replays the stored traffic of all callers of a service together against all its
quotas and caps, each as if it enforced: who would have been refused, when, and
how much would have been admitted beside the capacity. A quota with hours is
replayed against the rate of the same hour of the week. --quotas takes the numbers
of a quotas.yaml in place of those in force. Nothing is changed.`,
		Example: "  rlc replay checkout --from 2026-11-24T00:00:00Z --until 2026-11-25T00:00:00Z\n  rlc replay checkout --quotas services/checkout/quotas.yaml -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			service, _ := c.Flags().GetString("service")
			switch {
			case len(args) == 1 && service != "" && service != args[0]:
				return exit{exitInvalid, errors.New("name one service: " + args[0] + " or --service " + service)}
			case len(args) == 1:
				service = args[0]
			case service == "":
				return exit{exitInvalid, errors.New("name a service: rlc replay SERVICE")}
			}
			body := map[string]any{"service": service}
			for name, v := range map[string]string{"from": from, "until": until} {
				if v != "" {
					body[name] = v
				}
			}
			if quotas != "" {
				all, err := readQuotas(service, quotas)
				if err != nil {
					return err
				}
				body["quotas"], body["unseen"] = all, true
			}
			out, _ := c.Flags().GetString("output")
			var raw any
			var result replayAnswer
			into := any(&result)
			if out == "json" {
				into = &raw
			}
			if err := dial(c).do(c.Context(), http.MethodPost, "/api/v1/replay", nil, body, into); err != nil {
				return err
			}
			if out == "json" {
				return writeJSON(c.OutOrStdout(), raw)
			}
			for _, id := range result.Unseen {
				fmt.Fprintf(c.ErrOrStderr(), "warning: %s has had no traffic of %s: its quota counts nothing here\n", service, id)
			}
			return replayText(c.OutOrStdout(), result)
		},
	}
	serverFlags(c)
	c.Flags().String("service", "", "the same as SERVICE")
	c.Flags().StringVar(&from, "from", "", "start of the window, RFC 3339; default: a day before its end")
	c.Flags().StringVar(&until, "until", "", "end of the window, RFC 3339; default: now")
	c.Flags().StringVar(&quotas, "quotas", "", "a quotas.yaml whose numbers stand in for those in force")
	c.Flags().StringP("output", "o", "table", "table or json")
	return c
}

// readQuotas reads the numbers of a quotas.yaml.
func readQuotas(service, file string) ([]map[string]any, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, exit{exitInvalid, err}
	}
	path := quotafile.QuotasPath(service)
	parsed := quotafile.Parse(rlc.Files{path: b}, nil)
	for _, p := range parsed.Broken[service] {
		if !p.Warning && p.File == path {
			p.File = file
			return nil, exit{exitInvalid, errors.New(p.String())}
		}
	}
	all := []map[string]any{}
	for _, q := range parsed.Quotas[service] {
		key := q.Key
		if key == nil {
			key = rlc.Key{}
		}
		one := map[string]any{"bucket": q.Bucket, "key": key, "rate": q.Rate, "burst": q.Burst}
		if q.Hours != nil {
			one["hours"] = q.Hours
		}
		if len(q.Windows) > 0 {
			one["windows"] = q.Windows
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, exit{exitInvalid, fmt.Errorf("%s holds no quota of %s", file, service)}
	}
	return all, nil
}

func replayText(w io.Writer, r replayAnswer) error {
	fmt.Fprintf(w, "From %s to %s: %s of %s requests (%s) would have been refused.\n", r.From.UTC().Format(time.RFC3339), r.Until.UTC().Format(time.RFC3339), whole(r.Refused), whole(r.Offered), percent(r.Share))
	if r.Highest != nil {
		fmt.Fprintf(w, "At most %s are admitted together, at %s", stat.RateText(r.Highest.Rate), r.Highest.At.UTC().Format(time.RFC3339))
		if r.Capacity != nil && *r.Capacity > 0 {
			fmt.Fprintf(w, ": %s of the capacity of %s/s", percent(float64(r.Highest.Rate) / *r.Capacity), rlc.Number(*r.Capacity))
		}
		fmt.Fprintln(w, ".")
	}
	fmt.Fprintf(w, "Steps of %s s: shorter bursts are not visible.\n", rlc.Number(r.Step))
	t := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(t, "QUOTA\tOFFERED\tREFUSED\tSHARE\tBY QUOTA\tBY CAPS\tFIRST")
	for _, c := range r.Callers {
		first := "—"
		if c.First != nil {
			first = c.First.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", rlc.QuotaID(c.Bucket, c.Key), whole(c.Offered), whole(c.Refused), percent(c.Share), whole(c.Quota), whole(c.Caps), first)
	}
	return t.Flush()
}
