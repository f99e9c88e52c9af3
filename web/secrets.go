package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// secrets are parameters that people put into addresses though nothing reads
// them there; in lower case. No name that a request's attribute may well have is
// among them (api_key, say): /why would answer for another request.
var secrets = []string{"token", "access_token", "password", "secret"}

// unreadable marks a request whose query was not read to its end: what cannot be read
// is left out, and a preview without its parameter would be an act.
type unreadable struct{}

// unsecret takes parameters that hold secrets out of a request's query before
// any page sees it: what a page links to, repeats in a form or sends on to the
// sign-in then cannot hold them.
func unsecret(r *http.Request) *http.Request {
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		r = r.WithContext(context.WithValue(r.Context(), unreadable{}, true))
	}
	query, next := withoutSecrets(r.URL.RawQuery), r.Referer()
	if query == r.URL.RawQuery && !strings.Contains(next, "?") {
		return r
	}
	r = r.Clone(r.Context())
	r.URL.RawQuery = query
	r.RequestURI = r.URL.RequestURI()
	if next != "" {
		r.Header.Set("Referer", addressWithoutSecrets(next))
	}
	return r
}

// withoutSecrets is a query without the pairs that hold secrets, the others as
// they were. An address in the value of another parameter (next, back) loses
// its own.
func withoutSecrets(query string) string {
	if query == "" {
		return ""
	}
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || strings.Contains(pair, ";") {
			continue // no page can read it
		}
		if slices.Contains(secrets, strings.ToLower(strings.TrimSpace(plain))) {
			continue
		}
		if to, err := url.QueryUnescape(value); err == nil && strings.Contains(to, "?") {
			if clean := addressWithoutSecrets(to); clean != to {
				pair = name + "=" + url.QueryEscape(clean)
			}
		}
		kept = append(kept, pair)
	}
	return strings.Join(kept, "&")
}

func addressWithoutSecrets(address string) string {
	path, query, ok := strings.Cut(address, "?")
	if !ok {
		return address
	}
	query, fragment, _ := strings.Cut(query, "#")
	clean := withoutSecrets(query)
	if clean == query {
		return address
	}
	if clean != "" {
		path += "?" + clean
	}
	if fragment != "" {
		path += "#" + fragment
	}
	return path
}
