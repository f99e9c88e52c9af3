package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// wrapGroups lets each command that only holds others name a word that is none
// of them, whatever flags come with it.
func wrapGroups(c *cobra.Command) {
	if !c.HasSubCommands() {
		return
	}
	c.SuggestionsMinimumDistance = 2
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		return nil
	}
	for _, sub := range c.Commands() {
		wrapGroups(sub)
	}
}

// flagError says what is wrong with a flag, or, of a group, with the word before
// it: its flags belong to a command that does not exist.
func flagError(c *cobra.Command, err error) error {
	if words := c.Flags().Args(); c.HasSubCommands() && len(words) > 0 {
		return unknownCommand(c, words[0])
	}
	if meant := unknownFlag(c, err); meant != "" {
		return exit{exitInvalid, fmt.Errorf("%w; %s", err, meant)}
	}
	return exit{exitInvalid, fmt.Errorf("%w; see %q", err, c.CommandPath()+" --help")}
}

func unknownCommand(c *cobra.Command, word string) error {
	hint := fmt.Sprintf("see %q", c.CommandPath()+" --help")
	if near := c.SuggestionsFor(word); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return exit{exitInvalid, fmt.Errorf("unknown command %q; %s", strings.TrimPrefix(c.CommandPath()+" "+word, "rlc "), hint)}
}

// helpOfCommandsOnly has --help and the help command say that a word is no
// command, in place of the help of the group that it does not belong to. The
// error is there once the command has been executed; nil where there is none.
func helpOfCommandsOnly(root *cobra.Command) (unknown *error) {
	unknown = new(error)
	shown := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if words := c.Flags().Args(); c.HasSubCommands() && len(words) > 0 {
			*unknown = unknownCommand(c, words[0])
			return
		}
		shown(c, args)
	})
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "What a command does, and its flags",
		RunE: func(c *cobra.Command, args []string) error {
			of, rest, err := root.Find(args)
			switch {
			case err != nil:
				return exit{exitInvalid, err}
			case len(rest) > 0:
				return unknownCommand(of, rest[0])
			}
			return of.Help()
		},
	})
	return unknown
}
