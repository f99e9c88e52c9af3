package promhistory

import (
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/promserver"
)

func TestWhetherEnforcersAreScrapedIsSaid(t *testing.T) {
	w := newWorld(t, nil)
	at := func() Finding {
		f, err := w.reader.Scraped(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	w.fill(rates(now.Add(-day), now, always(3), "client", "a"))
	if f := at(); f.Check != "enforcers" || f.Level != Warn || !strings.Contains(f.Fix, "scrape_configs:") {
		t.Errorf("none: %+v", f)
	}
	version := func(instance string, until time.Time) promserver.LabelledSeries {
		return metric("rlc_enforcer_snapshot_version", now.Add(-4*time.Hour), until, always(7), "instance", instance)
	}
	w.fill(version("a:8082", now), version("b:8082", now.Add(-time.Minute)), version("gone:8082", now.Add(-2*time.Hour)))
	if f, want := at(), (Finding{Check: "enforcers", Level: OK, Text: "2 enforcers scraped in the last hour"}); f != want {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
}
