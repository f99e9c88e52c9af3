package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web/ui"
)

// window is how far back a bucket's page looks.
const window = 28 * day

// bucket is /services/{service}/buckets/{bucket}: one quota where ?key= names
// one (or the bucket has no keys), else the list of its keys.
func (s *server) bucket(v *visit) error {
	t, err := s.truth(v.ctx(), v.r.PathValue("service"))
	if err != nil {
		return err
	}
	name, ending := format(v.r.PathValue("bucket"), func(n string) bool { return len(t.ofBucket(n)) > 0 })
	key, err := rlc.ParseKey(v.r.URL.Query().Get("key"))
	if err != nil {
		return err
	}
	rows := t.ofBucket(name)
	if len(rows) == 0 {
		return t.noBucket(name)
	}
	table := v.r.URL.Query().Get("table")
	r := t.row(name, key)
	one := r != nil && (len(key) > 0 || len(rows) == 1)
	if one && ending != "" && table == "marks" {
		return s.quotaMarks(v, t, r, ending)
	}
	if one && ending == ".json" && table == "history" {
		return s.changesJSON(v, t, r)
	}
	if ending == ".json" {
		return s.answerBucket(v, t, name, key)
	}
	if one {
		if ending == ".csv" {
			return s.quotaCSV(v, t, r, table)
		}
		return s.quotaPage(v, t, r)
	}
	if len(key) > 0 {
		return t.noQuota(name, key)
	}
	counted, countErr := s.History.Counts(v.ctx(), t.name, day, s.Now())
	seen := countsOf(counted)
	if countErr != nil {
		seen = nil
	}
	if ending == ".csv" {
		return sheet(v, t.name+"-"+name, bucketHeader, bucketRows(rows, seen))
	}
	return s.keysPage(v, t, name, rows, seen)
}

// keysPage lists the keys of a bucket that counts per key.
func (s *server) keysPage(v *visit, t *truth, name string, rows []row, seen counts) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	by, desc := v.r.URL.Query().Get("sort"), v.r.URL.Query().Get("dir") == "desc"
	if rows, err = arrange(rows, seen, "", "", by, desc); err != nil {
		return err
	}
	f, err := s.frame(v, t.name+" / "+name, "services")
	if err != nil {
		return err
	}
	age := s.counting(v, t.name)
	all := row{bucket: rows[0].bucket, name: rows[0].name, mode: rows[0].mode}
	if all.bucket != nil {
		all.mode = all.bucket.Mode
	}
	view := ui.Bucket{Head: s.bucketHead(t, &all), Recalculate: runsURL(t.name), Columns: quotaColumns(v, by, desc, age.label), Drops: "Drops " + age.label, KeysPager: v.pager(page, len(cut(rows, page)), len(rows))}
	view.Head.Title, view.Verdict = name, t.invalid()
	if view.Keys, err = s.quotaTable(v.ctx(), t, cut(rows, page), seen); err != nil {
		view.KeysNote = unreadWeek(err)
	}
	return s.render(v, http.StatusOK, ui.BucketPage(f, view))
}

// policyPlace is the file and line of a bucket in the config repository.
func policyPlace(service string, line int) string {
	return fmt.Sprintf("%s:%d", quotafile.PolicyPath(service), line)
}

func (s *server) bucketHead(t *truth, r *row) ui.Head {
	h := ui.Head{Parent: ui.Link{Text: t.name, URL: serviceURL(t.name)}, Title: quotaName(r.name, r.key), Margin: "Bucket"}
	switch {
	case r.bucket == nil && t.broken:
		h.Chips = []ui.Chip{{Mode: "held", Text: "policy not read"}}
		return h
	case r.bucket == nil:
		h.Chips = []ui.Chip{{Mode: "held", Text: "not in the policy"}}
		return h
	}
	h.Margin = capital(string(r.bucket.Role)) + " bucket, " + strings.ReplaceAll(r.bucket.Algorithm, "_", " ")
	h.Chips = []ui.Chip{modeChip(r.mode)}
	var match []string
	for a, p := range sortedMap(r.bucket.Match) {
		if _, chosen := r.key[a]; !chosen {
			match = append(match, a+" "+patternText(p))
		}
	}
	for a, value := range sortedMap(r.key) {
		match = append(match, a+" is "+value)
	}
	if len(r.key) == 0 && len(r.bucket.Each) > 0 {
		match = append(match, "counts each "+strings.Join(r.bucket.Each, ", ")+" by itself")
	}
	if len(match) == 0 {
		match = []string{"any request"}
	}
	h.Facts = []ui.Link{{Text: "matches " + strings.Join(match, ", ")}}
	if t.service != nil && len(t.service.Owners) > 0 {
		h.Facts = append(h.Facts, ui.Link{Text: "owner " + strings.Join(t.service.Owners, ", ")})
	}
	if l := callerLink(r); l.URL != "" {
		h.Facts = append(h.Facts, ui.Link{Text: "limits on " + l.Text, URL: l.URL})
	}
	h.Facts = append(h.Facts, ui.Link{Text: "why a request is refused", URL: requestURL(t.name, r, "")})
	if promotable(r.bucket) {
		h.Facts = append(h.Facts, ui.Link{Text: "from shadow to enforce", URL: checklistURL(t.name, r.bucket.Name)})
	}
	if r.bucket.Policy != nil {
		h.Facts = append(h.Facts, ui.Link{Text: "policy " + r.bucket.Policy.Kind})
	} else {
		h.Facts = append(h.Facts, ui.Link{Text: "written by hand"})
	}
	if t.broken {
		h.Chips = append(h.Chips, ui.Chip{Mode: "held", Text: "policy not read"})
		h.Facts = append(h.Facts, ui.Link{Text: "as live, snapshot " + t.live.String()})
	} else if r.bucket.Line > 0 {
		h.Facts = append(h.Facts, ui.Link{Text: policyPlace(t.name, r.bucket.Line)})
	}
	if l, ok := loopOf(t.name, r.bucket); ok {
		h.Facts = append(h.Facts, l)
	}
	return h
}

// quotaPage is the page of one quota.
func (s *server) quotaPage(v *visit, t *truth, r *row) error {
	ctx := v.ctx()
	page, err := v.page()
	if err != nil {
		return err
	}
	if err := s.complete(ctx, t, r); err != nil {
		return err
	}
	log, total, err := s.Records.ChangeLog(ctx, t.name, r.name, r.key, page)
	if err != nil {
		return err
	}
	verdicts, err := s.Records.Verdicts(ctx, t.name)
	if err != nil {
		return err
	}
	proposals, _, err := s.Records.Proposals(ctx, "", t.name, rlc.Page{Number: 1, Size: 50})
	if err != nil {
		return err
	}
	overrides, err := s.touching(v, t, r)
	if err != nil {
		return err
	}
	until := s.Now().UTC()
	counted, countErr := s.History.Counts(ctx, t.name, day, until)
	history, historyErr := s.stored(ctx, t, r, until)
	f, err := s.frame(v, t.name+" / "+quotaName(r.name, r.key), "services")
	if err != nil {
		return err
	}
	f.Chart = historyErr == nil && len(history.Hours) > 1
	verdict := append(t.invalid(), quotaVerdict(t, r)...)
	if countErr == nil {
		verdict = append(verdict, liveVerdict(countsOf(counted)[r.id()], s.counting(v, t.name), droppedBy(r.mode, s.stoodFor(v, t.name, r)))...)
	}
	view := ui.Bucket{
		Head: s.bucketHead(t, r), Recalculate: runsURL(t.name),
		Action: serviceURL(t.name) + "/buckets/" + segment(r.plain()) + "/verdicts?key=" + query(r.key.String()),
		Truths: append(truths(t, r, v), overrideTruth(v, f, overrides)), Verdict: verdict,
		Command: command("rlc explain", t.name, r.name, r.key.String()),
	}
	view.Emergency, view.Offered = emergencyURL(t.name, r), s.offered(t)
	if r.change != nil {
		view.Read, view.ReadAt = ui.Link{Text: "last run", URL: runURL(r.change.RunID)}, v.time(r.change.At)
		view.Coverage = percent(float64(r.change.Coverage)) + " of the expected steps"
	}
	if f.Chart {
		if view.Chart, err = s.quotaChart(v, t, r, history, proposals); err != nil {
			return err
		}
		view.Chart.MarksCSV, view.Chart.MarksJSON = tableAs(v, ".csv", "marks"), tableAs(v, ".json", "marks")
		view.Resolve = "1 h, highest step of " + stepText(history.Step) + " kept"
		view.SightName, view.Sight = seconds(v, history)
		view.Days = days(v, history)
		if view.WhatIf, err = whatIf(v, t, r, history); err != nil {
			return err
		}
	} else {
		view.NoChart = noChart(t, r, historyErr)
	}
	explain(v, t, r, &view)
	if err := s.readAt(v, r, &view); err != nil {
		return err
	}
	view.Flags = flagRows(v, r, verdicts)
	episodeRows(v, t, r, &view)
	answers := map[string]*rlc.Proposal{}
	for i := range proposals {
		answers[proposals[i].RunID] = &proposals[i]
	}
	for _, c := range log {
		view.History = append(view.History, historyRow(v, c, answers[c.RunID]))
	}
	view.Overridden = s.overriddenGrid(v, overrides)
	view.Pager, view.EpisodeCSV = v.pager(page, len(log), total), tableCSV(v, "episodes")
	view.Pager.CSV, view.Pager.JSON = tableCSV(v, "history"), tableAs(v, ".json", "history")
	view.JSON = tableAs(v, ".json", "")
	view.DaysCSV, view.StepsCSV, view.FlagsCSV = tableCSV(v, ""), tableCSV(v, "steps"), tableCSV(v, "left_out")
	if len(log) == 0 {
		view.NoHistory = &ui.Empty{Title: "No run has changed this quota", Reason: "A line appears when a run proposes another number, or when what holds it changes."}
	}
	return s.render(v, http.StatusOK, ui.BucketPage(f, view))
}

// quotaChart gathers what happened to a quota and draws it into its chart.
func (s *server) quotaChart(v *visit, t *truth, r *row, h rlc.History, proposals []rlc.Proposal) (*ui.Chart, error) {
	promotions, err := s.Rollouts.Promotions(v.ctx(), t.name)
	if err != nil {
		return nil, err
	}
	happened, err := s.happenings(v, t, r, spanned(h), proposals, promotions)
	if err != nil {
		return nil, err
	}
	return chartOf(v, t, r, h, limitLines(proposals, promotions, r, h), happened)
}

func (s *server) stored(ctx context.Context, t *truth, r *row, until time.Time) (rlc.History, error) {
	bucket, key := r.series()
	return s.History.Stored(ctx, t.name, bucket, key, until.Add(-window).Truncate(time.Hour), until)
}

func truths(t *truth, r *row, v *visit) []ui.Truth {
	desired := ui.Truth{Kind: "desired", Name: "Desired", Before: "nothing on the base branch"}
	if r.desired != nil {
		desired.Figure, desired.Unit = limitText(r.desired), "req/s"
		desired.Before = byHour(r.timed.desired, "burst "+count(float64(r.desired.Burst))+", on the base branch"+commitAnd(t.commit.Hash))
	} else if t.broken {
		desired.Figure, desired.Before = unknown, placeOf(t.problems)+" is not valid"
	}
	proposed := ui.Truth{Kind: "none", Name: "Proposed", Before: "no open review changes it"}
	if r.proposed != nil {
		proposed = ui.Truth{Kind: "proposed", Name: "Proposed", Figure: r.proposedText(), Unit: "req/s", Delta: delta(r.desired, r.proposed),
			Before: byHour(r.timed.proposed, "burst "+count(float64(r.proposed.Burst))+", in "), Link: ui.Link{Text: "a review that is open", URL: proposalURL(r.proposal)}}
	}
	live := ui.Truth{Kind: "none", Name: "Live", Before: "no enforcer has a limit for it; requests are admitted"}
	if r.live != nil {
		live = ui.Truth{Kind: "live", Name: "Live", Figure: limitText(r.live), Unit: "req/s", Sign: "good", Before: "equals desired, snapshot " + t.live.String()}
		switch {
		case r.desired == nil && t.broken:
			live.Sign, live.Before = "warn", "stays in force, snapshot "+t.live.String()
		case r.desired == nil || *r.live != *r.desired || !r.timed.live.Equal(r.timed.desired):
			live.Sign, live.Before = "warn", "differs from desired, snapshot "+t.live.String()
		}
	}
	return []ui.Truth{desired, proposed, live}
}

// overrideTruth is the layer above the three truths: what stands for the quota
// now, and for how long; else what stood last.
func overrideTruth(v *visit, f ui.Frame, log []rlc.Override) ui.Truth {
	t := ui.Truth{Kind: "none", Name: "Override", Before: "none stands; the limits hold as they are"}
	if len(f.Overrides) == 0 {
		if len(log) > 0 {
			o := log[0]
			t.Before = "last: " + o.Does() + " for " + span(o.Until.Sub(o.From)) + ", "
			t.Link = ui.Link{Text: v.timeAs(o.From, "2 Jan 15:04").Text + ", " + o.Actor, URL: "#overridden"}
		}
		return t
	}
	o := f.Overrides[0]
	t = ui.Truth{Kind: "override", Name: "Override", Figure: o.Does, Before: o.Left + " left, by " + o.By + ": ", Link: ui.Link{Text: o.Reason, URL: "/emergency"}, Sign: "warn"}
	if o.Ramp {
		t.Before = "over, requests come back; by " + o.By + ": "
	}
	if n := len(f.Overrides) - 1; n > 0 || f.MoreOver != "" {
		t.After = "; it is not the only one"
	}
	return t
}

// quotaVerdict says in a sentence how the quota stands.
func quotaVerdict(t *truth, r *row) []ui.Part {
	if r.held() != "" && r.force() == nil {
		return []ui.Part{{Text: "No limit yet: " + r.change.HeldWhy + "."}}
	}
	limit := r.force()
	if limit == nil {
		if r.proposed != nil {
			return append([]ui.Part{{Text: "A first limit of "}, {Text: r.proposedText() + " req/s", Bold: true}, {Text: " waits in "}, {Text: "a review", URL: proposalURL(r.proposal)}, {Text: "."}}, thin(r)...)
		}
		return []ui.Part{{Text: "No limit yet: requests are admitted and counted."}}
	}
	var say []ui.Part
	b := r.inForce()
	switch {
	case b == nil:
		say = []ui.Part{{Text: "The limit is "}, {Text: limitText(limit) + " req/s", Bold: true}, unreplayed(r)}
	case b.Drops == 0:
		say = []ui.Part{{Text: "The limit of "}, {Text: limitText(limit) + " req/s", Bold: true}, {Text: " would have dropped nothing in the last run's window."}}
	default:
		say = []ui.Part{{Text: "The limit of "}, {Text: limitText(limit) + " req/s", Bold: true}, {Text: " would have dropped " + atLeast(b) + " of " + count(b.Requests) + " requests (" + percent(float64(b.Share)) + ") in " + plural(len(b.Episodes), "episode", "episodes") + "."}}
	}
	if r.proposed != nil && r.change != nil && r.change.Backtest.New != nil {
		n := r.change.Backtest.New
		say = append(say, ui.Part{Text: " The proposed "}, ui.Part{Text: limitText(r.proposed), Bold: true, URL: proposalURL(r.proposal)}, ui.Part{Text: " would have dropped " + atLeast(n) + "."})
	}
	if r.held() != "" {
		say = append(say, ui.Part{Text: " Held: " + r.change.HeldWhy + "."})
	}
	return say
}

// thin says how sure a first limit is that rests on less than two weeks: the
// range that it may come to, from the peak that counts up to it.
func thin(r *row) []ui.Part {
	c := r.change
	if !r.unsure() {
		return nil
	}
	return []ui.Part{{Text: " Low confidence: " + trim(c.ValidDays, 1) + " days were seen, so that the right number lies anywhere from " + rate(float64(c.Peak.Rate)) + ", the peak that counts so far, to its limit with headroom."}}
}

// liveVerdict says what the enforcers counted in the last day, and what dropped;
// nothing where no request came or none was over the limit.
func liveVerdict(c rlc.Count, age counting, by []ui.Part) []ui.Part {
	if c.VirtualDrops < 1 && c.Drops < 1 {
		return nil
	}
	say := []ui.Part{{Text: " Counted live " + age.text + ", of " + count(c.Offered) + " requests "}}
	if c.VirtualDrops >= 1 {
		say = append(say, ui.Part{Text: count(c.VirtualDrops), Bold: true}, ui.Part{Text: " would have been dropped"})
	}
	if c.VirtualDrops >= 1 && c.Drops >= 1 {
		say = append(say, ui.Part{Text: "; "})
	}
	if c.Drops >= 1 {
		say = append(say, ui.Part{Text: count(c.Drops), Bold: true}, ui.Part{Text: " were dropped"})
		if by != nil {
			say = append(append(say, ui.Part{Text: ", "}), by...)
		}
	}
	return append(say, ui.Part{Text: "."})
}

// atLeast is a replay's drops in a sentence.
func atLeast(b *rlc.Backtest) string {
	if b.AtLeast {
		return "at least " + count(b.Drops)
	}
	return count(b.Drops)
}

// offered says what the rates of a quota's chart are made of, as far as the
// service's profile tells: the enforcers' own counters hold every outcome; other
// counters hold what a limiter in front of them let through, unless a query of
// the profile adds what that one refused.
func (s *server) offered(t *truth) string {
	const admitted = "As the service's metrics count requests. "
	_, desired := s.Truths.Desired()
	if t.service == nil || desired == nil || desired.Profiles[t.service.Profile] == nil {
		return admitted + "Whether refused ones are among them is not known: the profile cannot be read."
	}
	switch p := desired.Profiles[t.service.Profile]; {
	case p.Refused != "":
		return "Admitted and refused requests together, so that a quota never learns from its own drops."
	case p.CountsRefused():
		return "Admitted, dropped and would-be drops together, as enforcers count them, so that a quota never learns from its own drops."
	default:
		return admitted + "Profile " + p.Name + " has no query for refused ones: drops that never reach these metrics are missing, and what was asked for may lie above."
	}
}

// seconds says what is known of peaks shorter than a step, and what it is
// called: the highest second that enforcers counted, or that there is none.
func seconds(v *visit, h rlc.History) (name, text string) {
	var since, at time.Time
	highest := rlc.Rate(0)
	for _, x := range h.Hours {
		if x.Second <= 0 {
			continue
		}
		if since.IsZero() {
			since = x.Start
		}
		if x.Second > highest {
			highest, at = x.Second, x.Start
		}
	}
	blind := policies.Blind(h.Step)
	if since.IsZero() {
		return "Blind spot", sentence(blind)
	}
	text = "at most " + rate(float64(highest)) + " req/s, in the hour of " + v.time(at).Text + ", as enforcers counted."
	if blind != "" && since.After(h.Hours[0].Start) {
		text += " Before " + v.time(since).Text + " nobody counted seconds: " + blind + "."
	}
	return "Highest second", text
}

// emergencyURL is the form of an override for a quota's own caller, or for its
// whole service.
func emergencyURL(service string, r *row) string {
	u := "/emergency?service=" + query(service)
	if caller := r.key["caller"]; caller != "" {
		u += "&caller=" + query(caller)
	}
	return u
}

func noChart(t *truth, r *row, err error) *ui.Empty {
	e := &ui.Empty{Title: "No history is stored for this quota", Reason: "The chart is drawn from what the last run read. Nothing has been read for it yet.", Fix: ui.Link{Text: "Runs", URL: "/runs"}}
	if err != nil && !errors.Is(err, rlc.ErrNotFound) {
		e.Title, e.Reason = "The stored history cannot be read", capital(plain(err))+". Limits in force stay as they are; the chart is back as soon as history can be read."
	} else if r.change != nil && r.change.HeldWhy != "" {
		e.Reason = "The last run says: " + r.change.HeldWhy + "."
	}
	if t.service != nil {
		e.Query = "profile " + t.service.Profile + ", service " + t.name + ", " + quotaName(r.name, r.key)
	}
	return e
}

func float(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// command is a line for a shell, every word quoted where it must be.
func command(words string, args ...string) string {
	for _, a := range args {
		if a == "" {
			continue
		}
		if strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,") != "" {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words += " " + a
	}
	return words
}
