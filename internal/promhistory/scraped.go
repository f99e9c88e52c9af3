package promhistory

import (
	"context"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
)

// scrapeConfig has a Prometheus scrape enforcers.
const scrapeConfig = `scrape_configs:
  - job_name: rlc-enforcer
    static_configs:
      - targets: ["enforcer-1:8082"] # each enforcer's --http address; the path is /metrics
`

// Scraped looks whether the counters of any enforcer came in within the hour before
// now. Without them quotas are computed all the same, but what is dropped, what
// shadow would drop and what an override does are not known.
func (r *Reader) Scraped(ctx context.Context, now time.Time) (Finding, error) {
	v, err := r.instant(ctx, `count(last_over_time(rlc_enforcer_snapshot_version[1h]))`, now)
	if err != nil {
		return Finding{}, fmt.Errorf("look for enforcers: %w", err)
	}
	if len(v) == 0 {
		return Finding{"enforcers", Warn, "no enforcer was scraped in the last hour: pages and previews know nothing of what is dropped, or would be", scrapeConfig}, nil
	}
	return Finding{"enforcers", OK, rlc.Plural(int(v[0].Value), "enforcer") + " scraped in the last hour", ""}, nil
}
