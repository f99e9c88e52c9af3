// Package archtest holds the house's floors as tests: who may import whom, and
// which package may know which outside library.
package archtest
