package web

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/review"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web/ui"
)

var proposalStates = []rlc.ProposalState{rlc.Open, rlc.Accepted, rlc.Rejected, rlc.Superseded, rlc.Failed}

func stateChip(s rlc.ProposalState) ui.Chip {
	switch s {
	case rlc.Open:
		return ui.Chip{Mode: "new", Text: "open"}
	case rlc.Pending:
		return ui.Chip{Mode: "held", Text: "publishing"}
	case rlc.Accepted:
		return ui.Chip{Mode: "done", Text: "accepted"}
	case rlc.Failed:
		return ui.Chip{Mode: "held", Text: "not published"}
	}
	return ui.Chip{Mode: "none", Text: string(s)}
}

// proposal is /proposals/{id}, with its endings .json and .csv.
func (s *server) proposal(v *visit) error {
	id, ending := format(v.r.PathValue("id"), func(id string) bool {
		_, err := s.Records.ProposalByID(v.ctx(), id)
		return err == nil
	})
	p, err := s.Records.ProposalByID(v.ctx(), id)
	if err != nil {
		return err
	}
	made := p.Changes
	p, note := s.asItStands(v.ctx(), p)
	switch ending {
	case ".json":
		return answer(v, http.StatusOK, proposalJSON(p))
	case ".csv":
		return sheet(v, "proposal-"+id, changeHeader, changeRows(p.Changes))
	}
	f, err := s.frame(v, "Proposal of "+p.Service, "proposals")
	if err != nil {
		return err
	}
	changes := slices.Clone(p.Changes)
	slices.SortStableFunc(changes, func(a, b rlc.Change) int { return cmpFloat(math.Abs(stepOf(b)), math.Abs(stepOf(a))) })
	var svc *rlc.Service
	if _, desired := s.Truths.Desired(); desired != nil {
		svc = desired.Service(p.Service)
	}
	before, err := s.before(v.ctx(), p)
	if err != nil {
		return err
	}
	up, down, fresh := moves(changes)
	view := ui.Proposal{
		ID: p.ID, State: string(p.State), Was: "Desired", Waits: p.State == rlc.Open, CanAct: v.who.role == actor,
		Accept: proposalURL(p.ID) + "/accept", Seen: p.Holds(), Reject: proposalURL(p.ID) + "/reject", SignIn: "/login?next=" + query(proposalURL(p.ID)),
		Head: ui.Head{Parent: ui.Link{Text: p.Service, URL: serviceURL(p.Service)}, Title: plural(len(changes), "quota", "quotas") + " " + movesText(up, down, fresh), Chips: []ui.Chip{stateChip(p.State)}},
		Path: quotafile.QuotasPath(p.Service), Diff: diff(p.Service, changes, before),
		Command: command("rlc plan --service", p.Service, "--now", runNow(changes, p)),
		CSV:     proposalURL(p.ID) + ".csv", JSON: proposalURL(p.ID) + ".json", Review: reviewURL(p), Rest: s.rest(p, svc),
		Steps: proposalSteps(p, s.inForce(p)), Guards: guardSigns(svc, changes), Timeline: s.timeline(v, p),
	}
	if settled(p) {
		view.Was = "Desired then"
	}
	view.Edit = "Another number? Commit it to the branch " + p.Branch + " in the config repository: runs leave a branch with a person's commit alone. Or write limit: into the bucket's policy.yaml, and no run computes it any more."
	edits := s.Amendments != nil && view.Waits && view.CanAct
	if edits {
		view.Edit = "Another number? Edit puts yours on the branch " + p.Branch + " as your commit; runs leave such a branch alone. To have no run compute it any more, write limit: into the bucket's policy.yaml."
		if view.Amend, err = s.amendForm(v, p, changes); err != nil {
			return err
		}
	}
	view.Facts = []string{"run " + p.RunID + " · base " + p.Base, "branch " + p.Branch + " · commit " + p.Commit + " · content " + p.Content}
	var oldSum, newSum float64
	thin := 0
	adds := rlc.Summable(changes)
	for _, c := range changes {
		view.Rows = append(view.Rows, moveRow(p.Service, svc, c))
		if firstGuess(made, &c) {
			row := &view.Rows[len(view.Rows)-1]
			row.New, row.Note = rangeText(&c, c.New), "low confidence"
			thin++
		}
		if edits && amendable(&c) {
			view.Rows[len(view.Rows)-1].EditURL = amendAt(p, &c)
			view.EditURL = cmp.Or(view.EditURL, amendAt(p, &c))
		}
		if c.Old != nil && adds(&c) {
			oldSum += float64(c.Old.Rate)
		}
		if c.New != nil && adds(&c) {
			newSum += float64(c.New.Rate)
		}
		if policies.LowersRate(&c) {
			view.Tight = append(view.Tight, ui.Task{Chip: modeChip(changeMode(svc, c)), Title: quotaName(c.Bucket, c.Key),
				Detail: limitText(c.Old) + " → " + limitText(c.New) + " req/s" + policies.HoursDelta(&c) + "; " + left(c) + s.ownedBy(c.Key["caller"]), Action: ui.Link{Text: "Look", URL: bucketURL(p.Service, c.Bucket, c.Key)}})
		}
	}
	if s.Merging != nil && view.Waits {
		ok, because := s.Merging.Mergeable(v.ctx(), p)
		level := "note"
		if ok {
			level = "good"
		}
		view.Guards = append(view.Guards, ui.Sign{Level: level, Before: review.MergeText(ok, because)})
	}
	old, neu, known := drops(changes)
	total := ui.MoveRow{Link: ui.Link{Text: "Σ of these quotas"}, Old: rate(oldSum), New: rate(newSum), DropsOld: "—", DropsNew: "—", Why: s.capacityText(svc, changes)}
	if oldSum > 0 {
		total.Delta = signed((newSum - oldSum) / oldSum)
	}
	if known {
		total.DropsOld, total.DropsNew = digits(old), digits(neu)
	}
	view.Total = &total
	view.Verdict, view.Risk = proposalVerdict(p, changes, old, neu, known)
	view.Risk += note + thinText(thin)
	view.Caption = "Replayed over the run's window. Old is the quota in force, new the proposed one."
	if len(changes) > 0 && changes[0].Backtest.New != nil {
		view.Caption = "Replayed in steps of " + stepText(time.Duration(changes[0].Backtest.New.Step*float64(time.Second))) + ". " + policies.BurstsText(changes)
	}
	return s.render(v, http.StatusOK, ui.ProposalPage(f, view))
}

func runNow(changes []rlc.Change, p rlc.Proposal) string {
	if len(changes) > 0 && !changes[0].At.IsZero() {
		return stamp(changes[0].At)
	}
	return stamp(p.Created)
}

// stepOf is the relative step of a change; a new quota is the largest.
func stepOf(c rlc.Change) float64 {
	if c.Old == nil || c.New == nil || c.Old.Rate == 0 {
		return math.Inf(1)
	}
	return float64((c.New.Rate - c.Old.Rate) / c.Old.Rate)
}

// changeMode is the mode in force for a change's quota.
func changeMode(svc *rlc.Service, c rlc.Change) rlc.Mode {
	if c.NewMode == rlc.Shadow {
		return rlc.Shadow
	}
	if svc != nil {
		if b := svc.Bucket(c.Bucket); b != nil {
			return b.Mode
		}
	}
	return c.NewMode
}

func left(c rlc.Change) string {
	if h, ok := c.NewTimed.Headroom(c.New, c.Peak); ok {
		return "peak that counts " + rate(float64(c.Peak.Rate)) + ", so " + signed(h) + " headroom is left"
	}
	return "peak that counts unknown"
}

func moveRow(service string, svc *rlc.Service, c rlc.Change) ui.MoveRow {
	mode := changeMode(svc, c)
	row := ui.MoveRow{
		Link: ui.Link{Text: quotaName(c.Bucket, c.Key), URL: bucketURL(service, c.Bucket, c.Key)}, Chip: modeChip(mode), Real: mode == rlc.Enforce,
		Old: limitText(c.Old), New: limitText(c.New), OldX: limitExact(c.Old), NewX: limitExact(c.New), Delta: moveText(&c),
		Dir: "same", Peak: "—", Headroom: "—", DropsOld: "—", DropsNew: "—", Why: c.Why,
	}
	if mode == "" {
		row.Chip = ui.Chip{Mode: "none", Text: "—"}
	}
	if c.Look != "" {
		row.Why += " · look: " + c.Look
	}
	if c.Peak.Rate > 0 {
		row.Peak, row.PeakX = rate(float64(c.Peak.Rate)), exact(float64(c.Peak.Rate))+" req/s at "+stamp(c.Peak.At)
	}
	if h, ok := c.NewTimed.Headroom(c.New, c.Peak); ok {
		row.Headroom, row.Bad = signed(h), h < 0
	}
	if b := c.Backtest.Old; b != nil {
		row.DropsOld, row.SomeOld = bounded(b.Drops, b.AtLeast), b.Drops > 0
	}
	if b := c.Backtest.New; b != nil {
		row.DropsNew, row.SomeNew = bounded(b.Drops, b.AtLeast), b.Drops > 0
	}
	old, proposed := 0.0, 0.0
	if c.Old != nil {
		old = float64(c.Old.Rate)
	}
	if c.New != nil {
		proposed = float64(c.New.Rate)
	}
	switch way := policies.Direction(&c); {
	case c.Old == nil:
		row.Dir = "new"
	case way > 0:
		row.Dir = "up"
	case way < 0:
		row.Dir = "down"
	}
	row.ArrowX, row.ArrowW, row.From, row.Tip = arrow(old, proposed)
	return row
}

func proposalSteps(p rlc.Proposal, live bool) []ui.Choice {
	names := []string{"Computed", "Published", "In review", "Accepted", "Live"}
	at := 2
	switch p.State {
	case rlc.Pending:
		at = 1
	case rlc.Accepted:
		if at = 3; live {
			at = 4
		}
	case rlc.Rejected:
		names, at = append(names[:3], "Rejected"), 3
	case rlc.Superseded:
		names, at = append(names[:3], "Superseded"), 3
	case rlc.Failed:
		names, at = append(names[:1], "Not published"), 1
	}
	out := make([]ui.Choice, 0, len(names))
	for i, n := range names {
		out = append(out, ui.Choice{Label: n, On: i == at})
	}
	return out
}

// settled reports whether a proposal was decided, so that what it compares itself
// with may be in force no more.
func settled(p rlc.Proposal) bool {
	return p.State == rlc.Accepted || p.State == rlc.Rejected || p.State == rlc.Superseded
}

func proposalVerdict(p rlc.Proposal, changes []rlc.Change, old, neu float64, known bool) ([]ui.Part, string) {
	up, down, fresh := moves(changes)
	var does []string
	for _, m := range []struct {
		n         int
		one, many string
	}{{up, "rises", "rise"}, {down, "falls", "fall"}, {fresh, "is new", "are new"}} {
		switch {
		case m.n == 1:
			does = append(does, "1 "+m.one)
		case m.n > 1:
			does = append(does, count(float64(m.n))+" "+m.many)
		}
	}
	say := []ui.Part{{Text: plural(len(changes), "quota", "quotas") + " of " + p.Service + " change"}}
	if len(changes) == 1 {
		say[0].Text += "s"
	}
	if len(does) > 0 {
		say[0].Text += ": " + strings.Join(does, ", ")
	}
	say[0].Text += "."
	if len(changes) == 0 {
		say[0].Text = "No quota of " + p.Service + " changes: the files that are rendered from them for other limiters do."
	}
	if known {
		say = append(say, ui.Part{Text: " Over past traffic the proposed limits would have dropped "}, ui.Part{Text: count(neu), Bold: true}, ui.Part{Text: " of " + count(replayedRequests(changes)) + " requests (" + percent(share(neu, replayedRequests(changes))) + ")"})
		if fresh < len(changes) {
			then := ""
			if settled(p) {
				then = " then"
			}
			say = append(say, ui.Part{Text: "; those in force" + then + " would have dropped "}, ui.Part{Text: count(old), Bold: true})
		}
		say = append(say, ui.Part{Text: "."})
	}
	risk := review.Risk(changes)
	switch {
	case p.Human:
		risk += " A person has committed to the branch, so RLC leaves it alone."
	case p.State == rlc.Pending && p.Reason != "" && p.Error == "":
		risk += " It " + p.Reason + "."
	}
	switch {
	case p.Error == "":
	case p.State == rlc.Failed:
		risk += " It cannot be published: " + plain(fmt.Errorf("%s", p.Error)) + ". The numbers in force stay."
	default:
		risk += " Publishing failed last: " + plain(fmt.Errorf("%s", p.Error)) + "."
	}
	return say, risk
}

// guardSigns shows what guards did, as the review tells it.
func guardSigns(svc *rlc.Service, changes []rlc.Change) []ui.Sign {
	var out []ui.Sign
	for _, g := range review.Guards(svc, changes) {
		s := ui.Sign{Level: "good", Before: capital(g.Name), Soft: g.Detail}
		switch {
		case g.Rounds:
			s.Level = "note"
		case !g.OK:
			s.Level = "warn"
		}
		out = append(out, s)
	}
	return out
}

// capital makes a rule's name start a line.
func capital(s string) string {
	r := []rune(s)
	if len(r) > 0 {
		r[0] = unicode.ToUpper(r[0])
	}
	return string(r)
}

func (s *server) timeline(v *visit, p rlc.Proposal) []ui.Event {
	out := []ui.Event{
		{At: v.time(p.Created), Parts: []ui.Part{{Text: "A "}, {Text: "run", URL: runURL(p.RunID)}, {Text: " computed it from stored history"}}},
	}
	if p.Commit != "" {
		out = append(out, ui.Event{At: v.time(p.Created), Parts: []ui.Part{{Text: "Published as one commit" + map[bool]string{false: ", " + short(p.Commit)}[p.Human] + ", on " + p.Branch}}})
	}
	if p.Human {
		out = append(out, ui.Event{Label: "since", Parts: []ui.Part{{Text: "A person has committed to it; the branch is at " + short(p.Commit)}}})
	}
	switch p.State {
	case rlc.Open, rlc.Pending:
		if p.State == rlc.Pending {
			out = append(out, ui.Event{Label: "next", Next: true, Parts: []ui.Part{{Text: "Its commit is published"}}})
		}
		out = append(out,
			ui.Event{Label: "next", Next: true, Parts: []ui.Part{{Text: "Somebody accepts or rejects it"}}},
			ui.Event{Label: "then", Next: true, Parts: []ui.Part{{Text: "Enforcers load the new snapshot within seconds"}}},
			ui.Event{Label: "to undo", Next: true, Parts: []ui.Part{{Text: "Roll the service back, on its page or with rlc rollback"}}})
	case rlc.Accepted:
		out = append(out, ui.Event{At: v.time(p.Decided), Parts: []ui.Part{{Text: "Accepted by " + orNobody(p.Actor)}}}, s.liveEvent(p),
			ui.Event{Label: "to undo", Next: true, Parts: []ui.Part{{Text: "Roll the service back, on its page or with rlc rollback"}}})
	case rlc.Rejected:
		out = append(out, ui.Event{At: v.time(p.Decided), Parts: []ui.Part{{Text: "Rejected by " + orNobody(p.Actor) + ": " + p.Reason}}})
	case rlc.Superseded:
		out = append(out, ui.Event{At: v.time(p.Decided), Parts: []ui.Part{{Text: "A newer proposal took its place"}}})
	case rlc.Failed:
		out = append(out, ui.Event{At: v.time(p.Decided), Parts: []ui.Part{{Text: "It cannot be published: " + clip(p.Error, 400)}}},
			ui.Event{Label: "next", Next: true, Parts: []ui.Part{{Text: "A later run puts it up once that is mended"}}})
	}
	return out
}

func orNobody(name string) string {
	if name == "" {
		return "somebody outside RLC"
	}
	return name
}

// before finds the quotas of the base branch that a proposal's changes start
// from, by ID: as they are desired now, or, where a proposal accepted later has
// replaced them, as an earlier accepted one put them there. Where neither
// tells, a quota is known without its why.
func (s *server) before(ctx context.Context, p rlc.Proposal) (map[string]rlc.Quota, error) {
	_, desired := s.Truths.Desired()
	out, missing := map[string]rlc.Quota{}, false
	for _, c := range p.Changes {
		if c.Old == nil {
			continue
		}
		q := *c.Was()
		if desired != nil {
			if d := desired.QuotaByID(p.Service, c.ID()); d != nil && d.Same(q) {
				q.Why = d.Why
			}
		}
		missing = missing || q.Why == ""
		out[c.ID()] = q
	}
	if !missing {
		return out, nil
	}
	earlier, _, err := s.Records.Proposals(ctx, rlc.Accepted, p.Service, rlc.Page{Number: 1, Size: 50})
	if err != nil {
		return nil, err
	}
	for _, e := range earlier { // newest first
		if e.ID == p.ID || !e.Created.Before(p.Created) {
			continue
		}
		for _, c := range e.Changes {
			if q, ok := out[c.ID()]; ok && q.Why == "" && c.New != nil && *c.New == q.Limit {
				q.Why = c.Why
				out[c.ID()] = q
			}
		}
	}
	return out, nil
}

// diff shows what changes of the generated file, quota by quota, as git would.
func diff(service string, changes []rlc.Change, before map[string]rlc.Quota) []ui.DiffLine {
	const most = 40
	out := []ui.DiffLine{}
	changes = slices.Clone(changes)
	slices.SortFunc(changes, func(a, b rlc.Change) int { return strings.Compare(a.ID(), b.ID()) })
	for i, c := range changes {
		if i == most {
			out = append(out, ui.DiffLine{Kind: "i", Text: fmt.Sprintf("   … %d more", len(changes)-most)})
			break
		}
		var old, neu []string
		if q, ok := before[c.ID()]; ok {
			old = quotaLines(service, q)
		}
		if q := c.Quota(); q != nil {
			neu = quotaLines(service, *q)
		}
		out = append(out, diffLines(old, neu)...)
	}
	return out
}

// quotaLines are the lines of one quota in quotas.yaml.
func quotaLines(service string, q rlc.Quota) []string {
	text := string(quotafile.MarshalQuotas(service, []rlc.Quota{q}))
	_, text, _ = strings.Cut(text, "\nquotas:\n")
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// diffLines sets two versions of a quota beside each other: what is gone, then
// what is new, between the lines that stay.
func diffLines(old, neu []string) []ui.DiffLine {
	var out, del, ins []ui.DiffLine
	flush := func() {
		out = append(append(out, del...), ins...)
		del, ins = nil, nil
	}
	for len(old) > 0 || len(neu) > 0 {
		var a, b string
		takeOld, takeNew := len(old) > 0, len(neu) > 0
		if takeOld {
			a = old[0]
		}
		if takeNew {
			b = neu[0]
		}
		if takeOld && takeNew {
			order := fieldOrder(a) - fieldOrder(b)
			takeOld, takeNew = order <= 0, order >= 0
		}
		switch {
		case takeOld && takeNew && a == b:
			flush()
			out = append(out, ui.DiffLine{Text: " " + a})
		default:
			if takeOld {
				del = append(del, ui.DiffLine{Kind: "del", Text: "-" + a})
			}
			if takeNew {
				ins = append(ins, ui.DiffLine{Kind: "ins", Text: "+" + b})
			}
		}
		if takeOld {
			old = old[1:]
		}
		if takeNew {
			neu = neu[1:]
		}
	}
	flush()
	return out
}

// fieldOrder is a line's place in a quota of quotas.yaml.
func fieldOrder(line string) int {
	name, _, _ := strings.Cut(strings.TrimLeft(line, " -"), ":")
	return slices.Index([]string{"bucket", "key", "rate", "burst", "mode", "why"}, name)
}
