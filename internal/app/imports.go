package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/quotafile"
)

// ImportPolicy commits a first policy of a service, as actor's act. One that is
// there already is rlc.ErrConflict; one that does not validate, or that enforces
// anything, rlc.ErrInvalid.
func (a *App) ImportPolicy(ctx context.Context, service string, policy []byte, actor string) error {
	if err := a.mayAct(); err != nil {
		return err
	}
	return a.firstPolicy(ctx, "import", service, policy, actor)
}

// firstPolicy commits the policy of a service that has none, all in shadow, as
// what actor did: onboard or import.
func (a *App) firstPolicy(ctx context.Context, did, service string, policy []byte, actor string) error {
	head, files, err := a.Repo.Head(ctx)
	if err != nil {
		return err
	}
	path := quotafile.PolicyPath(service)
	if files[path] != nil {
		return fmt.Errorf("%w: %s is there already", rlc.ErrConflict, path)
	}
	waiting, err := a.Repo.FirstOf(ctx, []string{service})
	if err != nil {
		return err
	}
	if len(waiting) > 0 {
		return fmt.Errorf("%w: a first policy of %s waits on the branch %s; merge that branch, or delete it first", rlc.ErrConflict, service, gitsync.FirstBranch)
	}
	next := maps.Clone(files)
	next[path] = policy
	parsed := quotafile.Parse(next, a.policies.Check)
	s := parsed.Service(service)
	if s == nil {
		return fmt.Errorf("%w: the policy of %q would not be valid: %v", rlc.ErrInvalid, service, parsed.Broken[service])
	}
	if slices.ContainsFunc(s.Buckets, func(b rlc.Bucket) bool { return b.Mode != rlc.Shadow }) {
		return fmt.Errorf("%w: the policy of %q enforces a bucket; a first policy starts in shadow", rlc.ErrInvalid, service)
	}
	title := strings.ToUpper(did[:1]) + did[1:] + " " + service + ", all in shadow"
	commit, err := a.Repo.EditFrom(ctx, head.Hash, gitsync.Person{Name: actor, Email: "actor@rlc.invalid"}, title, rlc.Files{path: policy})
	if err != nil {
		return err
	}
	a.Nudge()
	return a.Records.AddAudit(ctx, rlc.AuditEntry{At: time.Now().UTC(), Actor: actor, Action: "service." + did, Object: service, Detail: "policy.yaml at " + commit.Hash + ", all in shadow"})
}

// ServiceFiles are the files of a service on the base branch, and the commit
// that they are of. One that is not there is left out.
func (a *App) ServiceFiles(ctx context.Context, service string) (rlc.Commit, rlc.Files, error) {
	commit, _ := a.Desired()
	out := rlc.Files{}
	if commit.Hash == "" {
		return commit, out, nil
	}
	for _, path := range []string{quotafile.PolicyPath(service), quotafile.QuotasPath(service)} {
		data, err := a.Repo.Show(ctx, commit.Hash, path)
		if errors.Is(err, rlc.ErrNotFound) {
			continue
		}
		if err != nil {
			return commit, nil, err
		}
		out[path] = data
	}
	return commit, out, nil
}
