package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
)

func rollbackCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rollback SERVICE",
		Short: "Take a service back to what an earlier revision said",
		Long: `Asks the running server for a new version of a service that says what an
earlier one said: the one before the newest, or --to. What would change is
printed first; with --diff nothing is changed. Numbers that go are pinned: no run
proposes them again until somebody lifts the pin, or the estimate is more than
twice the deadband away. A rollback never enforces what is in shadow; exit code 4
says that this, or another guard, refuses.`,
		Example: "  rlc rollback checkout --reason \"web is refused since 14:00\"\n  rlc rollback checkout --to 1a2b3c4d --diff",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			to, _ := c.Flags().GetString("to")
			reason, _ := c.Flags().GetString("reason")
			only, _ := c.Flags().GetBool("diff")
			if strings.TrimSpace(reason) == "" && !only {
				return exit{exitInvalid, fmt.Errorf("--reason is required: the history shows it")}
			}
			cl := dial(c)
			var h struct {
				Diff struct {
					Differences []difference `json:"differences"`
					Policy      []any        `json:"policy"` // lines of policy.yaml
				} `json:"diff"`
			}
			query := map[string][]string{}
			if to != "" {
				query["from"] = []string{to}
			}
			if err := cl.do(c.Context(), http.MethodGet, servicePath(args[0])+"/history", query, nil, &h); err != nil {
				return err
			}
			if len(h.Diff.Differences) == 0 {
				what := "nothing differs"
				if len(h.Diff.Policy) > 0 {
					what = "no limit and no mode differs; policy.yaml does: " + cl.server + "/services/" + url.PathEscape(args[0]) + "/history shows its lines"
				}
				fmt.Fprintln(c.OutOrStdout(), what)
			}
			gone := 0
			for _, d := range h.Diff.Differences {
				fmt.Fprintln(c.OutOrStdout(), d.back())
				if d.Old == nil && d.New != nil {
					gone++
				}
			}
			if gone > 0 {
				fmt.Fprintf(c.ErrOrStderr(), "warning: %s would be gone: what they match would run without a limit\n", rlc.Plural(gone, "quota"))
			}
			if only {
				return nil
			}
			var done struct {
				Commit   string `json:"commit"`
				Snapshot string `json:"snapshot"`
			}
			if err := cl.do(c.Context(), http.MethodPost, servicePath(args[0])+"/rollback", nil, map[string]any{"to": to, "reason": reason}, &done); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "rolled back: snapshot %s, commit %s\n", done.Snapshot, done.Commit)
			return nil
		},
	}
	serverFlags(c)
	c.Flags().String("to", "", "the revision, by at least six characters of its commit; the one before the newest by default")
	c.Flags().String("reason", "", "why; required")
	c.Flags().Bool("diff", false, "only print what would change")
	return c
}

// difference is what two revisions differ in.
type difference struct {
	Quota   string     `json:"quota"`
	What    string     `json:"what"`
	Old     *rlc.Limit `json:"old"`
	New     *rlc.Limit `json:"new"`
	OldMode string     `json:"old_mode"`
	NewMode string     `json:"new_mode"`
	OldText string     `json:"old_text"`
	NewText string     `json:"new_text"`
}

// back is the difference as a rollback undoes it.
func (d difference) back() string {
	side := func(l *rlc.Limit, mode, text string) string {
		if l == nil && text != "" {
			return text
		}
		if d.What == "mode" || l == nil {
			if mode == "" {
				return "nothing"
			}
			return mode
		}
		return strings.TrimSuffix(strings.TrimSpace(fmt.Sprintf("%s burst %s %s", limitText(l), rlc.Number(l.Burst), mode))+"; "+text, "; ")
	}
	return fmt.Sprintf("%s: %s → %s", d.Quota, side(d.New, d.NewMode, d.NewText), side(d.Old, d.OldMode, d.OldText))
}
