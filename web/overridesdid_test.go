package web_test

import (
	"encoding/csv"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

// What an override does is what enforcers counted for it: on the overview, on its
// service's page, on /emergency, in JSON and in the sheet; and where that is not known
// the page says why.
func TestAnOverrideSaysWhatItDoes(t *testing.T) {
	f := newFixture(t)
	add := func(id, action string, judged, drops float64) {
		f.overrides = append(f.overrides, override(id, func(o *rlc.Override) {
			if o.Action = action; action != "limit" {
				o.Rate = nil
			}
		}))
		if judged >= 0 {
			f.judged[id] = rlc.OverrideCount{Judged: judged, Drops: drops}
		}
	}
	f.judged = map[string]rlc.OverrideCount{}
	add("holds", "limit", 12_300, 8_760)
	add("idle", "limit", 0, 0)
	add("mild", "limit", 40, 0)
	add("lifts", "lift", 700, 0)
	add("partly", "lift", 700, 50)
	add("unheard", "block", -1, 0)
	f.overrides = append(f.overrides, override("ramp", func(o *rlc.Override) { o.Until = now.Add(-1) }))
	f.judged["ramp"] = rlc.OverrideCount{Judged: 5, Drops: 1}
	want := map[string]string{
		"holds":   "Dropped 8,760 of 12,300 requests, 71.2 %, in the last 5 min.",
		"idle":    "No request has met it in the last 5 min.",
		"mild":    "Dropped none of 40 requests in the last 5 min.",
		"lifts":   "Admitted all 700 requests that met it in the last 5 min.",
		"partly":  "Let go of 700 requests in the last 5 min; something else dropped 50 of them.",
		"unheard": "Not counted yet: its first count comes with the next scrape of the enforcers.",
	}
	h := calmly(t, f)
	listed := body(t, get(h, "/emergency.json"), 200)["overrides"].([]any)
	for _, x := range listed {
		o := x.(map[string]any)
		says, _ := o["did_says"].(string)
		if id := o["id"].(string); says != want[id] {
			t.Errorf("%s: %q, want %q", id, says, want[id])
		}
	}
	did := map[string]any{"judged": 12_300.0, "drops": 8_760.0, "seconds": 300.0}
	if got := first(t, listed, map[string]any{"id": "holds"})["did"].(map[string]any); got["judged"] != did["judged"] || got["drops"] != did["drops"] || got["seconds"] != did["seconds"] {
		t.Errorf("%v, want %v", got, did)
	}
	if got := first(t, listed, map[string]any{"id": "unheard"})["did"]; got != nil {
		t.Errorf("uncounted: %v", got)
	}
	for _, path := range []string{"/emergency", "/", "/services/checkout"} {
		holds(t, h, path, "<b>8,760 of 12,300 requests, 71.2 %</b>", "Dropped <b>none</b> of 40 requests", "Admitted <b>all 700 requests</b>")
	}
	holds(t, h, "/", `href="/emergency#active"`, "has the newest overrides")
	rows, err := csv.NewReader(get(h, "/emergency.csv").Body).ReadAll()
	if err != nil || rows[0][10] != "judged" || rows[1][10] != "12300" || rows[1][11] != "8760" || rows[6][10] != "" {
		t.Errorf("%v %q", err, rows)
	}

	holds(t, f.handler(t), "/emergency", "It does nothing while all is to shadow.")
	c := f.config()
	c.Overrides, c.History = calm{f}, blind{}
	away, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, away, "/emergency", "What it does is not known: Prometheus does not answer.")
}
