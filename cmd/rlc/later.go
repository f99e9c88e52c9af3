package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// later are the commands of the design that this version does not build. They
// are known, so that a script learns why it does not work.
func later() []*cobra.Command {
	var all []*cobra.Command
	for _, name := range []string{"ci"} {
		all = append(all, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true, Short: "Not supported by this version",
			RunE: func(*cobra.Command, []string) error {
				return exit{exitInvalid, fmt.Errorf("%s: not supported by this version", name)}
			},
		})
	}
	return all
}
