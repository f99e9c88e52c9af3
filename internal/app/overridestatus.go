package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

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
	a.status.raise(len(ending) > 0, "overrides", "warn", "An override ends within ten minutes; extend it on the page Emergency where it is still needed.", strings.Join(ending[:min(len(ending), 5)], ", "))
	e.mu.Lock()
	_, switches := e.all()
	e.mu.Unlock()
	for name, text := range map[string]string{
		rlc.StopAutomation: "Automation is stopped: nothing is computed, published, merged or distributed. Overrides work.",
		rlc.AllToShadow:    "All to shadow: no enforcer drops anything, and no override is applied.",
	} {
		s := switches[name]
		a.status.raise(s.On, name, "bad", text, fmt.Sprintf("%s: %s", s.Actor, s.Reason))
	}
	a.journalStatus()
	a.reachStatus()
}

// journalStatus says which acts are not recorded, and why.
func (a *App) journalStatus() {
	e := &a.emergency
	e.mu.Lock()
	waiting, unwritten, failed, unread := len(e.journal.acts), e.journal.unwritten, e.journal.failed, e.unread
	var objects []string
	for _, object := range slices.Sorted(maps.Keys(e.refused)) {
		objects = append(objects, fmt.Sprintf("%s: %v", object, e.refused[object]))
	}
	e.mu.Unlock()
	a.status.raise(waiting > unwritten, "journal", "warn", rlc.Plural(waiting-unwritten, "act")+" of the emergency, which enforcers have, on the way from the data folder to the records.", "")
	a.status.raise(unwritten > 0, "journal-unwritten", "bad", rlc.Plural(unwritten, "act")+" of the emergency in force and not written down: neither the records nor the disk of the data folder takes more. A restart of rlc would forget it.", fmt.Sprint(failed))
	a.status.raise(len(objects) > 0, "journal-refused", "bad", "Acts of the emergency are in force and have no audit row: the records refuse them. They stay in the data folder and are tried again.", strings.Join(objects[:min(len(objects), 5)], ", "))
	a.status.raise(unread != nil, "journal-unread", "bad", "What an earlier process kept of the emergency in the data folder could not be read: acts may be missing. The file was moved aside.", fmt.Sprint(unread))
}

// reachStatus says which overrides do not reach the enforcers.
func (a *App) reachStatus() {
	a.emergency.mu.Lock()
	var left []string
	for _, o := range a.emergency.left {
		left = append(left, o.ID)
	}
	a.emergency.mu.Unlock()
	slices.Sort(left)
	a.status.raise(len(left) > 0, "overrides-left", "bad", rlc.Plural(len(left), "override")+" not in force: enforcers would refuse it, or the document that holds it, which is too large. End it, or others that are large.", strings.Join(left[:min(len(left), 5)], ", "))
	n, why := a.refusals()
	a.status.raise(n > 0, "overrides-refused", "bad", "The newest overrides and switches were refused by "+rlc.Plural(n, "enforcer")+", which decides on what it had.", why)
}

// raise sets the trouble of this name while it is there, and clears it
// otherwise.
func (s *status) raise(there bool, name, level, text, detail string) {
	if there {
		s.set(name, level, text, detail)
	} else {
		s.clear(name)
	}
}
