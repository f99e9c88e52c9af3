package loop

import (
	"math"
	"time"
)

// The law's parameters. Times are in seconds where they divide rates.
const (
	tick        = 50 * time.Millisecond // how often a law steps
	longestStep = 0.3                   // s; a longer gap between steps counts as this
	smoothing   = 2.0                   // s; time constant of the estimate while it is consistent
	jumpWindow  = 0.25                  // s; the report interval that a jump's noise is judged by
	jumpSigmas  = 4
	jumpShare   = 0.03 // a smaller change is no jump, however significant
	warmShare   = 0.7  // of the limit; a jump below it need not be followed closely
	hotFor      = 3 * time.Second
	turnsWithin = 3 * time.Second
	turnsMany   = 4
	choppyFor   = 5 * time.Second
	choppyMean  = 2 * time.Second
	choppyExit  = 1.3 // × the largest load of the last choppyMean
	noiseSigmas = 4
	noiseWindow = 1.0 // s of the limit's Poisson noise that the bucket holds
	payHot      = 2.0 // s
	payCold     = 5.5 // s
)

// Law decides what one bucket keeps in one area. The zero value is a new
// bucket; after a restart call Restart first. It is a value with time as an
// argument, not safe for concurrent use.
//
// # Derivation
//
// Let L be the limit, O the offered and A the admitted load, all in requests/s
// and all known with a delay D. Dropping does not change O, so
//
//	k = L / O
//
// is feed-forward: it has no loop gain and cannot oscillate. (On A the loop
// would be k' = k·L/A: its gain is 1 at every delay, and it swings for ever.)
// Two things are added.
//
// The estimate Ô of O. A rate counted over w seconds has a deviation of
// sqrt(O/w). While O stays within 4 deviations (w = 0.25 s) or 3 % of Ô, Ô
// follows it with a time constant of 2 s; otherwise the load has changed and Ô
// jumps. A load that jumps up and down four times in 3 s turns faster than
// reports can tell; then Ô is its mean over 2 s, until it leaves that band
// upwards.
//
// A virtual token bucket T of the whole area pays back what noise and delay
// let through:
//
//	T' = L − A(t−D),   −C ≤ T ≤ C,   C = 4·sqrt(L·1 s)
//	k  = (L + T/τ) / Ô
//
// Near the limit A = k·O, so T' = −T(t−D)/τ: without overshoot if τ ≥ e·D. D is
// about 0.35 s while clients report every 250 ms (hot). Otherwise it is 2 s: half
// a second each for the middle of what a report counts and for its age, and one
// until slight news are told. τ = 2 s and 5.5 s. C is what Poisson noise of one
// second may use, so a load exactly at its limit is hardly ever cut, and a surge
// of fifteen times the limit is not paid back for seconds.
//
// Classes are filled from the top: with the target R = L + T/τ,
//
//	k_c = (R − Σ k_i·Ô_i over the classes i above c) / Ô_c
//
// Every k is held between MinKeep and 1. O = 0 gives 1, L = 0 gives MinKeep.
type Law struct {
	stepped bool
	last    time.Duration
	ô       float64 // Ô
	tokens  float64 // T, requests

	hotUntil    time.Duration
	choppyUntil time.Duration
	rising      bool                     // direction of the last jump
	turns       [turnsMany]time.Duration // when the direction changed, oldest first
	recent      [int(choppyMean / tick)]float64
	next, held  int // of recent
}

// Load is what a law compares: the limit, what was offered per class and what
// was admitted in all, in requests/s.
type Load struct {
	Limit    float64
	Offered  [Classes]float64
	Admitted float64
}

// Restart makes a law that does not know the past: it has no tokens to give.
func (l *Law) Restart(now time.Duration) {
	*l = Law{stepped: true, last: now}
	for i := range l.turns {
		l.turns[i] = math.MinInt64
	}
}

// Hot reports whether clients should report every 250 ms.
func (l *Law) Hot(now time.Duration) bool { return l.stepped && now < l.hotUntil }

// Step takes the load known at now, about every 50 ms, and returns what to
// keep. Loads that are NaN or negative count as 0. A now before the last one
// counts as the last one.
func (l *Law) Step(now time.Duration, in Load) Keep {
	limit := sane(in.Limit)
	for c := range in.Offered {
		in.Offered[c] = sane(in.Offered[c])
	}
	offered := total(in.Offered)
	most := noiseSigmas * math.Sqrt(limit*noiseWindow)
	if !l.stepped {
		l.Restart(now)
		l.tokens = most
	}
	now = max(now, l.last)
	dt := min((now - l.last).Seconds(), longestStep)
	l.last = now

	l.estimate(now, dt, offered, limit)
	l.tokens = min(max(l.tokens+(limit-sane(in.Admitted))*dt, -most), most)
	pay := payCold
	if l.Hot(now) {
		pay = payHot
	}
	return fill(limit+l.tokens/pay, l.ô, offered, in.Offered)
}

// estimate moves Ô.
func (l *Law) estimate(now time.Duration, dt, offered, limit float64) {
	largest := 0.0
	for _, o := range l.recent[:l.held] {
		largest = max(largest, o)
	}
	l.recent[l.next] = offered
	l.next = (l.next + 1) % len(l.recent)
	l.held = min(l.held+1, len(l.recent))

	off := math.Abs(offered - l.ô)
	if off > jumpSigmas*math.Sqrt(l.ô/jumpWindow) && off > jumpShare*l.ô {
		if max(offered, l.ô) > warmShare*limit {
			l.hotUntil = now + hotFor
		}
		if up := offered > l.ô; up != l.rising {
			l.rising = up
			copy(l.turns[:], l.turns[1:])
			l.turns[turnsMany-1] = now
			if l.turns[0] > now-turnsWithin {
				l.choppyUntil = now + choppyFor
			}
		}
		l.ô = offered
	} else {
		l.ô += (1 - math.Exp(-dt/smoothing)) * (offered - l.ô)
	}
	if now >= l.choppyUntil {
		return
	}
	if offered > choppyExit*largest && offered > limit {
		l.choppyUntil = now
		l.ô = offered
		return
	}
	sum := 0.0
	for _, o := range l.recent[:l.held] {
		sum += o
	}
	l.ô = sum / float64(l.held)
}

// fill shares the target among the classes of a load estimated as estimate,
// split as offered is.
func fill(target, estimate, offered float64, perClass [Classes]float64) (k Keep) {
	full := 1e-6 * target // what rounding leaves of a target that is used up
	for c := range perClass {
		// The split is the present one; where nothing is offered now, the
		// estimate is a memory and counts for every class alike.
		o := estimate
		if offered > 0 {
			o = estimate * perClass[c] / offered
		}
		switch {
		case o > 0:
			k[c] = min(max(target/o, MinKeep), 1)
		case target > full:
			k[c] = 1
		default:
			k[c] = MinKeep
		}
		if c > 0 {
			k[c] = min(k[c], k[c-1]) // whatever rounding leaves
		}
		if offered > 0 {
			target -= k[c] * o
		}
	}
	return k
}
