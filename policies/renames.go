package policies

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// The bounds of a handover: the new caller begins within hours of the old one's
// end, at about its rate, and the old one has been silent for longer than it
// ever was before.
const (
	handover   = 6 * time.Hour
	alike      = 2.0 // the larger of the two rates over the smaller, at most
	leastQuiet = 2 * time.Hour
)

// Life is when a key's traffic began and ended within a window.
type Life struct {
	ID          string
	Bucket      string
	First, Last time.Time // start of the first and the last hour with a request; zero for none
	Began       rlc.Rate  // highest step of the 24 hours from First
	Ended       rlc.Rate  // highest step of the 24 hours to Last
	Quiet       time.Duration
	// Quiet is the longest time without a request between First and Last.
}

// LifeOf reads a key's life from its history.
func LifeOf(id, bucket string, h rlc.History) Life {
	l := Life{ID: id, Bucket: bucket}
	for i := range h.Hours {
		x := &h.Hours[i]
		if x.Present == 0 || x.Max <= 0 {
			continue
		}
		if l.First.IsZero() {
			l.First = x.Start
		} else {
			l.Quiet = max(l.Quiet, x.Start.Sub(l.Last)-time.Hour)
		}
		l.Last = x.Start
	}
	for i := range h.Hours {
		x := &h.Hours[i]
		if x.Start.Sub(l.First) >= 24*time.Hour {
			break
		}
		if x.Present > 0 {
			l.Began = max(l.Began, x.Max)
		}
	}
	for i := len(h.Hours) - 1; i >= 0; i-- {
		x := &h.Hours[i]
		if l.Last.Sub(x.Start) >= 24*time.Hour {
			break
		}
		if x.Present > 0 && !x.Start.After(l.Last) {
			l.Ended = max(l.Ended, x.Max)
		}
	}
	return l
}

// Rename is a caller that seems to go on under another name.
type Rename struct {
	Old, New string // quota IDs
	At       time.Time
}

// Renames finds keys that fell silent as another key of the same bucket began,
// at about the same rate. from is the start of the window: a key whose traffic
// reaches back to its first day is not new. Each key takes part once; the pair
// whose rates are nearest wins.
func Renames(lives []Life, from, now time.Time) []Rename {
	type pair struct {
		Rename
		apart float64
	}
	var pairs []pair
	for _, old := range lives {
		// The hour that has just begun may not be known yet.
		silent := now.Sub(old.Last.Add(time.Hour))
		if old.Last.IsZero() || silent < leastQuiet || silent <= old.Quiet {
			continue
		}
		for _, fresh := range lives {
			gap := fresh.First.Sub(old.Last.Add(time.Hour))
			switch {
			case fresh.ID == old.ID, fresh.Bucket != old.Bucket, fresh.First.IsZero():
			case fresh.First.Before(from.Add(24 * time.Hour)), !fresh.Last.After(old.Last):
			case gap.Abs() > handover:
			default:
				if apart := math.Abs(math.Log(float64(fresh.Began / old.Ended))); apart <= math.Log(alike)+1e-9 {
					pairs = append(pairs, pair{Rename{old.ID, fresh.ID, fresh.First}, apart})
				}
			}
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.apart, b.apart), cmp.Compare(a.Old, b.Old), cmp.Compare(a.New, b.New))
	})
	taken := map[string]bool{}
	var out []Rename
	for _, p := range pairs {
		if !taken[p.Old] && !taken[p.New] {
			taken[p.Old], taken[p.New] = true, true
			out = append(out, p.Rename)
		}
	}
	return out
}
