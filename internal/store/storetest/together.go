package storetest

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

func unstorable(t *testing.T, db *store.DB) {
	for _, s := range []string{"nul\x00", "invalid \xff"} {
		_, err := db.RunByID(ctx(t), s)
		fails(t, err, rlc.ErrNotFound)
		_, err = db.ProposalByID(ctx(t), s)
		fails(t, err, rlc.ErrNotFound)
		_, err = db.Summary(ctx(t), s)
		fails(t, err, rlc.ErrNotFound)
		_, err = db.LatestChange(ctx(t), s, "b", key(s))
		fails(t, err, rlc.ErrNotFound)
		same(t, "value", get(db.Get(ctx(t), s))(t), "")
		same(t, "verdicts", get(db.Verdicts(ctx(t), s))(t), []rlc.Verdict(nil))
		all, total, err := db.Summaries(ctx(t), rlc.ServiceFilter{Query: s, Owner: s}, rlc.Page{})
		must(t, err)
		if len(all) != 0 || total != 0 {
			t.Errorf("%q: %d services of %d", s, len(all), total)
		}
	}
	r := run(1)
	p := proposal(r, "checkout")
	p.Content = "nul\x00"
	_, _, err := db.BeginRun(ctx(t), r)
	must(t, err)
	fails(t, db.StoreRun(ctx(t), r, nil, []rlc.Proposal{p}), rlc.ErrInvalid)
}

// Locales put a before B and ignore punctuation; bytes do not.
func byteOrder(t *testing.T, db *store.DB) {
	sorted := []string{"", "A", "B", "_", "a", "a b", "a-b", "a.b", "aB", "a_b", "ab", "b", "Ä", "é", "ﬀ", "🙂"}
	r := run(1)
	var summaries []rlc.ServiceSummary
	var changes []rlc.Change
	for i := range sorted {
		s := sorted[(i*7+3)%len(sorted)]
		summaries = append(summaries, rlc.ServiceSummary{Name: s})
		must(t, db.SaveSeries(ctx(t), []rlc.SeriesKey{{ID: rlc.SeriesID(s + "1"), Service: "checkout", Bucket: s}, {ID: rlc.SeriesID(s + "2"), Service: "search", Bucket: "b", Key: key(s)}}))
		changes = append(changes, heldChange(r, s, "b", "a", ""))
	}
	must(t, db.SaveSummaries(ctx(t), summaries))
	stored(t, db, r, changes)

	all, _, err := db.Summaries(ctx(t), rlc.ServiceFilter{}, rlc.Page{})
	must(t, err)
	same(t, "services", ids(all, func(s rlc.ServiceSummary) string { return s.Name }), sorted)
	all, _, err = db.Summaries(ctx(t), rlc.ServiceFilter{Sort: "drops", Desc: true}, rlc.Page{}) // equals by name
	must(t, err)
	same(t, "services by drops", ids(all, func(s rlc.ServiceSummary) string { return s.Name }), sorted)
	same(t, "buckets", ids(get(db.SeriesOf(ctx(t), "checkout"))(t), func(s rlc.SeriesKey) string { return s.Bucket }), sorted)
	same(t, "keys", ids(get(db.SeriesOf(ctx(t), "search"))(t), func(s rlc.SeriesKey) string { return s.Key["caller"] }), sorted)
	found, _, err := db.RunChanges(ctx(t), r.ID, false, rlc.Page{})
	must(t, err)
	same(t, "changes", ids(found, func(c rlc.Change) string { return c.Service }), sorted)
}

func largeNumbers(t *testing.T, db *store.DB) {
	claims(t, db, "a", 1<<40, claim{1<<40 + 1, true})
	r := run(1)
	r.Epoch, r.Held, r.Changed, r.Total = 1<<40+1, 1<<33, 1<<34, 1<<35
	stored(t, db, r, nil)
	r.Stage = rlc.Stored
	same(t, "run", get(db.RunByID(ctx(t), r.ID))(t), r)
	r.ID = run(2).ID
	c := change(r, "checkout", "b", "a")
	c.Estimate = &rlc.Limit{Rate: rlc.MaxRate / 3, Burst: rlc.MaxRate}
	stored(t, db, r, []rlc.Change{c})
	same(t, "estimate", get(db.Recent(ctx(t), "checkout", time.Time{}))(t)["b/caller=a"][0].Limit, *c.Estimate)
	s := rlc.ServiceSummary{Name: "checkout", Desired: 1 << 33, Held: 1 << 33, VirtualDrops: 1e300, Offered: new(rlc.Rate(1.0 / 3))}
	must(t, db.SaveSummaries(ctx(t), []rlc.ServiceSummary{s}))
	same(t, "summary", get(db.Summary(ctx(t), "checkout"))(t), s)
}

func takenIDs(t *testing.T, db *store.DB) {
	r1, r2 := run(1), run(2)
	p := proposal(r1, "checkout")
	stored(t, db, r1, nil, p)
	_, _, err := db.BeginRun(ctx(t), r2)
	must(t, err)
	p.Service = "search"
	fails(t, db.StoreRun(ctx(t), r2, []rlc.Change{change(r2, "search", "b", "a")}, []rlc.Proposal{p}), rlc.ErrConflict)
	same(t, "run", get(db.RunByID(ctx(t), r2.ID))(t).Stage, rlc.Claimed)
	entry := rlc.AuditEntry{ID: "e", At: now, Actor: "ada", Action: "x"}
	must(t, db.SetAudited(ctx(t), "k", "first", entry))
	fails(t, db.SetAudited(ctx(t), "k", "second", entry), rlc.ErrConflict)
	same(t, "value", get(db.Get(ctx(t), "k"))(t), "first")
}

// together runs f n times at once and returns its errors in order.
func together(n int, f func(n int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

func claimedAtOnce(t *testing.T, db *store.DB) {
	for n := range 5 {
		var created [6]bool
		must(t, errors.Join(together(len(created), func(i int) (err error) {
			_, created[i], err = db.BeginRun(ctx(t), run(n))
			return err
		})...))
		once := 0
		for _, c := range created {
			if c {
				once++
			}
		}
		if once != 1 {
			t.Errorf("slot %d was created %d times", n, once)
		}
	}
	_, total, err := db.Audit(ctx(t), rlc.Page{})
	must(t, err)
	same(t, "audit rows", total, 5)
}

func storedAtOnce(t *testing.T, db *store.DB) {
	const n = 8
	for i := range n {
		_, _, err := db.BeginRun(ctx(t), run(i))
		must(t, err)
	}
	must(t, errors.Join(together(n, func(i int) error {
		r := run(i)
		return db.StoreRun(ctx(t), r, []rlc.Change{heldChange(r, "checkout", "b", "a", "coverage")}, []rlc.Proposal{proposal(r, "checkout")})
	})...))
	_, open, err := db.Proposals(ctx(t), rlc.Open, "checkout", rlc.Page{})
	must(t, err)
	same(t, "pending proposals", open, 1)
	same(t, "outbox rows", len(get(db.Outbox(ctx(t)))(t)), 1)
	_, logged, err := db.ChangeLog(ctx(t), "checkout", "b", key("a"), rlc.Page{})
	must(t, err)
	same(t, "reasons told", logged, 1)
	same(t, "newest", get(db.LatestChange(ctx(t), "checkout", "b", key("a")))(t).RunID, run(n-1).ID)
}

func decidedAtOnce(t *testing.T, db *store.DB) {
	states := []rlc.ProposalState{rlc.Accepted, rlc.Rejected}
	for n := range 5 {
		r := run(n)
		stored(t, db, r, nil, proposal(r, "checkout"))
		errs := together(6, func(i int) error {
			p := proposal(r, "checkout")
			p.State = states[i%2]
			return db.SetProposal(ctx(t), p, &rlc.AuditEntry{At: now, Actor: "ada", Action: "decide", Object: p.ID, Detail: string(p.State)})
		})
		stands := get(db.ProposalByID(ctx(t), proposal(r, "checkout").ID))(t).State
		for i, err := range errs {
			if states[i%2] == stands {
				must(t, err)
			} else {
				fails(t, err, rlc.ErrConflict)
			}
		}
	}
	entries, _, err := db.Audit(ctx(t), rlc.Page{Size: 1000})
	must(t, err)
	told := map[string]string{}
	for _, e := range entries {
		if e.Action == "decide" {
			told[e.Object] += e.Detail + " "
		}
	}
	for id, words := range told {
		if strings.Contains(words, string(rlc.Accepted)) && strings.Contains(words, string(rlc.Rejected)) {
			t.Errorf("%s was decided both ways: %s", id, words)
		}
	}
}

func fencedView(t *testing.T, db *store.DB) {
	epoch, _ := lead(t, db, "a", 0)
	view := db.Fenced(epoch)
	must(t, view.Set(ctx(t), "k", "leads"))
	must(t, db.Resign(ctx(t), store.Leadership, "a"))
	must(t, view.Set(ctx(t), "k", "resigned, and nobody else leads"))
	fresh, _ := lead(t, db, "b", 0)
	r := run(1)
	stored(t, db, rlc.Run{ID: r.ID}, nil, proposal(r, "checkout"))
	p := proposal(r, "checkout")
	for name, write := range map[string]func() error{
		"Set":           func() error { return view.Set(ctx(t), "k", "stale") },
		"SaveDays":      func() error { return view.SaveDays(ctx(t), []rlc.SeriesDay{day("s", midnight)}) },
		"SavePacked":    func() error { return view.SavePacked(ctx(t), []rlc.PackedDay{packed(t, view, day("s", midnight))}) },
		"SaveSummaries": func() error { return view.SaveSummaries(ctx(t), []rlc.ServiceSummary{{Name: "x"}}) },
		"SetProposal":   func() error { return view.SetProposal(ctx(t), p, nil) },
		"SeenProposal":  func() error { return view.SeenProposal(ctx(t), p, p) },
		"OutboxFailed":  func() error { return view.OutboxFailed(ctx(t), p.ID, "x", now) },
		"PruneRuns":     func() error { return view.PruneRuns(ctx(t), now) },
		"PruneDays":     func() error { return view.PruneDays(ctx(t), now) },
		"BeginRun by hand": func() error {
			_, _, err := view.BeginRun(ctx(t), rlc.Run{ID: "by hand"})
			return err
		},
	} {
		if err := write(); !errors.Is(err, rlc.ErrFenced) {
			t.Errorf("%s: %v, want it fenced", name, err)
		}
	}
	same(t, "value", get(view.Get(ctx(t), "k"))(t), "resigned, and nobody else leads") // reading is free
	must(t, db.Fenced(fresh).Set(ctx(t), "k", "fresh"))
	fails(t, view.Fenced(0).Set(ctx(t), "k", "by nobody"), rlc.ErrFenced) // 0 keeps the view's
}

func pagesView(t *testing.T, db *store.DB) {
	pages := db.Pages()
	must(t, pages.Set(ctx(t), "k", "v"))
	same(t, "value", get(pages.Get(ctx(t), "k"))(t), "v")
	same(t, "value", get(db.Get(ctx(t), "k"))(t), "v")
}
