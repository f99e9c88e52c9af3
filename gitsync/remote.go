package gitsync

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"
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

// openMirror locks the folder of the mirror, opens it and brings it up to the
// server. A server that is away, or refuses, is no error when there is a mirror
// to go on with: pages must survive a restart with an expired token.
func (r *Repo) openMirror(ctx context.Context) (err error) {
	f := r.far
	if err := os.MkdirAll(f.cfg.Dir, 0o777); err != nil {
		return err
	}
	if !f.cfg.ReadOnly {
		// A reader holds the lock for the time of one fetch.
		within, cancel := context.WithTimeout(ctx, lockPatience)
		defer cancel()
		for r.lock, err = flock(f.cfg.Dir); errors.Is(err, rlc.ErrConflict) && wait(within, 50*time.Millisecond) == nil; {
			r.lock, err = flock(f.cfg.Dir)
		}
		if err != nil {
			r.lock = nil
			return err
		}
		if r.bare, err = f.mirror(); err != nil {
			return err
		}
	}
	away := f.follow(ctx)
	if f.cfg.ReadOnly {
		if r.bare, err = openBare(f.dir); err != nil {
			return cmp.Or(away, err)
		}
	}
	nothing := func(*view, tips) error { return nil }
	if own := (*failure)(nil); errors.As(away, &own) && own.root != rlc.ErrInvalid && r.look(ctx, "", nothing) == nil {
		return nil
	}
	if away != nil {
		return away
	}
	return r.mended(ctx, "", nothing)
}

// lookNow is look at a repository as it is now: the mirror of a remote one is
// brought up to the server first, unless it was less than fresh ago.
func (r *Repo) lookNow(ctx context.Context, fresh time.Duration, segment string, f func(*view, tips) error) error {
	if r.far == nil {
		return r.look(ctx, segment, f)
	}
	if !r.far.young(fresh) {
		if err := r.far.follow(ctx); err != nil {
			return err
		}
	}
	return r.mended(ctx, segment, f)
}

// mended is look, with a mirror that turns out broken made anew.
func (r *Repo) mended(ctx context.Context, segment string, f func(*view, tips) error) error {
	err := r.look(ctx, segment, f)
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, known := range []error{rlc.ErrConflict, rlc.ErrFenced, rlc.ErrInvalid, rlc.ErrRefused, rlc.ErrNotFound} {
		if errors.Is(err, known) && !errors.Is(err, plumbing.ErrObjectNotFound) {
			return err
		}
	}
	if whole, mendErr := r.mend(err); whole || mendErr != nil {
		return errors.Join(err, mendErr)
	}
	if err := r.far.follow(ctx); err != nil {
		return err
	}
	return r.look(ctx, segment, f)
}

// mend makes the mirror anew unless it is whole.
func (r *Repo) mend(why error) (whole bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bare.forget()
	if st, err := r.bare.storage(); err == nil {
		v := &view{store: st, who: r.who, log: r.cfg.Log}
		if v.whole(slices.Collect(maps.Values(r.bare.all()))) {
			return true, nil
		}
	}
	r.cfg.Log.Warn("the mirror is broken: it is made anew", "dir", r.far.dir, "error", why)
	b, err := r.far.mend(r.bare)
	if err == nil {
		r.bare = b
	}
	return false, err
}

// packed makes the pack of what moves need on the server.
func (r *Repo) packed(v *view, moves []move) ([]byte, error) {
	there := map[plumbing.Hash]bool{}
	for _, h := range r.bare.all() {
		there[h] = true
	}
	var fresh []plumbing.Hash
	for _, m := range moves {
		if !m.new.IsZero() && m.new != m.old {
			fresh = append(fresh, m.new)
		}
	}
	if fresh == nil {
		return nil, nil
	}
	return v.pack(fresh, func(h plumbing.Hash) bool {
		_, on := r.line.contains(h)
		return on || there[h]
	})
}

// carryFar carries moves out on the server. A move that another had made, or
// that is found made after a push whose answer was lost, counts as done.
func (r *Repo) carryFar(ctx context.Context, moves []move, still func() bool, pack []byte) error {
	moves = slices.DeleteFunc(slices.Clone(moves), func(m move) bool { return m.old == m.new })
	for len(moves) > 0 {
		if !still() {
			return errEnded
		}
		n, err := r.far.push(ctx, moves, pack)
		if errors.Is(err, rlc.ErrConflict) && r.landed(ctx, moves) {
			return nil
		}
		if err != nil {
			return err
		}
		moves = moves[n:]
	}
	return nil
}

// landed reports whether all moves are found done in the mirror.
func (r *Repo) landed(ctx context.Context, moves []move) bool {
	ok := true
	err := r.look(ctx, "", func(*view, tips) error {
		ok = true
		for _, m := range moves {
			now, err := r.bare.read(m.name)
			if err != nil {
				return err
			}
			_, on := r.line.at[m.new]
			ok = ok && (now == m.new || m.name == r.baseRef() && on)
		}
		return nil
	})
	return err == nil && ok
}

// young reports whether the server was looked at less than fresh ago.
func (f *remote) young(fresh time.Duration) bool {
	f.talk.Lock()
	defer f.talk.Unlock()
	return f.known != nil && f.clock().Sub(f.at) < fresh
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

// mirror opens the local mirror. One of another URL, or one that cannot be
// opened, is made anew.
func (f *remote) mirror() (*bare, error) {
	mark := filepath.Join(f.dir, "rlc-mirror-of")
	if of, err := os.ReadFile(mark); err == nil && string(of) == f.addr.String() {
		b, err := openBare(f.dir)
		if err == nil {
			return b, b.recover()
		}
		f.cfg.Log.Warn("the mirror cannot be opened: it is made anew", "error", err)
	}
	if err := os.RemoveAll(f.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(f.dir, 0o777); err != nil {
		return nil, err
	}
	if _, err := git.InitWithOptions(filesystem.NewStorage(osfs.New(f.dir), cache.NewObjectLRUDefault()), nil,
		git.InitOptions{DefaultBranch: plumbing.NewBranchReferenceName(f.cfg.Branch)}); err != nil {
		return nil, fmt.Errorf("create %s: %w", f.dir, err)
	}
	if err := os.WriteFile(mark, []byte(f.addr.String()), 0o666); err != nil {
		return nil, err
	}
	return openBare(f.dir)
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
		own = &failure{text: fmt.Sprintf("%s: no whole answer within %s", f.addr, f.cfg.Timeout), cause: within.Err()}
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

// follow brings the mirror up to the server, which costs one question and, when
// something moved, one answer with what is new.
func (f *remote) follow(ctx context.Context) error {
	f.talk.Lock()
	defer f.talk.Unlock()
	if f.cfg.ReadOnly {
		lock, err := flock(f.cfg.Dir)
		if errors.Is(err, rlc.ErrConflict) && f.mirrored() {
			return nil // the rlc that holds it keeps it up
		}
		if err != nil {
			return err
		}
		defer lock.Close()
		b, err := f.mirror()
		if err != nil {
			return err
		}
		b.forget()
	}
	err := f.converse(ctx, fetching, func(c conversation, ar *packp.AdvRefs) error {
		if len(ar.Shallows) > 0 {
			return fmt.Errorf("%w: it is a shallow clone: versions count all commits", rlc.ErrInvalid)
		}
		now, heads, err := f.wanted(ar)
		if err != nil {
			return err
		}
		f.heads = heads
		if f.known != nil && maps.Equal(now, f.known) {
			return nil
		}
		if err := f.fetch(c, ar, now); err != nil {
			return err
		}
		return f.set(now)
	})
	if err != nil {
		return fmt.Errorf("look at the config repository: %w", err)
	}
	f.at = f.clock()
	return nil
}

// mirrored reports whether there is a mirror of this URL.
func (f *remote) mirrored() bool {
	of, err := os.ReadFile(filepath.Join(f.dir, "rlc-mirror-of"))
	return err == nil && string(of) == f.addr.String()
}

// wanted picks the references that RLC uses from all that a server has.
func (f *remote) wanted(ar *packp.AdvRefs) (now map[string]plumbing.Hash, heads []string, err error) {
	now = map[string]plumbing.Hash{}
	for name, h := range ar.References {
		if head, ok := strings.CutPrefix(name, "refs/heads/"); ok && !strings.HasPrefix(head, "rlc/") && len(heads) < 20 {
			heads = append(heads, head)
		}
		ours := name == "refs/heads/"+f.cfg.Branch || strings.HasPrefix(name, "refs/heads/rlc/") || strings.HasPrefix(name, "refs/rlc/")
		if !ours || h.IsZero() || len(name) > 400 || inert(name) != name || plumbing.ReferenceName(name).Validate() != nil {
			continue
		}
		now[name] = h
	}
	if len(now) > maxMirrored {
		return nil, nil, fmt.Errorf("%w: %d references under refs/rlc and refs/heads/rlc, limit %d", rlc.ErrInvalid, len(now), maxMirrored)
	}
	slices.Sort(heads)
	return now, heads, nil
}

// fetch gets the objects behind references that the mirror lacks.
func (f *remote) fetch(c conversation, ar *packp.AdvRefs, now map[string]plumbing.Hash) error {
	st := filesystem.NewStorage(osfs.New(f.dir), cache.NewObjectLRUDefault())
	defer st.Close()
	req := packp.NewUploadPackRequestFromCapabilities(ar.Capabilities)
	if ar.Capabilities.Supports(capability.NoProgress) {
		_ = req.Capabilities.Set(capability.NoProgress)
	}
	for _, h := range now {
		if st.HasEncodedObject(h) != nil && !slices.Contains(req.Wants, h) {
			req.Wants = append(req.Wants, h)
		}
	}
	if len(req.Wants) == 0 {
		return nil
	}
	req.Haves = f.haves(&view{store: st})
	var body bytes.Buffer
	if err := errors.Join(req.UploadRequest.Encode(&body), req.UploadHaves.Encode(&body, false), pktline.NewEncoder(&body).EncodeString("done\n")); err != nil {
		return err
	}
	answer, err := c.ask(body.Bytes())
	if err != nil {
		return err
	}
	res := packp.NewUploadPackResponse(req)
	if err := res.Decode(answer); err != nil {
		return errors.Join(err, answer.Close())
	}
	err = receive(f.dir, demux(req.Capabilities, res, io.Discard), f.cfg.FetchBytes, f.cfg.FetchObjects)
	return errors.Join(err, res.Close())
}

// haves are commits of the mirror that the server is likely to have.
func (f *remote) haves(v *view) []plumbing.Hash {
	var out []plumbing.Hash
	walk := func(h plumbing.Hash, steps int) {
		for ; steps > 0 && len(out) < haves && !h.IsZero(); steps-- {
			c, err := v.commit(h)
			if err != nil {
				return
			}
			out = append(out, h)
			h = plumbing.ZeroHash
			if len(c.ParentHashes) > 0 {
				h = c.ParentHashes[0]
			}
		}
	}
	tips := refs{path: f.dir}.all()
	walk(tips["refs/heads/"+f.cfg.Branch], haves/4) // where a rewrite may have gone back to
	for _, h := range tips {
		walk(h, 1)
	}
	return out
}

// demux takes a stream apart where the server was asked to say more in it.
func demux(caps *capability.List, r io.Reader, progress io.Writer) io.Reader {
	kind := sideband.Sideband64k
	switch {
	case caps.Supports(capability.Sideband64k):
	case caps.Supports(capability.Sideband):
		kind = sideband.Sideband
	default:
		return r
	}
	d := sideband.NewDemuxer(kind, r)
	d.Progress = progress
	return d
}

// set makes references the mirror's, all at once.
func (f *remote) set(now map[string]plumbing.Hash) error {
	var b bytes.Buffer
	b.WriteString("# pack-refs with: sorted \n")
	for _, name := range slices.Sorted(maps.Keys(now)) {
		fmt.Fprintf(&b, "%s %s\n", now[name], name)
	}
	file := filepath.Join(f.dir, "packed-refs")
	if err := writeSync(file+".new", b.Bytes()); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	f.known = now
	return nil
}

// push moves references on the server from the exact hashes that the plan saw:
// all of them at once where the server can do that, else the first only. It
// returns how many it moved. What was sent and not answered for is looked at
// again before anybody is told that it failed.
func (f *remote) push(ctx context.Context, moves []move, pack []byte) (int, error) {
	f.talk.Lock()
	moved, sent := 0, false
	err := f.converse(ctx, pushing, func(c conversation, ar *packp.AdvRefs) error {
		for _, m := range moves {
			if now := ar.References[m.name]; now != m.old {
				return fmt.Errorf("%w: %s is at %s, not at %s", rlc.ErrConflict, m.name, short(now), short(m.old))
			}
		}
		req := packp.NewReferenceUpdateRequestFromCapabilities(ar.Capabilities)
		n := 1
		if ar.Capabilities.Supports(capability.Atomic) {
			n = len(moves)
			_ = req.Capabilities.Set(capability.Atomic)
		}
		if ar.Capabilities.Supports(capability.Sideband64k) {
			_ = req.Capabilities.Set(capability.Sideband64k)
		}
		send := false
		for _, m := range moves[:n] {
			req.Commands = append(req.Commands, &packp.Command{Name: plumbing.ReferenceName(m.name), Old: m.old, New: m.new})
			send = send || !m.new.IsZero()
		}
		var body bytes.Buffer
		if err := req.Encode(&body); err != nil {
			return err
		}
		if send {
			body.Write(pack)
		}
		sent = true
		answer, err := c.ask(body.Bytes())
		if err != nil {
			return err
		}
		said := &bounded{max: hookText}
		report := packp.NewReportStatus()
		err = report.Decode(demux(req.Capabilities, answer, said))
		if closed := answer.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return fmt.Errorf("the server did not say what became of the push: %w", err)
		}
		if err := verdictOf(report, said.String()); err != nil {
			return err
		}
		moved = n
		return nil
	})
	if err == nil && f.known == nil {
		f.talk.Unlock()
		return moved, nil
	}
	if err == nil {
		now := maps.Clone(f.known)
		for _, m := range moves[:moved] {
			if now[m.name] = m.new; m.new.IsZero() {
				delete(now, m.name)
			}
		}
		err = f.set(now)
		f.talk.Unlock()
		return moved, err
	}
	f.talk.Unlock()
	if !sent || errors.Is(err, rlc.ErrConflict) {
		return 0, fmt.Errorf("push: %w", err)
	}
	return 0, f.outcome(ctx, moves, err)
}

// verdictOf says what a server's report means. Its words are no protocol; who
// won a race is told by looking again, and these words only tell a refusal from
// a lock that was held for a moment.
func verdictOf(report *packp.ReportStatus, said string) error {
	var bad []string
	if report.UnpackStatus != "ok" {
		bad = append(bad, "unpack: "+report.UnpackStatus)
	}
	for _, s := range report.CommandStatuses {
		if s.Status != "ok" && !slices.Contains(bad, s.Status) {
			bad = append(bad, s.Status)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	reason := strings.Join(bad, ", ")
	low := strings.ToLower(reason)
	for _, moved := range []string{"lock", "failed to update ref", "incorrect old value", "already exists", "fetch first", "stale info"} {
		if strings.Contains(low, moved) && !strings.Contains(low, "declined") {
			return fmt.Errorf("%w: %s", rlc.ErrConflict, clip(inert(reason), 300))
		}
	}
	if text := strings.TrimSpace(said); text != "" {
		reason += ": " + text
	}
	return fmt.Errorf("%w: the server refused the push: %s", rlc.ErrRefused, inert(reason))
}

// outcome looks again after a push that went wrong, and says what is true:
// rlc.ErrConflict when a reference is no longer where the plan began, so that
// the caller plans anew and finds what was done; else what went wrong.
func (f *remote) outcome(ctx context.Context, moves []move, failed error) error {
	ctx = context.WithoutCancel(ctx) // the push may have been done after all
	if err := f.follow(ctx); err != nil {
		return fmt.Errorf("push: %w (whether it was done is not known)", failed)
	}
	f.talk.Lock()
	defer f.talk.Unlock()
	for _, m := range moves {
		if f.known[m.name] != m.old {
			f.state.Lock()
			delete(f.pause, pushing) // it was heard, if not answered
			f.state.Unlock()
			return fmt.Errorf("%w: %s moved while it was pushed to: %w", rlc.ErrConflict, m.name, failed)
		}
	}
	return fmt.Errorf("push: %w", failed)
}

// mend makes a broken mirror anew, once: what is broken twice is no accident.
// The caller holds the repository's mu.
func (f *remote) mend(b *bare) (*bare, error) {
	f.talk.Lock()
	defer f.talk.Unlock()
	if f.mended || f.cfg.ReadOnly {
		return nil, fmt.Errorf("the mirror %s is broken; stop rlc, remove it and start again", f.dir)
	}
	f.mended = true
	b.forget()
	f.known = nil
	if err := os.Remove(filepath.Join(f.dir, "rlc-mirror-of")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return f.mirror()
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
