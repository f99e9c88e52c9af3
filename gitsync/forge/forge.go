// Package forge puts published branches up as reviews on a git forge.
//
// Reviews stands between the run that publishes and the repository: what the
// repository makes of a proposal counts, and the forge shows it. A forge that is
// away delays a review's text, never a quota; what is merged is found by its
// content on the base branch, not by what a forge says of itself. One adapter
// per forge lives in a package of its own, all held to one suite (forgetest).
package forge

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openrlc/rlc"
)

// Forge is one repository's reviews on a forge. Implementations are safe for
// concurrent use and wrap the errors of the rlc package: ErrRefused for
// credentials that do not do, ErrNotFound for what is not there, ErrConflict for
// a merge whose commit moved or that is not allowed now. No error holds a secret.
type Forge interface {
	// List returns the open reviews whose branch begins with rlc/.
	List(ctx context.Context) ([]Review, error)
	// Find returns the newest review of a branch, in whatever state;
	// rlc.ErrNotFound where there never was one.
	Find(ctx context.Context, branch string) (Review, error)
	// Open opens a review of a branch that is on the server, labels it and asks its
	// reviewers. An error that comes with a review is about labels and reviewers: it
	// is open.
	Open(ctx context.Context, branch string, t Text) (Review, error)
	// Update sets title and body. Labels and reviewers are people's by then: whoever
	// was taken off is not asked again.
	Update(ctx context.Context, number int64, t Text) error
	// Close closes a review without merging it; a closed one stays as it is.
	Close(ctx context.Context, number int64) error
	// Comment writes RLC's one comment, or changes it.
	Comment(ctx context.Context, number int64, body string) error
	// Status sets a commit's status of that name.
	Status(ctx context.Context, commit string, s Status) error
	// Merge merges a review now, and only while its head is commit. It leaves no
	// order to merge later: while checks are pending or missing it is
	// rlc.ErrConflict, and ErrBehind where the forge wants the base branch in it.
	Merge(ctx context.Context, number int64, commit string) error
	// BodyLimit is how many bytes a body may have.
	BodyLimit() int
}

// State is what became of a review.
type State string

// The states.
const (
	Open   State = "open"
	Merged State = "merged"
	Closed State = "closed"
)

// Review is a review as the forge has it.
type Review struct {
	Number int64
	URL    string // its page
	Branch string
	Commit string // the branch's head, as the forge last saw it
	State  State
	By     string    // who merged or closed it; "" while open or where the forge does not say
	At     time.Time // when; zero while open
	Title  string
	Body   string
	Labels []string
}

// Text is what RLC says in a review.
type Text struct {
	Title     string
	Body      string
	Labels    []string // made where they do not exist
	Reviewers []string // logins, or group/team; those the forge does not know are left out
}

// Verdict is the state of a Status.
type Verdict string

// The verdicts.
const (
	Pending Verdict = "pending"
	Success Verdict = "success"
	Failure Verdict = "failure"
)

// Status is one check's word on a commit.
type Status struct {
	Name    string // e.g. rlc
	Verdict Verdict
	Detail  string // one line, cut at 140 bytes
	URL     string // "" for none
}

// ErrBehind says that a review is to be rebuilt on the base branch's tip before it
// may merge.
var ErrBehind = fmt.Errorf("%w: the review is behind the base branch", rlc.ErrConflict)

// Fit cuts a body to a forge's limit at a line's end and says so.
func Fit(body string, limit int) string {
	const rest = "\n\n… cut: the whole of it is in the branch's commit message.\n"
	if len(body) <= limit {
		return body
	}
	cut := body[:max(limit-len(rest), 0)]
	for i := len(cut) - 1; i >= 0; i-- {
		if cut[i] == '\n' {
			return cut[:i] + rest
		}
	}
	for !utf8.ValidString(cut) {
		cut = cut[:len(cut)-1]
	}
	return cut + rest
}

// Line makes a text one line of at most 140 bytes, which is what forges take.
func Line(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= 140 {
		return s
	}
	s = s[:137]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
