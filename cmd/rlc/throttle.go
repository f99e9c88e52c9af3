package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
)

// overrideAnswer is an override as the API shows it.
type overrideAnswer struct {
	ID      string    `json:"id"`
	Service string    `json:"service"`
	Expires time.Time `json:"expires_at"`
	Warning string    `json:"warning"` // that nothing is known by the name it is for; a dry run's, too
	Says    string    `json:"says"`    // what it does to the traffic of now; a dry run's, too
}

// matchOf reads --caller, --procedure and --match.
func matchOf(c *cobra.Command) (map[string][]string, error) {
	match := map[string][]string{}
	for _, name := range []string{"caller", "procedure"} {
		if v, _ := c.Flags().GetString(name); v != "" {
			match[name] = []string{v}
		}
	}
	pairs, _ := c.Flags().GetStringArray("match")
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" || value == "" {
			return nil, exit{exitInvalid, fmt.Errorf("--match %q: want name=value, name=prefix* or name=a,b", pair)}
		}
		if _, twice := match[name]; twice {
			return nil, exit{exitInvalid, fmt.Errorf("%s is given twice: one request has one; write --match %s=a,b for either of two", name, name)}
		}
		match[name] = strings.Split(value, ",")
	}
	return match, nil
}

// overrideOf is the body that a command's flags make.
func overrideOf(c *cobra.Command, service string) (map[string]any, error) {
	match, err := matchOf(c)
	if err != nil {
		return nil, err
	}
	ttl, _ := c.Flags().GetDuration("ttl")
	reason, _ := c.Flags().GetString("reason")
	if ttl <= 0 || reason == "" {
		return nil, exit{exitInvalid, fmt.Errorf("--ttl and --reason are required: an override ends by itself, and says why it stands")}
	}
	body := map[string]any{"service": service, "match": match, "ttl_seconds": ttl.Seconds(), "reason": reason}
	var chosen []string
	for _, name := range []string{"rate", "drop", "block", "lift"} {
		if c.Flags().Changed(name) {
			chosen = append(chosen, name)
		}
	}
	if len(chosen) != 1 {
		return nil, exit{exitInvalid, fmt.Errorf("say one of --rate, --drop, --block and --lift")}
	}
	action := chosen[0]
	if f := c.Flags().Lookup(action); f.Value.String() == "false" {
		return nil, exit{exitInvalid, fmt.Errorf("--%s=false does nothing; say one of --rate, --drop, --block and --lift", action)}
	}
	if action != "rate" && c.Flags().Changed("burst") {
		return nil, exit{exitInvalid, fmt.Errorf("--burst stands beside --rate, not beside --%s", action)}
	}
	switch action {
	case "rate":
		rate, _ := c.Flags().GetFloat64("rate")
		burst, _ := c.Flags().GetInt64("burst")
		if !(rate >= 0 && rate <= rlc.MaxRate) { // NaN is neither, and JSON has none
			return nil, exit{exitInvalid, fmt.Errorf("rate %s is outside 0 to %s", rlc.Number(rate), rlc.Number(rlc.MaxRate))}
		}
		if burst < 0 {
			return nil, exit{exitInvalid, fmt.Errorf("burst %s is outside 0 to %s", rlc.Number(burst), rlc.Number(rlc.MaxRate))}
		}
		action, body["rate"] = "limit", rate
		if burst > 0 {
			body["burst"] = burst
		}
	case "drop":
		share, _ := c.Flags().GetFloat64("drop")
		if !(share >= 0 && share <= 1) {
			return nil, exit{exitInvalid, fmt.Errorf("--drop %s is outside 0 to 0.999", rlc.Number(share))}
		}
		body["drop_ratio"] = share
	}
	body["action"] = action
	return body, nil
}

// inFlags is a server's error about a body that flags made, in their names.
func inFlags(err error) error {
	var e exit
	if !errors.As(err, &e) || e.err == nil {
		return err
	}
	flags := strings.NewReplacer("ttl_seconds", "--ttl", "drop_ratio", "--drop")
	return exit{e.code, errors.New(flags.Replace(e.err.Error()))}
}

func throttleCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "throttle SERVICE",
		Short: "Put an emergency limit in force, for a while",
		Long: `Limits, thins out, blocks or lifts what a service is sent, until a fixed time: in
the enforcers within seconds, without a commit; those that follow a folder hear of
none. It works while git, Prometheus
and the database are away. "*" is every service. --dry-run only says what it
would do. "rlc lift ID" ends it.`,
		Example: "  rlc throttle geo --caller trip-planner --rate 500 --ttl 30m --reason \"INC-947 retry storm\"\n  rlc throttle geo --match 'tenant=acme*' --drop 0.4 --ttl 1h --reason INC-947\n  rlc throttle geo --caller trip-planner --block --ttl 15m --reason INC-947",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			body, err := overrideOf(c, args[0])
			if err != nil {
				return err
			}
			query := url.Values{}
			dry, _ := c.Flags().GetBool("dry-run")
			if dry {
				query.Set("preview", "true")
			}
			var out json.RawMessage
			if err := dial(c).do(c.Context(), http.MethodPost, "/api/v1/overrides", query, body, &out); err != nil {
				return inFlags(err)
			}
			var o overrideAnswer
			if err := json.Unmarshal(out, &o); err != nil {
				return err
			}
			if o.Warning != "" {
				fmt.Fprintln(c.ErrOrStderr(), "warning: "+o.Warning)
			}
			if format, _ := c.Flags().GetString("output"); format == "json" {
				return writeJSON(c.OutOrStdout(), out)
			}
			if !dry {
				fmt.Fprintf(c.OutOrStdout(), "%s until %s; end it with: rlc lift %s\n", o.ID, o.Expires.Format(time.RFC3339), o.ID)
			}
			if o.Says != "" {
				fmt.Fprintln(c.OutOrStdout(), o.Says)
			}
			return nil
		},
	}
	f := c.Flags()
	f.String("caller", "", "only this caller, or prefix*")
	f.String("procedure", "", "only this procedure, or prefix*")
	f.StringArray("match", nil, "any attribute: name=value, name=prefix*, name=a,b or name=absent; may be given again")
	f.Float64("rate", 0, "hold it to so many requests per second")
	f.Int64("burst", 0, "beside --rate: requests at one instant; one second of the rate without it")
	f.Float64("drop", 0, "drop this share at random, 0 to 0.999")
	f.Bool("block", false, "drop all")
	f.Bool("lift", false, "drop nothing that a quota would")
	durationFlag(c, "ttl", 0, "for how long, at most 7d; required")
	f.String("reason", "", "why; required")
	f.Bool("dry-run", false, "only say what it would do")
	f.StringP("output", "o", "", "json")
	serverFlags(c)
	return c
}

func liftCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "lift [ID]",
		Short: "End an override now; without an id, list those that stand",
		Long: `Ends an override before its time: requests above their old limit come back over
its ramp. Without an id it lists those that stand, and says so where none does;
that is no error. An id that stands no more is: exit code 3 where there is none
of it, 4 where it is over.`,
		Example: "  rlc lift\n  rlc lift override-1f2e3d4c5b6a",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				var o overrideAnswer
				if err := dial(c).do(c.Context(), http.MethodDelete, "/api/v1/overrides/"+url.PathEscape(args[0]), nil, nil, &o); err != nil {
					return err
				}
				if o.Warning != "" { // enforcers that do not hear of it go on
					fmt.Fprintln(c.ErrOrStderr(), "warning: "+o.Warning)
				}
				fmt.Fprintf(c.OutOrStdout(), "%s ended\n", o.ID)
				return nil
			}
			var out struct {
				Overrides []struct {
					rlc.Override
					Expires time.Time `json:"expires_at"`
					State   string    `json:"state"`
					Did     string    `json:"did_says"`
				} `json:"overrides"`
			}
			if err := dial(c).do(c.Context(), http.MethodGet, "/api/v1/overrides", nil, nil, &out); err != nil {
				return err
			}
			if len(out.Overrides) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no override stands")
			}
			for _, o := range out.Overrides {
				fmt.Fprintf(c.OutOrStdout(), "%s  %s %s until %s (%s) by %s: %s\n", o.ID, o.Subject(), o.Does(), o.Expires.Format(time.RFC3339), o.State, o.Actor, o.Reason)
				if o.Did != "" {
					fmt.Fprintln(c.OutOrStdout(), "    "+o.Did)
				}
			}
			return nil
		},
	}
	serverFlags(c)
	return c
}

func switchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "switch [stop-automation|all-to-shadow on|off]",
		Short: "Throw a kill switch, or let go of it; without arguments, say how they stand",
		Long: `stop-automation: nothing is computed, published, merged or distributed any more.
all-to-shadow: no enforcer drops anything. Both work while git, Prometheus and
the database are away; where the server itself does not answer, write the name
into the file "kill" in its data folder, or send it SIGUSR1 (stop-automation) or
SIGUSR2 (all-to-shadow).`,
		Example: "  rlc switch\n  rlc switch all-to-shadow on --reason INC-947\n  rlc switch all-to-shadow off --reason \"INC-947 is over\"",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var out struct {
				Switches []struct {
					Name   string `json:"name"`
					On     bool   `json:"on"`
					Actor  string `json:"actor"`
					Reason string `json:"reason"`
				} `json:"switches"`
				Warning string `json:"warning"`
			}
			method, path, body := http.MethodGet, "/api/v1/switches", map[string]any(nil)
			if len(args) > 0 {
				reason, _ := c.Flags().GetString("reason")
				if err := switchNamed(args[0]); err != nil {
					return err
				}
				if len(args) != 2 || args[1] != "on" && args[1] != "off" || reason == "" {
					return exit{exitInvalid, fmt.Errorf("say which switch, on or off, and --reason")}
				}
				method, path, body = http.MethodPost, path+"/"+url.PathEscape(args[0]), map[string]any{"on": args[1] == "on", "reason": reason}
			}
			var in any
			if body != nil {
				in = body
			}
			if err := dial(c).do(c.Context(), method, path, nil, in, &out); err != nil {
				return err
			}
			if out.Warning != "" {
				fmt.Fprintln(c.ErrOrStderr(), "warning: "+out.Warning)
			}
			for _, s := range out.Switches {
				state := "off"
				if s.On {
					state = fmt.Sprintf("on, by %s: %s", s.Actor, s.Reason)
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", s.Name, state)
			}
			return nil
		},
	}
	c.Flags().String("reason", "", "why; required to change one")
	serverFlags(c)
	return c
}

// switchNamed refuses a name that is no kill switch's.
func switchNamed(name string) error {
	all := []string{rlc.StopAutomation, rlc.AllToShadow}
	if slices.Contains(all, name) {
		return nil
	}
	return exit{exitInvalid, fmt.Errorf("there is no switch %q: want %s", name, strings.Join(all, " or "))}
}
