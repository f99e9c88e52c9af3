package capacity

import (
	"context"
	"errors"
	"testing"

	"github.com/openrlc/rlc"
)

func TestTheCapIsTheCapacityLessItsReserve(t *testing.T) {
	est, err := Policy{}.Propose(context.Background(), rlc.Input{Capacity: &rlc.Capacity{Rate: 12000, Burst: 15000, Reserve: 0.1, Evidence: "load test"}})
	if err != nil {
		t.Fatal(err)
	}
	// 12000 × (1 − 0.1) = 10800
	if est.Limit != (rlc.Limit{Rate: 10800, Burst: 15000}) || !est.Fixed || est.Why != "capacity 12,000/s × 0.90 after reserve" {
		t.Errorf("limit %v, fixed %v, why %q", est.Limit, est.Fixed, est.Why)
	}
	est, err = Policy{}.Propose(context.Background(), rlc.Input{Capacity: &rlc.Capacity{Rate: 70.5}})
	if err != nil || est.Limit != (rlc.Limit{Rate: 70.5, Burst: 71}) || est.Why != "capacity 70.5/s" {
		t.Errorf("without burst and reserve: %v, why %q, %v", est.Limit, est.Why, err)
	}
	if _, err := (Policy{}).Propose(context.Background(), rlc.Input{}); !errors.Is(err, rlc.ErrAbstain) {
		t.Errorf("without a capacity: %v", err)
	}
}
