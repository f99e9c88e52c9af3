package web

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/web/ui"
)

// Amendments are people's own numbers in open proposals.
type Amendments interface {
	// Amended are a proposal's changes as its branch holds them: the run's, but
	// where a person committed another number, took one back or added one. Such a
	// change has no backtest.
	Amended(ctx context.Context, p rlc.Proposal) ([]rlc.Change, error)
	// Amend commits actor's number for a quota, given by ID, to the branch. seen is
	// what actor was shown, as for Accept.
	Amend(ctx context.Context, proposalID, seen, quota string, limit rlc.Limit, actor, reason string) error
}

const (
	amendNeeds = "A number of your own needs a reason: it stands beside the number from then on."
	onBranch   = " These are the numbers that it holds."
	noBranch   = " What it holds cannot be read: these are the run's numbers."
)

// asItStands gives a proposal the changes that its branch holds where a person has
// committed to it, each replayed over the same stored history. note says so, or that
// it could not be read; "" where nobody committed.
func (s *server) asItStands(ctx context.Context, p rlc.Proposal) (out rlc.Proposal, note string) {
	if !p.Human || s.Amendments == nil {
		return p, ""
	}
	changes, err := s.Amendments.Amended(ctx, p)
	if err != nil {
		s.Log.Warn("read what people committed to a proposal", "proposal", p.ID, "err", err)
		return p, noBranch
	}
	p.Changes = slices.Clone(changes)
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Backtest.New == nil && !c.Remove && c.New != nil && c.NewTimed.Equal(rlc.Timed{}) {
			c.Backtest.New, _ = s.replayed(ctx, c, *c.New)
		}
	}
	return p, onBranch
}

// replayed is what a limit would have dropped of the history that a change was
// computed from; nil where no hour of it is stored.
func (s *server) replayed(ctx context.Context, c *rlc.Change, limit rlc.Limit) (*rlc.Backtest, error) {
	r := row{name: c.Bucket, region: c.Region, key: c.Key}
	bucket, key := r.series()
	until := c.At.UTC()
	h, err := s.History.Stored(ctx, c.Service, bucket, key, until.Add(-window), until)
	if err != nil || len(h.Hours) == 0 {
		return nil, err
	}
	b := backtest.FromHistory(h, limit)
	return &b, nil
}

// amendAt is where a person is asked for another number for a quota.
func amendAt(p rlc.Proposal, c *rlc.Change) string {
	return proposalURL(p.ID) + "?edit=" + query(c.ID()) + "#edit"
}

// amendable reports whether the page takes another number for a change: one that
// is the same at all times, and stays.
func amendable(c *rlc.Change) bool {
	return c.New != nil && !c.Remove && c.NewTimed.Equal(rlc.Timed{})
}

// amendForm is the form for a person's number, as the address fills it; nil where
// nobody asks for it.
func (s *server) amendForm(v *visit, p rlc.Proposal, changes []rlc.Change) (*ui.Amend, error) {
	q := v.r.URL.Query()
	if !q.Has("edit") {
		return nil, nil
	}
	out := &ui.Amend{Post: proposalURL(p.ID) + "/edit", Back: proposalURL(p.ID), Rate: q.Get("rate"), Burst: q.Get("burst"), Reason: q.Get("reason"), Branch: p.Branch, Seen: p.Holds()}
	var asked *rlc.Change
	for i := range changes {
		c := &changes[i]
		if !amendable(c) {
			continue
		}
		on := c.ID() == q.Get("edit")
		if on || asked == nil && q.Get("edit") == "" {
			asked, on = c, true
		}
		out.Quotas = append(out.Quotas, ui.Choice{Value: c.ID(), Label: quotaName(c.Bucket, c.Key), On: on})
	}
	if asked == nil {
		return nil, fault{status: http.StatusNotFound, detail: "This proposal has no number of " + clipped(q.Get("edit")) + " that can be changed here. Limits that differ by time, and lines that go, are changed by a commit to the branch " + p.Branch + "."}
	}
	out.BurstHint = "empty: " + rate(secondsOf(asked.New)) + " s of the rate, as proposed"
	if out.Rate == "" && v.refused == nil {
		out.Rate = float(float64(asked.New.Rate))
		return out, nil
	}
	limit, err := amendedLimit(asked, out.Rate, out.Burst)
	switch {
	case err == nil:
		out.Preview = s.amendPreview(v, asked, limit)
	case v.refused == nil:
		v.refuse(s.told(v, err), out.Post, q)
	}
	return out, nil
}

// secondsOf is a burst as seconds of its rate, in two digits, since a burst is a whole
// number of requests; 0 for a rate of 0.
func secondsOf(l *rlc.Limit) float64 {
	if l.Rate == 0 {
		return 0
	}
	seconds, _ := strconv.ParseFloat(strconv.FormatFloat(float64(l.Burst)/float64(l.Rate), 'g', 2, 64), 64)
	return seconds
}

// amendedLimit reads a person's number. Without a burst it keeps as many seconds of
// the rate as the change has.
func amendedLimit(c *rlc.Change, rateText, burstText string) (rlc.Limit, error) {
	r, err := decimal(rateText, "The rate", "requests per second")
	if err != nil {
		return rlc.Limit{}, wrongIn("rate", err)
	}
	limit := rlc.Limit{Rate: rlc.Rate(r)}
	switch burstText = strings.TrimSpace(burstText); {
	case burstText != "":
		n, err := decimal(burstText, "The burst", "requests")
		if err != nil {
			return limit, wrongIn("burst", err)
		}
		if n != math.Trunc(n) || n > rlc.MaxRate {
			return limit, wrongIn("burst", invalid("The burst must be a whole number of requests up to %s, or empty, not %s.", count(rlc.MaxRate), clipped(burstText)))
		}
		limit.Burst = rlc.Burst(n)
	case r > 0 && r <= rlc.MaxRate && c.New.Rate > 0:
		limit.Burst = rlc.Burst(min(rlc.MaxRate, math.Max(1, math.Ceil(r*secondsOf(c.New)-1e-9))))
	}
	return limit, wrongIn("rate", limit.Valid())
}

// amendPreview says what a number would have done, beside the proposed one.
func (s *server) amendPreview(v *visit, c *rlc.Change, limit rlc.Limit) []ui.Part {
	say := []ui.Part{{Text: rate(float64(limit.Rate)) + " req/s", Bold: true}, {Text: ", burst " + count(float64(limit.Burst)) + ": "}}
	add := func(text string) { say = append(say, ui.Part{Text: text}) }
	if limit.Rate == 0 {
		say = append(say, ui.Part{Text: "it admits nothing", Bold: true}, ui.Part{Text: ", "})
	}
	if c.Old != nil && c.Old.Rate > 0 {
		add(signed(float64((limit.Rate-c.Old.Rate)/c.Old.Rate)) + " on what is desired")
	} else {
		add("where nothing is desired yet")
	}
	if h, ok := headroom(&limit, c.Peak.Rate); ok {
		where := ", " + signed(h) + " over"
		if h < 0 {
			where = ", " + strings.TrimPrefix(signed(h), "−") + " below"
		}
		add(where + " the peak that counts of " + rate(float64(c.Peak.Rate)))
	}
	b, err := s.replayed(v.ctx(), c, limit)
	switch {
	case err != nil:
		add(". What it would have dropped is unknown: history cannot be read.")
	case b == nil:
		add(". What it would have dropped is unknown: no history of it is stored.")
	default:
		add(". Over " + "28 days" + " it would have dropped ")
		say = append(say, ui.Part{Text: atLeast(b), Bold: true})
		add(" of " + count(b.Requests) + " requests (" + percent(float64(b.Share)) + ")")
		if c.Backtest.New != nil {
			add("; the proposed " + limitText(c.New) + " would have dropped " + atLeast(c.Backtest.New))
		}
		add(".")
	}
	return say
}

// amendPage is where a sent number is shown with its form.
func amendPage(v *visit) string {
	q := url.Values{}
	for _, name := range []string{"edit", "rate", "burst", "reason"} {
		q.Set(name, v.r.PostForm.Get(name))
	}
	return proposalURL(v.r.PathValue("id")) + "?" + q.Encode()
}

func (s *server) formAmend(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	id, in := v.r.PathValue("id"), v.r.PostForm
	reason, err := reasonOf(in.Get("reason"), amendNeeds)
	if err == nil {
		// A form that does not say what its page showed showed the run's numbers.
		err = s.amend(v, id, cmp.Or(in.Get("seen"), rlc.RunsNumbers), in.Get("edit"), in.Get("rate"), in.Get("burst"), reason)
	}
	if err != nil {
		return err
	}
	return v.back(proposalURL(id), "edited")
}

func (s *server) apiAmend(v *visit) error {
	var in struct {
		Bucket string   `json:"bucket"`
		Key    rlc.Key  `json:"key"`
		Rate   *float64 `json:"rate"`
		Burst  *int64   `json:"burst"`
		Reason string   `json:"reason"`
		Commit string   `json:"commit"`
	}
	if err := read(v, &in); err != nil {
		return err
	}
	if in.Bucket == "" || in.Rate == nil {
		return invalid("bucket and rate are required")
	}
	reason, err := reasonOf(in.Reason, amendNeeds)
	if err != nil {
		return err
	}
	burst := ""
	if in.Burst != nil {
		burst = strconv.FormatInt(*in.Burst, 10)
	}
	if err := s.amend(v, v.r.PathValue("id"), in.Commit, rlc.QuotaID(in.Bucket, in.Key), float(*in.Rate), burst, reason); err != nil {
		return err
	}
	return s.apiProposal(v)
}

func (s *server) amend(v *visit, id, seen, quota, rateText, burstText, reason string) error {
	if s.Amendments == nil {
		return fault{status: http.StatusNotFound, detail: "This server does not change proposals."}
	}
	p, err := s.Records.ProposalByID(v.ctx(), id)
	if err != nil {
		return err
	}
	p, _ = s.asItStands(v.ctx(), p)
	i := slices.IndexFunc(p.Changes, func(c rlc.Change) bool { return c.ID() == quota })
	if i < 0 || !amendable(&p.Changes[i]) {
		return fault{status: http.StatusNotFound, detail: "This proposal has no number of " + clipped(quota) + " that can be changed here."}
	}
	limit, err := amendedLimit(&p.Changes[i], rateText, burstText)
	if err != nil {
		return err
	}
	return s.Amendments.Amend(v.ctx(), id, seen, quota, limit, v.who.name, reason)
}

// amendedBy reports whether somebody has changed a number of a proposal.
func (s *server) amendedBy(v *visit, id, actor string) (bool, error) {
	all, _, err := s.Identities.AuditLog(v.ctx(), rlc.AuditFilter{Action: "proposal.edited", Actor: actor, Object: id}, rlc.Page{Size: 1000})
	return slices.ContainsFunc(all, func(e rlc.AuditEntry) bool { return e.Object == id }), err
}
