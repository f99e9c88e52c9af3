package gcra

import "time"

// MaxCharges is the most counters that one request can be charged to.
const MaxCharges = 64

// Charge names one counter that a request is charged to, for a store of
// counters. Counters of one Bucket are bounded together.
type Charge struct {
	Bucket string // the bucket's own space of counters, unique in the store
	Key    string // the counter within it; "" for a bucket without keys
	Limit  Limit
	// Max is how many live counters the bucket may have in this process; 0: no
	// bound. Beyond it, Share has one counter for all the rest; without it they
	// are admitted. A store elsewhere bounds its counters by their expiry.
	Max   int
	Share bool
}

// Tally is a store's answer for one request over all its charges, in their
// order. Either every charge admitted and all were charged, or none was.
type Tally struct {
	Refused   uint64 // bit i: charge i refused
	Untracked uint64 // bit i: charge i had no counter (its bucket is full) and admitted
	// Worst is the charge that refused with the longest wait, or, where none
	// refused, charge 0. The fields below are its.
	Worst     int
	Remaining int64         // whole tokens left
	Wait      time.Duration // until the request would be admitted; 0 where it was, Forever where never
	// Pace is how long an admitted request is to be held before it goes on: the
	// longest wait of its leaky buckets, 0 without one.
	Pace time.Duration
}

// OK reports whether every charge admitted.
func (t Tally) OK() bool { return t.Refused == 0 }

// Add enters charge i's verdict; charges are added in order.
func (t *Tally) Add(i int, v Verdict) {
	if v.OK {
		if t.Refused == 0 {
			t.Pace = max(t.Pace, v.Wait)
		}
		if i == 0 {
			t.Remaining = v.Remaining
		}
		return
	}
	if t.Refused == 0 || v.Wait > t.Wait {
		t.Worst, t.Remaining, t.Wait = i, v.Remaining, v.Wait
	}
	t.Refused |= 1 << i
	t.Pace = 0
}
