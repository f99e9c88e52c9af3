package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/distribute"
	"github.com/openrlc/rlc/quotafile"
)

const (
	// recordsPatience is how long an act in an emergency waits for the records
	// before it goes on without them.
	recordsPatience = 1500 * time.Millisecond
	// lookEvery is how often overrides are read, made into a document and sent
	// where that changed.
	lookEvery = time.Second
	// warnBefore is how long before its end an override is announced to end.
	warnBefore = 10 * time.Minute
)

// emergency holds the overrides and the kill switches as this process knows
// them: they are acted on with the records, git and Prometheus away.
type emergency struct {
	journal journal
	glass   *distribute.Redis // publishes while nobody can lead; nil without Redis
	active  prometheus.Gauge

	acting  sync.Mutex           // one act is decided and recorded at a time
	syncing sync.Mutex           // one document is made at a time
	sent    distribute.Overrides // what this process published last

	mu       sync.Mutex
	known    map[string]rlc.Override // of the records, or of what enforcers have where those never answered
	switches map[string]rlc.KillSwitch
	file     []string         // switches that the file holds
	away     bool             // the records did not answer when last asked
	changes  int              // how many acts there were
	epoch    uint64           // the highest leadership epoch heard of
	left     []rlc.Override   // that stand and have no place in the enforcers' document
	refused  map[string]error // by object: what the records say against acts of the journal
	unread   error            // why an earlier process's journal could not be read
}

// openEmergency reads what was not recorded yet, and what enforcers had.
func (a *App) openEmergency() error {
	e := &a.emergency
	e.journal.path = a.emergencyFile("emergency.journal")
	e.known, e.switches = map[string]rlc.Override{}, map[string]rlc.KillSwitch{}
	version, list := a.Enforcer.Overrides()
	e.epoch = max(version.Epoch, a.Enforcer.Version().Epoch)
	for _, o := range list.List {
		e.known[o.ID] = fromEnforcer(o)
	}
	if list.AllToShadow {
		e.switches[rlc.AllToShadow] = rlc.KillSwitch{Name: rlc.AllToShadow, On: true, Actor: "before the restart"}
	}
	e.active = prometheus.NewGauge(prometheus.GaugeOpts{Name: "rlc_overrides_active", Help: "Overrides that stand."})
	if err := a.Registry.Register(e.active); err != nil {
		return err
	}
	if e.unread = e.journal.open(); e.unread != nil {
		a.log.Error("the emergency goes on without what an earlier process kept in the data folder", "err", e.unread)
	}
	return nil
}

// fromEnforcer and toEnforcer translate between what is recorded and what
// enforcers read.
func fromEnforcer(x enforcer.Override) rlc.Override {
	o := rlc.Override{ID: x.ID, Service: x.Service, Match: map[string][]string{}, Action: string(x.Action), Rate: x.Rate, Burst: x.Burst,
		DropRatio: x.DropRatio, From: x.From, Until: x.Until, RampSeconds: x.RampSeconds, Actor: x.Actor, Reason: x.Reason}
	for name, p := range x.Match {
		o.Match[name] = p
	}
	return o
}

func toEnforcer(o rlc.Override) enforcer.Override {
	x := enforcer.Override{ID: o.ID, Service: o.Service, Match: map[string]enforcer.Pattern{}, Action: enforcer.Action(o.Action), Rate: o.Rate, Burst: o.Burst,
		DropRatio: o.DropRatio, From: o.From, Until: o.Until, RampSeconds: o.RampSeconds, Actor: o.Actor, Reason: o.Reason}
	for name, p := range o.Match {
		x.Match[name] = p
	}
	return x
}

// all is what is known, with what is not recorded yet. The caller holds the
// lock.
func (e *emergency) all() (map[string]rlc.Override, map[string]rlc.KillSwitch) {
	overrides, switches := maps.Clone(e.known), maps.Clone(e.switches)
	for _, act := range e.journal.acts {
		if o := act.Override; o != nil {
			overrides[o.ID] = *o
		}
		if s := act.Switch; s != nil {
			switches[s.Name] = *s
		}
	}
	for _, name := range e.file {
		switches[name] = rlc.KillSwitch{Name: name, On: true, Actor: "the file " + killFile, Reason: "remove the file to let go of it", At: switches[name].At}
	}
	return overrides, switches
}

// Overrides are those that stand or still leave a trace, the one that ends
// first before the others. It needs no records.
func (a *App) Overrides() []rlc.Override {
	e := &a.emergency
	e.mu.Lock()
	all, _ := e.all()
	e.mu.Unlock()
	now := time.Now()
	var out []rlc.Override
	for _, o := range all {
		if now.Before(o.Over()) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(x, y rlc.Override) int {
		if c := x.Until.Compare(y.Until); c != 0 {
			return c
		}
		return strings.Compare(x.ID, y.ID)
	})
	return out
}

// OverridesSent is the version of the document that enforcers are to have; zero
// before the first.
func (a *App) OverridesSent() rlc.Version {
	version, _ := a.Enforcer.Overrides()
	a.emergency.mu.Lock()
	defer a.emergency.mu.Unlock()
	if a.emergency.sent.Version.Compare(version) > 0 {
		version = a.emergency.sent.Version
	}
	return version
}

// SetOverride puts an override in force as actor's act: From is now, and its
// id is made here. Where the records do not answer it is kept in the data
// folder and recorded later; enforcers learn of it all the same. One that is
// not valid is rlc.ErrInvalid, and one that has no place beside those that
// stand rlc.ErrRefused.
func (a *App) SetOverride(ctx context.Context, o rlc.Override, actor string) (rlc.Override, error) {
	id, err := randomHex(6)
	if err != nil {
		return o, err
	}
	o = begun(o, "override-"+id, actor)
	stands := errors.New("it stands already")
	err = a.act(ctx, actor, "override.set", func() (act, error) {
		if err := a.knownOverride(o); err != nil {
			return act{}, err
		}
		a.emergency.mu.Lock()
		all, _ := a.emergency.all()
		a.emergency.mu.Unlock()
		for _, x := range all {
			if repeats(o, x) {
				o = x
				return act{}, stands
			}
		}
		return setting(o), fits(o, all, o.From)
	})
	if errors.Is(err, stands) {
		err = nil
	}
	return o, err
}

// soonAgain is within what time the same override by the same person is a form that
// was sent twice, or a command that was tried again, and not another override.
const soonAgain = time.Minute

// repeats reports whether an override that is to be set is one that stands, sent again.
func repeats(o, x rlc.Override) bool {
	if !x.Stands(o.From) || o.From.Sub(x.From) >= soonAgain || o.Until.Sub(o.From) != x.Until.Sub(x.From) {
		return false
	}
	x.ID, x.From, x.Until = o.ID, o.From, o.Until
	if len(o.Match)+len(x.Match) == 0 {
		o.Match, x.Match = nil, nil // none and empty are the same
	}
	return reflect.DeepEqual(o, x)
}

// CheckOverride makes the checks of SetOverride without setting anything, but
// for the service's name.
func (a *App) CheckOverride(o rlc.Override, actor string) error {
	o = begun(o, "override-to-be", actor)
	if err := toEnforcer(o).Valid(); err != nil {
		return err
	}
	x := setting(o)
	x.Audit.Actor, x.Audit.Action = actor, "override.set"
	if err := x.check(); err != nil {
		return err
	}
	a.emergency.mu.Lock()
	all, _ := a.emergency.all()
	a.emergency.mu.Unlock()
	return fits(o, all, o.From)
}

// begun is an override as actor's act, from now on for as long as it is to
// stand.
func begun(o rlc.Override, id, actor string) rlc.Override {
	life := o.Until.Sub(o.From)
	o.ID, o.Actor, o.EndedBy = id, actor, ""
	o.From = time.Now().UTC().Truncate(time.Millisecond)
	o.Until = o.From.Add(life)
	return o
}

func setting(o rlc.Override) act {
	return acted(o, fmt.Sprintf("%s: %s until %s: %s", o.Subject(), o.Does(), o.Until.Format(time.RFC3339), o.Reason))
}

// acted is an act that leaves an override as o.
func acted(o rlc.Override, detail string) act {
	return act{Override: &o, Audit: rlc.AuditEntry{Object: o.ID, Detail: detail}}
}

// ExtendOverride lets an override stand longer, as actor's act: at most
// enforcer.MaxOverride from when it began. from is its end as actor was shown it, so
// that asking twice is asking once; the zero time is its end as it stands.
func (a *App) ExtendOverride(ctx context.Context, id string, from time.Time, by time.Duration, actor string) (o rlc.Override, err error) {
	long := errors.New("it stands that long already")
	err = a.act(ctx, actor, "override.extended", func() (act, error) {
		if o, err = a.standing(id); err != nil {
			return act{}, err
		}
		if from.IsZero() {
			from = o.Until
		}
		if until := from.Add(by); until.After(o.Until) {
			o.Until = until
			return acted(o, fmt.Sprintf("%s until %s", o.Subject(), o.Until.Format(time.RFC3339))), toEnforcer(o).Valid()
		}
		return act{}, long
	})
	if errors.Is(err, long) {
		err = nil
	}
	return o, err
}

// EndOverride ends an override now, as actor's act; requests above their old
// limit come back over its ramp.
func (a *App) EndOverride(ctx context.Context, id, actor string) (o rlc.Override, err error) {
	err = a.act(ctx, actor, "override.ended", func() (act, error) {
		if o, err = a.standing(id); err != nil {
			return act{}, err
		}
		o.EndedBy, o.Until = actor, time.Now().UTC().Truncate(time.Millisecond)
		if !o.Until.After(o.From) {
			o.Until = o.From.Add(time.Millisecond)
		}
		return acted(o, o.Subject()), nil
	})
	return o, err
}

func (a *App) standing(id string) (rlc.Override, error) {
	a.emergency.mu.Lock()
	all, _ := a.emergency.all()
	a.emergency.mu.Unlock()
	o, ok := all[id]
	switch {
	case !ok:
		return o, fmt.Errorf("%w: no override %q", rlc.ErrNotFound, id)
	case !time.Now().Before(o.Until):
		return o, fmt.Errorf("%w: %s is over", rlc.ErrConflict, id)
	}
	return o, nil
}

// knownOverride refuses what enforcers would refuse, and a service that neither
// the config repository nor the enforcers know.
func (a *App) knownOverride(o rlc.Override) error {
	if err := toEnforcer(o).Valid(); err != nil {
		return err
	}
	if o.Service == "*" {
		return nil
	}
	_, live := a.Live()
	if err := a.known(o.Service); err != nil && (live == nil || live.Service(o.Service) == nil) {
		if _, desired := a.Desired(); desired != nil || live != nil {
			return err
		} // with everything away the name is taken as it is
	}
	return nil
}

// KeepOverride makes what an override does permanent, as actor's act: a cap in
// the service's policy.yaml, committed in the actor's name. The override stands
// until its end. A share, a lift and an override of every service have no such
// cap: rlc.ErrRefused.
func (a *App) KeepOverride(ctx context.Context, id, actor string) (rlc.Commit, error) {
	o, err := a.standing(id)
	if err != nil {
		return rlc.Commit{}, err
	}
	if err := a.mayAct(); err != nil {
		return rlc.Commit{}, err
	}
	head, files, err := a.Repo.Head(ctx)
	if err != nil {
		return rlc.Commit{}, err
	}
	path := quotafile.PolicyPath(o.Service)
	if svc := quotafile.Parse(files, nil).Service(o.Service); svc != nil && svc.Bucket(o.ID) != nil {
		return rlc.Commit{}, fmt.Errorf("%w: %s is permanent already: it is the bucket of this name in %s", rlc.ErrConflict, id, path)
	}
	text, err := withCap(files[path], o)
	if err != nil {
		return rlc.Commit{}, err
	}
	who := gitsync.Person{Name: actor, Email: "actor@rlc.invalid"}
	commit, err := a.Repo.EditFrom(ctx, head.Hash, who, fmt.Sprintf("Keep the limit on %s: %s", o.Subject(), o.Reason), rlc.Files{path: text})
	if err != nil {
		return commit, fmt.Errorf("make %s permanent: %w", id, err)
	}
	a.Nudge()
	return commit, nil
}

// withCap is a policy with a cap that does what the override does, as the first
// of its buckets.
func withCap(policy []byte, o rlc.Override) ([]byte, error) {
	if o.Service == "*" || o.Action != "limit" && o.Action != "block" {
		return nil, fmt.Errorf("%w: only a limit or a block of one service can become a cap in its policy", rlc.ErrRefused)
	}
	rate, burst := rlc.Rate(0), rlc.Burst(0)
	if o.Rate != nil {
		rate = *o.Rate
		burst = rlc.Burst(max(1, math.Ceil(float64(rate))))
	}
	if o.Burst != nil {
		burst = *o.Burst
	}
	if rate == 0 {
		burst = 0
	}
	match := ""
	if all := map[string]enforcer.Pattern(toEnforcer(o).Match); len(all) > 0 { // an empty match is none
		inner, err := json.Marshal(all) // JSON is YAML
		if err != nil {
			return nil, err
		}
		match = ", match: " + string(inner)
	}
	bucket := fmt.Sprintf("- {name: %s, role: cap, mode: enforce%s, limit: {rate: %s, burst: %d}}", o.ID, match, strconv.FormatFloat(float64(rate), 'f', -1, 64), burst)
	lines := strings.SplitAfter(string(policy), "\n")
	for i, line := range lines {
		if head, _, _ := strings.Cut(line, "#"); strings.TrimRight(head, " \t\r\n") != "buckets:" {
			continue
		}
		for _, next := range lines[i+1:] {
			item := strings.TrimLeft(next, " ")
			if trimmed := strings.TrimSpace(item); trimmed == "" || trimmed[0] == '#' {
				continue
			}
			if !strings.HasPrefix(item, "-") {
				break
			}
			indent := next[:len(next)-len(item)]
			return []byte(strings.Join(slices.Insert(lines, i+1, indent+bucket+"\n"), "")), nil
		}
	}
	return nil, fmt.Errorf("%w: the policy's buckets are not a list that a line can be added to; add this one by hand: %s", rlc.ErrRefused, bucket)
}
