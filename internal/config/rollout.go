package config

import (
	"fmt"
	"time"
)

// Rollout says what takes a bucket from shadow to enforce, and what stops it.
type Rollout struct {
	MinShadow time.Duration
	Soak      time.Duration
	Factor    int
	MinDrops  int
}

// Notify says who is told, by webhook.
type Notify struct {
	SlackFile   string // "": none
	WebhookFile string // "": none
	SecretFile  string // "": bodies are not signed
	Hosts       string // separated by commas; "": any
	Networks    string // CIDRs, separated by commas
	Digest      time.Duration
}

func rolloutKeys() []Key {
	return []Key{{
		Name: "rollout.min_shadow", Default: "7d", field: func(c *Server) any { return &c.Rollout.MinShadow }, min: time.Second, max: 90 * 24 * time.Hour,
		Means:       "How long a bucket must have been in shadow before it may enforce.",
		Consequence: "The checklist of a promotion counts from the commit that brought the bucket into shadow. Less than a week has not seen a weekend.",
	}, {
		Name: "rollout.soak", Default: "30m", field: func(c *Server) any { return &c.Rollout.Soak }, min: time.Second, max: 7 * 24 * time.Hour,
		Means:       "How long each zone enforces before the next one does, and how long after a merge drops are held to the backtest.",
		Consequence: "A promotion over three zones takes at least three of it. No counter at its end halts the promotion.",
	}, {
		Name: "rollout.factor", Default: "3", field: func(c *Server) any { return &c.Rollout.Factor },
		Means:       "Above how many times the backtest's drops a promotion or a merged quota is rolled back by itself.",
		Consequence: "Lower stops earlier, and sometimes for nothing.",
		check:       func(c *Server) error { return from1(c.Rollout.Factor, 1000) },
	}, {
		Name: "rollout.min_drops", Default: "100", field: func(c *Server) any { return &c.Rollout.MinDrops },
		Means:       "Fewer drops than these never roll anything back.",
		Consequence: "Quotas with little traffic are judged later.",
		check:       func(c *Server) error { return from1(c.Rollout.MinDrops, 1_000_000_000) },
	}, {
		Name: "notify.slack_file", Unset: "none", Example: "/run/secrets/slack-webhook", field: func(c *Server) any { return &c.Notify.SlackFile }, private: true,
		Means:       "File with the URL of an incoming webhook of Slack, or of what takes the same.",
		Consequence: "Overrides, halts and real drops are told at once, the rest in a digest. The file is read for each message.",
		check:       func(c *Server) error { return readable(c.Notify.SlackFile) },
	}, {
		Name: "notify.webhook_file", Unset: "none", Example: "/run/secrets/notify-webhook", field: func(c *Server) any { return &c.Notify.WebhookFile }, private: true,
		Means:       "File with the URL that gets the same as JSON.",
		Consequence: "https, or http on this machine; redirects are not followed. The file is read for each message.",
		check:       func(c *Server) error { return readable(c.Notify.WebhookFile) },
	}, {
		Name: "notify.secret_file", Unset: "bodies are not signed", Example: "/run/secrets/notify-secret", field: func(c *Server) any { return &c.Notify.SecretFile }, private: true,
		Means:       "File with the secret that signs those JSON bodies, in one line.",
		Consequence: "X-RLC-Signature is HMAC-SHA256 of the time, a dot and the body: a receiver can tell who sent it.",
		check: func(c *Server) error {
			return firstOf(readable(c.Notify.SecretFile), together(c.Notify.SecretFile, c.Notify.WebhookFile, "notify.webhook_file"))
		},
	}, {
		Name: "notify.hosts", Unset: "any", Example: "hooks.slack.com", field: func(c *Server) any { return &c.Notify.Hosts },
		Means:       "Hosts that these URLs may name, separated by commas.",
		Consequence: "A URL that names another is not called; the notice waits.",
	}, {
		Name: "notify.networks", Unset: "any but link-local ones; this machine only where the URL says so", Example: "10.0.0.0/8", field: func(c *Server) any { return &c.Notify.Networks },
		Means:       "The only addresses that these hosts may lead to, separated by commas.",
		Consequence: "The address is looked at with every connection, after the name was resolved.",
		check:       func(c *Server) error { return networks(c.Notify.Networks) },
	}, {
		Name: "notify.digest", Default: "1h", field: func(c *Server) any { return &c.Notify.Digest }, min: time.Second, max: 7 * 24 * time.Hour,
		Means:       "How long notices that can wait are gathered into one message.",
		Consequence: "Owners of callers hear of a tightening after at most so long: keep it below the time in which you merge.",
	}}
}

func from1(n, most int) error {
	if n < 1 || n > most {
		return fmt.Errorf("%d: want 1 to %d", n, most)
	}
	return nil
}
