package rls

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestADeadlineIsOverBetweenThreeQuartersOfItAndItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(16 * time.Millisecond)
		for i := range 40 {
			began := time.Now()
			<-c.end()
			if took := time.Since(began); took < 12*time.Millisecond || took > 16*time.Millisecond {
				t.Errorf("deadline %d: over after %v", i, took)
			}
			<-time.After(time.Duration(i) * 300 * time.Microsecond) // every phase of a step
		}
		<-time.After(time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.running {
			t.Error("the clock runs with nobody to tell")
		}
	})
}
