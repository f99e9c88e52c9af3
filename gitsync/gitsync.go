// Package gitsync commits a proposal, puts it up for review as a branch, and
// follows the merged head of the config repository.
//
// The base branch is the truth. RLC writes to it only what a named person
// accepted or edited; everything else it writes to branches rlc/<service>, one
// commit each, rebuilt on the base branch's tip. People's commits are never
// overwritten: every reference moves from an exact hash to another or not at
// all, under the same locks as git itself, and a branch with a person's commit
// is left alone. A repository is identified with what RLC wrote by trailers
// (RLC-Run, RLC-Service, RLC-Epoch, RLC-Actor, RLC-Edited) on commits whose
// committer is RLC; a lost database loses none of it.
//
// The repository is a bare one by its path, or a remote one by https or ssh. In
// a bare one RLC writes loose objects and packs nothing: git gc may run at any
// time, by hand or after a push, and what it moves is found again; the
// repository's own pre-receive, update and post-receive hooks run as they would
// for a push. A remote one has a mirror here, which every act first brings up to
// the server, and into which nothing is written that the server did not take.
// Nothing that lies in a commit is ever run, followed (symlinks) or fetched
// (submodules).
package gitsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
)

// attempts bounds how often an act is done anew because a reference moved.
const attempts = 5

// Config says which repository, and as whom RLC writes to it.
type Config struct {
	// URL is required: the absolute path of a bare repository, or where Remote
	// says so https://host/path, ssh://user@host/path or user@host:path. A URL
	// with a password in it is refused; http is for this machine, or AllowHTTP.
	URL    string
	Branch string // the base branch, "main" by default

	// What follows is for a remote repository.

	Dir       string   // required: absolute path of the folder for its mirror
	Hosts     []string // that the URL may name, "host" or "host:port"; empty allows any
	AllowHTTP bool     // sends credentials in clear to another machine

	// User is whom the token or key is of, "git" by default; one in the URL has
	// precedence. All files are read again for each conversation.
	User           string
	TokenFile      string                 // https: one line, token or password; "" sends none
	Token          func() (string, error) // in TokenFile's place where it is made, not kept; called for each conversation
	CAFile         string                 // https: PEM of authorities trusted beside the system's
	KeyFile        string                 // ssh, required there: the private key
	PassphraseFile string                 // ssh: of the key, one line
	KnownHostsFile string                 // ssh, required there: the server's key, as in known_hosts

	// Networks are the only addresses that the URL's host may lead to, looked at
	// with every connection. None: any but link-local ones and the like, and this
	// machine only where the URL itself says so.
	Networks []netip.Prefix

	Timeout      time.Duration // of one conversation with the server, 2 minutes by default
	FetchBytes   int64         // that one fetch may bring, 256 MiB by default
	FetchObjects int           // that one fetch may bring, 500,000 by default: some 240 MiB of memory while it does
	Fresh        time.Duration // how old the mirror may be for Settle; 0 looks each time

	// GroupBy puts the proposals of a team's services up on one branch where it is
	// ByTeam (see Branch); "": each service has a branch of its own.
	GroupBy string

	// Name and Email are RLC's as committer, "rlc" and "rlc@localhost" by
	// default. Once changed, earlier commits of RLC count as a person's.
	Name, Email string

	// SigningKeyFile is the SSH private key that RLC's commits are signed with;
	// "" signs none. SigningPassphraseFile opens it where it is locked.
	SigningKeyFile, SigningPassphraseFile string

	// Epoch is the leadership's; a write below the epoch that the repository
	// already holds is rlc.ErrFenced. Nil carries the repository's on.
	Epoch func() uint64
	// Acting is the epoch of a person's act (Accept, Reject, Edit), which a
	// replica that does not lead may carry out too: the leader's, as it knows
	// it. Nil: Epoch.
	Acting func() uint64

	ReadOnly bool             // takes no lock beside a running rlc; every write is refused
	Now      func() time.Time // the time of commits, time.Now by default
	Log      *slog.Logger     // slog.Default() by default
}

// Person is who acts or commits.
type Person struct {
	Name  string
	Email string // "" becomes one made of the name
}

// Repo is an open config repository. It is safe for concurrent use: acts that
// write wait for each other, and readers do not wait for hooks.
type Repo struct {
	cfg  Config
	who  Person
	bare *bare     // the repository, or the mirror of
	far  *remote   // a remote one, else nil
	lock io.Closer // nil when read only

	writing sync.Mutex // held by an act from its first look to its last move

	mu    sync.Mutex // guards what is below, and bare's storage
	line  *line
	head  plumbing.Hash // what files are of
	files rlc.Files
	dirs  map[plumbing.Hash]rlc.Files
}

// Open opens a repository that has its base branch, and locks out other rlc
// processes until Close (of a remote one: those with the same Dir); plain git
// may go on pushing to it. A repository or branch that does not exist is
// rlc.ErrNotFound, one in use rlc.ErrConflict, a URL of another kind
// rlc.ErrInvalid, a server that refuses the credentials rlc.ErrRefused. A remote
// one that was opened before is opened with its mirror when the server is away
// or refuses now, and Trouble tells why.
func Open(ctx context.Context, c Config) (*Repo, error) {
	if c.Branch == "" {
		c.Branch = "main"
	}
	if c.Name == "" {
		c.Name = "rlc"
	}
	if c.Email == "" {
		c.Email = "rlc@localhost"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	var far *remote
	var dir string
	var err error
	if Remote(c.URL) {
		far, err = openRemote(c)
	} else {
		dir, err = localPath(c.URL)
	}
	if err != nil {
		return nil, err
	}
	if err := plumbing.NewBranchReferenceName(c.Branch).Validate(); err != nil || strings.HasPrefix(c.Branch, "rlc/") {
		return nil, fmt.Errorf("%w: base branch %q", rlc.ErrInvalid, inert(c.Branch))
	}
	r := &Repo{
		cfg: c, far: far, line: newLine(), dirs: map[plumbing.Hash]rlc.Files{},
		who: Person{Name: signature(c.Name), Email: signature(c.Email)},
	}
	if far != nil {
		if err := r.openMirror(ctx); err != nil {
			return nil, errors.Join(err, r.Close())
		}
		return r, nil
	}
	if r.bare, err = openBare(dir); err != nil {
		return nil, err
	}
	if !c.ReadOnly {
		if r.lock, err = flock(dir); err != nil {
			return nil, err
		}
		if err := r.bare.recover(); err != nil {
			return nil, errors.Join(fmt.Errorf("remove a lock left behind: %w", err), r.Close())
		}
	}
	if err := r.look(ctx, "", func(*view, tips) error { return nil }); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close lets other rlc processes use the repository. It may be called twice.
func (r *Repo) Close() error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bare != nil {
		r.bare.forget()
	}
	if r.far != nil {
		r.far.close()
	}
	if r.lock == nil {
		return nil
	}
	l := r.lock
	r.lock = nil
	return l.Close()
}

// Head returns the base branch's tip and its files. The bytes are shared between
// calls: do not change them. Of a remote repository it asks the server what its
// references are and fetches when they moved; the other reading methods answer
// from what Head, or an act, fetched last.
func (r *Repo) Head(ctx context.Context) (rlc.Commit, rlc.Files, error) {
	var c rlc.Commit
	var files rlc.Files
	err := r.lookNow(ctx, 0, "", func(v *view, t tips) error {
		if r.head != t.base {
			v.dirs = r.dirs
			files, err := v.files(r.line.tip().tree, "")
			if err != nil {
				return err
			}
			r.head, r.files = t.base, files
		}
		c, files = r.at(len(r.line.points)-1), maps.Clone(r.files)
		return nil
	})
	return c, files, err
}

// At returns the files of the base branch as they were at t: of the newest
// first-parent commit whose committer's time is not after t. Before the first
// commit it is rlc.ErrNotFound.
func (r *Repo) At(ctx context.Context, t time.Time) (rlc.Files, error) {
	var files rlc.Files
	err := r.look(ctx, "", func(v *view, _ tips) error {
		for i := len(r.line.points) - 1; i >= 0; i-- {
			if p := &r.line.points[i]; !p.time.After(t) {
				var err error
				v.dirs = maps.Clone(r.dirs) // use what is known, keep it as it is
				files, err = v.files(p.tree, "")
				return err
			}
		}
		return fmt.Errorf("%w: %s has no commit at %s", rlc.ErrNotFound, r.cfg.Branch, t.UTC().Format(time.RFC3339))
	})
	return files, err
}

// Version returns the files of the base branch as they were at v; rlc.ErrNotFound
// where the branch never had that version.
func (r *Repo) Version(ctx context.Context, v rlc.Version) (rlc.Files, error) {
	var files rlc.Files
	err := r.look(ctx, "", func(at *view, _ tips) (err error) {
		i := int(v.Number) - 1
		if i < 0 || i >= len(r.line.points) || r.line.points[i].epoch != v.Epoch {
			return fmt.Errorf("%w: %s has no version %s", rlc.ErrNotFound, r.cfg.Branch, v)
		}
		at.dirs = maps.Clone(r.dirs)
		files, err = at.files(r.line.points[i].tree, "")
		return err
	})
	return files, err
}

// Rewritten reports whether a commit seen earlier is no longer on the base
// branch's first-parent line. The empty hash never was, so it is not missed.
func (r *Repo) Rewritten(ctx context.Context, lastSeen string) (bool, error) {
	if lastSeen == "" {
		return false, nil
	}
	gone := false
	err := r.look(ctx, "", func(*view, tips) error {
		_, there := r.line.at[plumbing.NewHash(lastSeen)]
		gone = !there
		return nil
	})
	return gone, err
}

// at renders a position of the line.
func (r *Repo) at(i int) rlc.Commit {
	p := &r.line.points[i]
	return rlc.Commit{Hash: p.hash.String(), Time: p.time, Version: rlc.Version{Epoch: p.epoch, Number: uint64(i) + 1}}
}

// tips are the references that an act begins from; zero where there is none.
type tips struct {
	base   plumbing.Hash
	branch plumbing.Hash // the service's review: single, or its team's branch
	single plumbing.Hash // the service's own branch
	own    plumbing.Hash // the service's commit on its team's branch
	team   string        // whose that is, "" where own is zero
	merged plumbing.Hash // the service's last review found merged by content
}

// placed is where a commit that was just made stands on the base branch.
func (r *Repo) placed(ctx context.Context, done plumbing.Hash) (c rlc.Commit, err error) {
	err = r.look(ctx, "", func(*view, tips) error {
		i, ok := r.line.at[done]
		if !ok {
			return fmt.Errorf("%w: history was rewritten after %s", rlc.ErrConflict, short(done))
		}
		c = r.at(i)
		return nil
	})
	return c, err
}

// look runs f over the repository as it is now, with the line brought up to the
// base branch's tip. A git gc at the same moment takes objects from where they
// were expected; f is then run again, so it must set its results, not add to
// them. f must not call look.
func (r *Repo) look(ctx context.Context, segment string, f func(*view, tips) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for try := 1; ; try++ {
		err := r.lookOnce(ctx, segment, f)
		if try == attempts || !errors.Is(err, plumbing.ErrObjectNotFound) && !errors.Is(err, fs.ErrNotExist) {
			if errors.Is(err, plumbing.ErrObjectNotFound) {
				return fmt.Errorf("%w: %w", rlc.ErrNotFound, err)
			}
			return err
		}
		r.bare.forget()
	}
}

func (r *Repo) lookOnce(ctx context.Context, segment string, f func(*view, tips) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// References first: git puts a pack in its place before it moves them.
	var t tips
	var err error
	if t.base, err = r.bare.read(r.baseRef()); err != nil {
		return err
	}
	if t.base.IsZero() {
		return r.noBase()
	}
	if segment != "" {
		if t.single, err = r.bare.read(branchRef(segment)); err != nil {
			return err
		}
		if t.own, err = r.bare.read(proposedRef(segment)); err != nil {
			return err
		}
		t.branch = t.single
		if t.merged, err = r.bare.read(mergedRef(segment)); err != nil {
			return err
		}
	}
	st, err := r.bare.storage()
	if err != nil {
		return err
	}
	v := &view{store: st, who: r.who, log: r.cfg.Log}
	if err := r.line.follow(ctx, v, t.base); err != nil {
		return err
	}
	if !t.own.IsZero() {
		c, err := v.commit(t.own)
		if err != nil {
			return err
		}
		t.team = r.who.trailers(c).team
		if t.branch, err = r.bare.read(t.ref(segment)); err != nil {
			return err
		}
	}
	return f(v, t)
}

// noBase says what is missing and what to do about it.
func (r *Repo) noBase() error {
	have := "it has no branch at all"
	names, of := r.bare.branches(), r.bare.path
	if r.far != nil {
		names, of = r.far.branches(), r.far.addr.String()
	}
	if len(names) > 0 {
		have = "it has " + clip(inert(strings.Join(names, ", ")), 200)
	}
	return fmt.Errorf("%w: branch %s of %s does not exist (%s): push a first commit to it or name another base branch", rlc.ErrNotFound, r.cfg.Branch, of, have)
}
