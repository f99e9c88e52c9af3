package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	head, files, err := a.Repo.Head(ctx)
	if err != nil {
		return err
	}
	path := quotafile.PolicyPath(service)
	if files[path] != nil {
		return fmt.Errorf("%w: %s is there already", rlc.ErrConflict, path)
	}
	next := maps.Clone(files)
	next[path] = policy
	parsed := quotafile.Parse(next, a.policies.Check)
	s := parsed.Service(service)
	if s == nil {
		return fmt.Errorf("%w: the policy of %q would not be valid: %v", rlc.ErrInvalid, service, parsed.Broken[service])
	}
	if slices.ContainsFunc(s.Buckets, func(b rlc.Bucket) bool { return b.Mode != rlc.Shadow }) {
		return fmt.Errorf("%w: the policy of %q enforces a bucket; what is imported starts in shadow", rlc.ErrInvalid, service)
	}
	commit, err := a.Repo.EditFrom(ctx, head.Hash, gitsync.Person{Name: actor, Email: "actor@rlc.invalid"}, "Import "+service+", all in shadow", rlc.Files{path: policy})
	if err != nil {
		return err
	}
	a.Nudge()
	return a.Records.AddAudit(ctx, rlc.AuditEntry{At: time.Now().UTC(), Actor: actor, Action: "service.import", Object: service, Detail: "policy.yaml at " + commit.Hash + ", all in shadow"})
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
