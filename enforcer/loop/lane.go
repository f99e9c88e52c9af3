package loop

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
)

// Lane is a handle's hot path for the requests of one class, kept in the memory of
// whoever asks: beside what else it reads of a request, so that with thousands of
// paths in turn a decision waits for one cache line less. While it is open it counts
// for its handle and decides as the handle does. The zero value is closed.
type Lane struct {
	own  atomic.Uint64 // offered requests, from wherever it began
	keep atomic.Uint32 // the share kept by the whole path, × 2³²; 0: the handle has the word
	room atomic.Uint32 // Handle.Room, or the most that it holds
}

// opened is an open lane. The client's lock guards it.
type opened struct {
	lane  *Lane
	class Class
	began uint64 // what own was
}

// mostLanes is how many lanes of a handle may be open: all are read at each tick.
const mostLanes = 4

// golden steps through SplitMix64's sequence.
const golden = 0x9E3779B97F4A7C15

// Take counts a request that costs n and reports whether it is admitted. Where it
// is not, the handle decides: draw is for Handle.Answer. It costs one atomic
// addition.
func (l *Lane) Take(n uint64) (draw uint64, admitted bool) {
	keep := l.keep.Load()
	if keep == 0 {
		return 0, false
	}
	draw = mix(l.own.Add(n)*golden) | 1
	return draw, uint32(draw>>32) < keep
}

// Room is Handle.Room after Take admitted a request, at most 2³² − 1.
func (l *Lane) Room() int64 { return int64(l.room.Load()) }

// Answer decides a request that a lane did not admit; see Take for what it returns.
func (h *Handle) Answer(c Class, n, draw uint64) int {
	if draw == 0 {
		return h.Draw(c, n) // the lane has not counted it
	}
	return h.refuse(c, n, draw)
}

// Open opens a lane for requests of a class. Where the handle has enough of them,
// the lane stays closed, and the handle decides.
func (h *Handle) Open(l *Lane, c Class) {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	if len(h.lanes) == mostLanes {
		return
	}
	if c >= Classes {
		c = Normal
	}
	began := rand.Uint64() // the draws of two lanes are two sequences
	l.own.Store(began)
	h.lanes = append(h.lanes, opened{l, c, began})
	h.set()
}

// Close ends a lane: what it has counted stays counted. A request that is being
// decided at this moment may be left out.
func (h *Handle) Close(l *Lane) {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	for i, o := range h.lanes {
		if o.lane == l {
			l.keep.Store(0)
			h.own[o.class].Add(l.own.Load() - o.began)
			h.lanes = append(h.lanes[:i:i], h.lanes[i+1:]...)
			return
		}
	}
}

// setLanes tells the open lanes the thresholds, or to ask the handle: where it is to
// look closer, knows no room, or counts in stripes.
func (h *Handle) setLanes() {
	room := h.room.Load()
	for _, o := range h.lanes {
		if room < 0 || h.wide.Load() != nil {
			o.lane.keep.Store(0)
			continue
		}
		o.lane.room.Store(uint32(min(room, math.MaxUint32)))
		o.lane.keep.Store(h.keep[o.class].Load())
	}
}
