package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/internal/checks"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// commentLimit is how many bytes a comment may have: what the strictest forge
// takes, with room for the mark.
const commentLimit = 60_000

// checking are the flags of rlc ci.
type checking struct {
	repo, base, head string
	junit, comment   string
	most             int
	maxDrops         float64
	strict, post     bool
	at               forgeFlags
}

func ciCommand() *cobra.Command {
	var o checking
	c := &cobra.Command{
		Use:   "ci [--base REF] [--server URL] [--junit FILE] [--comment FILE] [--post]",
		Short: "Check an edit of the config repository, in its pull request",
		Long: `Compares the commit that is checked out with the place where it left the base
branch: validates every file, lists each quota and hand-written limit that moves and
what begins to drop, and asks the server what the new numbers would have dropped of
the traffic that it has recorded. Both commits are read from git; the working tree is
neither read nor changed.

The base is --base, else the target branch that GitHub Actions, Gitea Actions or GitLab
CI name, else origin/HEAD, else main. The clone needs its history back to there.

Without a server (no --server, RLC_SERVER or --data), or when it is away, the rest is
checked and the report says that nothing was backtested; --strict makes that fail.

--post writes the report as the one comment of the pull or merge request and sets the
status "rlc ci" of its head, also when the files are invalid. Forge, repository, number
and head come from the CI's environment, each can be given; the token is RLC_FORGE_TOKEN
(or RLC_FORGE_TOKEN_FILE), else GITHUB_TOKEN, GITEA_TOKEN or GITLAB_TOKEN.

Exit code 3: a file is invalid. 4: more is dropped than --max-drop-share allows, or
--strict and not all was backtested. 5: server or forge refuse the token.`,
		Example: "  rlc ci --base origin/main\n  rlc ci --server https://rlc.example.com --max-drop-share 0.001 --junit rlc.xml --post",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	serverFlags(c)
	f := c.Flags()
	f.Lookup("server").DefValue, f.Lookup("data").DefValue = "", ""
	_, _ = f.Lookup("server").Value.Set(""), f.Lookup("data").Value.Set("")
	f.Lookup("server").Usage = "the server that replays history; none: nothing is backtested"
	f.Lookup("token").Usage = "an API token of role viewer; better given as RLC_TOKEN or RLC_TOKEN_FILE"
	f.StringVar(&o.repo, "repo", ".", "a clone of the config repository")
	f.StringVar(&o.base, "base", "", "the branch or commit to compare with")
	f.StringVar(&o.head, "head", "HEAD", "the commit to check")
	f.StringVar(&o.junit, "junit", "", "`file` to write as JUnit's XML")
	f.StringVar(&o.comment, "comment", "", "`file` to write as Markdown, below 60,000 bytes")
	f.IntVar(&o.most, "max-backtests", 200, "replay at most so many changes, each with its old and its new limit")
	f.Float64Var(&o.maxDrops, "max-drop-share", 1, "refuse a change in enforce that would have dropped more than this share of its requests, 0 to 1, and more than before")
	f.BoolVar(&o.strict, "strict", false, "fail unless every change was backtested")
	f.BoolVar(&o.post, "post", false, "write comment and status to the forge")
	o.at.add(c)
	f.StringP("output", "o", "text", "text or json")
	return c
}

func (o *checking) run(c *cobra.Command) error {
	out, _ := c.Flags().GetString("output")
	switch {
	case out != "text" && out != "json":
		return exit{exitInvalid, fmt.Errorf("-o %q: want text or json", out)}
	case !(o.maxDrops >= 0 && o.maxDrops <= 1):
		return exit{exitInvalid, fmt.Errorf("--max-drop-share %g: want 0 to 1", o.maxDrops)}
	case o.most < 0:
		return exit{exitInvalid, fmt.Errorf("--max-backtests %d: want 0 or more", o.most)}
	}
	var to *posting
	if o.post {
		var err error
		if to, err = o.at.open(); err != nil {
			return exit{exitInvalid, err}
		}
	}
	edit, err := o.edit(c.Context())
	var unread error
	if err == nil {
		unread = o.replay(c, &edit)
	}
	if err != nil {
		return withRest(err, to.status(c.Context(), forge.Failure, "could not be checked: "+err.Error()))
	}
	refused := edit.Drops(o.maxDrops)
	verdict := o.verdict(&edit, refused, unread)
	return withRest(verdict, o.files(&edit, refused), o.print(c.OutOrStdout(), out, &edit), o.report(c.Context(), to, &edit, verdict))
}

// withRest joins what else went wrong to err and keeps err's exit code.
func withRest(err error, rest ...error) error {
	var e exit
	if errors.As(err, &e) {
		return exit{e.code, errors.Join(append([]error{e.err}, rest...)...)}
	}
	return errors.Join(append([]error{err}, rest...)...)
}

// edit reads and compares the two commits.
func (o *checking) edit(ctx context.Context) (checks.Edit, error) {
	g := repository{dir: o.repo}
	base, head, err := g.between(ctx, o.base, o.head)
	if err != nil {
		return checks.Edit{}, exit{exitInvalid, err}
	}
	was, _, err := g.files(ctx, base)
	if err != nil {
		return checks.Edit{}, err
	}
	is, misnamed, err := g.files(ctx, head)
	if err != nil {
		return checks.Edit{}, err
	}
	check := policies.Builtin().Check
	before, after := quotafile.Parse(was, check), quotafile.Parse(is, check)
	targets := [2][]target{}
	for i, at := range []struct {
		commit string
		config *quotafile.Config
	}{{base, before}, {head, after}} {
		read, err := g.targets(ctx, at.commit, at.config)
		if err != nil {
			return checks.Edit{}, err
		}
		if targets[i], err = targetsOf(at.config, read); err != nil {
			return checks.Edit{}, err
		}
	}
	if len(was) == 0 && len(is) == 0 && len(misnamed) == 0 {
		return checks.Edit{}, exit{exitInvalid, fmt.Errorf("%w: %s is no config repository: neither commit has a file that rlc reads, such as services/NAME/policy.yaml; name the clone with --repo", rlc.ErrInvalid, g.dir)}
	}
	after.Problems = append(misnamed, after.Problems...)
	e := checks.Of(before, after)
	e.Base, e.Head = base, head
	addTargets(&e, targets[0], targets[1])
	return e, nil
}

// replay backtests the edit where a server is named. The error says that not all
// could be asked; the edit's note says it too.
func (o *checking) replay(c *cobra.Command, e *checks.Edit) error {
	if e.Changes() == 0 {
		return nil
	}
	server, _ := c.Flags().GetString("server")
	data, _ := c.Flags().GetString("data")
	if server == "" && data == "" {
		e.Note = "nothing was backtested: no server is named"
		return nil
	}
	cl := dial(c)
	return e.Backtest(c.Context(), o.most, func(ctx context.Context, service string, q rlc.Quota) (b rlc.Backtest, err error) {
		err = cl.do(ctx, http.MethodPost, "/api/v1/backtest", nil, map[string]any{
			"service": service, "bucket": q.Bucket, "key": q.Key, "rate": q.Rate, "burst": q.Burst, "hours": q.Hours, "windows": q.Windows}, &b)
		if e := (exit{}); errors.As(err, &e) && e.code == exitInvalid {
			err = fmt.Errorf("%w: %w", rlc.ErrNotFound, err) // the server does not know the bucket, or its traffic
		}
		return b, err
	})
}

// verdict is what the check comes to; nil: it passes.
func (o *checking) verdict(e *checks.Edit, refused []rlc.Change, unread error) error {
	var denied exit
	switch {
	case e.Errors() > 0:
		return exit{exitInvalid, errors.New(e.Summary())}
	case errors.As(unread, &denied) && denied.code == exitAuthorised:
		return unread
	case len(refused) > 0:
		return exit{exitRefused, fmt.Errorf("%s of %s would have dropped more than a share of %g in enforce", rlc.Plural(len(refused), "change"), refused[0].Service, o.maxDrops)}
	case o.strict && e.Note != "":
		return exit{exitRefused, fmt.Errorf("--strict: %s", e.Note)}
	}
	return nil
}

// files writes the files that were asked for.
func (o *checking) files(e *checks.Edit, refused []rlc.Change) error {
	var bad error
	if o.comment != "" {
		bad = os.WriteFile(o.comment, []byte(e.Markdown(commentLimit)+"\n"), 0o644)
	}
	if o.junit == "" {
		return bad
	}
	f, err := os.Create(filepath.Clean(o.junit))
	if err != nil {
		return errors.Join(bad, err)
	}
	return errors.Join(bad, e.JUnit(f, refused), f.Close())
}

func (o *checking) print(w io.Writer, as string, e *checks.Edit) error {
	if as == "json" {
		return writeJSON(w, e)
	}
	return e.Text(w)
}

// report posts comment and status; nothing where to is nil.
func (o *checking) report(ctx context.Context, to *posting, e *checks.Edit, verdict error) error {
	if to == nil {
		return nil
	}
	word, detail := forge.Success, e.Summary()
	if e.Note != "" {
		detail += "; " + e.Note
	}
	if verdict != nil {
		word, detail = forge.Failure, verdict.Error()
	}
	return errors.Join(to.comment(ctx, e.Markdown(commentLimit)), to.status(ctx, word, detail))
}
