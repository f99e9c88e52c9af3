package gitsync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"

	"github.com/openrlc/rlc"
)

const (
	// soon and late bound the wait after a failure that trying again may mend,
	// patience and patienceEnd the one after a failure that it will not.
	soon, late            = time.Second, 15 * time.Second
	patience, patienceEnd = 30 * time.Second, 15 * time.Minute

	// maxMirrored bounds the references that are followed.
	maxMirrored = 100_000
	// haves bounds the commits that a fetch says to have.
	haves = 256
)

// remote is the repository on a server and its mirror here: a bare repository
// that holds the references RLC uses, under their own names, as they were when
// the server was last looked at. Everything is planned on the mirror. What is
// carried out goes to the server with the exact hashes that the plan began from,
// so a mirror that is behind costs a second try and never a person's commit. The
// mirror is a cache: it may be deleted whenever no rlc runs.
//
// go-git's own fetch and push are not used: its push takes what the server
// advertises for what the caller saw, its errors carry no type, and it bounds
// neither time nor bytes. The protocol's messages and packs are go-git's.
type remote struct {
	cfg   Config
	addr  address
	dir   string           // the mirror
	clock func() time.Time // of waits

	talk    sync.Mutex               // held by one conversation at a time; guards what follows
	known   map[string]plumbing.Hash // references on the server, nil until looked at
	at      time.Time                // when that was
	web     *http.Client
	webCA   [32]byte
	line    *ssh.Client
	lineSum [32]byte
	conn    net.Conn
	heads   []string // names of its branches, for a message
	mended  bool     // the mirror was made anew once

	state sync.Mutex            // guards what follows
	pause map[string]*suspended // by service
}

// suspended is a service of the server that could not be talked to.
type suspended struct {
	why   error
	until time.Time // no other try before
	wait  time.Duration
	tried [32]byte // sum of the secrets that it was tried with
}

// openRemote checks what Config says of a remote repository.
func openRemote(c Config) (*remote, error) {
	addr, err := parseAddress(c.URL, c.Hosts, c.AllowHTTP)
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("%w: the repository %s needs a folder of its own for its mirror, by an absolute path", rlc.ErrInvalid, addr)
	}
	if addr.scheme == "ssh" && (c.KeyFile == "" || c.KnownHostsFile == "") {
		return nil, fmt.Errorf("%w: the repository %s needs a key file and a known hosts file", rlc.ErrInvalid, addr)
	}
	if c.User != "" && !userName.MatchString(c.User) {
		return nil, fmt.Errorf("%w: user %q", rlc.ErrInvalid, clip(inert(c.User), 80))
	}
	if c.Timeout <= 0 {
		c.Timeout = 2 * time.Minute
	}
	if c.FetchBytes <= 0 {
		c.FetchBytes = 256 << 20
	}
	if c.FetchObjects <= 0 {
		c.FetchObjects = 500_000
	}
	return &remote{cfg: c, addr: addr, dir: filepath.Join(c.Dir, "mirror.git"), clock: time.Now, pause: map[string]*suspended{}}, nil
}

// user is whom the credentials are of: the URL's, else the configured one.
func (f *remote) user() string {
	switch {
	case f.addr.user != "":
		return f.addr.user
	case f.cfg.User != "":
		return f.cfg.User
	}
	return "git"
}

// Trouble says why the server of a remote repository could not be talked to last
// time, nil when it could. While it waits before another try, every call that
// needs the server returns this error; new credentials end the wait.
func (r *Repo) Trouble() error {
	if r.far == nil {
		return nil
	}
	r.far.state.Lock()
	defer r.far.state.Unlock()
	for _, service := range []string{fetching, pushing} {
		if p := r.far.pause[service]; p != nil {
			return p.why
		}
	}
	return nil
}

// converse holds one conversation with the server, unless the last one failed
// and it is too early for another. The caller holds f.talk.
func (f *remote) converse(ctx context.Context, service string, do func(conversation, *packp.AdvRefs) error) error {
	s, err := f.secrets()
	sum := s.sum()
	f.state.Lock()
	last := f.pause[service]
	f.state.Unlock()
	if err == nil && last != nil && last.tried == sum && f.clock().Before(last.until) {
		return fmt.Errorf("%w; next try after %s", last.why, last.until.UTC().Format(time.RFC3339))
	}
	within, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	if err == nil {
		err = f.exchange(within, service, s, do)
	}
	own := (*failure)(nil)
	switch {
	case err == nil:
	case ctx.Err() != nil: // the caller's wish, no fault of the server
		f.hangUp()
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	case within.Err() != nil:
		own = &failure{text: fmt.Sprintf("%s: no whole answer within %s", f.addr, rlc.DurationText(f.cfg.Timeout)), cause: within.Err()}
		err = own
	case !errors.As(err, &own):
		return err
	}
	f.state.Lock()
	defer f.state.Unlock()
	if err == nil {
		delete(f.pause, service)
		return nil
	}
	f.hangUp()
	p := &suspended{why: err, tried: sum, wait: soon}
	end := late
	if own.lasting {
		p.wait, end = patience, patienceEnd
	}
	if last != nil && last.tried == sum {
		p.wait = min(max(2*last.wait, p.wait), end)
	}
	p.until = f.clock().Add(p.wait/2 + rand.N(p.wait/2+1))
	f.pause[service] = p
	f.cfg.Log.Warn("the config repository's server cannot be talked to", "error", err, "until", p.until)
	return err
}

func (f *remote) exchange(ctx context.Context, service string, s secrets, do func(conversation, *packp.AdvRefs) error) (err error) {
	c, err := f.dial(ctx, service, s)
	if err != nil {
		return err
	}
	defer c.Close()
	ar := packp.NewAdvRefs()
	err = ar.Decode(c.refs())
	switch {
	case errors.Is(err, packp.ErrEmptyAdvRefs): // a repository without a branch
	case errors.Is(err, packp.ErrEmptyInput):
		if said := strings.TrimSpace(s.scrub(c.stderr())); said != "" {
			return &failure{root: rlc.ErrNotFound, lasting: true, text: fmt.Sprintf("%s: %s", f.addr, inert(said))}
		}
		return f.broken(s, err)
	case err != nil:
		return f.broken(s, err)
	}
	transport.FilterUnsupportedCapabilities(ar.Capabilities)
	if err := do(c, ar); err != nil {
		for _, e := range []error{rlc.ErrConflict, rlc.ErrRefused, rlc.ErrFenced} {
			if errors.Is(err, e) {
				return err
			}
		}
		return f.broken(s, err)
	}
	return nil
}

// branches are names of the server's branches, some of them, for a message.
func (f *remote) branches() []string {
	f.talk.Lock()
	defer f.talk.Unlock()
	return slices.Clone(f.heads)
}

// close ends what is kept open to the server.
func (f *remote) close() {
	f.talk.Lock()
	defer f.talk.Unlock()
	f.hangUp()
}
