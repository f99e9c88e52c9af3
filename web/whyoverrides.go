package web

import (
	"cmp"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// overridesOf are the overrides that stand for a request of a service with
// these attributes, the one that decides before the others; see decisive.
func (s *server) overridesOf(svc *rlc.Service, attrs rlc.Attributes) []rlc.Override {
	known := rlc.Attributes{}
	for name, value := range attrs {
		if !slices.Contains(svc.Unknown[name], value) {
			known[name] = value
		}
	}
	return s.decisive(func(o rlc.Override) bool {
		return (o.Service == svc.Name || o.Service == "*") && o.Matches(known)
	})
}

// overridesOn are the overrides that stand for requests of a caller: for those
// that one of its limits counts, and for those that name it on a service that
// the viewer may see.
func (s *server) overridesOn(v *visit, caller string, limits []limitOn) []rlc.Override {
	return s.decisive(func(o rlc.Override) bool {
		if some, _ := o.Touches(nil, rlc.Key{"caller": caller}); !some {
			return false
		}
		want := o.Match["caller"]
		if len(want) > 0 && want[0] != "*" && (o.Service == "*" || s.maySee(v.who, o.Service) || s.owns(v.who, caller)) {
			return true
		}
		return slices.ContainsFunc(limits, func(x limitOn) bool { return s.overrides(o, &x, caller) })
	})
}

// overrides reports whether an override is for some of a caller's requests that
// a limit counts.
func (s *server) overrides(o rlc.Override, x *limitOn, caller string) bool {
	if o.Service != x.service && o.Service != "*" {
		return false
	}
	key := rlc.Key{"caller": caller}
	for name, value := range x.row.key {
		key[name] = value
	}
	var match map[string]rlc.Pattern
	if _, desired := s.Truths.Desired(); desired != nil {
		if svc := desired.Service(x.service); svc != nil && svc.Bucket(x.row.plain()) != nil {
			match = svc.Bucket(x.row.plain()).Match
		}
	}
	some, _ := o.Touches(match, key)
	return some
}

// decider is the override that decides some of a caller's requests that a limit
// counts; nil for none.
func (s *server) decider(over []rlc.Override, x *limitOn, caller string) *rlc.Override {
	for i := range over {
		if s.overrides(over[i], x, caller) {
			return &over[i]
		}
	}
	return nil
}

// decisive are the overrides that stand and are wanted, in the order in which
// enforcers let them decide: what drops before any counter is asked, then
// limits, the lowest first, then what lifts the verdicts of quotas alone.
func (s *server) decisive(wanted func(rlc.Override) bool) (out []rlc.Override) {
	now := s.Now()
	for _, o := range s.Overrides.Overrides() {
		if o.Stands(now) && wanted(o) {
			out = append(out, o)
		}
	}
	rank := map[string]int{"block": 0, "drop": 1, "limit": 2, "lift": 3}
	slices.SortStableFunc(out, func(a, b rlc.Override) int {
		return cmpOr(cmp.Compare(rank[a.Action], rank[b.Action]), cmp.Compare(heldTo(a), heldTo(b)), cmp.Compare(b.DropRatio, a.DropRatio))
	})
	return out
}

func heldTo(o rlc.Override) rlc.Rate {
	if o.Rate == nil {
		return 0
	}
	return *o.Rate
}

// applied reports whether enforcers act on overrides: not while All to shadow
// is thrown.
func (s *server) applied() bool {
	return !slices.ContainsFunc(s.Overrides.Switches(), func(k rlc.KillSwitch) bool { return k.Name == rlc.AllToShadow && k.On })
}

// reasonFor is an override's reason, for those who may read of its service: ""
// for others.
func (s *server) reasonFor(v *visit, o rlc.Override) string {
	if o.Service != "*" && !s.maySee(v.who, o.Service) {
		return ""
	}
	return o.Reason
}

// overrideSays says which overrides decide, before what a bucket does.
func (s *server) overrideSays(v *visit, all []rlc.Override) (say []ui.Part) {
	for i, o := range all[:min(len(all), standingShown)] {
		lead := "Beside it stands "
		switch {
		case i == 0 && s.applied():
			lead = "An override decides first: "
		case i == 0:
			lead = "All to shadow is on, so no override is applied. Else this would decide first: "
		}
		say = append(say, ui.Part{Text: lead}, ui.Part{Text: o.Subject(), URL: "/emergency"}, ui.Part{Text: " "}, ui.Part{Text: o.Does(), Bold: true}, ui.Part{Text: ", " + s.overrideTerms(v, o) + ". "})
	}
	if more := len(all) - standingShown; more > 0 {
		say = append(say, ui.Part{Text: plural(more, "more override", "more overrides") + " stand. "})
	}
	return say
}

// overrideTerms are until when an override stands, who set it, and why.
func (s *server) overrideTerms(v *visit, o rlc.Override) string {
	text := "until " + v.timeAs(o.Until, "2 Jan 15:04:05 MST").Text + ", set by " + o.Actor
	if reason := s.reasonFor(v, o); reason != "" {
		text += ": " + strings.TrimSuffix(reason, ".")
	}
	return text
}

// overridesJSON lists overrides for who asks.
func (s *server) overridesJSON(v *visit, all []rlc.Override) []object {
	out := []object{}
	for _, o := range all {
		x := s.overrideJSON(o)
		x["reason"] = s.reasonFor(v, o)
		out = append(out, x)
	}
	return out
}
