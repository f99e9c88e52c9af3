package planner

import (
	"slices"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
)

// multiplies reports whether events make windows of a quota: contracts and caps
// are not multiplied, and what a person edited or nothing is known of stays as it
// is.
func (j *job) multiplies(t *target, c *rlc.Change) bool {
	switch c.Held {
	case "human_edit", "conflict", "policy_failed", "implausible":
		return false
	}
	return t.bucket.Role != rlc.CapRole && c.Policy != contractual
}

// lowest is what a window keeps whatever its event says: the quota's floor, and
// what its caller is promised at some time of it.
func (j *job) lowest(t *target, c *rlc.Change, w rlc.QuotaWindow) rlc.Limit {
	low := rlc.Limit{Rate: max(1, t.bucket.Guards.Floor), Burst: 1}
	span := rlc.Window{From: w.From, Until: w.Until}
	if k := j.promised(t, c.Key, span); lasts(k, span) {
		low.Rate, low.Burst = max(low.Rate, k.Limit.Rate), max(low.Burst, k.Limit.Burst)
	}
	return low
}

// fitWindows makes the windows of each event fit the service's capacity
// together, as the quotas beside them do, and tells a person of those that are
// new or move. A window that has begun stands; none is cut below the quota's own
// limit, so that an event takes nothing from an ordinary day.
func (j *job) fitWindows(changes []rlc.Change) {
	var spans []rlc.Window
	for _, c := range changes {
		for _, w := range c.NewTimed.Windows {
			if span := (rlc.Window{From: w.From, Until: w.Until}); !slices.Contains(spans, span) && j.run.Now.Before(w.From) {
				spans = append(spans, span)
			}
		}
	}
	for _, span := range spans {
		j.fitWindow(changes, span)
	}
	for i := range changes {
		c := &changes[i]
		if len(c.NewTimed.Windows) > 0 && !c.OldTimed.Equal(rlc.Timed{Windows: c.NewTimed.Windows, Hours: c.OldTimed.Hours}) {
			c.Look = joined(c.Look, "an event's limit is new or moves: it is switched at the hour, without another review")
		}
	}
}

// fitWindow fits what every quota of the service has during span. Regions of
// their own follow what holds over all of them.
func (j *job) fitWindow(changes []rlc.Change, span rlc.Window) {
	during := make([]rlc.Change, 0, len(changes))
	fit := policies.Fit{Coincidence: j.together.Ratio(), Keeps: map[string]rlc.Limit{}, Retired: j.retired}
	for _, c := range changes {
		t := j.targets[c.Bucket]
		if c.Region != "" || c.New == nil || t == nil {
			continue
		}
		at := windowIn(c.NewTimed.Windows, span)
		d := rlc.Change{Service: c.Service, Bucket: c.Bucket, Key: c.Key, New: c.New, Held: "as it is"}
		if at != nil {
			limit := at.Limit
			d.New = &limit
		}
		if at != nil && j.multiplies(t, &c) {
			d.Held = ""
			low := j.lowest(t, &c, *at)
			fit.Keeps[c.ID()] = rlc.Limit{Rate: max(low.Rate, c.New.Rate), Burst: max(low.Burst, c.New.Burst)}
			if old := windowIn(c.OldTimed.Windows, span); old != nil {
				d.Old = &old.Limit // a share near it leaves it
			}
		}
		during = append(during, d)
	}
	if len(policies.FitCapacity(j.service, during, fit)) == 0 {
		return
	}
	whole := map[string]*rlc.Change{}
	for i := range during {
		whole[during[i].ID()] = &during[i]
	}
	for i := range changes {
		c := &changes[i]
		at, d := windowIn(c.NewTimed.Windows, span), whole[rlc.QuotaID(c.Bucket, c.Key)]
		if at == nil || d == nil || d.Held != "" {
			continue
		}
		if c.Region != "" {
			at.Limit = rlc.Limit{Rate: min(at.Rate, d.New.Rate), Burst: min(at.Burst, d.New.Burst)}
			continue
		}
		at.Limit = *d.New
		for _, r := range d.Reasons {
			r.Detail = "in the event from " + stat.TimeText(span.From) + ": " + r.Detail
			c.Reasons = append(c.Reasons, r)
			if old := windowIn(c.OldTimed.Windows, span); old == nil || old.Limit != at.Limit {
				c.Look = joined(c.Look, r.Detail)
			}
		}
	}
}

// windowIn is the window over exactly this span, nil for none.
func windowIn(windows []rlc.QuotaWindow, span rlc.Window) *rlc.QuotaWindow {
	i := slices.IndexFunc(windows, func(w rlc.QuotaWindow) bool { return w.From.Equal(span.From) && w.Until.Equal(span.Until) })
	if i < 0 {
		return nil
	}
	return &windows[i]
}
