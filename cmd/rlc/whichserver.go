package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/app"
)

// defaultServer is asked where neither a flag nor a folder here names one.
const defaultServer = "http://127.0.0.1:8080"

// dataFolders are the default data folders of rlc demo and rlc serve.
var dataFolders = []string{"demo-data", "rlc-data"}

// serverFlags are the flags of every command that asks a running server.
func serverFlags(c *cobra.Command) {
	c.Flags().String("server", "", "the running server; default: the one whose data folder is here, else "+defaultServer)
	c.Flags().String("data", "", "the data `folder` of a server on this machine: address and token are read there; default: demo-data or rlc-data here")
	c.Flags().String("token", "", "what acting needs; better given as RLC_TOKEN or RLC_TOKEN_FILE")
}

// dial finds the server that a command's flags and the folders here name. Where
// there is none, do says so: a folder whose server is stopped never leads to
// another one, which would be shown a token that is not for it.
func dial(c *cobra.Command) *client {
	flag := func(name string) string { v, _ := c.Flags().GetString(name); return v }
	cl := &client{token: flag("token"), from: "--token or RLC_TOKEN"}
	cl.http.Timeout = longest
	data := flag("data")
	if server := flag("server"); server != "" {
		cl.server, cl.bad = serverURL(server)
	} else {
		cl.server, cl.bad = found(data)
	}
	if cl.token != "" || cl.bad != nil {
		return cl
	}
	folders := dataFolders
	if data != "" {
		folders = []string{data}
	}
	for _, folder := range folders {
		// A token found in a folder is shown to the server of that folder only.
		if at, err := app.Running(folder); err == nil && at == cl.server {
			cl.from = filepath.Join(folder, "token")
			b, _ := os.ReadFile(cl.from) // without it the server says what acting needs
			cl.token = strings.TrimSpace(string(b))
		}
	}
	return cl
}

// found is the address of the server on a data folder, or of the one that runs on
// a default folder here where data is ""; the default server where there is no
// such folder.
func found(data string) (server string, err error) {
	if data != "" {
		server, err = app.Running(data)
		return server, stopped(err, data)
	}
	var there, running []string
	for _, name := range dataFolders {
		if _, err := os.Stat(name); err != nil {
			continue
		}
		there = append(there, name)
		at, err := app.Running(name)
		switch {
		case err == nil:
			running, server = append(running, name), at
		case !errors.Is(err, rlc.ErrNotFound):
			return "", err
		}
	}
	switch {
	case len(running) > 1:
		return "", exit{exitInvalid, fmt.Errorf("servers run on %s: say which with --data", strings.Join(running, " and on "))}
	case len(running) == 1:
		return server, nil
	case len(there) > 0:
		return "", stopped(rlc.ErrNotFound, strings.Join(there, " or "))
	}
	return defaultServer, nil
}

// stopped says that no server runs on a folder, and what to do.
func stopped(err error, data string) error {
	if !errors.Is(err, rlc.ErrNotFound) {
		return err
	}
	if _, err := os.Stat(data); err != nil && !strings.Contains(data, " or ") {
		return exit{exitInvalid, fmt.Errorf("no server runs on %s: there is no such folder", data)}
	}
	return fmt.Errorf("no server runs on %s; start it, or name another with --server or --data", data)
}

// serverURL is what --server says as the root of an API, without a slash at its
// end; http is meant where no scheme is given.
func serverURL(text string) (string, error) {
	whole := text
	if !strings.Contains(whole, "://") {
		whole = "http://" + whole
	}
	u, err := url.Parse(whole)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || cmp.Or(u.RawQuery, u.Fragment) != "" || u.User != nil {
		return "", exit{exitInvalid, fmt.Errorf("--server %q: want http://host:port or https://host", text)}
	}
	return strings.TrimRight(whole, "/"), nil
}
