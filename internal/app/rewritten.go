package app

import (
	"context"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
)

// followedWithin is how long FollowRewritten waits for the follower, and how often
// it looks.
const (
	followedWithin = 10 * time.Second
	followedLook   = 20 * time.Millisecond
)

// FollowRewritten lets RLC follow a base branch whose history was rewritten, as
// actor's act: a commit in the actor's name raises the epoch, so that the
// snapshot is newer than all that enforcers have, whatever it holds. It returns when
// that commit is what is desired, and at the latest after ten seconds: the follower
// goes on then. A history that is not rewritten, or was followed already, is
// rlc.ErrConflict.
func (a *App) FollowRewritten(ctx context.Context, actor string) error {
	a.rewriting.Lock()
	defer a.rewriting.Unlock()
	// What the follower saw last may be older than an act that has just ended: the
	// record tells.
	seen, err := a.Records.Get(ctx, headKey)
	if err != nil {
		return fmt.Errorf("last followed commit: %w", err)
	}
	rewritten := false
	if seen != "" && a.rewritten.Load() {
		if rewritten, err = a.Repo.Rewritten(ctx, seen); err != nil {
			return err
		}
	}
	if !rewritten {
		return fmt.Errorf("%w: history of the base branch is not rewritten, or is followed already", rlc.ErrConflict)
	}
	if err := a.raise(ctx); err != nil {
		return err
	}
	commit, err := a.Repo.Edit(ctx, gitsync.Person{Name: actor, Email: "actor@rlc.invalid"}, "Follow the rewritten history", nil)
	if err != nil {
		return fmt.Errorf("follow the rewritten history: %w", err)
	}
	if err := a.Records.SetAudited(ctx, headKey, "", rlc.AuditEntry{At: time.Now().UTC(), Actor: actor, Action: "history.follow", Object: commit.Hash, Detail: "rewritten history of the base branch"}); err != nil {
		return err
	}
	a.Nudge()
	for end := time.Now().Add(followedWithin); time.Now().Before(end); {
		if desired, _ := a.Desired(); desired.Version.Compare(commit.Version) >= 0 || !wait(ctx, followedLook) {
			break
		}
	}
	return nil
}
