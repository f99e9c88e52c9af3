// Package rollout decides how a bucket goes from shadow to enforce and back:
// the checklist before it, how far it grows, and when it halts. Its functions
// are pure: whoever calls them reads the facts, and carries out what they say.
package rollout

import (
	"fmt"
	"math"
	"time"

	"github.com/openrlc/rlc"
)

// Rules are what a promotion is held to. A zero field means its default.
type Rules struct {
	MinShadow   time.Duration // in shadow before enforce; 7 days
	MinCoverage rlc.Ratio     // of the history the quotas come from; 0.95
	MinJoined   rlc.Ratio     // share of counted requests that are of a quota; 0.95
	Soak        time.Duration // in each zone before the next; 30 minutes
	Factor      float64       // drops above so many times the backtest's halt it; 3
	MinDrops    float64       // fewer drops than these in a soak never halt it; 100
}

// Complete fills in the defaults.
func (r Rules) Complete() Rules {
	if r.MinShadow <= 0 {
		r.MinShadow = 7 * 24 * time.Hour
	}
	if r.MinCoverage <= 0 {
		r.MinCoverage = 0.95
	}
	if r.MinJoined <= 0 {
		r.MinJoined = 0.95
	}
	if r.Soak <= 0 {
		r.Soak = 30 * time.Minute
	}
	if r.Factor <= 0 {
		r.Factor = 3
	}
	if r.MinDrops <= 0 {
		r.MinDrops = 100
	}
	return r
}

// Facts are what is known of a bucket that is to be promoted.
type Facts struct {
	Now      time.Time
	Since    time.Time  // in shadow since; zero: unknown
	Quotas   int        // in force
	Unjudged int        // backtest episodes without a person's verdict
	Coverage *rlc.Ratio // the least of its quotas; nil: unknown
	Offered  float64    // requests counted in 24 h
	Joined   *rlc.Ratio // share of the service's counted requests with a quota; nil: nothing was counted
	Word     string     // whose word it is; "" for nobody's
	Entitled bool       // that person speaks for the service
}

// Check is one line of the checklist.
type Check struct {
	Name  string `json:"name"` // quotas, shadow_days, episodes, coverage, names_join, owners_word
	Text  string `json:"text"`
	OK    bool   `json:"ok"`
	Found string `json:"found"`         // the number
	Fix   string `json:"fix,omitempty"` // what to do where it is not ok
}

// Gate is the checklist. What is not known is not ok.
func Gate(f Facts, r Rules) []Check {
	r = r.Complete()
	days := f.Now.Sub(f.Since).Hours() / 24
	shadow := Check{
		Name: "shadow_days", Text: fmt.Sprintf("at least %g days in shadow", r.MinShadow.Hours()/24),
		OK: !f.Since.IsZero() && f.Now.Sub(f.Since) >= r.MinShadow, Found: inDays(days),
	}
	if f.Since.IsZero() {
		shadow.Found = "unknown"
	}
	checks := []Check{
		{Name: "quotas", Text: "a limit is in force", OK: f.Quotas > 0, Found: rlc.Plural(f.Quotas, "quota"), Fix: "accept the open proposal, or run: rlc run"},
		shadow,
		{
			Name: "episodes", Text: "every episode has a verdict", OK: f.Unjudged == 0, Found: fmt.Sprintf("%d without", f.Unjudged),
			Fix: "say of each on the page Shadow whether it is traffic, or raise the limit",
		},
		share("coverage", "history is complete", f.Coverage, r.MinCoverage, "see /runs for what could not be read"),
		share("names_join", "counted requests have a quota", f.Joined, r.MinJoined, "compare the callers' names in history with those that enforcers count: the page Shadow lists both"),
		{
			Name: "owners_word", Text: "an owner, or on-call, says so", OK: f.Word != "" && f.Entitled, Found: orNobody(f.Word),
			Fix: "an owner of the service signs in and promotes it",
		},
	}
	if !shadow.OK {
		checks[1].Fix = "wait another " + inDays(math.Ceil(10*(r.MinShadow.Hours()/24-days))/10)
		if f.Since.IsZero() {
			checks[1].Fix = "merge the bucket in shadow first"
		}
	}
	for i := range checks {
		if checks[i].OK {
			checks[i].Fix = ""
		}
	}
	return checks
}

// inDays is a number of days with one digit behind the point, none where it is 0.
func inDays(days float64) string {
	if tenths := math.Floor(10 * days); tenths != 10 {
		return rlc.Number(tenths/10) + " days"
	}
	return "1 day"
}

func share(name, text string, have *rlc.Ratio, want rlc.Ratio, fix string) Check {
	c := Check{Name: name, Text: fmt.Sprintf("%s: at least %g %%", text, 100*float64(want)), Found: "unknown", Fix: fix}
	if have != nil {
		c.OK, c.Found = *have >= want, fmt.Sprintf("%g %%", math.Floor(1000*float64(*have))/10)
	}
	return c
}

func orNobody(name string) string {
	if name == "" {
		return "nobody"
	}
	return name
}

// Open reports whether every check is ok.
func Open(checks []Check) bool {
	for _, c := range checks {
		if !c.OK {
			return false
		}
	}
	return true
}
