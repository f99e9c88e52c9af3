package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/spell"
)

// longestName is how many bytes the name of a place or a process may have.
const longestName = 200

// refused is an error about one flag of a command.
func refused(command, flag, format string, a ...any) error {
	return fmt.Errorf("%w: %s: %s; see enforcer %s --help", rlc.ErrInvalid, flag, fmt.Sprintf(format, a...), command)
}

// checkName refuses what cannot be read on a log line or a page.
func checkName(command, flag, name string) error {
	if len(name) > longestName {
		return refused(command, flag, "%d bytes; at most %d", len(name), longestName)
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return refused(command, flag, "%q holds what cannot be printed", name)
	}
	return nil
}

// checkAddress refuses what cannot be connected to.
func checkAddress(command, flag, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return refused(command, flag, "%q is no host:port", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return refused(command, flag, "%q is no host:port: a port is 1 to 65535", address)
	}
	return nil
}

// checkPlace checks the names that a process goes by.
func checkPlace(command, zone, region, name string) error {
	if err := checkName(command, "--zone", zone); err != nil {
		return err
	}
	if err := checkName(command, "--region", region); err != nil {
		return err
	}
	return checkName(command, "--name", name)
}

// checkParent refuses a controller that would attend itself.
func checkParent(parent, own string) error {
	if err := checkAddress("controller", "--parent", parent); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(parent)
	ownHost, ownPort, err := net.SplitHostPort(own)
	if err != nil || port != ownPort {
		return nil
	}
	at, listens := net.ParseIP(host), net.ParseIP(ownHost)
	loopback := host == "localhost" || at != nil && at.IsLoopback()
	ownLoopback := ownHost == "localhost" || listens != nil && listens.IsLoopback()
	every := ownHost == "" || listens != nil && listens.IsUnspecified()
	if host == ownHost || loopback && (ownLoopback && (host == "localhost" || ownHost == "localhost") || every) {
		return refused("controller", "--parent", "%s is this controller's own --grpc", parent)
	}
	return nil
}

// checkFolder refuses a folder that is not there at the start, where nothing
// else could be in force.
func checkFolder(dir string) error {
	if info, err := os.Stat(dir); err != nil {
		return refused("serve", "--config-dir", "%v, and --state holds no last good snapshot", err)
	} else if !info.IsDir() {
		return refused("serve", "--config-dir", "%s is no folder, and --state holds no last good snapshot", dir)
	}
	return nil
}

// mostEdits is how many letters a misspelt name may be away from what it meant.
const mostEdits = 2

// meantFlag says which flag was meant by one that a command does not have, as
// " (did you mean --zone?)"; "" where there is none, and of any other error. A flag
// of rlc's name, --redis-url, means the one that its name begins with.
func meantFlag(f *flag.FlagSet, err error) string {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return ""
	}
	near, names := "", []string{}
	f.VisitAll(func(fl *flag.Flag) {
		names = append(names, fl.Name)
		if strings.HasPrefix(name, fl.Name+"-") {
			near = fl.Name
		}
	})
	if n := spell.Nearest(name, names, mostEdits); n != "" {
		near = n
	}
	if near == "" {
		return ""
	}
	return " (did you mean --" + near + "?)"
}

// misspeltVariables tells on w of variables RLC_* that nothing reads and that are
// spelt almost like a flag's: they would be ignored without a word.
func misspeltVariables(f *flag.FlagSet, environ []string, w io.Writer) {
	read := []string{"RLC_TOKEN", "RLC_REDIS_FILE"}
	f.VisitAll(func(fl *flag.Flag) { read = append(read, variable(fl.Name)) })
	for _, m := range spell.Variables("RLC_", environ, read, mostEdits) {
		fmt.Fprintln(w, "enforcer: warning: "+m)
	}
}

// variable is what stands in for a flag in the environment.
func variable(flag string) string {
	return "RLC_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
