// Package demo is the whole loop on one machine: real request-rate traces moved
// to now, a config repository, and live traffic through the embedded enforcer.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/promserver"
)

const (
	// history is how much of it the demo shows.
	history = 28 * 24 * time.Hour
	// bridge is how far the traces are written beyond now, until the rates of
	// live traffic are known: a rate over one minute needs that minute. No
	// query looks beyond now.
	bridge = 3 * time.Minute
)

// Options are what the command line says.
type Options struct {
	Listen   string    // address of the pages; default 127.0.0.1:8080
	Data     string    // folder for everything; default demo-data
	Ready    io.Writer // gets "ready: http://…"
	Progress io.Writer // gets what goes on
	Log      *slog.Logger
	// Calm leaves out the retry storm of one caller and the surge of another.
	Calm bool
}

// Run carries the demo until ctx ends. Started again on the same data it goes
// on where it stopped.
func Run(ctx context.Context, o Options) error {
	say := func(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }
	now := time.Now()
	hot := loop.NewClient(loop.ClientConfig{Node: node})
	a, err := app.Open(ctx, config.Server{Listen: o.Listen, Data: o.Data}, app.Options{
		Log: o.Log, Files: ConfigFiles(), Author: gitsync.Person{Name: "Dana Demo", Email: "dana@demo.invalid"},
		RecordFrom: now.Truncate(time.Minute).Add(bridge - 30*time.Second), Loop: hot,
	})
	if err != nil {
		return err
	}
	defer a.Close()
	tiers, err := openRatios(a, hot, o.Log)
	if err != nil {
		return err
	}
	defer tiers.Close()

	if err := backfill(ctx, a, now, say); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.Serve(ctx) })
	g.Go(func() error { return tiers.run(ctx) })
	quotas := make(chan struct{}) // closed when the first quotas are live
	health, err := newHealth(a.Registry)
	if err != nil {
		return err
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-quotas:
			if !o.Calm {
				health.failing(Storm().Service, Surge().Service)
			}
			return replay(ctx, a.Enforcer, !o.Calm)
		}
	})
	g.Go(func() error {
		err := prepare(ctx, a, say, func() { close(quotas) })
		if err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() == nil {
			if host, _, err := net.SplitHostPort(o.Listen); err == nil && !loopback(host) {
				say("warning:    %s is open to the network: everybody who reaches it and has the token may act", o.Listen)
			}
			say("pages:      %s", a.URL)
			say("sign in:    %s/login with the token in %s", a.URL, a.TokenFile())
			say("config:     git clone %s", a.Config.Repository.URL)
			say("prometheus: %s", a.Prom)
			say("Ctrl-C ends it; start it again and it goes on with the same data.")
			fmt.Fprintf(o.Ready, "ready: %s\n", a.URL)
		}
		return nil
	})
	err = g.Wait()
	if err == nil || errors.Is(err, context.Canceled) {
		say("stopped")
		return nil
	}
	return err
}

// backfill writes the traces' samples into the embedded store, from what it has
// to now.
func backfill(ctx context.Context, a *app.App, now time.Time, say func(string, ...any)) error {
	now = now.UTC().Truncate(time.Minute)
	until := now.Add(bridge)
	newest, err := a.Store.Newest(ctx, recorded)
	if err != nil {
		return err
	}
	from := now.Add(-history)
	if newest.After(from) {
		from = newest.UTC().Truncate(time.Minute).Add(time.Minute)
	}
	if !from.Before(until) {
		return nil
	}
	series := Series(now)
	var in []promserver.LabelledSeries
	for _, s := range series {
		in = append(in, promserver.LabelledSeries{
			Labels:  map[string]string{"__name__": recorded, "service": s.Service, "caller": s.Caller, "procedure": s.Procedure},
			Samples: minutes(s, from, until),
		})
	}
	scraped := func(name string, labels map[string]string, v float64) promserver.LabelledSeries {
		l := map[string]string{"__name__": name, "job": "rlc-enforcer", "instance": "embedded"}
		maps.Copy(l, labels)
		return promserver.LabelledSeries{Labels: l, Samples: func(yield func(int64, float64) bool) {
			for t := from; t.Before(now); t = t.Add(time.Minute) {
				if !yield(t.UnixMilli(), v) {
					return
				}
			}
		}}
	}
	in = append(in, scraped("up", nil, 1))
	for _, s := range services {
		in = append(in, scraped(failedShare, map[string]string{"service": s.name}, healthy))
	}
	say("history: %d series of real traffic, %s, one sample a minute", len(series), span(now.Sub(from)))
	last := -1
	return a.Store.Backfill(ctx, in, func(done, total int) {
		if p := done * 10 / max(total, 1); p != last {
			last = p
			say("history: %d %%", p*10)
		}
	})
}

// loopback reports whether a host to listen on is this machine's alone.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func span(d time.Duration) string {
	if d >= 48*time.Hour {
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	}
	return d.Round(time.Minute).String()
}

// prepare brings a new demo to where there is something to review: a first run
// whose quotas are accepted into shadow, then a person's edit of a policy and
// the proposal that it causes.
// live is called once, when the first quotas are.
func prepare(ctx context.Context, a *app.App, say func(string, ...any), live func()) error {
	if err := until(ctx, func() bool { return len(a.Ready()) == 0 }); err != nil {
		return err
	}
	_, c := a.Desired()
	if len(c.Quotas) == 0 {
		say("first run: reading four weeks, computing quotas")
		run, err := a.Compute(ctx, planner.Ask{Slot: "first", Actor: "demo", Progress: func(done, total int, service string) {
			if service != "" {
				say("first run: %d of %d services, %s", done, total, service)
			}
		}})
		if err != nil {
			return fmt.Errorf("first run: %w", err)
		}
		say("first run: %s, %d quotas computed, %d held", run.Result, run.Changed, run.Held)
		open, _, err := a.Records.Proposals(ctx, rlc.Open, "", rlc.Page{Size: 1000})
		if err != nil {
			return err
		}
		for _, p := range open {
			if err := a.Accept(ctx, p.ID, "", "demo"); err != nil {
				return err
			}
		}
		say("first quotas: accepted into shadow for %d services", len(open))
	}
	if err := until(ctx, func() bool {
		head, _, err := a.Repo.Head(ctx)
		at, live := a.Live()
		return err == nil && live != nil && at == head.Version
	}); err != nil {
		return err
	}
	live()
	service, message, files := Edit()
	_, n, err := a.Records.Proposals(ctx, "", service, rlc.Page{Size: 1})
	if err != nil {
		return err
	}
	if n < 2 {
		say("policy edit: %s", message)
		if _, err := a.Repo.Edit(ctx, gitsync.Person{Name: "Sam Sample", Email: "sam@demo.invalid"}, message, files); err != nil {
			return err
		}
		a.Nudge()
		return until(ctx, func() bool {
			_, n, err := a.Records.Proposals(ctx, rlc.Open, service, rlc.Page{Size: 1})
			return err == nil && n > 0
		})
	}
	return nil
}

// until waits for a condition of this process.
func until(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// replay sends live traffic through the enforcer until ctx ends: each series at
// its own rate, evenly random, one caller in
// a retry storm, another in a surge on the loop.
func replay(ctx context.Context, e *enforcer.Enforcer, storm bool) error {
	const every = 50 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	series := Series(time.Now())
	surges := []RetryStorm{Storm(), Surge()}
	random := rand.New(rand.NewPCG(1, 2))
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			// After a pause the past is not made up for: no burst that never was.
			elapsed := min(now.Sub(last), time.Second).Seconds()
			last = now
			for i := range series {
				s := &series[i]
				rate := s.Rate(now)
				for _, c := range surges {
					if storm && s.Service == c.Service && s.Caller == c.Caller {
						rate *= c.Factor
					}
				}
				for range arrivals(random, rate*elapsed) {
					e.Decide(enforcer.Request{Service: s.Service, Attributes: rlc.Attributes{"caller": s.Caller, "procedure": s.Procedure}, Cost: 1})
				}
			}
		}
	}
}
