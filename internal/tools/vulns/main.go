// Command vulns reads govulncheck's JSON and judges it: a vulnerability that
// the code calls in a module fails, one in the standard library is printed,
// because the toolchain of the machine decides it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

type message struct {
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV   string `json:"osv"`
		Fixed string `json:"fixed_version"`
		Trace []struct {
			Module   string `json:"module"`
			Version  string `json:"version"`
			Function string `json:"function"`
		} `json:"trace"`
	} `json:"finding"`
}

func main() {
	summary, seen, bad := map[string]string{}, map[string]bool{}, 0
	for dec := json.NewDecoder(os.Stdin); ; {
		var m message
		if err := dec.Decode(&m); err == io.EOF {
			break
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "vulns:", err)
			os.Exit(1)
		}
		if m.OSV != nil {
			summary[m.OSV.ID] = m.OSV.Summary
		}
		f := m.Finding
		if f == nil || len(f.Trace) == 0 || f.Trace[0].Function == "" || seen[f.OSV] {
			continue // not called, or said already
		}
		seen[f.OSV] = true
		where := f.Trace[0]
		fmt.Printf("%s in %s %s, called through %s, fixed in %s: %s\n", f.OSV, where.Module, where.Version, where.Function, f.Fixed, summary[f.OSV])
		if where.Module != "stdlib" {
			bad++
		}
	}
	if bad > 0 {
		fmt.Printf("%d called vulnerabilities in modules: raise their versions in go.mod\n", bad)
		os.Exit(1)
	}
}
