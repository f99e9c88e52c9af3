package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/app"
)

// killSwitches turns a kill switch over at each signal: SIGUSR1 stops
// automation or lets it go on, SIGUSR2 is all to shadow. The function that it
// returns ends that.
func killSwitches(ctx context.Context, a *app.App, log *slog.Logger) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case got := <-signals:
				name := rlc.StopAutomation
				if got == syscall.SIGUSR2 {
					name = rlc.AllToShadow
				}
				if err := a.Throw(ctx, name); err != nil {
					log.Error("kill switch", "switch", name, "err", err)
				}
			}
		}
	})
	return func() { signal.Stop(signals); cancel(); waiting.Wait() }
}
