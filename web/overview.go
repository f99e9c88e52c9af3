package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// home is what the overview is made of: short lists only, as many however many
// services there are.
type home struct {
	runs    []rlc.Run
	open    []rlc.Proposal
	waiting int // open proposals in all
	low     []rlc.ServiceSummary
	total   int // services in all
	waits   waits
	asks    []ask
	age     counting
	score   *rlc.Score // of the newest day; nil where none is kept
}

func (s *server) gatherHome(v *visit) (h home, err error) {
	ctx := v.ctx()
	if h.runs, _, err = s.Records.Runs(ctx, rlc.Page{Number: 1, Size: 20}); err != nil {
		return h, err
	}
	if h.open, h.waiting, err = s.Records.Proposals(ctx, rlc.Open, "", rlc.Page{Number: 1, Size: 8}); err != nil {
		return h, err
	}
	if h.low, h.total, err = s.Records.Summaries(ctx, rlc.ServiceFilter{Sort: "headroom"}, rlc.Page{Number: 1, Size: mostLow}); err != nil {
		return h, err
	}
	if h.waits, err = s.waits(ctx); err != nil {
		return h, err
	}
	if h.asks, err = s.asks(ctx, ""); err != nil {
		return h, err
	}
	scores, err := s.Records.Scores(ctx, s.Now().UTC().Truncate(day).AddDate(0, 0, -1))
	for i := range scores {
		if scores[i].Fleet {
			h.score = &scores[i]
		}
	}
	h.age = s.counting(v, "")
	return h, err
}

// mostLow services are listed with their headroom.
const mostLow = 6

// home is /'s view: a verdict in words, then what waits for a person.
func (s *server) home(v *visit, h home) ui.Overview {
	now := s.Now().In(v.zone)
	last, whole := lastRuns(h.runs)
	view := ui.Overview{
		Date: now.Format("Mon 2 January"), Clock: now.Format("15:04 MST"),
		RunAction: v.who.role == actor, Counted: h.age.label,
		LowNote: lowNote(h.total, s.empty()),
		Verdict: verdictOf(v, last, h),
		Say:     s.state(v, last, whole, h),
		Queue:   s.needs(h),
		Sheets:  ui.Pager{CSV: "/overview.csv", JSON: "/overview.json"},
		LowRows: ui.Pager{CSV: fmt.Sprintf("/services.csv?sort=headroom&per_page=%d", mostLow), JSON: fmt.Sprintf("/services.json?sort=headroom&per_page=%d", mostLow)},
	}
	if len(view.Queue) == 0 {
		view.Empty = &ui.Empty{Title: "Nothing waits for you", Reason: "No proposal is open, every policy can be read, no quota is held, nothing was dropped, and no service would have dropped more than 1 % of its requests " + h.age.text + ".", Fix: ui.Link{Text: "All services", URL: "/services"}}
		if h.age.none || h.age.err != nil {
			view.Empty.Reason = "No proposal is open, every policy can be read, and no quota is held. What is dropped is not known: no enforcer has counted a request in 24 h."
		}
	}
	if h.score != nil {
		view.Multiples = multiples(v, *h.score, ui.Pager{CSV: "/scorecard.csv?by=multiple&days=1", JSON: "/scorecard.json?days=1"})
	}
	if s.empty() {
		view.Empty, view.Verdict = s.firstStep(), []ui.Part{{Text: "Nothing is limited yet: no service has a policy."}}
	}
	for _, r := range h.low {
		if r.Headroom != nil {
			view.Low = append(view.Low, serviceRow(r, ui.Sign{}, 0))
		}
	}
	return view
}

// lowNote says of how many services the lowest headroom is.
func lowNote(services int, none bool) string {
	switch {
	case none:
		return "There is no service yet."
	case services == 0:
		return "No run has looked at a service yet."
	}
	return "The least of " + plural(services, "service", "services") + "."
}

// overview is /.
func (s *server) overview(v *visit) error {
	h, err := s.gatherHome(v)
	if err != nil {
		return err
	}
	f := s.framed(v, "Overview", "overview", h.waiting)
	return s.render(v, http.StatusOK, ui.OverviewPage(f, s.home(v, h)))
}

// state is how things stand: runs, proposals, policies, snapshots, overrides,
// what is held, what is limited, what was dropped.
func (s *server) state(v *visit, last, whole *rlc.Run, h home) []ui.Sign {
	commit, desired := s.Truths.Desired()
	version, live := s.Truths.Live()
	var say []ui.Sign
	if whole != nil {
		say = append(say, runSign(whole))
	}
	if last != nil && last != whole {
		say = append(say, runSign(last))
	}
	switch {
	case h.waiting > 0:
		say = append(say, ui.Sign{Level: "note", Link: ui.Link{Text: plural(h.waiting, "proposal waits", "proposals wait"), URL: "/proposals?state=open"}, After: "for review"})
	case last == nil:
		say = append(say, ui.Sign{Level: "note", Before: "No run has proposed anything yet"})
	default:
		say = append(say, ui.Sign{Level: "good", Before: "No proposal waits"})
	}
	if n := brokenCount(desired); n > 0 {
		say = append(say, ui.Sign{Level: "bad", Before: plural(n, "service has", "services have") + " a policy that cannot be read; what is in force stays"})
	}
	if s.empty() && live == nil {
		say = append(say, ui.Sign{Level: "note", Before: "No snapshot is distributed: the configuration holds no service yet"}, s.overrideSign(v))
	} else {
		say = append(say, s.syncSign(commit, version, live != nil, s.Truths.Acks()), s.overrideSign(v))
	}
	say = append(say, s.unmanagedSign()...)
	if last != nil {
		say = append(say, heldSign(h.waits))
	}
	if h.score != nil {
		say = append(say, coverSign(h.score, last != nil))
	}
	say = append(say, dropSign("bad", "dropped", h.waits.dropping, realDrops, h.age))
	if !h.age.none && h.age.err == nil {
		say = append(say, dropSign("note", "would have dropped", h.waits.virtual, virtualDrops, h.age))
	}
	return say
}

// overrideSign counts the overrides that stand, and says when the next ends.
func (s *server) overrideSign(v *visit) ui.Sign {
	now, n := s.Now(), 0
	var next time.Time
	for _, o := range s.Overrides.Overrides() {
		if !o.Stands(now) {
			continue
		}
		if n++; next.IsZero() || o.Until.Before(next) {
			next = o.Until
		}
	}
	if n == 0 {
		return ui.Sign{Level: "good", Before: "No override stands"}
	}
	return ui.Sign{Level: "warn", Link: ui.Link{Text: plural(n, "override stands", "overrides stand"), URL: "/emergency"}, After: map[bool]string{true: "until ", false: "; the next ends "}[n == 1] + v.timeAs(next, "2 Jan 15:04:05").Text}
}

// coverSign says how much of the traffic a limit is in force for, and how many
// limits fit; ran is whether any run has read traffic by now.
func coverSign(x *rlc.Score, ran bool) ui.Sign {
	link := ui.Link{Text: "Coverage", URL: "/scorecard"}
	switch {
	case x.Requests <= 0 && ran:
		return ui.Sign{Level: "note", Link: link, After: "is not known: no traffic had been read when it was last counted"}
	case x.Requests <= 0:
		return ui.Sign{Level: "note", Link: link, After: "is not known: no run has read traffic yet"}
	}
	sign := ui.Sign{Level: "good", Link: link, After: shareText(x.Limited, x.Requests) + " of the traffic that policies read has a limit"}
	if share(x.Limited, x.Requests) < 0.5 {
		sign.Level = "note"
	}
	if x.Known > 0 {
		sign.Soft = shareText(float64(x.Fitting), float64(x.Known)) + " of limits lie at 1.3–3 times the peak that counts"
	}
	return sign
}

// needs is the queue of what a person may have to do, the costliest first.
func (s *server) needs(h home) []ui.Task {
	queue := dropTasks(h.waits, h.age)
	for _, p := range h.open {
		queue = append(queue, ui.Task{
			Chip: ui.Chip{Mode: "new", Text: "review"}, Title: p.Service, Detail: proposalLine(p),
			Action: ui.Link{Text: "Review", URL: proposalURL(p.ID)},
		})
	}
	if rest := h.waiting - len(h.open); rest > 0 {
		queue = append(queue, ui.Task{Chip: ui.Chip{Mode: "new", Text: "review"}, Title: plural(rest, "more proposal", "more proposals"), Action: ui.Link{Text: "List", URL: "/proposals?state=open"}})
	}
	queue = append(queue, triageTasks(h.waits)...)
	queue = append(queue, promoteTasks(h.waits, s.Now())...)
	queue = append(queue, askTasks(h.asks)...)
	if _, desired := s.Truths.Desired(); desired != nil {
		for name, problems := range sortedMap(desired.Broken) {
			if len(queue) >= 20 || len(problems) == 0 {
				break
			}
			queue = append(queue, ui.Task{Chip: ui.Chip{Mode: "held", Text: "held"}, Title: name, Detail: problems[0].String(), Action: ui.Link{Text: "Look", URL: serviceURL(name)}})
		}
	}
	return append(queue, heldTasks(h.waits)...)
}

// waits is what the summaries of all services say of what a person may have to
// look at: each list is one page, the most first.
type waits struct {
	dropping, virtual, held, unjudged, ready []rlc.ServiceSummary
}

// mostWaits bounds each list; where the last one still has drops or held
// quotas, there are more.
const mostWaits = 50

func (s *server) waits(ctx context.Context) (w waits, err error) {
	for sort, into := range map[string]*[]rlc.ServiceSummary{"drops": &w.dropping, "virtual_drops": &w.virtual, "held": &w.held, "unjudged": &w.unjudged, "ready": &w.ready} {
		if *into, _, err = s.Records.Summaries(ctx, rlc.ServiceFilter{Sort: sort, Desc: true, Some: true, Uncounted: true}, rlc.Page{Number: 1, Size: mostWaits}); err != nil {
			return w, err
		}
	}
	above := func(of func(rlc.ServiceSummary) float64) func(rlc.ServiceSummary) bool {
		return func(r rlc.ServiceSummary) bool { return of(r) < 0.5 } // a rate's rounding is no request
	}
	w.dropping = slices.DeleteFunc(w.dropping, above(realDrops))
	w.virtual = slices.DeleteFunc(w.virtual, above(virtualDrops))
	w.held = slices.DeleteFunc(w.held, func(r rlc.ServiceSummary) bool { return r.Held == 0 })
	w.unjudged = slices.DeleteFunc(w.unjudged, func(r rlc.ServiceSummary) bool { return r.Unjudged == 0 })
	w.ready = slices.DeleteFunc(w.ready, func(r rlc.ServiceSummary) bool { return len(r.Ready) == 0 })
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

func dropTasks(w waits, age counting) []ui.Task {
	const most = 5
	var out []ui.Task
	add := func(chip ui.Chip, rows []rlc.ServiceSummary, verb, sort, tail string, of func(rlc.ServiceSummary) float64) {
		for i, r := range rows {
			if i == most {
				out = append(out, ui.Task{Chip: chip, Title: plural(len(rows)-most, "more service", "more services"), Detail: verb + " requests " + age.text, Action: ui.Link{Text: "List", URL: "/services?sort=" + sort + "&dir=desc"}})
				break
			}
			out = append(out, ui.Task{Chip: chip, Title: r.Name, Detail: verb + " " + count(of(r)) + " requests " + age.text + ofItsOwn(of(r), r), Action: ui.Link{Text: "Look", URL: serviceURL(r.Name) + tail}})
		}
	}
	add(ui.Chip{Mode: "enforce", Text: "drops"}, w.dropping, "dropped", "drops", "", realDrops)
	add(ui.Chip{Mode: "shadow", Text: "would drop"}, w.storms(), "would have dropped", "virtual_drops", "/shadow", virtualDrops)
	return out
}

// triageTasks are the services with episodes of would-be drops that nobody judged,
// the most drops first.
func triageTasks(w waits) []ui.Task {
	const most = 5
	chip := ui.Chip{Mode: "shadow", Text: "triage"}
	var out []ui.Task
	for i, r := range w.unjudged {
		if i == most {
			return append(out, ui.Task{Chip: chip, Title: leastOf(len(w.unjudged)) + plural(len(w.unjudged)-most, "more service", "more services"), Detail: "with episodes that nobody has judged", Action: ui.Link{Text: "List", URL: "/services?sort=virtual_drops&dir=desc"}})
		}
		out = append(out, ui.Task{Chip: chip, Title: r.Name, Detail: plural(r.Unjudged, "episode", "episodes") + " in replay, " + count(r.UnjudgedDrops) + " would-be drops: traffic, or not?", Action: ui.Link{Text: "Judge", URL: serviceURL(r.Name) + "/shadow"}})
	}
	return out
}

// promoteTasks are the buckets whose checklist lacks only somebody's word.
func promoteTasks(w waits, now time.Time) []ui.Task {
	const most = 5
	chip := ui.Chip{Mode: "enforce", Text: "promote"}
	var out []ui.Task
	rest := 0
	for _, r := range w.ready {
		for _, b := range r.Ready {
			if len(out) == most {
				rest++
				continue
			}
			replay := "nothing would have dropped"
			if b.Share > 0 {
				replay = percent(float64(b.Share)) + " would have dropped, every episode judged"
			}
			out = append(out, ui.Task{Chip: chip, Title: r.Name + " / " + b.Bucket, Detail: "in shadow for " + span(now.Sub(b.Since)) + "; every check is passed but an owner's word; " + replay, Action: ui.Link{Text: "Promote", URL: checklistURL(r.Name, b.Bucket)}})
		}
	}
	if rest > 0 {
		out = append(out, ui.Task{Chip: chip, Title: leastOf(len(w.ready)) + plural(rest, "more bucket", "more buckets"), Detail: "in shadow, whose checks are passed"})
	}
	return out
}

// leastOf begins a number that a whole page of services came to.
func leastOf(services int) string {
	if services == mostWaits {
		return "At least "
	}
	return ""
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
		out = append(out, ui.Task{Chip: chip, Title: r.Name, Detail: plural(r.Held, "quota left as it is", "quotas left as they are") + " by the last run that looked, each for a reason", Action: ui.Link{Text: "Look", URL: serviceURL(r.Name) + "?mode=held"}})
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
func verdictOf(v *visit, last *rlc.Run, h home) []ui.Part {
	runs, w, waiting, age := h.runs, h.waits, h.waiting, h.age
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
		say(ui.Part{Text: r.Name, URL: serviceURL(r.Name) + tail}, ui.Part{Text: " " + verb + " "}, ui.Part{Text: count(of(r)), Bold: true}, ui.Part{Text: " requests " + age.text + ofItsOwn(of(r), r)})
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
		say(ui.Part{Text: "1 proposal waits", URL: "/proposals?state=open"}, ui.Part{Text: "."})
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
		sign.After = ended(r.Result) + ": " + r.Detail
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
func (s *server) syncSign(commit rlc.Commit, live rlc.Version, some bool, acks []rlc.Ack) ui.Sign {
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
	return ui.Sign{Level: "good", Before: fmt.Sprintf("Live equals desired: snapshot %s", live), Soft: s.reporting(len(acks))}
}

// dropSign names who dropped most in a day. rows are sorted, the most first.
// Where nobody counts, nothing is known: that is no good news.
func dropSign(level, verb string, rows []rlc.ServiceSummary, of func(rlc.ServiceSummary) float64, age counting) ui.Sign {
	var names []string
	for _, r := range rows {
		if of(r) > 0 {
			names = append(names, r.Name+" "+count(of(r)))
		}
	}
	switch {
	case len(names) > 0:
	case age.err != nil:
		return ui.Sign{Level: "warn", Before: "What enforcers count cannot be read now", Soft: "no drop was known when it last could"}
	case age.none:
		return ui.Sign{Level: "note", Before: "No enforcer has counted a request in 24 h", Soft: "what would be dropped is not known"}
	default:
		return ui.Sign{Level: "good", Before: "Nothing " + map[string]string{"bad": "was dropped", "note": "would have been dropped"}[level] + " " + age.text}
	}
	more := ""
	if len(names) > 3 {
		more = fmt.Sprintf(" and %d more", len(names)-3)
		names = names[:3]
	}
	return ui.Sign{Level: level, Link: ui.Link{Text: rows[0].Name, URL: serviceURL(rows[0].Name)}, After: verb + " " + count(of(rows[0])) + " requests " + age.text + ofItsOwn(of(rows[0]), rows[0]), Soft: strings.Join(names[1:], ", ") + more}
}
