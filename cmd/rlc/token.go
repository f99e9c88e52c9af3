package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// tokenAnswer is an API token as the API shows it.
type tokenAnswer struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Role     string     `json:"role"`
	Services []string   `json:"services"`
	State    string     `json:"state"`
	Created  time.Time  `json:"created_at"`
	Expires  time.Time  `json:"expires_at"`
	Used     *time.Time `json:"last_used_at"`
	Token    string     `json:"token,omitempty"`
}

func tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke API tokens",
		Long: `API tokens are for programs. Each has a role, ends by itself, and may be bound
to services. The server keeps only a token's SHA-256: it is shown once, when it
is made. All need an admin's token, and once the server's own.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, sub := range []*cobra.Command{tokenCreateCommand(), tokenListCommand(), tokenRevokeCommand(), tokenOnceCommand()} {
		serverFlags(sub)
		fromEnvironment(sub)
		wrapArgs(sub)
		c.AddCommand(sub)
	}
	return c
}

func tokenCreateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "create NAME",
		Short:   "Make a token and print it, once",
		Example: "  rlc token create cron --role bot\n  rlc token create checkout-ci --role owner --services checkout --ttl 30d",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			role, _ := c.Flags().GetString("role")
			services, _ := c.Flags().GetStringSlice("services")
			ttl, _ := c.Flags().GetDuration("ttl")
			body := map[string]any{"name": args[0], "role": role, "ttl_seconds": ttl.Seconds()}
			if len(services) > 0 {
				body["services"] = services
			}
			var made tokenAnswer
			if err := dial(c).do(c.Context(), http.MethodPost, "/api/v1/tokens", nil, body, &made); err != nil {
				return inFlags(err)
			}
			if out, _ := c.Flags().GetString("output"); out == "json" {
				return writeJSON(c.OutOrStdout(), made)
			}
			fmt.Fprintf(c.ErrOrStderr(), "token %s, %s, until %s; it is not shown again:\n", made.ID, made.Role, made.Expires.Format(time.RFC3339))
			fmt.Fprintln(c.OutOrStdout(), made.Token)
			return nil
		},
	}
	c.Flags().String("role", "viewer", "viewer, bot (reads and starts runs), owner (of --services), oncall or admin")
	c.Flags().StringSlice("services", nil, "bind the token to these services")
	durationFlag(c, "ttl", 90*24*time.Hour, "how long it is valid, 1m to 366d")
	c.Flags().StringP("output", "o", "text", "text or json")
	return c
}

func tokenListCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List tokens, the newest first",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var all struct {
				Tokens []tokenAnswer `json:"tokens"`
			}
			if err := dial(c).do(c.Context(), http.MethodGet, "/api/v1/tokens", url.Values{"per_page": {"1000"}}, nil, &all); err != nil {
				return err
			}
			if out, _ := c.Flags().GetString("output"); out == "json" {
				return writeJSON(c.OutOrStdout(), all.Tokens)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tNAME\tROLE\tSERVICES\tSTATE\tEXPIRES\tLAST USED")
			for _, t := range all.Tokens {
				used, services := "never", "all"
				if t.Used != nil {
					used = t.Used.Format(time.RFC3339)
				}
				if len(t.Services) > 0 {
					services = strings.Join(t.Services, ",")
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Name, t.Role, services, t.State, t.Expires.Format(time.RFC3339), used)
			}
			return w.Flush()
		},
	}
	c.Flags().StringP("output", "o", "text", "text or json")
	return c
}

func tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "End a token at once, for good",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := dial(c).do(c.Context(), http.MethodDelete, "/api/v1/tokens/"+url.PathEscape(args[0]), nil, nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "token %s is revoked\n", args[0])
			return nil
		},
	}
}

func tokenOnceCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "once NAME",
		Short: "Print a code that signs NAME in at the browser, once",
		Long: `For setting a server up, and for incidents: the code does in the form at /login
what the server's own token does, once, within ten minutes, so that the token
stays where it is. What the session does stands under NAME in the history.`,
		Example: "  rlc token once \"Ana Lima\" --data /var/lib/rlc",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var made struct {
				Code    string    `json:"code"`
				Name    string    `json:"name"`
				Expires time.Time `json:"expires_at"`
			}
			cl := dial(c)
			if err := cl.do(c.Context(), http.MethodPost, "/api/v1/sign-in-codes", nil, map[string]any{"name": args[0]}, &made); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "signs %s in once, until %s, at %s/login:\n", made.Name, made.Expires.Format(time.RFC3339), cl.server)
			fmt.Fprintln(c.OutOrStdout(), made.Code)
			return nil
		},
	}
}
