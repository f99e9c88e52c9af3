package web

import (
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// saysOf tells what an override would do, by what was measured: the sentence of the
// page, of the API and of rlc throttle.
func saysOf(o rlc.Override, e effect) (all []ui.Part) {
	say := func(text string) { all = append(all, ui.Part{Text: text}) }
	bold := func(text string) { all = append(all, ui.Part{Text: text, Bold: true}) }
	say(o.Subject() + " ")
	if e.Warning != "" {
		bold("— warning: " + strings.TrimSuffix(e.Warning, "?"))
		say(map[bool]string{true: "? ", false: ". "}[strings.HasSuffix(e.Warning, "?")])
		return all
	}
	if !e.Known {
		say("— what it sends now is not known: " + e.Why + ". ")
		return all
	}
	say("sends ")
	if e.AtMost {
		say("at most ")
	}
	bold(rate(e.Offered) + " req/s")
	say(" now, " + rate(e.LastHour) + " in the mean of the last hour. ")
	switch {
	case o.Action == "lift" && e.Returns == 0:
		say("This would admit ")
		bold("nothing")
		say(" that is dropped now: no quota drops any of it that nothing else would drop. ")
	case o.Action == "lift":
		say("This would admit about ")
		bold(rate(e.Returns) + " req/s")
		say(" that is dropped now. ")
	case e.Drops == 0:
		say("This would drop ")
		bold("nothing")
		say(nothing(o, e) + ". ")
	default:
		say("This would drop about ")
		bold(rate(e.Drops) + " req/s, " + percent(e.Drops/e.Offered))
		say(" of it. ")
	}
	all = append(all, goesOn(e.Beside)...)
	if len(e.Affected) > 1 {
		say(plural(len(e.Affected), "quota is", "quotas are") + " hit. ")
	}
	return all
}

// nothing is why an override would drop nothing now.
func nothing(o rlc.Override, e effect) string {
	switch {
	case e.Offered == 0:
		return " now: enforcers count none of it"
	case o.Action == "limit" && o.Rate != nil:
		return " now: its limit of " + rate(float64(*o.Rate)) + " req/s lies above what is sent"
	}
	return " now"
}

// textOf is a sentence's text with plain spaces, for programs and terminals.
func textOf(parts []ui.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return strings.TrimSpace(strings.ReplaceAll(b.String(), "\u00a0", " "))
}
