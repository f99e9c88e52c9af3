package policies

import (
	"context"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

// of asks a built-in kind about a history and guards its answer.
func of(t *testing.T, kind string, params rlc.Params, r run) (rlc.Estimate, rlc.Change) {
	t.Helper()
	p, err := Builtin().New(rlc.PolicySpec{Kind: kind, Params: params})
	if err != nil {
		t.Fatal(err)
	}
	r.policy = p
	return r.propose(t)
}

func TestScenario14AContractBelowThePeakWins(t *testing.T) {
	est, c := of(t, "contractual", rlc.Params{"rate": 60.0, "burst": 90.0}, run{history: recorded(monday, 28, usual), current: quota(130)})
	wantLimit(t, c, 60, 90) // at once: a promise knows no steps
	if !strings.Contains(c.Look, "peak 100/s") || !strings.Contains(c.Look, "166 % of the contract: the contract wins, what lies above it is dropped") || !est.Fixed {
		t.Errorf("look %q", c.Look)
	}
}

func TestScenario15QuotasBeyondTheCapacityAreWaterFilledAndTheCapStands(t *testing.T) {
	capacity := rlc.Capacity{Rate: 200, Burst: 400, Reserve: 0.1}
	svc := &rlc.Service{Name: "checkout", Capacity: &capacity, Buckets: []rlc.Bucket{{Name: "callers", Role: rlc.QuotaRole}, {Name: "whole", Role: rlc.CapRole}}}
	policy, err := Builtin().New(rlc.PolicySpec{Kind: "capacity"})
	if err != nil {
		t.Fatal(err)
	}
	est, err := policy.Propose(context.Background(), rlc.Input{Capacity: &capacity})
	whole := Guard(Evidence{Service: "checkout", Bucket: "whole", Now: monday, Capacity: &capacity}, est, err)
	changes := []rlc.Change{whole}
	for _, caller := range []string{"search", "web"} {
		_, c := run{history: recorded(monday, 28, usual)}.propose(t)
		c.Key = rlc.Key{"caller": caller}
		changes = append(changes, c) // 130/s each, burst 260
	}
	losses := FitCapacity(svc, changes, Fit{})
	wantLimit(t, changes[0], 180, 400) // the cap bucket, untouched
	wantLimit(t, changes[1], 90, 180)
	wantLimit(t, changes[2], 90, 180)
	if len(losses) != 2 || losses[0].ID != "callers/caller=search" || !strings.Contains(changes[1].Look, "cut from 130/s, burst 260 to 90/s, burst 180") {
		t.Errorf("losses %+v, look %q", losses, changes[1].Look)
	}
	m := Merging{Service: svc, Changes: changes, Now: monday}
	svc.AutoMerge = &rlc.AutoMerge{MaxChange: 1}
	if ok, because := AutoMerge(m); ok {
		t.Errorf("a cut merges by itself: %s", because)
	}
}

func TestScenario19TheStepHidesShorterPeaksAndSaysSo(t *testing.T) {
	for _, kind := range []string{"historical", "recent"} {
		_, c := of(t, kind, nil, run{history: recorded(monday, 28, usual)})
		if text := Explain(c).Text(); !strings.Contains(text, "bursts below the step") || !strings.Contains(text, "not visible") {
			t.Errorf("%s:\n%s", kind, text)
		}
	}
}

func TestARecentPolicyRaisesWithinTheStepsAndLowersNothing(t *testing.T) {
	_, c := of(t, "recent", nil, run{history: recorded(monday, 28, usual), current: quota(30)})
	wantLimit(t, c, 60, 120) // Sunday's peak of 60 asks for 78; +100 % a day is the step
	_, c = of(t, "recent", nil, run{history: recorded(monday, 28, usual), current: quota(500)})
	wantHeld(t, c, "no_decrease", "a recent policy only raises")
}
