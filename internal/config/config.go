// Package config holds the settings of an RLC server: what each one means, its
// default, and where its value may come from.
package config

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Server is the configuration of one RLC server. Every part that is not
// configured uses its embedded default, so the zero value with Data set is a
// whole product on one machine.
type Server struct {
	// Listen is the address of pages and API; default 127.0.0.1:8080. Port 0
	// takes a free one.
	Listen string
	// Data is the folder that holds everything the embedded parts keep: the
	// records, the history, the config repository, the enforcer's last good
	// snapshot. It is created. Required.
	Data string
	// Prometheus is the URL history is read from; default "": the embedded
	// store in Data/prometheus.
	Prometheus string
	// Retention is how long the embedded Prometheus store keeps samples;
	// default 40 days. It must exceed the longest lookback of a policy.
	Retention time.Duration
	// Repository is the path of the bare config repository; default
	// Data/config.git.
	Repository string
	// Branch is the base branch; default main.
	Branch string
	// Schedule is when runs fire, in cron's five fields, UTC; default
	// "17 * * * *": once an hour, off the full hour that everybody takes.
	Schedule string
	// RunDeadline bounds one run; default 30 minutes.
	RunDeadline time.Duration
	// Poll is how often the config repository is looked at; default 2 seconds.
	Poll time.Duration
	// Scrape is how often the embedded enforcer is scraped into the embedded
	// store; default 5 seconds.
	Scrape time.Duration
	// Token is what acting needs; default: made at the first start and kept
	// in Data/token, readable by the owner only.
	Token string
}

// Complete checks c and fills in the defaults. The error names the setting and
// the fix.
func (c *Server) Complete() error {
	if c.Data == "" {
		return fmt.Errorf("data: no folder given; give one with --data DIR")
	}
	abs, err := filepath.Abs(c.Data)
	if err != nil {
		return fmt.Errorf("data %q: %w", c.Data, err)
	}
	c.Data = abs
	text := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	span := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	text(&c.Listen, "127.0.0.1:8080")
	text(&c.Repository, filepath.Join(c.Data, "config.git"))
	text(&c.Branch, "main")
	text(&c.Schedule, "17 * * * *")
	span(&c.Retention, 40*24*time.Hour)
	span(&c.RunDeadline, 30*time.Minute)
	span(&c.Poll, 2*time.Second)
	span(&c.Scrape, 5*time.Second)
	if c.Prometheus != "" {
		u, err := url.Parse(c.Prometheus)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("prometheus %q: want http://host:port or https://host:port", c.Prometheus)
		}
	}
	return nil
}

// Env returns the value of the environment variable RLC_<NAME>, or of the file
// that RLC_<NAME>_FILE names (for secrets), or fallback. Name is a flag's name:
// "run-deadline" reads RLC_RUN_DEADLINE.
func Env(name, fallback string) (string, error) {
	key := "RLC_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if v, ok := os.LookupEnv(key); ok {
		return v, nil
	}
	if file, ok := os.LookupEnv(key + "_FILE"); ok {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("%s_FILE: %w", key, err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	return fallback, nil
}
