package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/distribute"
)

// redisSource finds out where the snapshot bus is: given is the URL of --redis
// or RLC_REDIS, file that of RLC_REDIS_FILE, which holds a whole URL or, beside
// given, the password alone. Its errors never repeat what a file holds.
func redisSource(given, file string) (url, passwordFile string, err error) {
	if file == "" {
		return given, "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", "", fmt.Errorf("%w: RLC_REDIS_FILE: %w", rlc.ErrInvalid, err)
	}
	text := strings.TrimSpace(string(data))
	whole := strings.HasPrefix(text, "redis://") || strings.HasPrefix(text, "rediss://")
	switch {
	case whole && given != "":
		return "", "", fmt.Errorf("%w: RLC_REDIS_FILE: %s holds a whole URL, and --redis gives one too; leave one of them", rlc.ErrInvalid, file)
	case whole:
		return text, "", nil
	case given == "":
		return "", "", fmt.Errorf("%w: RLC_REDIS_FILE: %s holds no redis:// or rediss:// URL; beside --redis URL it may hold the password alone", rlc.ErrInvalid, file)
	}
	return given, file, nil
}

// followBus feeds e from the snapshot bus until ctx ends. While the bus is
// away, e keeps what it has.
func followBus(ctx context.Context, b *distribute.Redis, e *enforcer.Enforcer) error {
	defer b.Close()
	return b.Follow(ctx, func(m distribute.Message) rlc.Ack {
		if m.Snapshot != nil {
			_ = e.Load(*m.Snapshot) // a refusal is logged, counted and acknowledged by e
		}
		return e.Ack()
	})
}
