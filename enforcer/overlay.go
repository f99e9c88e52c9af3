package enforcer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/match"
)

// Overridden is the bucket of requests that an override dropped.
const Overridden = "__override__"

// overrideRole is the role of what an override has counted.
const overrideRole rlc.Role = "override"

// overrideSpace begins the names of the counters of limit overrides. No
// service's name begins with a NUL.
const overrideSpace = "\x00override "

// override is one override ready for decisions.
type override struct {
	Override
	match  *match.Matcher
	key    rlc.Key // in decisions: its id
	calls  bool    // it is for callers by name, not for whoever sends
	bucket *bucket // what stands for it among a request's limits
	from   int64   // seconds since 1970: from when it stands,
	until  int64   // from when it does not,
	back   int64   // and from when it leaves no trace
}

// overlay is the document of overrides in force.
type overlay struct {
	version rlc.Version
	content []byte
	list    Overrides
}

// lastOverrides is what the file of the last good overrides holds.
type lastOverrides struct {
	Saved   time.Time   `json:"saved"`
	Version rlc.Version `json:"version"`
	Content []byte      `json:"content"`
}

// LoadOverrides puts a document of overrides in force in place of the one
// before, on top of whatever snapshot there is; or it refuses it, changes
// nothing and says why: rlc.ErrInvalid for one that is not valid (see
// ParseOverrides), rlc.ErrRefused for one that is older. The one in force is
// confirmed, not refused. One that cannot be kept in the state folder is in
// force nevertheless, and /readyz says so: an emergency does not wait for a
// disk.
func (e *Enforcer) LoadOverrides(version rlc.Version, content []byte) error {
	e.loading.Lock()
	defer e.loading.Unlock()
	e.mu.Lock()
	have := e.overlay
	e.mu.Unlock()
	if version == have.version && string(content) == string(have.content) {
		return nil
	}
	o, err := ParseOverrides(content)
	if err == nil && version.Compare(have.version) <= 0 {
		err = refuse(refusedOlder, "%w: overrides %s are not newer than %s in force", rlc.ErrRefused, version, have.version)
	}
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if version.Compare(have.version) <= 0 {
			// A late or repeated delivery: it says nothing about the newest.
			e.overrideRefusals[refusedOlder]++
			return err
		}
		e.overrideRefusals[refusedInvalid]++
		e.overridesRefused = err.Error()
		e.log.Error("overrides refused", "version", version, "error", err)
		return err
	}
	kept := ""
	if dir := e.config.StateDir; dir != "" {
		if err := saveState(dir, overridesName, overridesMagic, lastOverrides{e.now().UTC(), version, content}); err != nil {
			kept = err.Error()
			e.log.Error("overrides not kept over a restart", "state", dir, "error", err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.overridesRefused, e.overridesLost = "", kept
	e.overlay = overlay{version, slices.Clone(content), o}
	t := e.switches[AllToShadow]
	t.byDocument = o.AllToShadow
	e.throw(AllToShadow, t, "the overrides")
	e.renew(e.now())
	e.log.Info("overrides in force", "version", version, "overrides", len(o.List))
	return nil
}

// restoreOverrides puts the last good overrides in force, if there are any.
func (e *Enforcer) restoreOverrides() error {
	var kept lastOverrides
	if err := loadState(e.config.StateDir, overridesName, overridesMagic, &kept); err != nil {
		return err
	}
	list, err := ParseOverrides(kept.Content)
	if err != nil {
		return err
	}
	e.overlay = overlay{kept.Version, kept.Content, list}
	e.switches[AllToShadow] = thrown{byDocument: list.AllToShadow}
	return nil
}

// Overrides are the overrides that were loaded last, those that are over among
// them, with their version. They are shared and not to be changed.
func (e *Enforcer) Overrides() (rlc.Version, Overrides) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.overlay.version, e.overlay.list
}

// overlaid lists, for the moment now, the overrides that stand or still leave a
// trace, and the next second at which that changes. The caller holds the lock.
func (e *Enforcer) overlaid(now int64) (list []*override, next int64) {
	next = math.MaxInt64
	kept := map[string]*counts{}
	for _, o := range e.overlay.list.List {
		x := &override{
			Override: o, key: rlc.Key{"id": o.ID},
			calls: o.namesCallers(), from: o.From.Unix(), until: ceilSecond(o.Until), back: ceilSecond(o.Until.Add(o.ramp())),
		}
		c := e.overrideCounts[o.ID]
		if c == nil {
			c = newCounts(o.Service, o.ID, overrideRole)
		}
		kept[o.ID] = c
		for _, at := range []int64{x.from, x.until, x.back} {
			if at > now {
				next = min(next, at)
			}
		}
		if now < x.from || now >= x.back {
			continue
		}
		var err error
		if x.match, err = o.matcher(); err != nil {
			continue // it was valid when it was loaded
		}
		x.bucket = &bucket{counts: c, mode: rlc.Enforce, Bucket: &rlc.Bucket{
			Name: Overridden, Role: rlc.CapRole, Mode: rlc.Enforce,
			Algorithm: rlc.TokenBucket, OnFailure: rlc.FailLocal, Scope: rlc.ScopeGlobal,
		}}
		list = append(list, x)
	}
	e.overrideCounts = kept
	return list, next
}

// ceilSecond is the first full second not before t, since 1970.
func ceilSecond(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// stands reports whether the override acts at second: else it is over and its
// requests come back.
func (o *override) stands(second int64) bool { return second < o.until }

// concerns reports whether the override is for a service.
func (o *override) concerns(service string) bool { return o.Service == service || o.Service == "*" }

// matches reports whether it is for a request with these attributes: sensitive
// ones hashed, those that mean "no identity" left out.
func (o *override) matches(attrs rlc.Attributes) bool { return o.match.Match(attrs).Quota.Bucket >= 0 }

// draft is what a limit override holds a request of a service to: each service
// has a counter of its own.
func (o *override) draft(service, who, caller string) draft {
	limit := o.limit()
	b := *o.bucket
	if o.calls {
		b.refuses = caller
	}
	b.space = overrideSpace + o.ID + "\x00" + service
	b.asIf = asIfPrefix + b.space
	compiled, _ := gcra.Compile(limit) // it was valid when it was loaded
	return draft{
		part:   part{bucket: &b, key: o.key, limit: &limit, enforce: true, cost: 1, who: who},
		source: "override", charge: gcra.Charge{Bucket: b.space, Limit: compiled},
	}
}

// overridden drops a request that a block or drop override is for, before any
// counter is asked: it reports whether it did.
func (t *route) overridden(d *Decision, at instant, peek bool) bool {
	for _, o := range t.overrides {
		if !o.stands(at.second) || o.Action == LiftAction {
			continue
		}
		drop := o.Action == BlockAction || rand.Float64() < float64(o.DropRatio)
		if drop {
			o.drop(d, at, t.caller)
			if !peek {
				t.series.count(Drop, at.second)
			}
		}
		o.count(d.Outcome, peek)
		if drop {
			return true
		}
	}
	return false
}

// drop makes d a drop by the override, of a request of a caller.
func (o *override) drop(d *Decision, at instant, caller string) {
	if o.calls {
		d.Caller = caller
	}
	d.Outcome, d.Bucket, d.Key, d.Limit = Drop, Overridden, o.key, nil
	d.Remaining, d.Wait = 0, 0
	d.RetryAfter = time.Second
	if o.stands(at.second) && o.Action == BlockAction {
		d.RetryAfter = time.Duration(o.until-at.second) * time.Second
	}
	d.Enforced = Standing{Bucket: Overridden, Key: o.key, Wait: d.RetryAfter}
}

// comeBack lets the requests of an override that is over come back little by
// little: one that its own buckets would refuse, for it is above its old limit,
// is dropped with a probability that falls from 1 to 0 over the ramp. Whoever
// stays within its limit comes back at once. It also counts what lifted
// requests met.
func (t *route) comeBack(d *Decision, at instant, peek bool) {
	for _, o := range t.overrides {
		switch {
		case o.stands(at.second) && o.Action == LiftAction:
			o.count(d.Outcome, peek)
		case o.stands(at.second) || d.Outcome != VirtualDrop:
		case rand.Float64() < float64(o.back-at.second)/float64(o.back-o.until):
			o.drop(d, at, t.caller)
			o.count(Drop, peek)
		}
	}
}

func (o *override) count(outcome Outcome, peek bool) {
	if !peek {
		o.bucket.counts.outcomes[outcome.index()].Add(1)
	}
}

// overrideNotes says what people should know of the overrides. The caller holds
// the lock.
func (e *Enforcer) overrideNotes() (notes []string) {
	if e.overridesRefused != "" {
		notes = append(notes, "the newest overrides were refused: "+e.overridesRefused)
	}
	if e.overridesLost != "" {
		notes = append(notes, "the overrides in force would not outlive a restart: "+e.overridesLost)
	}
	now := e.now().Unix()
	for _, o := range e.overlay.list.List {
		if o.From.Unix() <= now && now < ceilSecond(o.Until) {
			notes = append(notes, fmt.Sprintf("override %.100q of %.100q stands until %s", o.ID, o.Service, o.Until.UTC().Format(time.RFC3339)))
		}
	}
	return notes
}
