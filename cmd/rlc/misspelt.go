package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/spell"
)

// mostEdits is how many letters a misspelt name may be away from what it meant.
const mostEdits = 2

// unknownFlag says which flag was meant by one that a command does not have; "" for
// any other error. A secret's value has no flag: it would be seen by everybody on
// the machine.
func unknownFlag(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	name := unknown.GetSpecifiedName()
	if c.Flags().Lookup(name+"-file") != nil {
		env := "RLC_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		return fmt.Sprintf("it would be seen by everybody on this machine: give %s, or --%s-file with a file that holds it", env, name)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := spell.Nearest(name, names, mostEdits); near != "" {
		return "did you mean --" + near + "?"
	}
	return ""
}

// commandVariables stand in for flags of commands; a token may come from a file.
var commandVariables = []string{"listen", "data", "server", "token", "output", "service", "now", "schedule"}

// misspeltVariables tells on w of variables RLC_* that nothing reads and that are
// spelt almost like one that is read: they would be ignored without a word.
func misspeltVariables(environ []string, w io.Writer) {
	read := []string{"RLC_CONFIG", "RLC_FORGE_TOKEN", "RLC_FORGE_TOKEN_FILE"}
	for _, name := range commandVariables {
		env := "RLC_" + strings.ToUpper(name)
		read = append(read, env, env+"_FILE")
	}
	for _, k := range config.Keys() {
		read = append(read, k.Env())
		if k.Secret() {
			read = append(read, k.Env()+"_FILE")
		}
	}
	for _, m := range spell.Variables("RLC_", environ, read, mostEdits) {
		fmt.Fprintln(w, "rlc: warning: "+m)
	}
}
