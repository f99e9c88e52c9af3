package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// Revision is one commit that touched a service.
type Revision struct {
	Hash    string    `json:"commit"`
	At      time.Time `json:"at"`
	Author  string    `json:"author"`
	Actor   string    `json:"actor"` // on whose behalf RLC committed; ""
	Subject string    `json:"subject"`
	Run     string    `json:"run"` // whose proposal it merged; ""
}

// Content is a service at a revision. Service is nil where its policy was not
// valid or not there.
type Content struct {
	Service *rlc.Service
	Quotas  []rlc.Quota
	Policy  string // policy.yaml, as people wrote it; "" where it was not there
}

// Comparison is two revisions and what they differ in.
type Comparison struct {
	Before, After Revision
	Differences   []Difference
	Policy        []Line // of policy.yaml; nil where it is the same
}

// Difference is one quota, or one bucket's mode or written limit, that two
// revisions differ in.
type Difference struct {
	Quota   string     `json:"quota"` // its ID; a bucket's name where What is mode or written
	What    string     `json:"what"`  // limit, mode, or written: a limit that a person wrote into policy.yaml
	Old     *rlc.Limit `json:"old"`   // nil: not there
	New     *rlc.Limit `json:"new"`
	OldMode string     `json:"old_mode,omitempty"` // with its zones: "enforce in eu-1, eu-2"
	NewMode string     `json:"new_mode,omitempty"`
	// OldText and NewText are a written limit that is no rate: "1000 per day",
	// "20 at once"; of a quota what holds at other times, in place of its limit or
	// beside it: "39 to 130/s by the hour". "" where there is none.
	OldText string `json:"old_text,omitempty"`
	NewText string `json:"new_text,omitempty"`
}

// Diff says what limits and modes two revisions differ in, at any time: modes
// first, then the limits that people wrote, then quotas. Reasons, comments and order
// are no difference.
func Diff(before, after Content) []Difference {
	var out []Difference
	was, is := modes(before.Service), modes(after.Service)
	for _, name := range both(was, is) {
		if was[name] != is[name] {
			out = append(out, Difference{Quota: name, What: "mode", OldMode: was[name], NewMode: is[name]})
		}
	}
	out = append(out, written(before.Service, after.Service)...)
	old, now := byID(before.Quotas), byID(after.Quotas)
	for _, id := range both(old, now) {
		a, b := old[id], now[id]
		if a != nil && b != nil && a.Same(*b) {
			continue
		}
		d := Difference{Quota: id, What: "limit"}
		if a != nil {
			d.Old, d.OldMode, d.OldText = &a.Limit, string(a.Mode), times(a.Timed())
		}
		if b != nil {
			d.New, d.NewMode, d.NewText = &b.Limit, string(b.Mode), times(b.Timed())
		}
		if a != nil && b != nil {
			d.NewText += hoursApart(a.Hours, b.Hours)
		}
		out = append(out, d)
	}
	return out
}

// written are the limits in policy.yaml that differ.
func written(before, after *rlc.Service) (out []Difference) {
	was, is := byHand(before), byHand(after)
	for _, name := range both(was, is) {
		d := Difference{Quota: name, What: "written"}
		if b := was[name]; b != nil {
			d.Old, d.OldText = b.Limit, asText(b)
		}
		if b := is[name]; b != nil {
			d.New, d.NewText = b.Limit, asText(b)
		}
		if d.OldText != d.NewText || (d.Old == nil) != (d.New == nil) || d.Old != nil && *d.Old != *d.New {
			out = append(out, d)
		}
	}
	return out
}

func byHand(s *rlc.Service) map[string]*rlc.Bucket {
	out := map[string]*rlc.Bucket{}
	if s == nil {
		return out
	}
	for i, b := range s.Buckets {
		if b.Limit != nil || b.Window != nil || b.InFlight != nil {
			out[b.Name] = &s.Buckets[i]
		}
	}
	return out
}

// asText is a written limit that is no rate.
func asText(b *rlc.Bucket) string {
	switch w := b.Window; {
	case w != nil && w.Per != "":
		text := fmt.Sprintf("%s per %s", rlc.Number(w.Requests), w.Per)
		if !w.Calendar {
			return text + ", rolling"
		}
		if w.Reset > 0 || w.Location != "" {
			text += strings.TrimSuffix(fmt.Sprintf(", from %02d:%02d %s", int(w.Reset.Hours()), int(w.Reset.Minutes())%60, w.Location), " ")
		}
		return text
	case w != nil:
		return fmt.Sprintf("%s in %s", rlc.Number(w.Requests), rlc.DurationText(w.Length))
	case b.InFlight != nil:
		return fmt.Sprintf("%s at once, forgotten after %s", rlc.Number(b.InFlight.Max), rlc.DurationText(b.InFlight.Timeout))
	}
	return ""
}

// Hardens names the buckets that enforce after in more places than before.
func Hardens(before, after Content) (names []string) {
	if after.Service == nil {
		return nil
	}
	for _, b := range after.Service.Buckets {
		if b.Mode != rlc.Enforce {
			continue
		}
		var was *rlc.Bucket
		if before.Service != nil {
			was = before.Service.Bucket(b.Name)
		}
		more := was == nil || was.Mode != rlc.Enforce || was.Rollout != nil && b.Rollout == nil
		if !more && was.Rollout != nil {
			more = slices.ContainsFunc(b.Rollout, func(z string) bool { return !slices.Contains(was.Rollout, z) })
		}
		if more {
			names = append(names, b.Name)
		}
	}
	return names
}

func modes(s *rlc.Service) map[string]string {
	out := map[string]string{}
	if s == nil {
		return out
	}
	for _, b := range s.Buckets {
		out[b.Name] = string(b.Mode)
		if b.Rollout != nil {
			out[b.Name] += " in " + strings.Join(b.Rollout, ", ")
		}
	}
	return out
}

func byID(quotas []rlc.Quota) map[string]*rlc.Quota {
	out := map[string]*rlc.Quota{}
	for i := range quotas {
		out[quotas[i].ID()] = &quotas[i]
	}
	return out
}

func both[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.SortedFunc(maps.Keys(all), cmp.Compare)
}
