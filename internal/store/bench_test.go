package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func openBench(b *testing.B) *DB {
	b.Helper()
	db, err := Open(b.Context(), "sqlite:"+b.TempDir()+"/rlc.db")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return db
}

// A month of one series is read by one query; a service's month is written in
// one transaction.
func BenchmarkDays(b *testing.B) {
	for _, wide := range []bool{false, true} {
		db := openBench(b)
		r := rand.New(rand.NewPCG(1, 1))
		var days []rlc.SeriesDay
		const series = 200
		for s := range series {
			for n := range 28 {
				d := minuteDay(r, wide)
				shift := time.Duration(n) * 24 * time.Hour
				d.Series, d.Day = rlc.SeriesID(fmt.Sprintf("%032d", s)), d.Day.Add(shift)
				for i := range d.Hours {
					d.Hours[i].Start = d.Hours[i].Start.Add(shift)
				}
				for i := range d.Tail {
					d.Tail[i].Time = d.Tail[i].Time.Add(shift)
				}
				days = append(days, d)
			}
		}
		b.Run(fmt.Sprintf("save/wide=%v", wide), func(b *testing.B) {
			for b.Loop() {
				if err := db.SaveDays(b.Context(), days); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/series, "µs/series")
		})
		b.Run(fmt.Sprintf("read/wide=%v", wide), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				got, err := db.Days(b.Context(), days[0].Series, monday, monday.AddDate(0, 0, 28))
				if err != nil || len(got) != 28 {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}

// A run over 2,000 quotas with a dozen reasons and episodes each.
func BenchmarkRun(b *testing.B) {
	db := openBench(b)
	run := func(n int) (rlc.Run, []rlc.Change) {
		r := rlc.Run{ID: fmt.Sprint(n), Now: monday.Add(time.Duration(n) * time.Hour), Started: monday}
		var all []rlc.Change
		for q := range 2000 {
			c := rlc.Change{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": fmt.Sprint(q)}, At: r.Now, New: &rlc.Limit{Rate: rlc.Rate(q + 1), Burst: 10}, Old: &rlc.Limit{Rate: 1, Burst: 10}}
			c.Estimate = c.New
			for range 12 {
				c.Reasons = append(c.Reasons, rlc.Reason{Rule: "weekly_peak", Detail: "the highest minute of the last four weeks", Rate: 12.5, Acted: true})
			}
			c.Backtest.Old = &rlc.Backtest{Requests: 1e6, Episodes: make([]rlc.Episode, 12)}
			c.Backtest.New = &rlc.Backtest{Requests: 1e6, Episodes: make([]rlc.Episode, 12)}
			all = append(all, c)
		}
		return r, all
	}
	n := 0
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			r, changes := run(n)
			n++
			if _, _, err := db.BeginRun(b.Context(), r); err != nil {
				b.Fatal(err)
			}
			if err := db.StoreRun(b.Context(), r, changes, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("newest", func(b *testing.B) {
		for b.Loop() {
			all, err := db.LatestChanges(b.Context(), "checkout")
			if err != nil || len(all) != 2000 {
				b.Fatal(len(all), err)
			}
		}
	})
	b.Run("log", func(b *testing.B) {
		for b.Loop() {
			if _, total, err := db.ChangeLog(b.Context(), "checkout", "callers", rlc.Key{"caller": "7"}, rlc.Page{}); err != nil || total != n {
				b.Fatal(total, n, err)
			}
		}
	})
}

// The list of 1,100 services, filtered and sorted.
func BenchmarkSummaries(b *testing.B) {
	db := openBench(b)
	var all []rlc.ServiceSummary
	for n := range 1100 {
		h := rlc.Ratio(float64(n%97) / 97)
		all = append(all, rlc.ServiceSummary{Name: fmt.Sprintf("service-%04d", n), Owners: []string{"team-a"}, Headroom: &h, Week: rlc.Trend{Mean: make([]*rlc.Rate, 168), Most: make([]*rlc.Rate, 168)}})
	}
	if err := db.SaveSummaries(b.Context(), all); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, total, err := db.Summaries(b.Context(), rlc.ServiceFilter{Query: "service", Sort: "headroom"}, rlc.Page{}); err != nil || total != 1100 {
			b.Fatal(total, err)
		}
	}
}
