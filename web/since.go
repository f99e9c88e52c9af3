package web

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/openrlc/rlc"
)

// counting says how far back the counts of the last 24 h reach: a counter that
// is younger holds less than a day.
type counting struct {
	text  string // after a number of requests: "in 24 h", "since 2 Dec 03:10"
	label string // the same in the head of a column: "24 h", "since 2 Dec 03:10"
	since time.Time
	none  bool // no enforcer has counted a request in the last 24 h
	err   error
}

// sinces keeps what was found for a while: pages are asked for again and again.
type sinces struct {
	mu sync.Mutex
	by map[string]found
}

type found struct {
	since, at time.Time
	err       error
}

const (
	sinceKept  = time.Minute
	noneKept   = 5 * time.Second // where nothing was counted: it may begin now
	mostSinces = 1000            // services; beyond them all are found anew
)

// counting finds since when a service's requests are counted; those of any
// service for "".
func (s *server) counting(v *visit, service string) counting {
	since, err := s.since(v.ctx(), service)
	c := counting{text: "in 24 h", label: "24 h", since: since}
	switch {
	case errors.Is(err, rlc.ErrNotFound):
		c.none = true
	case err != nil:
		c.err = err
	case !since.IsZero():
		c.label = "since " + v.time(since).Text
		c.text = c.label
	}
	return c
}

func (s *server) since(ctx context.Context, service string) (time.Time, error) {
	now := s.Now()
	k := &s.sinces
	k.mu.Lock()
	f, ok := k.by[service]
	k.mu.Unlock()
	kept := sinceKept
	if errors.Is(f.err, rlc.ErrNotFound) {
		kept = noneKept
	}
	if ok && now.Sub(f.at) < kept {
		return f.since, f.err
	}
	f = found{at: now}
	f.since, f.err = s.History.CountedSince(ctx, service, day, now)
	if ctx.Err() != nil {
		return f.since, f.err // that is the visitor's, not the counters'
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil || len(k.by) >= mostSinces {
		k.by = map[string]found{}
	}
	k.by[service] = f
	return f.since, f.err
}
