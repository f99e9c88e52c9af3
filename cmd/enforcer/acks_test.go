package main

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// rlc hears of an enforcer that reaches nothing but its aggregator.
func TestAcknowledgementsOfTheLoopReachTheBus(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	rlcSide := publisher(t, redis.URL(), "")
	control := spawn(t, 2, "controller", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--redis", redis.URL())
	zone := spawn(t, 1, "aggregator", "--http", "off", "--grpc", "127.0.0.1:0", "--zone", "z1", "--controller", control.addr["grpc"])
	spawn(t, 1, "serve", "--grpc", "off", "--http", "127.0.0.1:0", "--zone", "z1", "--name", "far", "--aggregator", zone.addr["grpc"])
	for number := range uint64(2) {
		if err := rlcSide.Publish(t.Context(), busSnapshot(number+1, 2)); err != nil {
			t.Fatal(err)
		}
		version := rlc.Version{Epoch: 7, Number: number + 1}
		acknowledged(t, rlcSide, "controller  "+version.String(), "far z1 "+version.String())
	}
	// Redis comes back empty: what it has forgotten is said again.
	redis.Stop()
	redis.Start()
	acknowledged(t, rlcSide, "controller  7.2", "far z1 7.2")
}

func TestAcknowledgementsArePassedOnWhenTheyChangeAndNowAndThen(t *testing.T) {
	a := newAckTable()
	say := func(version uint64) {
		data, err := json.Marshal(rlc.Ack{Enforcer: "n", Version: rlc.Version{Number: version}})
		if err != nil {
			t.Fatal(err)
		}
		a.hear(data)
	}
	now := time.Now()
	due := func(after time.Duration) (numbers []uint64) {
		for _, ack := range a.due(now.Add(after)) {
			numbers = append(numbers, ack.Version.Number)
		}
		return numbers
	}
	a.hear([]byte("rubbish"))
	a.hear([]byte(`{"enforcer":""}`))
	say(1)
	got := [][]uint64{due(0), due(time.Second)}
	say(1)
	got = append(got, due(2*time.Second))
	say(2)
	got = append(got, due(3*time.Second), due(4*time.Second))
	a.again("n")
	got = append(got, due(5*time.Second))
	// Heard no more: the bus is to forget it, and so does the count by version.
	got = append(got, due(time.Hour))
	if want := [][]uint64{{1}, nil, nil, {2}, nil, {2}, nil}; !reflect.DeepEqual(got, want) {
		t.Errorf("passed on %v, want %v", got, want)
	}
	if v := a.versions(now); !reflect.DeepEqual(v, map[string]int{"0.2": 1}) {
		t.Errorf("versions %v", v)
	}
	if v := a.versions(now.Add(time.Hour)); len(v) != 0 {
		t.Errorf("versions %v an hour after the last word", v)
	}
}
