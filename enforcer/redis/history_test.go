package redis

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// operation is one request of a recorded history. The answer carries the time
// at which Redis decided, as part of what has to be explained.
type operation struct{ cost, at int64 }

// model is a token bucket. Given an order, each answer must be the one that
// the bucket gives at the time that Redis says, and Redis's time never falls.
func model(l gcra.Limit) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return gcra.State{} },
		Step: func(state, input, output any) (bool, any) {
			s, in, out := state.(gcra.State), input.(*operation), output.(gcra.Verdict)
			if in.at < s.At {
				return false, s
			}
			next, v := l.Take(s, in.at, in.cost)
			if !v.OK {
				next = s
			}
			return v == out, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(gcra.State), b.(gcra.State)
			return x.Debt == y.Debt && x.At == y.At
		},
	}
}

// Histories of eight clients are those of one bucket that each request came to
// at one instant between its sending and its answer. RLC_HISTORIES says how
// many are recorded; the standard is few.
func TestHistoriesAreLinearizable(t *testing.T) {
	histories := 3
	if n, err := strconv.Atoi(os.Getenv("RLC_HISTORIES")); err == nil {
		histories = n
	}
	server := redistest.Start(t)
	const clients, operations = 8, 320
	var counters []*Counter
	for range clients {
		counters = append(counters, counter(t, server.URL(), Config{Strict: true, Prefix: "history:"}))
	}
	illegal, unknown, admitted := 0, 0, 0
	for h := range histories {
		// So fast that it refills a little during a history, so small that it is
		// often empty.
		l := compile(t, 2000, 40)
		var mu sync.Mutex
		var recorded []porcupine.Operation
		var group sync.WaitGroup
		began := time.Now()
		for client := range clients {
			p, _ := bare(t, counters[client], l, strconv.Itoa(h))
			r := rand.New(rand.NewPCG(uint64(h), uint64(client)))
			group.Go(func() {
				for range operations {
					cost := r.Int64N(5)
					op, asked := opTake, cost
					if cost == 0 {
						op, asked = opPeek, 1
					}
					call := time.Since(began)
					answers, err := counters[client].ask(t.Context(), patience, []query{p.query(counters[client], op, asked, 0, 0)}, false)
					if err != nil {
						t.Error(err)
						return
					}
					returned := time.Since(began)
					mu.Lock()
					v := p.verdict(answers[0].numbers, cost)
					if v.OK && cost > 0 {
						admitted++
					}
					recorded = append(recorded, porcupine.Operation{ClientId: client, Call: int64(call), Return: int64(returned),
						Input: &operation{cost, answers[0].numbers[1]}, Output: v})
					mu.Unlock()
				}
			})
		}
		group.Wait()
		switch porcupine.CheckOperationsTimeout(model(l), recorded, 30*time.Second) {
		case porcupine.Illegal:
			illegal++
		case porcupine.Unknown:
			unknown++
		}
	}
	t.Logf("%d histories of %d × %d: %d illegal, %d undecided, %d admitted", histories, clients, operations, illegal, unknown, admitted)
	if illegal+unknown > 0 || admitted == 0 {
		t.Errorf("%d illegal, %d undecided", illegal, unknown)
	}
}
