package policies

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Fit is what the capacity fit knows of a service besides its changes.
type Fit struct {
	// Coincidence is κ: the peak of the sum of all series divided by the sum
	// of their peaks. 0 or above 1 means 1, all peak at once.
	Coincidence rlc.Ratio
	// Contracts are promised limits by quota ID: rate and burst are kept. A burst
	// of 0 promises none.
	Contracts map[string]rlc.Limit
	// Keeps are limits, by quota ID, that are kept without being promised.
	Keeps map[string]rlc.Limit
	// Retired are quotas, by ID, whose callers go on under another name: they
	// take no room.
	Retired map[string]bool
}

// Loss is what one quota lost to the capacity fit.
type Loss struct {
	ID       string
	From, To rlc.Limit
}

// FitCapacity is guard 6, over all changes of a service. If the sum of its
// quota buckets' rates × κ exceeds capacity.rate × (1 − reserve), or that of
// their bursts exceeds capacity.burst, contracts keep their floors and the rest
// is water-filled: max-min fair shares, every quota gets what it asks for up to
// one common level (policies.md 4). It amends changes in place, each with a
// reason and a word to a person, and returns who lost what.
//
// A held quota stays as it is: a declared capacity is no data about its
// traffic. No quota falls below its floor, even where the floors alone do not
// fit. Contracts whose rates alone exceed the capacity hold every quota of the
// service with the rule conflict, whether or not their callers peak together:
// what was promised may be asked for at any time. A quota whose share lies inside the deadband of the one in
// force keeps that one where all still fit, so that runs do not jitter.
func FitCapacity(svc *rlc.Service, changes []rlc.Change, f Fit) []Loss {
	limit, ok := room(svc.Capacity)
	if !ok {
		return nil
	}
	kappa := float64(f.Coincidence)
	if !(kappa > 0 && kappa <= 1) {
		kappa = 1
	}
	var in []*rlc.Change
	for i := range changes {
		c := &changes[i]
		if b := svc.Bucket(c.Bucket); c.New != nil && !f.Retired[c.ID()] && (b == nil || b.Role != rlc.CapRole) {
			in = append(in, c)
		}
	}
	if why := conflict(svc, in, f, limit); why != "" {
		for i := range changes {
			refuse(&changes[i], why)
		}
		return nil
	}
	ranks := make([]int, len(in))
	for i, c := range in {
		ranks[i] = rank(svc.Bucket(c.Bucket), c.Key)
	}
	// The bounds of one quota: what it asks for, and what it keeps.
	rates := fill(in, ranks, float64(limit)/kappa, func(c *rlc.Change) (ask, keep float64) {
		return float64(c.New.Rate), max(float64(floorOf(svc, c)), float64(f.kept(c).Rate))
	})
	var bursts []float64
	if b := svc.Capacity.Burst; b > 0 {
		bursts = fill(in, ranks, float64(b)/kappa, func(c *rlc.Change) (ask, keep float64) {
			return float64(c.New.Burst), max(1, float64(f.kept(c).Burst))
		})
	}
	if rates == nil && bursts == nil {
		return nil
	}
	f.tooBursty(in, svc.Capacity.Burst)
	return cut(svc, in, f, rates, bursts, limit, kappa)
}

// tooBursty tells a person of promised bursts that together exceed the declared
// one. They are kept: bursts seldom meet, and no rate is at stake.
func (f Fit) tooBursty(in []*rlc.Change, room rlc.Burst) {
	var sum rlc.Burst
	for _, c := range in {
		sum += f.Contracts[c.ID()].Burst
	}
	if room <= 0 || sum <= room {
		return
	}
	for _, c := range in {
		if l := f.Contracts[c.ID()]; l.Burst > 0 {
			why := fmt.Sprintf("bursts of the contracts, %s in all, exceed the capacity's burst of %s and are kept", rlc.Number(sum), rlc.Number(room))
			c.Reasons = append(c.Reasons, rlc.Reason{Rule: "capacity_fit", Detail: why, Rate: c.New.Rate, Asks: true})
			c.Look = joined([]string{c.Look, why})
		}
	}
}

// kept is what a quota keeps of what it asks for, zero for nothing.
func (f Fit) kept(c *rlc.Change) rlc.Limit {
	a, b := f.Contracts[c.ID()], f.Keeps[c.ID()]
	return rlc.Limit{Rate: max(a.Rate, b.Rate), Burst: max(a.Burst, b.Burst)}
}

// The ranks in which quotas are filled.
const (
	critical = iota
	ordinary
	batch
)

// rank is the tier of the caller whose quota it is.
func rank(b *rlc.Bucket, key rlc.Key) int {
	if b == nil {
		return ordinary
	}
	caller := CallerOf(b, key)
	matches := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			prefix, open := strings.CutSuffix(p, "*")
			return caller != "" && (p == caller || open && strings.HasPrefix(caller, prefix))
		})
	}
	switch {
	case matches(b.Tier.Critical):
		return critical
	case matches(b.Tier.Batch):
		return batch
	}
	return ordinary
}

// CallerOf is the one caller that a quota is for, "" where it is for several.
func CallerOf(b *rlc.Bucket, key rlc.Key) string {
	if caller := key["caller"]; caller != "" {
		return caller
	}
	if p := b.Match["caller"]; p.Kind == rlc.Exact && len(p.Values) == 1 {
		return p.Values[0]
	}
	return ""
}

// fill returns each quota's share of room, or nil where all fit: one rank after
// the other, each from what is left to it.
func fill(in []*rlc.Change, ranks []int, room float64, bounds func(*rlc.Change) (ask, keep float64)) []float64 {
	ask, keep := make([]float64, len(in)), make([]float64, len(in))
	sum := 0.0
	for i, c := range in {
		ask[i], keep[i] = bounds(c)
		if c.Held != "" {
			keep[i] = ask[i]
		}
		keep[i] = min(keep[i], ask[i])
		sum += ask[i]
	}
	if sum <= room*(1+1e-9) {
		return nil
	}
	out := slices.Clone(keep)
	for _, kept := range keep {
		room -= kept
	}
	for r := critical; r <= batch; r++ {
		var at []int
		var a, k []float64
		for i := range in {
			if ranks[i] == r {
				at, a, k = append(at, i), append(a, ask[i]), append(k, keep[i])
				room += keep[i]
			}
		}
		for n, share := range waterFill(a, k, max(room, 0)) {
			out[at[n]] = share
			room -= share
		}
	}
	return out
}

// waterFill finds the level at which min(ask, max(keep, level)) sums up to
// room, and returns those shares. Where the kept parts alone exceed room, each
// gets what it keeps.
func waterFill(ask, keep []float64, room float64) []float64 {
	at := func(level float64) (sum float64) {
		for i := range ask {
			sum += min(ask[i], max(keep[i], level))
		}
		return sum
	}
	// The sum grows linearly between neighbouring bounds.
	var bounds []float64
	bounds = append(append(append(bounds, 0), ask...), keep...)
	slices.Sort(bounds)
	level := 0.0
	for i := 1; i < len(bounds); i++ {
		low, high := at(bounds[i-1]), at(bounds[i])
		if low > room {
			break
		}
		level = bounds[i]
		if high > room {
			level = bounds[i-1] + (bounds[i]-bounds[i-1])*(room-low)/(high-low)
			break
		}
	}
	out := make([]float64, len(ask))
	for i := range ask {
		out[i] = min(ask[i], max(keep[i], level))
	}
	return out
}

// conflict: contracts that do not fit together refuse the service.
func conflict(svc *rlc.Service, in []*rlc.Change, f Fit, limit rlc.Rate) string {
	var sum rlc.Rate
	for _, c := range in {
		sum += f.Contracts[c.ID()].Rate
	}
	if sum <= limit*(1+1e-9) {
		return ""
	}
	of := "capacity of " + stat.RateText(svc.Capacity.Rate)
	if limit != svc.Capacity.Rate {
		of += ", " + stat.RateText(limit) + " after its reserve"
	}
	return fmt.Sprintf("contracts of %s in all do not fit the %s", stat.RateText(sum), of)
}

func refuse(c *rlc.Change, why string) {
	c.Held, c.HeldWhy, c.Failed = "conflict", why, true
	c.New, c.NewMode = nil, c.OldMode
	var rate rlc.Rate
	if c.Old != nil {
		same := *c.Old
		c.New, rate = &same, same.Rate
	}
	c.Reasons = append(c.Reasons, rlc.Reason{Rule: "conflict", Detail: why, Rate: rate, Acted: true})
}

// cut puts the shares into the changes.
func cut(svc *rlc.Service, in []*rlc.Change, f Fit, rates, bursts []float64, limit rlc.Rate, kappa float64) []Loss {
	var asked float64
	for _, c := range in {
		asked += float64(c.New.Rate)
	}
	what := fmt.Sprintf("quotas of %s in all × %.2f that peak together exceed the capacity of %s", stat.RateText(rlc.Rate(asked)), kappa, stat.RateText(limit))
	if rates == nil {
		what = fmt.Sprintf("bursts in all × %.2f that peak together exceed the capacity of %s", kappa, rlc.Number(svc.Capacity.Burst))
	}
	shares := make([]rlc.Limit, len(in))
	for i, c := range in {
		from := *c.New
		to := from
		if rates != nil && rates[i] < float64(from.Rate)*(1-1e-9) {
			to.Rate = max(stat.RoundDown(rlc.Rate(rates[i])), min(from.Rate, max(floorOf(svc, c), f.kept(c).Rate)))
			// The burst keeps its proportion, but for what was promised.
			to.Burst = rlc.Burst(max(1, math.Ceil(float64(from.Burst)*float64(to.Rate/from.Rate)-1e-6)))
			to.Burst = max(to.Burst, min(from.Burst, f.kept(c).Burst))
		}
		if bursts != nil {
			to.Burst = min(to.Burst, rlc.Burst(max(1, math.Floor(bursts[i]+1e-9))))
		}
		shares[i] = to
	}
	settle(svc, in, shares, float64(limit)/kappa, kappa)

	var losses []Loss
	for i, c := range in {
		from, to := *c.New, shares[i]
		if to == from {
			continue
		}
		lost := fmt.Sprintf("%s: cut from %s, burst %s to %s, burst %s", what, stat.RateText(from.Rate), rlc.Number(from.Burst), stat.RateText(to.Rate), rlc.Number(to.Burst))
		c.New = &to
		c.Reasons = append(c.Reasons, rlc.Reason{Rule: "capacity_fit", Detail: lost, Rate: to.Rate, Acted: true})
		c.Look = joined([]string{c.Look, lost})
		if to.Rate != from.Rate && (c.Old == nil || c.Old.Rate != to.Rate) {
			c.Why = joined([]string{c.Why, "cut to " + stat.RateText(to.Rate) + " to fit the capacity"})
		}
		losses = append(losses, Loss{ID: c.ID(), From: from, To: to})
	}
	return losses
}

// settle keeps quotas in force whose shares are within the deadband of them,
// where everything still fits.
func settle(svc *rlc.Service, in []*rlc.Change, shares []rlc.Limit, rates, kappa float64) {
	settled := slices.Clone(shares)
	var rate, burst float64
	for i, c := range in {
		if b := svc.Bucket(c.Bucket); shares[i] != *c.New && c.Old != nil && c.Old.Burst <= c.New.Burst && c.Old.Rate <= c.New.Rate && b != nil &&
			math.Abs(float64(shares[i].Rate-c.Old.Rate)) < resolve(b.Guards).Deadband*float64(c.Old.Rate) {
			settled[i] = *c.Old
		}
		rate += float64(settled[i].Rate)
		burst += float64(settled[i].Burst)
	}
	if rate <= rates*(1+1e-9) && (svc.Capacity.Burst == 0 || burst*kappa <= float64(svc.Capacity.Burst)) {
		copy(shares, settled)
	}
}

func floorOf(svc *rlc.Service, c *rlc.Change) rlc.Rate {
	if b := svc.Bucket(c.Bucket); b != nil {
		return resolve(b.Guards).Floor
	}
	return rlc.DefaultGuards().Floor
}
