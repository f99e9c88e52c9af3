package enforcer

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/openrlc/rlc"
)

// topSize is how many names a bucket's list of refused ones holds.
const topSize = 64

// topShown is how many of them stand in /metrics.
const topShown = 10

// TopEntry is one key that a bucket refused, really or virtually. Sensitive
// values are hashed.
type TopEntry struct {
	// Key is the bucket's; of a bucket that has none, the caller.
	Key          rlc.Key `json:"key"`
	Drops        uint64  `json:"drops"`
	VirtualDrops uint64  `json:"virtual_drops"`
	// Over is by how much the sum of the two may be too high: what others had
	// counted whose place the key took.
	Over uint64    `json:"over"`
	Last time.Time `json:"last"`
}

// top lists the keys that a bucket refused most, by the Space-Saving algorithm
// (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k
// Elements in Data Streams, 2005): a new name takes the place of the smallest,
// and its count. So no key that makes up more than 1/topSize of the refusals
// is missing, and no count is too low. The zero value is an empty list.
type top struct {
	mu      sync.Mutex
	entries []topEntry // at most topSize
	index   map[string]int
}

type topEntry struct {
	id     string // the counter's, or a caller
	key    rlc.Key
	counts [outcomes]uint64
	over   uint64
	last   int64 // second
}

func (t *topEntry) total() uint64 {
	return t.counts[Drop.index()] + t.counts[VirtualDrop.index()] + t.over
}

// add counts one refusal.
func (t *top) add(id string, key rlc.Key, refused Outcome, second int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, known := t.index[id]
	switch {
	case known:
	case len(t.entries) < topSize:
		if t.index == nil {
			t.index = map[string]int{}
		}
		i = len(t.entries)
		t.entries = append(t.entries, topEntry{id: id, key: key})
		t.index[id] = i
	default:
		for j := range t.entries {
			if t.entries[j].total() < t.entries[i].total() {
				i = j
			}
		}
		delete(t.index, t.entries[i].id)
		t.entries[i] = topEntry{id: id, key: key, over: t.entries[i].total()}
		t.index[id] = i
	}
	t.entries[i].counts[refused.index()]++
	t.entries[i].last = second
}

// list is the n most refused, most first.
func (t *top) list(n int) []TopEntry {
	t.mu.Lock()
	all := slices.Clone(t.entries)
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b topEntry) int { return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(a.id, b.id)) })
	out := make([]TopEntry, 0, min(n, len(all)))
	for _, e := range all[:max(min(n, len(all)), 0)] {
		if len(e.key) == 0 && e.id != "" {
			e.key = rlc.Key{"caller": e.id}
		}
		out = append(out, TopEntry{
			Key: e.key, Drops: e.counts[Drop.index()], VirtualDrops: e.counts[VirtualDrop.index()],
			Over: e.over, Last: time.Unix(e.last, 0).UTC(),
		})
	}
	return out
}

// Top lists the n keys that a bucket refused most since the enforcer started,
// really or virtually, most first: those one should call rather than limit.
// Bucket may be Unmatched. It is nil where there is no such bucket.
func (e *Enforcer) Top(service, bucket string, n int) []TopEntry {
	l := e.loaded.Load()
	if l == nil {
		return nil
	}
	s := l.services[service]
	if s == nil {
		return nil
	}
	if bucket == Unmatched {
		return s.unmatched.counts.top.list(n)
	}
	for i := range s.buckets {
		if s.buckets[i].Name == bucket {
			return s.buckets[i].counts.top.list(n)
		}
	}
	return nil
}
