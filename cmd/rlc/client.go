package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// client speaks to a running RLC server.
type client struct {
	server string
	token  string
	http   http.Client
}

// serverFlags are the flags of every command that asks a running server.
func serverFlags(c *cobra.Command) {
	c.Flags().String("server", "http://127.0.0.1:8080", "the running server")
	c.Flags().String("data", "demo-data", "the server's data folder, if it runs on this machine: address and token are read there")
	c.Flags().String("token", "", "what acting needs; better given as RLC_TOKEN or RLC_TOKEN_FILE")
}

func dial(c *cobra.Command) *client {
	flag := func(name string) string { v, _ := c.Flags().GetString(name); return v }
	cl := &client{server: strings.TrimRight(flag("server"), "/"), token: flag("token"), http: http.Client{Timeout: 35 * time.Minute}}
	read := func(name string) string {
		if flag("data") == "" {
			return ""
		}
		b, err := os.ReadFile(filepath.Join(flag("data"), name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	if !c.Flags().Changed("server") {
		if at := read("url"); at != "" {
			cl.server = at
		}
	}
	// A token found in a folder is shown to the server of that folder only.
	if cl.token == "" && cl.server == read("url") {
		cl.token = read("token")
	}
	return cl
}

// problem is RFC 9457's.
type problem struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

// do sends body (nil for none) and decodes the answer into out.
func (cl *client) do(ctx context.Context, method, path string, query url.Values, body, out any) error {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
	}
	target := cl.server + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, in)
	if err != nil {
		return exit{exitInvalid, fmt.Errorf("--server %q: %w", cl.server, err)}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	if cl.token != "" {
		req.Header.Set("Authorization", "Bearer "+cl.token)
	}
	res, err := cl.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return fmt.Errorf("no server at %s: %w; start one with \"rlc demo\", or name it with --server or --data", cl.server, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", cl.server, err)
	}
	if res.StatusCode >= 400 {
		var p problem
		text := http.StatusText(res.StatusCode)
		if json.Unmarshal(answer, &p) == nil && p.Title != "" {
			detail := strings.TrimSuffix(p.Detail, ".")
			switch {
			case detail == "" || detail == p.Title:
				text = p.Title
			case p.Title == text: // the status' own says less than the detail
				text = detail
			default:
				text = p.Title + ": " + detail
			}
		}
		err := fmt.Errorf("%s", text)
		switch res.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return exit{exitAuthorised, fmt.Errorf("%w; give the token with RLC_TOKEN, RLC_TOKEN_FILE or --data DIR", err)}
		case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge:
			return exit{exitInvalid, err}
		case http.StatusUnprocessableEntity, http.StatusConflict:
			return exit{exitRefused, err}
		}
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s does not answer like an RLC server: %w", cl.server, err)
	}
	return nil
}
