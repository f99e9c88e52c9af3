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
	"strings"
	"time"
)

// longest is how long an answer may take: a run's, which is waited for.
const longest = 35 * time.Minute

// client speaks to a running RLC server.
type client struct {
	server string
	token  string
	from   string // where the token came from
	bad    error  // why there is no server to ask; nil where there is
	http   http.Client
}

// problem is RFC 9457's.
type problem struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

// do sends body (nil for none) and decodes the answer into out.
func (cl *client) do(ctx context.Context, method, path string, query url.Values, body, out any) error {
	if cl.bad != nil {
		return cl.bad
	}
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
		return cl.refused(res.StatusCode, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s does not answer like an RLC server: %w", cl.server, err)
	}
	return nil
}

// refused is the error that an answer says, with its exit code.
func (cl *client) refused(status int, answer []byte) error {
	var p problem
	text := http.StatusText(status)
	if json.Unmarshal(answer, &p) != nil || p.Title == "" { // every error of RLC has one
		err := fmt.Errorf("%s is not an RLC server, or something stands before it: it answers %d %s", cl.server, status, text)
		switch status {
		case http.StatusNotFound, http.StatusMethodNotAllowed:
			return exit{exitInvalid, err}
		case http.StatusUnauthorized, http.StatusForbidden: // a proxy before it wants a token of its own
			return exit{exitAuthorised, err}
		}
		return err
	}
	switch detail := strings.TrimSuffix(p.Detail, "."); {
	case detail == "" || detail == p.Title:
		text = p.Title
	case p.Title == text: // the status' own says less than the detail
		text = detail
	default:
		text = p.Title + ": " + detail
	}
	err := errors.New(text)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		if cl.token != "" {
			return exit{exitAuthorised, fmt.Errorf("%w; asked %s with the token of %s", err, cl.server, cl.from)}
		}
		return exit{exitAuthorised, fmt.Errorf("%w; asked %s without a token: give it with RLC_TOKEN, RLC_TOKEN_FILE or --data DIR", err, cl.server)}
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge:
		return exit{exitInvalid, err}
	case http.StatusUnprocessableEntity, http.StatusConflict:
		return exit{exitRefused, err}
	}
	return err
}
