package storetest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

var midnight = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

// day is a day with an ordinary, a failing and an idle hour and a tail.
func day(id rlc.SeriesID, at time.Time) rlc.SeriesDay {
	return rlc.SeriesDay{
		Series: id, Day: at, TailFloor: 97.3, Sealed: at.Add(3*time.Hour + time.Microsecond),
		Hours: []rlc.Hour{
			{Start: at, Max: 101.1, P99: 101.1, Mean: 1.0 / 3, Present: 60, Expected: 60},
			{Start: at.Add(7 * time.Hour), Max: 1e9, P99: 98.7, Mean: 55, Present: 200, Expected: 240, Partial: 13, Unhealthy: true, Drops: 0.0125},
			{Start: at.Add(23 * time.Hour), Expected: 60, Present: 60},
		},
		Tail: []rlc.Sample{{Time: at, Rate: 101.1}, {Time: at.Add(time.Minute), Rate: 97.3}, {Time: at.Add(7*time.Hour + 59*time.Minute), Rate: 1e9}},
	}
}

func daysRoundTrip(t *testing.T, db *store.DB) {
	whole := day("s1", midnight)
	filled(t, whole)
	filled(t, whole.Hours[1], "Second") // in a series of its own
	thin := rlc.SeriesDay{Series: "s1", Day: midnight.AddDate(0, 0, 1)}
	narrow := day("s1", midnight.AddDate(0, 0, 2)) // every value is a float32
	narrow.Hours = []rlc.Hour{{Start: narrow.Day.Add(time.Hour), Max: 1.5, P99: 1.25, Mean: 0.5, Present: 4, Expected: 4}}
	narrow.Tail = []rlc.Sample{{Time: narrow.Day.Add(15 * time.Second), Rate: 1.5}}
	must(t, db.SaveDays(ctx(t), []rlc.SeriesDay{narrow, whole, thin, day("s2", midnight)}))
	same(t, "days", get(db.Days(ctx(t), "s1", midnight, midnight.AddDate(0, 0, 3)))(t), []rlc.SeriesDay{whole, thin, narrow})
	same(t, "days of an unknown series", get(db.Days(ctx(t), "none", midnight, midnight.AddDate(0, 0, 3)))(t), []rlc.SeriesDay(nil))
}

func packed(t *testing.T, db *store.DB, d rlc.SeriesDay) rlc.PackedDay {
	return rlc.PackedDay{Series: d.Series, Day: d.Day, Sealed: d.Sealed, Data: get(db.PackDay(nil, &d))(t)}
}

// packedDays: days that come packed are those that were packed, in whatever order
// they come; of two of the same series and day the later one stays.
func packedDays(t *testing.T, db *store.DB) {
	first, second, other := day("s1", midnight), day("s1", midnight.AddDate(0, 0, 1)), day("s2", midnight)
	old := first
	old.TailFloor, old.Tail = 0, nil
	must(t, db.SavePacked(ctx(t), []rlc.PackedDay{
		packed(t, db, old), packed(t, db, second), packed(t, db, other), packed(t, db, first),
	}))
	same(t, "days", get(db.Days(ctx(t), "s1", midnight, midnight.AddDate(0, 0, 2)))(t), []rlc.SeriesDay{first, second})
	same(t, "days of another", get(db.Days(ctx(t), "s2", midnight, midnight.AddDate(0, 0, 2)))(t), []rlc.SeriesDay{other})
	bad := day("s2", midnight)
	bad.TailFloor = rlc.Rate(-1)
	if _, err := db.PackDay(nil, &bad); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("%v, want that a negative floor is not packed", err)
	}
}

func dayWindows(t *testing.T, db *store.DB) {
	var days []rlc.SeriesDay
	for n := range 5 {
		days = append(days, day("s1", midnight.AddDate(0, 0, n)))
	}
	must(t, db.SaveDays(ctx(t), days))
	days[2].TailFloor, days[2].Sealed = 200, time.Time{}
	must(t, db.SaveDays(ctx(t), days[2:3]))
	for _, c := range []struct {
		from, until time.Time
		want        []rlc.SeriesDay
	}{
		{midnight, midnight.AddDate(0, 0, 5), days},
		{midnight.Add(30 * time.Hour), midnight.AddDate(0, 0, 3), days[1:3]}, // from the middle of a day to a midnight
		{midnight.Add(30 * time.Hour), midnight.AddDate(0, 0, 3).Add(time.Microsecond), days[1:4]},
		{midnight.AddDate(0, 0, 9), midnight.AddDate(0, 0, 12), nil},
	} {
		same(t, fmt.Sprintf("from %s until %s", c.from, c.until), get(db.Days(ctx(t), "s1", c.from, c.until))(t), c.want)
	}
}

func badDays(t *testing.T, db *store.DB) {
	for name, spoil := range map[string]func(d *rlc.SeriesDay){
		"no series":              func(d *rlc.SeriesDay) { d.Series = "" },
		"not midnight":           func(d *rlc.SeriesDay) { d.Day = d.Day.Add(time.Hour) },
		"hour of another day":    func(d *rlc.SeriesDay) { d.Hours[2].Start = d.Day.Add(24 * time.Hour) },
		"hour of the day before": func(d *rlc.SeriesDay) { d.Hours[0].Start = d.Day.Add(-time.Hour) },
		"half an hour":           func(d *rlc.SeriesDay) { d.Hours[1].Start = d.Day.Add(90 * time.Minute) },
		"hours out of order":     func(d *rlc.SeriesDay) { d.Hours[0], d.Hours[1] = d.Hours[1], d.Hours[0] },
		"a NaN peak":             func(d *rlc.SeriesDay) { d.Hours[0].Max = rlc.Rate(math.NaN()) },
		"an endless mean":        func(d *rlc.SeriesDay) { d.Hours[0].Mean = rlc.Rate(math.Inf(1)) },
		"a negative p99":         func(d *rlc.SeriesDay) { d.Hours[0].P99 = -1 },
		"a NaN share of drops":   func(d *rlc.SeriesDay) { d.Hours[0].Drops = rlc.Ratio(math.NaN()) },
		"a negative count":       func(d *rlc.SeriesDay) { d.Hours[0].Present = -1 },
		"a NaN floor":            func(d *rlc.SeriesDay) { d.TailFloor = rlc.Rate(math.NaN()) },
		"a NaN sample":           func(d *rlc.SeriesDay) { d.Tail[0].Rate = rlc.Rate(math.NaN()) },
		"samples out of order":   func(d *rlc.SeriesDay) { d.Tail[0], d.Tail[1] = d.Tail[1], d.Tail[0] },
		"the same sample twice":  func(d *rlc.SeriesDay) { d.Tail[1] = d.Tail[0] },
		"a sample of tomorrow":   func(d *rlc.SeriesDay) { d.Tail[2].Time = d.Day.Add(24 * time.Hour) },
		"a nanosecond":           func(d *rlc.SeriesDay) { d.Tail[0].Time = d.Day.Add(time.Nanosecond) },
	} {
		bad := day("s1", midnight)
		spoil(&bad)
		err := db.SaveDays(ctx(t), []rlc.SeriesDay{day("s2", midnight), bad})
		if err == nil {
			t.Errorf("%s: it is saved", name)
			continue
		}
		fails(t, err, rlc.ErrInvalid)
	}
	same(t, "the good day beside a bad one", get(db.Days(ctx(t), "s2", midnight, midnight.AddDate(0, 0, 1)))(t), []rlc.SeriesDay(nil))
}

func seriesKeys() []rlc.SeriesKey {
	return []rlc.SeriesKey{
		{ID: "s1", Service: "checkout", Bucket: "callers", Key: key("a")},
		{ID: "s2", Service: "checkout", Bucket: "whole"},
		{ID: "s3", Service: "search", Bucket: "callers", Key: key("a")},
	}
}

func sealed(t *testing.T, db *store.DB) {
	keys := seriesKeys()
	must(t, db.SaveSeries(ctx(t), []rlc.SeriesKey{keys[1], keys[0], keys[2]}))
	must(t, db.SaveSeries(ctx(t), keys)) // again: the same
	same(t, "series of checkout", get(db.SeriesOf(ctx(t), "checkout"))(t), keys[:2])
	same(t, "series of one name", get(db.SeriesNamed(ctx(t), "checkout", keys[1].Bucket, keys[1].Key))(t), keys[1:2])
	same(t, "series of no name", get(db.SeriesNamed(ctx(t), "checkout", keys[1].Bucket, rlc.Key{"caller": "nobody"}))(t), []rlc.SeriesKey(nil))
	same(t, "nothing sealed yet", get(db.SealedUntil(ctx(t), "checkout"))(t), map[rlc.SeriesID]time.Time{})

	later := day("s1", midnight.AddDate(0, 0, 3))
	must(t, db.SaveDays(ctx(t), []rlc.SeriesDay{later, day("s1", midnight), day("s2", midnight), day("s3", midnight)}))
	same(t, "sealed", get(db.SealedUntil(ctx(t), "checkout"))(t), map[rlc.SeriesID]time.Time{
		"s1": later.Sealed, "s2": day("s2", midnight).Sealed,
	})
}

func pruneDays(t *testing.T, db *store.DB) {
	must(t, db.SaveSeries(ctx(t), seriesKeys()))
	last := day("s1", midnight.AddDate(0, 0, 1))
	must(t, db.SaveDays(ctx(t), []rlc.SeriesDay{day("s1", midnight), day("s2", midnight), last}))
	must(t, db.PruneDays(ctx(t), midnight.Add(24*time.Hour-time.Microsecond))) // the first day is not quite over
	same(t, "days before their end", len(get(db.Days(ctx(t), "s1", midnight, midnight.AddDate(0, 0, 2)))(t)), 2)
	must(t, db.PruneDays(ctx(t), midnight.AddDate(0, 0, 1)))
	same(t, "days", get(db.Days(ctx(t), "s1", midnight, midnight.AddDate(0, 0, 2)))(t), []rlc.SeriesDay{last})
	same(t, "series", get(db.SeriesOf(ctx(t), "checkout"))(t), seriesKeys()[:1])
}

func verdicts(t *testing.T, db *store.DB) {
	v := rlc.Verdict{ID: "v1", Service: "checkout", Bucket: "callers", Key: key("a"), Window: rlc.Window{From: now, Until: now.Add(time.Hour), Reason: "a sale"}, Count: true, Actor: "ada", At: now}
	filled(t, v)
	entry := func(id string) rlc.AuditEntry {
		return rlc.AuditEntry{ID: id, At: now, Actor: "ada", Action: "verdict.set", Object: "v1", Detail: "a sale"}
	}
	must(t, db.SetVerdict(ctx(t), v, entry("e1")))
	same(t, "verdicts", get(db.Verdicts(ctx(t), "checkout"))(t), []rlc.Verdict{v})

	v.Count, v.Reason, v.At = false, "no, a storm", now.Add(time.Minute)
	must(t, db.SetVerdict(ctx(t), v, entry("e2")))
	earlier := v
	earlier.ID, earlier.From, earlier.Key = "", now.Add(-time.Hour), nil // gets an id
	must(t, db.SetVerdict(ctx(t), earlier, entry("e3")))
	got := get(db.Verdicts(ctx(t), "checkout"))(t)
	if len(got) != 2 || got[0].ID == "" {
		t.Fatalf("verdicts %+v, want two with ids", got)
	}
	earlier.ID = got[0].ID
	same(t, "verdicts", got, []rlc.Verdict{earlier, v})
	same(t, "verdicts of another service", get(db.Verdicts(ctx(t), "search"))(t), []rlc.Verdict(nil))

	fails(t, db.SetVerdict(ctx(t), v, rlc.AuditEntry{}), rlc.ErrInvalid)
	backwards := v
	backwards.Until = backwards.From
	fails(t, db.SetVerdict(ctx(t), backwards, entry("e4")), rlc.ErrInvalid)
	entries, total, err := db.Audit(ctx(t), rlc.Page{})
	must(t, err)
	if total != 3 || len(entries) != 3 {
		t.Errorf("%d audit rows, want 3: one for each verdict that was set", total)
	}
}

func ratio(r float64) *rlc.Ratio { v := rlc.Ratio(r); return &v }

func rate(r float64) *rlc.Rate { v := rlc.Rate(r); return &v }

func summaries(t *testing.T, db *store.DB) {
	a := rlc.ServiceSummary{
		Name: "checkout", Owners: []string{"team-payments", "SRE"}, Buckets: 4, Enforcing: 1, Desired: 7, Held: 2, Offered: new(rlc.Rate(120.5)), SeenAt: now, LimitSum: 700,
		Capacity: 12000, Headroom: ratio(0.4), HeadroomAt: "callers/caller=a", Week: rlc.Trend{Until: now, Mean: []*rlc.Rate{rate(1), nil}, Most: []*rlc.Rate{rate(3.5), nil}, Dropped: []rlc.Rate{.5, 0}, Virtual: []rlc.Rate{2, 0}}, VirtualDrops: 12, Drops: 3, Counted: 4000,
		OpenReview: "cron-001-checkout", ReviewSince: now, Known: 6, Fitting: 4, Spread: []int{0, 2, 4}, Unjudged: 3, UnjudgedDrops: 900, Ready: []rlc.ReadyBucket{{Bucket: "callers", Since: now, Share: 0.01}}, Requests: 9e6, Limited: 8e6, Problem: "policy.yaml:3:1: unknown key", Updated: now,
	}
	filled(t, a)
	b := rlc.ServiceSummary{Name: "a_b%c", Owners: []string{"team-pay"}, Headroom: ratio(0.1), VirtualDrops: 99, Offered: new(rlc.Rate(7)), Desired: 1}
	c := rlc.ServiceSummary{Name: "search", VirtualDrops: 12, Held: 9}
	must(t, db.SaveSummaries(ctx(t), []rlc.ServiceSummary{a, {Name: "search"}, b}))
	must(t, db.SaveSummaries(ctx(t), []rlc.ServiceSummary{c}))
	same(t, "summary", get(db.Summary(ctx(t), "checkout"))(t), a)
	_, err := db.Summary(ctx(t), "none")
	fails(t, err, rlc.ErrNotFound)

	for _, q := range []struct {
		filter rlc.ServiceFilter
		want   []string
	}{
		{rlc.ServiceFilter{}, []string{"a_b%c", "checkout", "search"}},
		{rlc.ServiceFilter{Desc: true}, []string{"search", "checkout", "a_b%c"}},
		{rlc.ServiceFilter{Query: "CHECK"}, []string{"checkout"}},
		{rlc.ServiceFilter{Query: "payments"}, []string{"checkout"}},
		{rlc.ServiceFilter{Query: "sre"}, []string{"checkout"}},
		{rlc.ServiceFilter{Query: "_b%"}, []string{"a_b%c"}},
		{rlc.ServiceFilter{Query: "%"}, []string{"a_b%c"}},
		{rlc.ServiceFilter{Query: `\`}, []string{}},
		{rlc.ServiceFilter{Owner: "team-pay"}, []string{"a_b%c"}},
		{rlc.ServiceFilter{Owner: "SRE"}, []string{"checkout"}},
		{rlc.ServiceFilter{Owner: "sre"}, []string{}},
		{rlc.ServiceFilter{Unowned: true}, []string{"search"}},
		{rlc.ServiceFilter{Sort: "headroom"}, []string{"a_b%c", "checkout", "search"}},
		{rlc.ServiceFilter{Sort: "headroom", Desc: true}, []string{"checkout", "a_b%c", "search"}},
		{rlc.ServiceFilter{Sort: "virtual_drops", Desc: true}, []string{"a_b%c", "checkout", "search"}},
		{rlc.ServiceFilter{Sort: "drops", Desc: true}, []string{"checkout", "a_b%c", "search"}},
		{rlc.ServiceFilter{Sort: "offered"}, []string{"search", "a_b%c", "checkout"}},
		{rlc.ServiceFilter{Sort: "quotas", Desc: true}, []string{"checkout", "a_b%c", "search"}},
		{rlc.ServiceFilter{Sort: "unjudged", Desc: true}, []string{"checkout", "a_b%c", "search"}},
		{rlc.ServiceFilter{Sort: "ready", Desc: true}, []string{"checkout", "a_b%c", "search"}},
		{rlc.ServiceFilter{Sort: "ready", Desc: true, Some: true}, []string{"checkout"}},
		{rlc.ServiceFilter{Sort: "held", Desc: true}, []string{"search", "checkout", "a_b%c"}},
	} {
		got, total, err := db.Summaries(ctx(t), q.filter, rlc.Page{})
		must(t, err)
		same(t, fmt.Sprintf("%+v", q.filter), ids(got, func(s rlc.ServiceSummary) string { return s.Name }), q.want)
		if total != len(q.want) {
			t.Errorf("%+v: total %d, want %d", q.filter, total, len(q.want))
		}
	}
	if got, total, err := db.Summaries(ctx(t), rlc.ServiceFilter{Uncounted: true}, rlc.Page{}); err != nil || len(got) != 3 || total != 0 {
		t.Errorf("uncounted: %d services of %d, %v", len(got), total, err)
	}
	page, total, err := db.Summaries(ctx(t), rlc.ServiceFilter{}, rlc.Page{Number: 3, Size: 1})
	must(t, err)
	same(t, "third page of one", page, []rlc.ServiceSummary{c})
	if total != 3 {
		t.Errorf("total %d, want 3", total)
	}
	_, _, err = db.Summaries(ctx(t), rlc.ServiceFilter{Sort: "name; DROP TABLE runs"}, rlc.Page{})
	fails(t, err, rlc.ErrInvalid)
}

func dropSummaries(t *testing.T, db *store.DB) {
	must(t, db.SaveSummaries(ctx(t), []rlc.ServiceSummary{{Name: "a"}, {Name: "b"}, {Name: "c"}}))
	must(t, db.DropSummaries(ctx(t), []string{"b", "not there"}))
	got, _, err := db.Summaries(ctx(t), rlc.ServiceFilter{}, rlc.Page{})
	must(t, err)
	same(t, "left", got, []rlc.ServiceSummary{{Name: "b"}})
}

// lead claims the leadership that fences runs, for an hour.
func lead(t *testing.T, db *store.DB, holder string, minEpoch uint64) (uint64, bool) {
	t.Helper()
	epoch, leads, err := db.Lead(ctx(t), store.Leadership, holder, time.Hour, minEpoch)
	must(t, err)
	return epoch, leads
}

type claim struct {
	epoch uint64
	leads bool
}

func claims(t *testing.T, db *store.DB, holder string, minEpoch uint64, want claim) {
	t.Helper()
	epoch, leads := lead(t, db, holder, minEpoch)
	if got := (claim{epoch, leads}); got != want {
		t.Errorf("%s with at least %d: got %+v, want %+v", holder, minEpoch, got, want)
	}
}

func leads(t *testing.T, db *store.DB) {
	claims(t, db, "a", 0, claim{1, true})
	claims(t, db, "b", 0, claim{1, false}) // whose epoch it is
	must(t, db.Resign(ctx(t), store.Leadership, "b"))
	claims(t, db, "b", 0, claim{1, false}) // it had nothing to give up
	must(t, db.Resign(ctx(t), store.Leadership, "a"))
	claims(t, db, "b", 0, claim{2, true})
	claims(t, db, "a", 0, claim{2, false})

	// A lease that is over on the database's clock is free for the taking.
	_, _, err := db.Lead(ctx(t), store.Leadership, "b", time.Microsecond, 0)
	must(t, err)
	for range 1_000_000 {
		epoch, ok, err := db.Lead(ctx(t), store.Leadership, "c", time.Hour, 0)
		must(t, err)
		if ok {
			same(t, "epoch after the lease ran out", epoch, uint64(3))
			break
		}
	}
	claims(t, db, "b", 0, claim{3, false})

	epoch, ok, err := db.Lead(ctx(t), "another", "b", time.Hour, 0)
	must(t, err)
	same(t, "another leadership", claim{epoch, ok}, claim{1, true})
	_, _, err = db.Lead(ctx(t), store.Leadership, "", time.Hour, 0)
	fails(t, err, rlc.ErrInvalid)
	_, _, err = db.Lead(ctx(t), store.Leadership, "a", 0, 0)
	fails(t, err, rlc.ErrInvalid)
}

func renews(t *testing.T, db *store.DB) {
	claims(t, db, "a", 0, claim{1, true})
	claims(t, db, "a", 0, claim{1, true})
	claims(t, db, "a", 1, claim{1, true}) // git has seen its own epoch
	must(t, db.Resign(ctx(t), store.Leadership, "a"))
	claims(t, db, "a", 0, claim{2, true}) // it came back: a new term
}

func minEpoch(t *testing.T, db *store.DB) {
	claims(t, db, "a", 41, claim{42, true}) // the records were lost, git was not
	claims(t, db, "a", 42, claim{42, true})
	claims(t, db, "a", 50, claim{51, true}) // somebody else published meanwhile
	must(t, db.Resign(ctx(t), store.Leadership, "a"))
	claims(t, db, "b", 51, claim{52, true})
	must(t, db.Resign(ctx(t), store.Leadership, "b"))
	claims(t, db, "c", 7, claim{53, true})
}

func auditPages(t *testing.T, db *store.DB) {
	for n := range 3 {
		must(t, db.SetAudited(ctx(t), "head", "v", rlc.AuditEntry{ID: fmt.Sprint("e", n), At: now.Add(time.Duration(n) * time.Second), Actor: "ada", Action: "history.follow"}))
	}
	must(t, db.SetAudited(ctx(t), "head", "last", rlc.AuditEntry{At: now.Add(-time.Hour), Actor: "ada", Action: "history.follow"})) // gets an id
	page, total, err := db.Audit(ctx(t), rlc.Page{Number: 2, Size: 2})
	must(t, err)
	if total != 4 || len(page) != 2 || page[0].ID != "e0" || page[1].ID == "" {
		t.Errorf("second page of two: %+v of %d, want e0 and one with an id of 4", page, total)
	}
	same(t, "value", get(db.Get(ctx(t), "head"))(t), "last")
	fails(t, db.SetAudited(ctx(t), "head", "unaudited", rlc.AuditEntry{}), rlc.ErrInvalid)
	same(t, "value", get(db.Get(ctx(t), "head"))(t), "last")
}

func meta(t *testing.T, db *store.DB) {
	same(t, "nothing yet", get(db.Get(ctx(t), "head"))(t), "")
	must(t, db.Set(ctx(t), "head", "c0ffee"))
	must(t, db.Set(ctx(t), "other", "x"))
	must(t, db.Set(ctx(t), "head", "beef"))
	same(t, "the last", get(db.Get(ctx(t), "head"))(t), "beef")
	must(t, db.Ping(ctx(t)))
}

func hostileNames(t *testing.T, db *store.DB) {
	for _, s := range []string{"nul\x00", "invalid \xff"} {
		r := run(1)
		r.ID = s
		_, _, err := db.BeginRun(ctx(t), r)
		fails(t, err, rlc.ErrInvalid)
		fails(t, db.SaveSeries(ctx(t), []rlc.SeriesKey{{ID: "s", Service: s}}), rlc.ErrInvalid)
		fails(t, db.SaveSeries(ctx(t), []rlc.SeriesKey{{ID: "s", Key: rlc.Key{"caller": s}}}), rlc.ErrInvalid)
		fails(t, db.SaveSummaries(ctx(t), []rlc.ServiceSummary{{Name: s}}), rlc.ErrInvalid)
		fails(t, db.Set(ctx(t), s, "v"), rlc.ErrInvalid)
	}
	r := run(1)
	_, _, err := db.BeginRun(ctx(t), r)
	must(t, err)
	bad := change(r, "checkout", "callers", "nul\x00")
	fails(t, db.StoreRun(ctx(t), r, []rlc.Change{bad}, nil), rlc.ErrInvalid)
	unsound := change(r, "checkout", "callers", "a")
	unsound.Offered = math.NaN()
	fails(t, db.StoreRun(ctx(t), r, []rlc.Change{unsound}, nil), rlc.ErrInvalid)
}

func hostileText(t *testing.T, db *store.DB) {
	for n, s := range []string{
		`'; DROP TABLE runs; --`, `"quoted"`, `a=b,c\d`, "line\nbreak\ttab", "%_\\", "${x}", "$1", "\u202ertl", "emoji 🙂", "<script>", strings.Repeat("x", 64<<10),
	} {
		r := run(n)
		r.Actor = ""
		c := change(r, s, s, s)
		stored(t, db, r, []rlc.Change{c})
		same(t, "change", get(db.LatestChange(ctx(t), s, s, key(s)))(t), c)
		must(t, db.SaveSeries(ctx(t), []rlc.SeriesKey{{ID: rlc.SeriesID(s), Service: s, Bucket: s, Key: key(s)}}))
		same(t, "series", get(db.SeriesOf(ctx(t), s))(t), []rlc.SeriesKey{{ID: rlc.SeriesID(s), Service: s, Bucket: s, Key: key(s)}})
	}
}
