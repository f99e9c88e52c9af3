package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
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

	syncing sync.Mutex           // one document is made at a time
	sent    distribute.Overrides // what this process published last

	mu       sync.Mutex
	known    map[string]rlc.Override // of the records, or of what enforcers have where those never answered
	switches map[string]rlc.KillSwitch
	file     []string // switches that the file holds
	away     bool     // the records did not answer when last asked
	changes  int      // how many acts there were
	epoch    uint64   // the highest leadership epoch heard of
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
	return e.journal.open()
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
// folder and recorded later; enforcers learn of it all the same.
func (a *App) SetOverride(ctx context.Context, o rlc.Override, actor string) (rlc.Override, error) {
	id, err := randomHex(6)
	if err != nil {
		return o, err
	}
	life := o.Until.Sub(o.From)
	o.ID, o.Actor, o.EndedBy = "override-"+id, actor, ""
	o.From = time.Now().UTC().Truncate(time.Millisecond)
	o.Until = o.From.Add(life)
	if err := a.knownOverride(o); err != nil {
		return o, err
	}
	return o, a.act(ctx, act{Override: &o}, "override.set", actor, o.ID, fmt.Sprintf("%s: %s until %s: %s", o.Subject(), o.Does(), o.Until.Format(time.RFC3339), o.Reason))
}

// ExtendOverride lets an override stand longer, as actor's act: at most
// enforcer.MaxOverride from when it began.
func (a *App) ExtendOverride(ctx context.Context, id string, by time.Duration, actor string) (rlc.Override, error) {
	o, err := a.standing(id)
	if err != nil {
		return o, err
	}
	o.Until = o.Until.Add(by)
	if err := toEnforcer(o).Valid(); err != nil {
		return o, err
	}
	return o, a.act(ctx, act{Override: &o}, "override.extended", actor, id, fmt.Sprintf("%s until %s", o.Subject(), o.Until.Format(time.RFC3339)))
}

// EndOverride ends an override now, as actor's act; requests above their old
// limit come back over its ramp.
func (a *App) EndOverride(ctx context.Context, id, actor string) (rlc.Override, error) {
	o, err := a.standing(id)
	if err != nil {
		return o, err
	}
	o.EndedBy, o.Until = actor, time.Now().UTC().Truncate(time.Millisecond)
	if !o.Until.After(o.From) {
		o.Until = o.From.Add(time.Millisecond)
	}
	return o, a.act(ctx, act{Override: &o}, "override.ended", actor, id, o.Subject())
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
		return o, fmt.Errorf("%w: override %s is over", rlc.ErrConflict, id)
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

// act records one act in an emergency with its audit row, or keeps it for
// later, and brings it to the enforcers.
func (a *App) act(ctx context.Context, x act, action, actor, object, detail string) error {
	id, err := randomHex(12)
	if err != nil {
		return err
	}
	x.Audit = rlc.AuditEntry{ID: id, At: time.Now().UTC().Truncate(time.Microsecond), Actor: actor, Action: action, Object: object, Detail: detail}
	e := &a.emergency
	e.mu.Lock()
	away := e.away || len(e.journal.acts) > 0 // what was kept is recorded first
	e.mu.Unlock()
	if !away {
		err = a.record(ctx, x)
	}
	e.mu.Lock()
	e.changes++
	switch {
	case away || unreachable(err):
		e.away = true
		err = e.journal.add(x)
	case err == nil && x.Override != nil:
		e.known[x.Override.ID] = *x.Override
	case err == nil:
		e.switches[x.Switch.Name] = *x.Switch
	}
	e.mu.Unlock()
	if err != nil {
		return err
	}
	a.log.Warn("emergency", "act", action, "actor", actor, "object", object, "detail", detail)
	if err := a.sendOverrides(ctx); err != nil {
		a.log.Warn("overrides wait for the bus", "err", err) // they are sent as soon as it answers
	}
	return nil
}

// record writes one act into the records.
func (a *App) record(ctx context.Context, x act) error {
	ctx, cancel := context.WithTimeout(ctx, recordsPatience)
	defer cancel()
	if x.Override != nil {
		return a.Records.SetOverride(ctx, *x.Override, x.Audit)
	}
	text, err := json.Marshal(x.Switch)
	if err != nil {
		return err
	}
	return a.Records.SetAudited(ctx, switchKey+x.Switch.Name, string(text), x.Audit)
}

func unreachable(err error) bool {
	return errors.Is(err, rlc.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// overrideStatus warns of what is about to end, of switches that are thrown and
// of acts that wait for the records.
func (a *App) overrideStatus() {
	e := &a.emergency
	now, n, ending := time.Now(), 0, []string(nil)
	for _, o := range a.Overrides() {
		if !o.Stands(now) {
			continue
		}
		n++
		if left := o.Until.Sub(now); left <= warnBefore {
			ending = append(ending, fmt.Sprintf("%s (%s)", o.Subject(), o.Until.UTC().Format("15:04 UTC")))
		}
	}
	e.active.Set(float64(n))
	if len(ending) > 0 {
		a.status.set("overrides", "warn", "An override ends within ten minutes; extend it on the page Emergency where it is still needed.", strings.Join(ending[:min(len(ending), 5)], ", "))
	} else {
		a.status.clear("overrides")
	}
	e.mu.Lock()
	_, switches := e.all()
	waiting := len(e.journal.acts)
	e.mu.Unlock()
	for name, text := range map[string]string{
		rlc.StopAutomation: "Automation is stopped: nothing is computed, published, merged or distributed. Overrides work.",
		rlc.AllToShadow:    "All to shadow: no enforcer drops anything, and no override is applied.",
	} {
		if s := switches[name]; s.On {
			a.status.set(name, "bad", text, fmt.Sprintf("%s: %s", s.Actor, s.Reason))
		} else {
			a.status.clear(name)
		}
	}
	if waiting > 0 {
		a.status.set("journal", "warn", fmt.Sprintf("%d acts of the emergency wait in the data folder for the records; enforcers have them.", waiting), "")
	} else {
		a.status.clear("journal")
	}
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
	match := map[string]enforcer.Pattern(toEnforcer(o).Match)
	inner, err := json.Marshal(match) // JSON is YAML
	if err != nil {
		return nil, err
	}
	bucket := fmt.Sprintf("- {name: %s, role: cap, mode: enforce, match: %s, limit: {rate: %s, burst: %d}}", o.ID, inner, strconv.FormatFloat(float64(rate), 'f', -1, 64), burst)
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
