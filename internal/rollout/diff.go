package rollout

import (
	"cmp"
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
}

// Difference is one quota, or one bucket's mode, that two revisions differ in.
type Difference struct {
	Quota   string     `json:"quota"` // its ID; a bucket's name where What is mode
	What    string     `json:"what"`  // limit or mode
	Old     *rlc.Limit `json:"old"`   // nil: not there
	New     *rlc.Limit `json:"new"`
	OldMode string     `json:"old_mode,omitempty"` // with its zones: "enforce in eu-1, eu-2"
	NewMode string     `json:"new_mode,omitempty"`
}

// Diff says what two revisions differ in, by quota, modes first. Reasons,
// comments and order are no difference.
func Diff(before, after Content) []Difference {
	var out []Difference
	was, is := modes(before.Service), modes(after.Service)
	for _, name := range both(was, is) {
		if was[name] != is[name] {
			out = append(out, Difference{Quota: name, What: "mode", OldMode: was[name], NewMode: is[name]})
		}
	}
	old, now := byID(before.Quotas), byID(after.Quotas)
	for _, id := range both(old, now) {
		a, b := old[id], now[id]
		if a != nil && b != nil && a.Limit == b.Limit && a.Mode == b.Mode {
			continue
		}
		d := Difference{Quota: id, What: "limit"}
		if a != nil {
			d.Old, d.OldMode = &a.Limit, string(a.Mode)
		}
		if b != nil {
			d.New, d.NewMode = &b.Limit, string(b.Mode)
		}
		out = append(out, d)
	}
	return out
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
