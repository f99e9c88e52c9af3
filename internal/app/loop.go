package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/loopstate"
	"github.com/openrlc/rlc/enforcer/loopwire"
	"github.com/openrlc/rlc/web"
)

const (
	loopPatience = 3 * time.Second // for one answer of the controller
	maxLoopState = 16 << 20        // bytes of it; about 50,000 buckets
)

// localLoop are the tiers of a loop within this process; nil without one.
type localLoop struct {
	client     *loop.Client // of this process's enforcer
	controller *loopwire.Controller
	aggregator *loopwire.Aggregator
}

// ShowLoop lets the pages show a loop that runs in this process, whatever
// loop.controller says. It is to be called before Serve.
func (a *App) ShowLoop(c *loopwire.Controller, g *loopwire.Aggregator) {
	a.loop.controller, a.loop.aggregator = c, g
}

// LoopState implements web.Loop: the word of this process's controller, or of
// the one that loop.controller names. The error wraps rlc.ErrNotFound where
// there is neither, and rlc.ErrUnavailable where it does not answer.
func (a *App) LoopState(ctx context.Context) (web.LoopState, error) {
	switch {
	case a.loop.controller != nil:
		s := loopState(loopstate.Of(a.loop.controller.State()))
		if a.loop.aggregator != nil {
			doubted := a.loop.aggregator.Stats().Clipped
			s.Doubted = &doubted
		}
		return s, nil
	case a.Config.Loop.Controller != "":
		return askLoop(ctx, a.Config.Loop.Controller)
	}
	return web.LoopState{}, fmt.Errorf("%w: loop.controller is not configured", rlc.ErrNotFound)
}

// loopState gives the pages what a controller knows.
func loopState(in loopstate.State) (out web.LoopState) {
	for _, b := range in.Buckets {
		out.Buckets = append(out.Buckets, web.LoopBucket(b))
	}
	for _, z := range in.Zones {
		out.Zones = append(out.Zones, web.LoopZone(z))
	}
	return out
}

// askLoop asks a controller's /v1/loop, at most loopPatience and maxLoopState
// long. It follows no redirect.
func askLoop(ctx context.Context, url string) (s web.LoopState, err error) {
	ctx, cancel := context.WithTimeout(ctx, loopPatience)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: the loop's controller: %w", rlc.ErrUnavailable, err)
		}
	}()
	if !strings.HasSuffix(url, "/v1/loop") {
		url = strings.TrimRight(url, "/") + "/v1/loop"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return s, err
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return s, fmt.Errorf("it answers %s", answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxLoopState+1))
	if err != nil {
		return s, err
	}
	if len(body) > maxLoopState {
		return s, errors.New("it answers more than 16 MiB")
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("its answer cannot be read: %w", err)
	}
	return s, nil
}
