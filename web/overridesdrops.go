package web

import (
	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// stoodFor names the newest override that may have dropped, in the last 24 hours, of
// the requests that a quota counts, with its time; nothing where none stood. Enforcers
// count a drop under the quota bucket whoever dropped the request, so that without it
// an override's drops would be put on the quota below it.
func (s *server) stoodFor(v *visit, service string, r *row) []ui.Part {
	log, err := s.lately(v)
	if err != nil {
		log = s.Overrides.Overrides() // those that are over long ago are not known then
	}
	now := s.Now()
	var match map[string]rlc.Pattern
	if r.bucket != nil {
		match = r.bucket.Match
	}
	var newest *rlc.Override
	for i, o := range log {
		some, _ := o.Touches(match, r.key)
		if some && o.Action != "lift" && (o.Service == service || o.Service == "*") && o.Over().After(now.Add(-day)) && !o.From.After(now) && (newest == nil || o.From.After(newest.From)) {
			newest = &log[i]
		}
	}
	if newest == nil {
		return nil
	}
	terms := " (" + v.timeAs(newest.From, "2 Jan 15:04").Text + "–" + v.timeAs(newest.Until, "15:04 MST").Text + ", set by " + newest.Actor
	if reason := s.reasonFor(v, *newest); reason != "" {
		terms += ": " + reason
	}
	return []ui.Part{{Text: "the override "}, {Text: newest.Subject() + " " + newest.Does(), URL: "/emergency"}, {Text: terms + ")"}}
}
