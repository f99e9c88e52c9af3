package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/distribute"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/store"
)

// killFile, in the data folder, throws the kill switches that it names, one a
// line, while it exists; an empty one stops automation.
const killFile = "kill"

// switchKey begins the names of the switches in the records.
const switchKey = "switch."

// Switches are the kill switches as they are. It needs no records.
func (a *App) Switches() []rlc.KillSwitch {
	a.emergency.mu.Lock()
	_, switches := a.emergency.all()
	a.emergency.mu.Unlock()
	var out []rlc.KillSwitch
	for _, name := range []string{rlc.StopAutomation, rlc.AllToShadow} {
		s := switches[name]
		s.Name = name
		out = append(out, s)
	}
	return out
}

// SetSwitch throws a kill switch, or lets go of it, as actor's act. One that
// the file in the data folder holds stays on until that goes, too.
func (a *App) SetSwitch(ctx context.Context, name string, on bool, actor, reason string) error {
	if name != rlc.StopAutomation && name != rlc.AllToShadow {
		return fmt.Errorf("%w: no kill switch %q; there are %s and %s", rlc.ErrNotFound, name, rlc.StopAutomation, rlc.AllToShadow)
	}
	word := map[bool]string{true: "on", false: "off"}[on]
	s := rlc.KillSwitch{Name: name, On: on, Actor: actor, Reason: reason, At: time.Now().UTC().Truncate(time.Microsecond)}
	return a.act(ctx, actor, "switch."+word, func() (act, error) {
		return act{Switch: &s, Audit: rlc.AuditEntry{Object: name, Detail: reason}}, nil
	})
}

// Throw turns a kill switch over, for a signal: it is as if somebody had used
// the page, and outlives a restart.
func (a *App) Throw(ctx context.Context, name string) error {
	on := true
	for _, s := range a.Switches() {
		if s.Name == name && s.On {
			on = false
		}
	}
	return a.SetSwitch(ctx, name, on, "signal", "a signal to the process")
}

// stopped reports whether automation is stopped.
func (a *App) stopped() bool {
	a.emergency.mu.Lock()
	defer a.emergency.mu.Unlock()
	_, switches := a.emergency.all()
	return switches[rlc.StopAutomation].On
}

// mindEmergency carries overrides and switches from the records, the journal
// and the file to the enforcers, until ctx ends.
func (a *App) mindEmergency(ctx context.Context) error {
	for {
		a.readKillFile()
		a.replay(ctx)
		a.readOverrides(ctx)
		if err := a.sendOverrides(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("overrides wait for the bus", "err", err)
		}
		if !wait(ctx, lookEvery) {
			return nil
		}
	}
}

func (a *App) readKillFile() {
	data, err := os.ReadFile(a.emergencyFile(killFile))
	var named []string
	switch {
	case err == nil:
		for line := range strings.Lines(string(data[:min(len(data), 4096)])) {
			word := strings.ToLower(strings.TrimSpace(line))
			if word == rlc.StopAutomation || word == rlc.AllToShadow {
				named = append(named, word)
			}
		}
		if named == nil {
			named = []string{rlc.StopAutomation}
		}
	case !os.IsNotExist(err):
		return // a disk that fails throws no switch, and lets go of none
	}
	e := &a.emergency
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(named, e.file) {
		a.log.Warn("kill switches", "file", killFile, "on", named)
		e.file = named
	}
}

// readOverrides learns what the records hold; while they do not answer, what
// was known stays.
func (a *App) readOverrides(ctx context.Context) {
	e := &a.emergency
	short, cancel := context.WithTimeout(ctx, recordsPatience)
	defer cancel()
	e.mu.Lock()
	e.epoch = max(e.epoch, a.leader.Load())
	before := e.changes
	e.mu.Unlock()
	list, err := a.Records.Overrides(short, time.Now().Add(-time.Hour)) // the longest ramp
	switches := map[string]rlc.KillSwitch{}
	for _, name := range []string{rlc.StopAutomation, rlc.AllToShadow} {
		var text string
		if err == nil {
			text, err = a.Records.Get(short, switchKey+name)
		}
		var s rlc.KillSwitch
		if err == nil && text != "" && json.Unmarshal([]byte(text), &s) == nil {
			switches[name] = s
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away = err != nil
	if err != nil || before != e.changes {
		return // unknown, or somebody acted meanwhile: the next look tells
	}
	e.known, e.switches = map[string]rlc.Override{}, switches
	for _, o := range list {
		e.known[o.ID] = o
	}
}

// sendOverrides makes the document of what is in force and publishes it where
// it changed. Its version is above every one heard of, so that it needs no
// records: the epoch is the highest leadership's, the number the microsecond.
func (a *App) sendOverrides(ctx context.Context) error {
	e := &a.emergency
	e.syncing.Lock()
	defer e.syncing.Unlock()
	defer a.overrideStatus()
	e.mu.Lock()
	all, switches := e.all()
	epoch, away := e.epoch, e.away
	have := e.sent
	e.mu.Unlock()
	content, left, err := overridesDocument(all, switches[rlc.AllToShadow].On, time.Now())
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.left = left
	e.mu.Unlock()
	if version, list := a.Enforcer.Overrides(); version.Compare(have.Version) > 0 {
		have.Version = version
		have.Content, _ = json.Marshal(list)
	}
	if have.Version == (rlc.Version{}) && string(content) == `{"overrides":[]}` {
		return nil // nothing was ever overridden
	}
	doc := distribute.Overrides{Version: have.Version, Content: content}
	if string(content) != string(have.Content) {
		doc.Version = rlc.Version{Epoch: max(epoch, have.Version.Epoch, 1), Number: uint64(time.Now().UnixMicro())}
		if doc.Version.Compare(have.Version) <= 0 {
			doc.Version.Number = have.Version.Number + 1
		}
	}
	if doc.Version == e.sent.Version {
		return nil
	}
	err = a.publishOverrides(ctx, distribute.Message{Overrides: &doc}, away)
	if errors.Is(err, rlc.ErrFenced) {
		return nil // the leader sends it within a second
	}
	if err == nil {
		e.mu.Lock()
		e.sent = doc
		e.mu.Unlock()
	}
	return err
}

// publishOverrides sends a document: over Redis the leader does, and while the
// records are away, so that nobody can lead, whoever was acted on.
func (a *App) publishOverrides(ctx context.Context, m distribute.Message, away bool) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	if a.emergency.glass != nil && away && a.mine() == 0 {
		return a.emergency.glass.Publish(ctx, m)
	}
	return a.bus.Publish(ctx, m)
}

// lastEpoch is the highest leadership epoch that this process has heard of.
func (a *App) lastEpoch() uint64 {
	a.emergency.mu.Lock()
	defer a.emergency.mu.Unlock()
	return max(a.emergency.epoch, a.epoch.Load())
}

// pastOverrides are the records as the planner reads them: the windows of
// overrides are left out of the history of the series that they touched.
type pastOverrides struct {
	*store.DB
	app *App
}

// Verdicts are people's, and one for each window of an override.
func (p pastOverrides) Verdicts(ctx context.Context, service string) ([]rlc.Verdict, error) {
	verdicts, err := p.DB.Verdicts(ctx, service)
	if err != nil {
		return nil, err
	}
	past, err := p.DB.Overrides(ctx, time.Now().AddDate(0, 0, -90))
	if err != nil || len(past) == 0 {
		return verdicts, err
	}
	series, err := p.DB.SeriesOf(ctx, service)
	if err != nil {
		return nil, err
	}
	_, desired := p.app.Desired()
	if desired == nil || desired.Service(service) == nil {
		return verdicts, nil
	}
	var windows []rlc.Verdict
	for _, k := range series {
		b := desired.Service(service).Bucket(k.Bucket)
		if b == nil {
			continue
		}
		windows = append(windows, windowsOf(past, service, b, k.Key)...)
	}
	return append(windows, verdicts...), nil // a person's word on the same window wins
}

// windowsOf leaves out, of one series, the windows of the overrides that
// touched it.
func windowsOf(past []rlc.Override, service string, b *rlc.Bucket, key rlc.Key) (out []rlc.Verdict) {
	for _, o := range past {
		if o.Service != service && o.Service != "*" {
			continue
		}
		if some, _ := o.Touches(b.Match, key); some {
			out = append(out, rlc.Verdict{
				ID: o.ID, Service: service, Bucket: b.Name, Key: key, Actor: o.Actor, At: o.From,
				Window: rlc.Window{From: o.From, Until: o.Over(), Reason: "override: " + o.Does() + ", " + o.Reason},
			})
		}
	}
	return out
}

// publisher puts proposals up, unless automation is stopped.
func (a *App) publisher() planner.Publisher { return stoppable{recorded{a.reviews, a}, a} }

type stoppable struct {
	planner.Publisher
	app *App
}

func (s stoppable) Publish(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	if s.app.stopped() {
		return p, fmt.Errorf("%w: automation is stopped", rlc.ErrUnavailable)
	}
	return s.Publisher.Publish(ctx, p)
}
