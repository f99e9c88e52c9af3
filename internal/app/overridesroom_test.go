package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// wide is an override that matches n values of a byte that JSON makes six of.
func wide(id string, n int) rlc.Override {
	from := time.Date(2026, 12, 2, 6, 0, 0, 0, time.UTC)
	o := rlc.Override{ID: id, Service: "checkout", Match: map[string][]string{}, Action: "block", From: from, Until: from.Add(time.Hour), Actor: "ana", Reason: "INC-1"}
	for i := range n {
		o.Match["caller"] = append(o.Match["caller"], fmt.Sprintf("%0*d", 4, i)+strings.Repeat("<", 166)) // 1 kB
	}
	return o
}

func TestAnOverrideWithoutPlaceIsRefusedAndWhatToEndIsNamed(t *testing.T) {
	now := wide("", 1).From.Add(time.Minute)
	if err := fits(wide("x", 17), nil, now); !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), "at most 16384") {
		t.Errorf("too large: %v", err)
	}
	many, large := map[string]rlc.Override{}, map[string]rlc.Override{"huge": wide("huge", 900)} // the last has no place itself
	for i := range mostStanding {
		o := wide(fmt.Sprint("o", i), 1)
		o.Until = o.Until.Add(time.Duration((i+7)%mostStanding) * time.Minute)
		many[o.ID] = o
	}
	if err := fits(wide("x", 1), many, now); !errors.Is(err, rlc.ErrRefused) || !strings.Contains(err.Error(), "500 overrides stand, which is the most; end one first: o493 (checkout ← caller=0000<") {
		t.Errorf("one more: %v", err)
	}
	if err := fits(many["o7"], many, now); err != nil {
		t.Errorf("one that stands, again: %v", err)
	}
	for i := range 100 {
		o := wide(fmt.Sprint("o", i), 15)
		if i == 70 {
			o.Until = o.From.Add(time.Second) // over a ramp: it takes no place that somebody could free
		}
		err := fits(o, large, now)
		if err == nil {
			large[o.ID] = o
			continue
		}
		if !errors.Is(err, rlc.ErrRefused) || !strings.Contains(err.Error(), "end one first: o") || i < 40 {
			t.Errorf("%d large ones: %v", i, err)
		}
		break
	}
	if len(large) < 40 || len(large) > 60 {
		t.Errorf("%d large ones stand", len(large))
	}
}

func TestTheDocumentIsAlwaysOneThatEnforcersTake(t *testing.T) {
	all := map[string]rlc.Override{}
	add := func(o rlc.Override) { all[o.ID] = o }
	add(wide("huge", 900)) // 0.9 MB of JSON, which an earlier release took
	broken := wide("broken", 1)
	broken.Action = "nuke"
	add(broken)
	for i := range 60 {
		o := wide(fmt.Sprintf("o%02d", i), 15)
		o.From = o.From.Add(time.Duration(i) * time.Second)
		if i < 10 {
			o.Until = o.From.Add(10 * time.Minute)
			o.RampSeconds = 3600
		}
		add(o)
	}
	content, left, err := overridesDocument(all, true, wide("", 1).From.Add(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := enforcer.ParseOverrides(content)
	if err != nil || !doc.AllToShadow {
		t.Fatalf("enforcers: %v, all to shadow %v", err, doc.AllToShadow)
	}
	in := map[string]bool{}
	for _, o := range doc.List {
		in[o.ID] = true
	}
	for i := 10; i < 60; i++ { // those that stand go before those that are over, and before what is too large
		if id := fmt.Sprintf("o%02d", i); !in[id] {
			t.Errorf("%s is left out", id)
		}
	}
	var ids []string
	for _, o := range left {
		ids = append(ids, o.ID)
	}
	if strings.Join(ids, " ") != "broken huge" {
		t.Errorf("left out and standing: %v", ids)
	}
}
