package rlc

import "time"

// Score is how well services were limited on one day: all of them, or those of
// one owner. A service with two owners is in the scores of both.
type Score struct {
	Day      time.Time `json:"day"`   // its midnight, UTC
	Fleet    bool      `json:"fleet"` // of all services; else of Owner's
	Owner    string    `json:"owner"` // "" for the services without one
	Services int       `json:"services"`
	// What policies read in the last run's window, and what of it a limit is in
	// force for.
	Requests float64 `json:"requests"`
	Limited  float64 `json:"limited"`
	// Limits whose peak that counts is known, and those of them between FitLeast and FitMost
	// times that peak.
	Known   int `json:"known"`
	Fitting int `json:"fitting"`
	// Spread counts the Known limits by Multiple; nil where nobody has.
	Spread []int `json:"spread,omitempty"`
	// What enforcers counted on the day.
	Counted      float64 `json:"counted"`
	Drops        float64 `json:"drops"`
	VirtualDrops float64 `json:"virtual_drops"`
	Unmatched    float64 `json:"unmatched"` // requests that no bucket counts
	// Proposals that were open, and when the oldest and the median one was made;
	// zero without any.
	Open   int       `json:"open"`
	Oldest time.Time `json:"oldest"`
	Median time.Time `json:"median"`
	At     time.Time `json:"at"` // when it was computed
}

// Between FitLeast and FitMost times its peak that counts a limit fits: below, ordinary
// growth is dropped; above, it protects little.
const (
	FitLeast = 1.3
	FitMost  = 3.0
)

// Fits reports whether a limit lies between FitLeast and FitMost times a peak.
// A part in a thousand either way is rounding.
func Fits(limit, peak Rate) bool {
	return peak > 0 && limit >= peak*FitLeast*0.999 && limit <= peak*FitMost*1.001
}

// Multiples bound the classes of a Spread, as limit over peak that counts: the
// first class lies below the first of them, the last from the last on. FitLeast
// and FitMost are two of them.
func Multiples() []float64 {
	var all []float64
	for tenths := 5; tenths <= 40; tenths++ {
		all = append(all, float64(tenths)/10)
	}
	return all
}

// Multiple is the class of a limit in a Spread. Those from FitLeast to FitMost
// hold just the limits that fit: a part in a thousand is rounding here too.
func Multiple(limit, peak Rate) int {
	class := 0
	for _, m := range Multiples() {
		least := peak * Rate(m) * 0.999
		if m >= FitMost {
			least = peak * Rate(m) * 1.001
		}
		if limit < least || m >= FitMost && limit == least {
			break
		}
		class++
	}
	return class
}

// AddSpread adds up two spreads; nil is one of nothing.
func AddSpread(a, b []int) []int {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := append([]int(nil), a...)
	for i, n := range b {
		out[i] += n
	}
	return out
}
