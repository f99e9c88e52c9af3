package main

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"
)

// All processors work as soon as one is nearly full, and one does again after
// five seconds in which it would have had room to spare.
func TestOneProcessorWorksWhileItIsEnough(t *testing.T) {
	p := processors{all: true}
	var got []bool
	for _, s := range []struct {
		used float64
		long time.Duration
	}{
		{0.3, 4 * time.Second}, {0.5, time.Second}, // too short, and begun anew
		{0.3, 5 * time.Second},                           // calm
		{0.65, 10 * time.Second},                         // one is still enough
		{0.7, 100 * time.Millisecond},                    // full
		{0.5, 10 * time.Second}, {0.39, 5 * time.Second}, // calm again
	} {
		all := false
		for range s.long / lookEvery {
			all = p.look(s.used, lookEvery)
		}
		got = append(got, all)
	}
	if want := []bool{true, true, false, false, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("all work: %v, want %v", got, want)
	}
}

// Who sets GOMAXPROCS is left alone, and what was changed is undone at the end.
func TestProcessorsAreGivenBack(t *testing.T) {
	most := runtime.GOMAXPROCS(0)
	keepToOne(t.Context(), func(string) string { return "2" }) // returns at once
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	keepToOne(ctx, func(string) string { return "" })
	if n := runtime.GOMAXPROCS(0); n != most {
		t.Errorf("%d processors afterwards, want %d", n, most)
	}
}
