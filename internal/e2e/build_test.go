//go:build !fault

package e2e

// buildFlags are how the programs are built.
var buildFlags []string
