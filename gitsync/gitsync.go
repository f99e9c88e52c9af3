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
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/fault"
	"github.com/openrlc/rlc/quotafile"
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
	branch plumbing.Hash // the service's review
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
		if t.branch, err = r.bare.read(branchRef(segment)); err != nil {
			return err
		}
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
	return f(v, t)
}

// move is one reference to set.
type move struct {
	name     string
	old, new plumbing.Hash
}

// act is a person's act, or RLC's own where it leads.
func (r *Repo) act(ctx context.Context, segment string, plan func(*view, tips, uint64) ([]move, error)) error {
	under := r.cfg.Acting
	if under == nil {
		under = r.cfg.Epoch
	}
	return r.actOn(ctx, 0, under, segment, plan)
}

// actOn carries out what plan finds to do, in order, and starts over when a
// reference moved meanwhile: plan looks outside first, so what was done already
// is not done twice. The mirror may be as old as fresh at the first attempt; the
// writes are made under the epoch that under tells.
func (r *Repo) actOn(ctx context.Context, fresh time.Duration, under func() uint64, segment string, plan func(*view, tips, uint64) ([]move, error)) error {
	if r.cfg.ReadOnly {
		return fmt.Errorf("%w: the repository is open read only", rlc.ErrRefused)
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	for try := 1; ; try++ {
		var moves []move
		var epoch uint64
		var pack []byte
		err := r.lookNow(ctx, fresh, segment, func(v *view, t tips) (err error) {
			if epoch, err = r.fence(under); err != nil {
				return err
			}
			if moves, err = plan(v, t, epoch); err != nil || len(moves) == 0 {
				return err
			}
			if r.far != nil {
				pack, err = r.packed(v, moves)
				return err
			}
			return r.bare.keep(v.made)
		})
		if err != nil {
			return err
		}
		fault.Hit("gitsync-committed")
		still := func() bool { return under == nil || under() == epoch }
		err = r.carry(ctx, moves, still, pack)
		if !errors.Is(err, rlc.ErrConflict) || try == attempts {
			fault.Hit("gitsync-moved")
			return err
		}
		r.cfg.Log.Info("the repository moved, trying again", "attempt", try, "error", err)
		fresh = 0
		step := 20 * time.Millisecond
		if r.far != nil {
			step *= 10
		}
		if err := wait(ctx, rand.N(time.Duration(try)*step)+time.Millisecond); err != nil {
			return err
		}
	}
}

// errEnded says that the leadership under which a write was planned is over.
var errEnded = fmt.Errorf("%w: its epoch ended before the write", rlc.ErrFenced)

// carry moves references, each only while the epoch that planned it stands.
func (r *Repo) carry(ctx context.Context, moves []move, still func() bool, pack []byte) error {
	if r.far != nil {
		return r.carryFar(ctx, moves, still, pack)
	}
	for _, m := range moves {
		if !still() {
			return errEnded
		}
		if m.old == m.new {
			continue
		}
		if err := r.bare.move(ctx, m.name, m.old, m.new); err != nil {
			return err
		}
	}
	return nil
}

// fence returns the epoch to write under, or rlc.ErrFenced when the base branch
// holds a higher one.
func (r *Repo) fence(under func() uint64) (uint64, error) {
	base := r.line.tip().epoch
	if under == nil {
		return base, nil
	}
	own := under()
	if own < base {
		return 0, fmt.Errorf("%w: epoch %d, the base branch holds %d", rlc.ErrFenced, own, base)
	}
	return own, nil
}

// commit writes a commit object by RLC. An empty tree stands for no files.
func (r *Repo) commit(v *view, author Person, tree plumbing.Hash, message string, parents ...plumbing.Hash) (plumbing.Hash, error) {
	if tree.IsZero() {
		var err error
		if tree, err = v.putTree(nil); err != nil {
			return tree, err
		}
	}
	now := r.cfg.Now().UTC().Truncate(time.Second)
	c := &object.Commit{
		Author:       object.Signature{Name: author.Name, Email: author.Email, When: now},
		Committer:    object.Signature{Name: r.who.Name, Email: r.who.Email, When: now},
		Message:      message,
		TreeHash:     tree,
		ParentHashes: parents,
	}
	if err := r.sign(v, c); err != nil {
		return plumbing.ZeroHash, err
	}
	return v.encode(c)
}

// check validates the exact bytes of the changed files of a tree, within the
// files that they refer to. segment "" means the whole repository.
func (r *Repo) check(v *view, tree plumbing.Hash, segment string, changed map[string]bool) error {
	v.dirs = maps.Clone(r.dirs)
	files, err := v.files(tree, segment)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range quotafile.Parse(files, nil).Problems {
		if changed[p.File] && !p.Warning {
			errs = append(errs, errors.New(p.String()))
		}
	}
	if errs != nil {
		return fmt.Errorf("%w: %w", rlc.ErrInvalid, errors.Join(errs...))
	}
	return nil
}

func (r *Repo) baseRef() string { return "refs/heads/" + r.cfg.Branch }

func branchRef(segment string) string { return "refs/heads/" + branchName(segment) }

// mergedRef keeps the last review of a service that was found merged by content.
// After a squash nothing else tells RLC's numbers from a person's.
func mergedRef(segment string) string { return "refs/rlc/merged/" + refName(segment) }

// branchName is the review branch of a path segment.
func branchName(segment string) string { return "rlc/" + refName(segment) }

// refName makes a path segment a component of a reference's name: the segment
// itself unless git refuses it ("a..b", "a.", "a.lock").
func refName(segment string) string {
	if plumbing.NewBranchReferenceName("rlc/"+segment).Validate() == nil {
		return segment
	}
	return strings.ReplaceAll(segment, ".", "-") + "-" + plumbing.ComputeHash(plumbing.BlobObject, []byte(segment)).String()[:8]
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

// signature makes a name or an address fit for a commit's author line.
func signature(s string) string {
	s = clip(inert(s), 100)
	s = strings.TrimSpace(strings.NewReplacer("<", "(", ">", ")").Replace(s))
	if s == "" {
		return "unknown"
	}
	return s
}

// signed completes a person for a commit's author line.
func (who Person) signed() Person {
	p := Person{Name: signature(who.Name), Email: who.Email}
	if p.Email == "" {
		p.Email = strings.ReplaceAll(strings.ToLower(p.Name), " ", ".") + "@localhost"
	}
	p.Email = signature(p.Email)
	return p
}
