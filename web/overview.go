package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// overview is /: a verdict in words, then what waits for a person. It reads
// short lists only, as many however many services there are.
func (s *server) overview(v *visit) error {
	ctx := v.ctx()
	f, err := s.frame(v, "Overview", "overview")
	if err != nil {
		return err
	}
	runs, _, err := s.Records.Runs(ctx, rlc.Page{Number: 1, Size: 20})
	if err != nil {
		return err
	}
	open, waiting, err := s.Records.Proposals(ctx, rlc.Open, "", rlc.Page{Number: 1, Size: 8})
	if err != nil {
		return err
	}
	low, total, err := s.Records.Summaries(ctx, rlc.ServiceFilter{Sort: "headroom"}, rlc.Page{Number: 1, Size: 6})
	if err != nil {
		return err
	}
	w, err := s.waits(ctx)
	if err != nil {
		return err
	}
	stand, err := s.asks(ctx, "")
	if err != nil {
		return err
	}
	acks := s.Truths.Acks()
	commit, desired := s.Truths.Desired()
	version, live := s.Truths.Live()
	now := s.Now().In(v.zone)
	view := ui.Overview{
		Date: now.Format("Mon 2 January"), Clock: now.Format("15:04 MST"),
		RunAction: v.who.role == actor,
		LowNote:   fmt.Sprintf("The least of %s.", plural(total, "service", "services")),
	}
	last, whole := lastRuns(runs)
	view.Verdict = verdictOf(v, last, runs, w, waiting)
	if whole != nil {
		view.Say = append(view.Say, runSign(whole))
	}
	if last != nil && last != whole {
		view.Say = append(view.Say, runSign(last))
	}
	if waiting > 0 {
		view.Say = append(view.Say, ui.Sign{Level: "note", Link: ui.Link{Text: plural(waiting, "proposal waits", "proposals wait"), URL: "/proposals?state=open"}, After: "for review"})
	} else {
		view.Say = append(view.Say, ui.Sign{Level: "good", Before: "No proposal waits"})
	}
	if n := brokenCount(desired); n > 0 {
		view.Say = append(view.Say, ui.Sign{Level: "bad", Before: plural(n, "service has", "services have") + " a policy that cannot be read; what is in force stays"})
	}
	view.Say = append(view.Say, syncSign(commit, version, live != nil, acks), heldSign(w),
		dropSign("bad", "dropped", w.dropping, realDrops), dropSign("note", "would have dropped", w.virtual, virtualDrops))
	view.Queue = dropTasks(w)
	for _, p := range open {
		view.Queue = append(view.Queue, ui.Task{
			Chip: ui.Chip{Mode: "new", Text: "review"}, Title: p.Service, Detail: proposalLine(p),
			Action: ui.Link{Text: "Review", URL: proposalURL(p.ID)},
		})
	}
	view.Queue = append(view.Queue, askTasks(stand)...)
	if desired != nil {
		for name, problems := range sortedMap(desired.Broken) {
			if len(view.Queue) >= 20 || len(problems) == 0 {
				break
			}
			view.Queue = append(view.Queue, ui.Task{Chip: ui.Chip{Mode: "held", Text: "held"}, Title: name, Detail: problems[0].String(), Action: ui.Link{Text: "Look", URL: serviceURL(name)}})
		}
	}
	view.Queue = append(view.Queue, heldTasks(w)...)
	if len(view.Queue) == 0 {
		view.Empty = &ui.Empty{Title: "Nothing waits for you", Reason: "No proposal is open, every policy can be read, no quota is held, nothing was dropped, and no service would have dropped more than 1 % of its requests in 24 h.", Fix: ui.Link{Text: "All services", URL: "/services"}}
	}
	for _, r := range low {
		if r.Headroom != nil {
			view.Low = append(view.Low, serviceRow(r, ui.Sign{}))
		}
	}
	return s.render(v, http.StatusOK, ui.OverviewPage(f, view))
}

// waits is what the summaries of all services say of what a person may have to
// look at: each list is one page, the most first.
type waits struct {
	dropping, virtual, held []rlc.ServiceSummary
}

// mostWaits bounds each list; where the last one still has drops or held
// quotas, there are more.
const mostWaits = 50

func (s *server) waits(ctx context.Context) (w waits, err error) {
	for sort, into := range map[string]*[]rlc.ServiceSummary{"drops": &w.dropping, "virtual_drops": &w.virtual, "held": &w.held} {
		if *into, _, err = s.Records.Summaries(ctx, rlc.ServiceFilter{Sort: sort, Desc: true}, rlc.Page{Number: 1, Size: mostWaits}); err != nil {
			return w, err
		}
	}
	above := func(of func(rlc.ServiceSummary) float64) func(rlc.ServiceSummary) bool {
		return func(r rlc.ServiceSummary) bool { return of(r) < 0.5 } // a rate's rounding is no request
	}
	w.dropping = slices.DeleteFunc(w.dropping, above(realDrops))
	w.virtual = slices.DeleteFunc(w.virtual, above(virtualDrops))
	w.held = slices.DeleteFunc(w.held, func(r rlc.ServiceSummary) bool { return r.Held == 0 })
	return w, nil
}

func realDrops(r rlc.ServiceSummary) float64    { return r.Drops }
func virtualDrops(r rlc.ServiceSummary) float64 { return r.VirtualDrops }

// stormy is the share of would-be drops from which a service needs somebody.
const stormy = 0.01

// storms are the services that would have dropped more than 1 % of their
// requests, or a share that nobody knows.
func (w waits) storms() []rlc.ServiceSummary {
	var out []rlc.ServiceSummary
	for _, r := range w.virtual {
		if r.Counted <= 0 || share(r.VirtualDrops, r.Counted) > stormy {
			out = append(out, r)
		}
	}
	return out
}

// heldText is how many quotas are held, over all services; "" for none.
func (w waits) heldText() (text string, one bool) {
	n := 0
	for _, r := range w.held {
		n += r.Held
	}
	switch {
	case n == 0:
		return "", false
	case len(w.held) == mostWaits:
		return "at least " + count(float64(n)) + " quotas", false
	}
	return plural(n, "quota", "quotas") + " in " + plural(len(w.held), "service", "services"), n == 1
}

// ofItsOwn is ", 12 % of its requests"; nothing where the share is unknown.
func ofItsOwn(drops float64, r rlc.ServiceSummary) string {
	if r.Counted <= 0 {
		return ""
	}
	return ", " + percent(share(drops, r.Counted)) + " of its requests"
}

func dropTasks(w waits) []ui.Task {
	const most = 5
	var out []ui.Task
	add := func(chip ui.Chip, rows []rlc.ServiceSummary, verb, sort, tail string, of func(rlc.ServiceSummary) float64) {
		for i, r := range rows {
			if i == most {
				out = append(out, ui.Task{Chip: chip, Title: plural(len(rows)-most, "more service", "more services"), Detail: verb + " requests in 24 h", Action: ui.Link{Text: "List", URL: "/services?sort=" + sort + "&dir=desc"}})
				break
			}
			out = append(out, ui.Task{Chip: chip, Title: r.Name, Detail: verb + " " + count(of(r)) + " requests in 24 h" + ofItsOwn(of(r), r), Action: ui.Link{Text: "Look", URL: serviceURL(r.Name) + tail}})
		}
	}
	add(ui.Chip{Mode: "enforce", Text: "drops"}, w.dropping, "dropped", "drops", "", realDrops)
	add(ui.Chip{Mode: "shadow", Text: "would drop"}, w.storms(), "would have dropped", "virtual_drops", "/shadow", virtualDrops)
	return out
}

func heldTasks(w waits) []ui.Task {
	const most = 5
	chip := ui.Chip{Mode: "held", Text: "held"}
	var out []ui.Task
	for i, r := range w.held {
		if i == most {
			rest := waits{held: w.held[most:]}
			text, _ := rest.heldText()
			out = append(out, ui.Task{Chip: chip, Title: "And more", Detail: text})
			break
		}
		out = append(out, ui.Task{Chip: chip, Title: r.Name, Detail: plural(r.Held, "quota", "quotas") + " left as they are by the last run that looked, each for a reason", Action: ui.Link{Text: "Look", URL: serviceURL(r.Name) + "?mode=held"}})
	}
	return out
}

func heldSign(w waits) ui.Sign {
	text, one := w.heldText()
	switch {
	case text == "":
		return ui.Sign{Level: "good", Before: "No quota is held"}
	case one:
		return ui.Sign{Level: "warn", Before: text + " is held"}
	}
	return ui.Sign{Level: "warn", Before: text + " are held"}
}

// lastRuns finds the newest run that is over, and the newest of all services.
func lastRuns(runs []rlc.Run) (last, whole *rlc.Run) {
	for i := range runs {
		r := &runs[i]
		if r.Stage != rlc.Finished && r.Result == "" {
			continue
		}
		if last == nil {
			last = r
		}
		if r.Service == "" {
			return last, r
		}
	}
	return last, nil
}

// verdictOf speaks of all services: what failed, what drops, what would, what
// is held and what waits; only where there is none of it, of the last run.
func verdictOf(v *visit, last *rlc.Run, runs []rlc.Run, w waits, waiting int) []ui.Part {
	if last == nil && len(runs) > 0 {
		return []ui.Part{{Text: "The first run is under way. "}, {Text: "See it", URL: runURL(runs[0].ID)}, {Text: "."}}
	}
	if last == nil {
		return []ui.Part{{Text: "No run yet. The first one reads history and puts up quotas for review."}}
	}
	var parts []ui.Part
	say := func(p ...ui.Part) { parts = append(parts, p...) }
	run := ui.Part{Text: last.Now.In(v.zone).Format("15:04") + " run", URL: runURL(last.ID)}
	of := ""
	if last.Service != "" {
		of = " of " + last.Service
	}
	switch last.Result {
	case rlc.ResultFailed:
		say(ui.Part{Text: "The "}, run, ui.Part{Text: of + " failed; quotas stay as they are. "})
	case rlc.ResultRefused:
		say(ui.Part{Text: "The "}, run, ui.Part{Text: of + " was stopped by the fleet breaker; nothing was published. "})
	}
	tell := func(rows []rlc.ServiceSummary, tail, verb string, of func(rlc.ServiceSummary) float64) {
		if len(rows) == 0 {
			return
		}
		r := rows[0]
		say(ui.Part{Text: r.Name, URL: serviceURL(r.Name) + tail}, ui.Part{Text: " " + verb + " "}, ui.Part{Text: count(of(r)), Bold: true}, ui.Part{Text: " requests in 24 h" + ofItsOwn(of(r), r)})
		if n := len(rows) - 1; n > 0 {
			say(ui.Part{Text: "; so " + map[bool]string{true: "did", false: "would have"}[verb == "dropped"] + " " + plural(n, "more service", "more services")})
		}
		say(ui.Part{Text: ". "})
	}
	tell(w.dropping, "", "dropped", realDrops)
	tell(w.storms(), "/shadow", "would have dropped", virtualDrops)
	held, one := w.heldText()
	if held != "" {
		say(ui.Part{Text: capital(held) + map[bool]string{true: " is held. ", false: " are held. "}[one]})
	}
	switch {
	case waiting == 1:
		say(ui.Part{Text: "One proposal waits", URL: "/proposals?state=open"}, ui.Part{Text: "."})
	case waiting > 1:
		say(ui.Part{Text: count(float64(waiting)) + " proposals wait", URL: "/proposals?state=open"}, ui.Part{Text: "."})
	case len(parts) == 0:
		say(ui.Part{Text: "The "}, run, ui.Part{Text: of + " is done, and nothing waits for review."})
	}
	return parts
}

func runSign(r *rlc.Run) ui.Sign {
	name := "The last run"
	if r.Service != "" {
		name += " of " + r.Service
	}
	sign := ui.Sign{Level: runLevel(r.Result), Link: ui.Link{Text: name, URL: runURL(r.ID)}}
	switch r.Result {
	case rlc.ResultFailed, rlc.ResultRefused:
		sign.After = "ended " + string(r.Result) + ": " + r.Detail
	default:
		sign.After = fmt.Sprintf("looked at %s: %d changed, %d held", plural(r.Total, "quota", "quotas"), r.Changed, r.Held)
		if !r.Finished.IsZero() {
			sign.Soft = "in " + span(r.Finished.Sub(r.Started))
		}
	}
	return sign
}

func runLevel(r rlc.Result) string {
	switch r {
	case rlc.ResultOK:
		return "good"
	case rlc.ResultDegraded:
		return "warn"
	case "":
		return "note"
	}
	return "bad"
}

// syncSign compares what is desired with what enforcers acknowledged.
func syncSign(commit rlc.Commit, live rlc.Version, some bool, acks []rlc.Ack) ui.Sign {
	in, refused := 0, ""
	for _, a := range acks {
		if a.Version.Compare(commit.Version) >= 0 {
			in++
		}
		if a.Refused != "" {
			refused = a.Enforcer
		}
	}
	switch {
	case refused != "":
		return ui.Sign{Level: "bad", Before: "Enforcer " + refused + " refused the last snapshot", Soft: "it decides with the one before"}
	case len(acks) == 0:
		return ui.Sign{Level: "warn", Before: "No enforcer has been heard of", Soft: "nothing is limited until one has a snapshot"}
	case in < len(acks):
		sign := ui.Sign{Level: "warn", Before: fmt.Sprintf("%d of %d enforcers have snapshot %s", in, len(acks), commit.Version), Soft: "no snapshot is on all of them yet"}
		if some {
			sign.Soft = "on all of them: " + live.String()
		}
		return sign
	case !some || live.Compare(commit.Version) < 0:
		return ui.Sign{Level: "warn", Before: fmt.Sprintf("Live is behind desired: the base branch is at %s", commit.Version)}
	}
	return ui.Sign{Level: "good", Before: fmt.Sprintf("Live equals desired: snapshot %s", live), Soft: "on " + plural(len(acks), "enforcer", "enforcers")}
}

// dropSign names who dropped most in a day. rows are sorted, the most first.
func dropSign(level, verb string, rows []rlc.ServiceSummary, of func(rlc.ServiceSummary) float64) ui.Sign {
	var names []string
	for _, r := range rows {
		if of(r) > 0 {
			names = append(names, r.Name+" "+count(of(r)))
		}
	}
	if len(names) == 0 {
		return ui.Sign{Level: "good", Before: "Nothing " + map[string]string{"bad": "was dropped", "note": "would have been dropped"}[level] + " in 24 h"}
	}
	more := ""
	if len(names) > 3 {
		more = fmt.Sprintf(" and %d more", len(names)-3)
		names = names[:3]
	}
	return ui.Sign{Level: level, Link: ui.Link{Text: rows[0].Name, URL: serviceURL(rows[0].Name)}, After: verb + " " + count(of(rows[0])) + " requests in 24 h" + ofItsOwn(of(rows[0]), rows[0]), Soft: strings.Join(names[1:], ", ") + more}
}
