package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
)

// whyAnswer is what GET /api/v1/why answers, as far as the text needs.
type whyAnswer struct {
	Bucket *string    `json:"bucket"`
	Key    rlc.Key    `json:"key"`
	Quota  *whyLimit  `json:"quota"`
	Caps   []whyLimit `json:"caps"`
	// Overrides stand for the request; the first decides where Overridden.
	Overrides []struct {
		rlc.Override
		Expires time.Time `json:"expires_at"`
	} `json:"overrides"`
	Overridden bool `json:"overridden"`
	// Meant is the caller that was probably meant where nothing names the one asked about.
	Meant  *string `json:"did_you_mean"`
	Others []struct {
		Bucket string `json:"bucket"`
		Reason string `json:"reason"`
	} `json:"others"`
}

type whyLimit struct {
	Bucket  string     `json:"bucket"`
	Key     rlc.Key    `json:"key"`
	Mode    rlc.Mode   `json:"mode"`
	Live    *rlc.Limit `json:"live"`
	Desired *rlc.Limit `json:"desired"`
	Why     string     `json:"why"`
}

func whyCommand() *cobra.Command {
	var caller, procedure string
	c := &cobra.Command{
		Use:     "why SERVICE [--caller C] [--procedure P]",
		Short:   "Which bucket limits a request, and why the others do not",
		Example: "  rlc why checkout --caller search\n  rlc why checkout --caller mobile-gateway --procedure Create -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			q := url.Values{"service": {args[0]}}
			for name, v := range map[string]string{"caller": caller, "procedure": procedure} {
				if v != "" {
					q.Set(name, v)
				}
			}
			out, _ := c.Flags().GetString("output")
			var raw any
			var why whyAnswer
			into := any(&why)
			if out == "json" {
				into = &raw
			}
			if err := dial(c).do(c.Context(), http.MethodGet, "/api/v1/why", q, nil, into); err != nil {
				return err
			}
			if out == "json" {
				return writeJSON(c.OutOrStdout(), raw)
			}
			whyText(c.OutOrStdout(), why)
			return nil
		},
	}
	serverFlags(c)
	c.Flags().StringVar(&caller, "caller", "", "who calls")
	c.Flags().StringVar(&procedure, "procedure", "", "what is called")
	c.Flags().StringP("output", "o", "text", "text or json")
	return c
}

func whyText(w io.Writer, a whyAnswer) {
	if a.Meant != nil {
		fmt.Fprintf(w, "No quota and no counted request names this caller; did you mean %s?\n", *a.Meant)
	}
	for i, o := range a.Overrides {
		lead := "Beside it"
		switch {
		case i == 0 && a.Overridden:
			lead = "Decided by an override"
		case i == 0:
			lead = "All to shadow is on, no override is applied; else decided by"
		}
		fmt.Fprintf(w, "%s: %s %s until %s, set by %s", lead, o.Subject(), o.Does(), o.Expires.Format(time.RFC3339), o.Actor)
		if o.Reason != "" {
			fmt.Fprintf(w, ": %s", o.Reason)
		}
		fmt.Fprintln(w)
	}
	if a.Bucket == nil || a.Quota == nil {
		fmt.Fprintln(w, "No quota bucket matches this request.")
	} else {
		fmt.Fprintf(w, "Charged to %s.\n", a.Quota.text())
	}
	for _, c := range a.Caps {
		fmt.Fprintf(w, "Capped by %s.\n", c.text())
	}
	for _, o := range a.Others {
		fmt.Fprintf(w, "Not %s: %s\n", o.Bucket, o.Reason)
	}
}

func (l whyLimit) text() string {
	limit := l.Live
	if limit == nil {
		limit = l.Desired
	}
	text := rlc.QuotaID(l.Bucket, l.Key)
	if limit == nil {
		return text + ", which has no limit yet"
	}
	text += fmt.Sprintf(": %s, burst %s, %s", limitText(limit), rlc.Number(limit.Burst), l.Mode)
	if l.Why != "" {
		text += " (" + l.Why + ")"
	}
	return text
}
