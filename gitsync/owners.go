package gitsync

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/hmarr/codeowners"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// ownerFiles are where forges look for CODEOWNERS, the first one found counts.
var ownerFiles = []string{".github/CODEOWNERS", ".gitlab/CODEOWNERS", ".gitea/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"}

// maxOwners bounds the file of code owners, in bytes.
const maxOwners = 3 << 20

// CodeOwners returns whom CODEOWNERS on the base branch names for a service's
// quotas.yaml: logins, and group/team, without the @. E-mail addresses are left
// out, no forge can ask them. Nil where there is no such file or no rule.
func (r *Repo) CodeOwners(ctx context.Context, service string) ([]string, error) {
	var out []string
	err := r.look(ctx, "", func(v *view, _ tips) error {
		out = nil
		root := r.line.tip().tree
		for _, path := range ownerFiles {
			e, ok, err := v.find(root, path)
			if err != nil {
				return err
			}
			if !ok || !regular(e.Mode) {
				continue
			}
			data, err := v.blob(e.Hash, maxOwners)
			if err != nil {
				return err
			}
			rules, err := codeowners.ParseFile(bytes.NewReader(data))
			if err != nil {
				return fmt.Errorf("%w: %s: %s", rlc.ErrInvalid, path, clip(inert(err.Error()), 200))
			}
			rule, err := rules.Match(quotafile.QuotasPath(service))
			if err != nil || rule == nil {
				return err
			}
			for _, o := range rule.Owners {
				if o.Type != codeowners.EmailOwner {
					out = append(out, strings.TrimPrefix(o.Value, "@"))
				}
			}
			return nil
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("code owners of %s: %w", service, err)
	}
	return out, nil
}
