// Package tools pins the programs that build and check RLC, apart from the
// product's own dependencies. The tool lines are in go.mod.
package tools
