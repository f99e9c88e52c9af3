package gitsync

import "github.com/openrlc/rlc/internal/escape"

// inert is outside text as one harmless line.
func inert(s string) string { return escape.Line(s) }

// clip is s cut to n runes.
func clip(s string, n int) string { return escape.Clip(s, n) }
