package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
)

// durationFlag defines a flag that takes days and weeks too; GetDuration reads it.
func durationFlag(c *cobra.Command, name string, value time.Duration, usage string) {
	d := duration(value)
	c.Flags().Var(&d, name, usage)
}

type duration time.Duration

func (d *duration) Set(text string) error {
	v, err := rlc.ParseDuration(text)
	*d = duration(v)
	return err
}

// String is what GetDuration reads, which knows no days.
func (d *duration) String() string { return time.Duration(*d).String() }

// Type is what GetDuration asks for.
func (d *duration) Type() string { return "duration" }
