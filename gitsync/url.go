package gitsync

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
)

// address is the URL of a remote repository, taken apart and found harmless.
type address struct {
	scheme string // "https", "http" or "ssh"
	user   string // "" where the URL names none
	host   string // lower case, an IPv6 address without its brackets
	port   string // "" for the scheme's own
	path   string // https: from its slash on, escaped as it was; ssh: as the server gets it
}

// What may stand in a URL. Everything else is refused, whether or not it would
// do harm: nothing here reaches a shell or an option list unchecked.
var (
	scpLike  = regexp.MustCompile(`^(?:([^@/:]+)@)?(\[[0-9A-Fa-f:.]+\]|[^@/:\[\]]+):([^:]*)$`)
	userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}$`)
	hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	webPath  = regexp.MustCompile(`^(/([A-Za-z0-9~._+@-]|%[0-9A-Fa-f]{2})+)+/?$`)
	sshPath  = regexp.MustCompile(`^[/~A-Za-z0-9._][A-Za-z0-9~._+@/-]*$`)
)

// Remote reports whether a repository is named by the URL of a server (Config
// then needs a Dir) and not by a path of this machine.
func Remote(url string) bool {
	return strings.Contains(url, "://") || scpLike.MatchString(url)
}

// parseAddress takes apart what Remote says is a URL, before any library sees
// it. hosts, where there are any, is what the host must be one of, "host" or
// "host:port"; http goes to this machine only unless allowed.
func parseAddress(raw string, hosts []string, allowHTTP bool) (a address, err error) {
	refuse := func(why string) (address, error) {
		return address{}, fmt.Errorf("%w: repository %q %s; want https://host/path, ssh://user@host/path, user@host:path or an absolute path", rlc.ErrInvalid, shown(raw), why)
	}
	switch {
	case len(raw) > 2048:
		return refuse("is too long")
	case strings.ContainsFunc(raw, func(c rune) bool { return c <= ' ' || c >= 0x7f }):
		return refuse("holds a space, a control character or one beyond ASCII")
	case strings.HasPrefix(raw, "-"):
		return refuse("looks like an option")
	}
	bracketed := false
	if m := scpLike.FindStringSubmatch(raw); m != nil && !strings.Contains(raw, "://") {
		a = address{scheme: "ssh", user: m[1], host: strings.ToLower(m[2]), path: m[3]}
		if slices.Contains([]string{"http", "https", "ssh", "git", "file", "ftp", "ext", "fd"}, a.host) {
			return refuse("lacks the two slashes after " + a.host + ":")
		}
		bracketed = strings.HasPrefix(a.host, "[")
		a.host = strings.Trim(a.host, "[]")
	} else {
		u, err := url.Parse(raw)
		if err != nil || u.Opaque != "" || u.Host == "" {
			return refuse("is no URL")
		}
		if _, has := u.User.Password(); has {
			return refuse("holds a password, which belongs into a file")
		}
		if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(raw, "#") {
			return refuse("has a query or a fragment")
		}
		a = address{scheme: strings.ToLower(u.Scheme), user: u.User.Username(), host: strings.ToLower(u.Hostname()), port: u.Port(), path: u.EscapedPath()}
		bracketed = strings.HasPrefix(u.Host, "[")
		if a.scheme == "ssh" {
			a.path = u.Path
			if strings.HasPrefix(a.path, "/~") {
				a.path = a.path[1:]
			}
		}
		if u.User != nil && a.user == "" {
			return refuse("has an empty user")
		}
	}
	loopback := a.host == "localhost"
	if ip := net.ParseIP(a.host); ip != nil {
		loopback = ip.IsLoopback()
	} else if bracketed || !hostName.MatchString(a.host) {
		return refuse("names no host")
	}
	allowed := webPath
	switch a.scheme {
	case "https":
	case "http":
		if !allowHTTP && !loopback {
			return refuse("would send credentials in clear; http is for this machine only")
		}
	case "ssh":
		allowed = sshPath
	default:
		return refuse("has a scheme that is not allowed")
	}
	plain, err := url.PathUnescape(a.path)
	switch {
	case a.user != "" && !userName.MatchString(a.user):
		return refuse("has a user that is not allowed")
	case a.port != "" && !validPort(a.port):
		return refuse("has a port that is none")
	case err != nil, !allowed.MatchString(a.path), strings.Trim(a.path, "/") == "":
		return refuse("has a path that is not allowed")
	case slices.Contains(strings.Split(plain, "/"), ".."), strings.ContainsFunc(plain, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return refuse("has a path that is not allowed")
	}
	if len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool {
		return strings.EqualFold(h, a.host) || strings.EqualFold(h, a.hostPort())
	}) {
		return refuse("is on a host that is not in the list")
	}
	a.path = strings.TrimRight(a.path, "/")
	return a, nil
}

func validPort(s string) bool {
	n, err := net.LookupPort("tcp", s)
	return err == nil && n > 0 && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
}

// hostPort is host and port as a dialer wants them.
func (a address) hostPort() string {
	port := a.port
	if port == "" {
		port = map[string]string{"https": "443", "http": "80", "ssh": "22"}[a.scheme]
	}
	return net.JoinHostPort(a.host, port)
}

// String is the URL as it may stand in a message: without user or port where
// they are the usual ones.
func (a address) String() string {
	host := a.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if a.port != "" {
		host += ":" + a.port
	}
	if a.scheme == "ssh" {
		return "ssh://" + host + "/" + strings.TrimPrefix(a.path, "/")
	}
	return a.scheme + "://" + host + a.path
}

// shown is a refused URL fit for a message: what stands before an @ may be a
// secret.
func shown(raw string) string {
	if i := strings.LastIndex(raw, "@"); i >= 0 {
		head := ""
		if j := strings.Index(raw, "://"); j >= 0 && j < i {
			head = raw[:j+3]
		}
		raw = head + "…" + raw[i:]
	}
	return clip(inert(raw), 200)
}
