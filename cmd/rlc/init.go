package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/promhistory"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

func initCommand() *cobra.Command {
	var o starting
	c := &cobra.Command{
		Use:   "init --profile P --from-prometheus URL [--services S,…] (--out DIR | --push)",
		Short: "First policies, one for each service that the metrics name",
		Long: `Looks at the last day of traffic and makes services/<service>/policy.yaml for
each service it finds, six lines each: a quota for each caller, or for each procedure
where that tells more of the traffic apart. Everything is in shadow: nothing is ever
dropped by it. What was seen, and how sure it is, is told on stdout.

--out writes the files to a folder; a policy that is there already is kept. --push
commits them to the branch rlc/_init of the config repository that --config (or
RLC_REPOSITORY_URL) names, and opens one review where a forge is configured. It
refuses, with exit code 4, when a service has a policy already, or the branch holds
something else.

--profile is a built-in profile (rlc, grpc, http, envoy, istio) or a profile's file,
which is then written to profiles/ too.`,
		Example: "  rlc init --profile istio --from-prometheus http://prometheus:9090 --out limits\n  rlc init --profile istio --config /etc/rlc/rlc.yaml --push",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	historyFlags(c)
	c.Flags().Lookup("prometheus").Hidden = true
	c.Flags().String("from-prometheus", "", "the Prometheus to look at; default: that of --config")
	c.Flags().StringVar(&o.from, "profile", "", "how the metrics name things: a built-in profile or a `file`")
	c.Flags().StringSliceVar(&o.services, "services", nil, "only these services; default: all that the metrics name")
	c.Flags().StringSliceVar(&o.owners, "owners", nil, "the `teams` that own these services, as each policy then says; default: none, see CODEOWNERS in docs/init.md")
	c.Flags().StringVar(&o.out, "out", "", "`folder` to write to: a checkout of the config repository, or a new one")
	c.Flags().BoolVar(&o.push, "push", false, "commit to a branch of the config repository, and open a review")
	c.Flags().Lookup("config").Usage = "`file` of rlc serve: how to reach the Prometheus, the config repository and the forge"
	return c
}

// starting are the flags of rlc init, and one look at a history source.
type starting struct {
	from     string   // --profile
	services []string // none: all that the metrics name
	owners   []string // of every service; none: the policies name none
	out      string
	push     bool

	history  *promhistory.Reader
	profile  *rlc.Profile
	now      time.Time
	progress io.Writer
}

func (s *starting) run(c *cobra.Command) error {
	if (s.out == "") == !s.push {
		return exit{exitInvalid, errors.New("say either --out, the folder to write to, or --push")}
	}
	var err error
	if s.profile, err = profileOf(s.from); err != nil {
		return exit{exitInvalid, err}
	}
	url, _ := c.Flags().GetString("from-prometheus")
	if err := c.Flags().Set("prometheus", url); err != nil {
		return err
	}
	history, done, err := openHistory(c)
	if err != nil {
		return err
	}
	defer done()
	s.history, s.now, s.progress = history, time.Now().UTC(), c.ErrOrStderr()
	if s.push {
		return s.publish(c)
	}
	names, err := s.names(c.Context())
	if err != nil {
		return err
	}
	found, err := s.look(c.Context(), names)
	if err != nil {
		return err
	}
	files, err := s.files(found, func(path string) bool {
		_, err := os.Lstat(filepath.Join(s.out, path))
		return err == nil
	})
	if err != nil {
		return err
	}
	if err := writeFiles(s.out, files); err != nil {
		return err
	}
	tell(c.OutOrStdout(), found, "written")
	s.unowned(c.OutOrStdout(), found)
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s written to %s, all in shadow. Commit them for review; rlc plan then shows the first quotas.\n", rlc.Plural(len(files), "file"), s.out)
	return err
}

// seen is what was found of one service.
type seen struct {
	app.Sighted
	kept bool // its policy is there already
}

// names are the services to look at.
func (s *starting) names(ctx context.Context) ([]string, error) {
	if err := s.history.Check(ctx); err != nil {
		return nil, err
	}
	if len(s.services) > 0 {
		return s.services, nil
	}
	names, err := s.history.Services(ctx, s.profile, s.now.Add(-24*time.Hour), s.now)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%w: the metrics of profile %s name no service in the last day; rlc doctor --profile %[2]s says query by query what is missing", rlc.ErrNotFound, s.profile.Name)
	}
	return names, err
}

func (s *starting) look(ctx context.Context, names []string) ([]seen, error) {
	var all []seen
	for i, name := range names {
		fmt.Fprintf(s.progress, "%d of %d: %s\n", i+1, len(names), name)
		one, err := app.Sight(ctx, s.history, s.profile, name, s.now)
		if err != nil {
			return nil, err
		}
		all = append(all, seen{Sighted: one})
	}
	return all, nil
}

// files are the policies of what was found, and the profile where it is a file's,
// without those that are there already.
func (s *starting) files(found []seen, there func(path string) bool) (rlc.Files, error) {
	files := rlc.Files{}
	for i := range found {
		f := &found[i]
		path := quotafile.PolicyPath(f.Name)
		if there(path) {
			f.kept = true
			continue
		}
		files[path] = f.Policy(s.profile.Name, s.owners)
	}
	check := maps.Clone(files)
	if strings.HasSuffix(s.from, ".yaml") {
		path := "profiles/" + s.profile.Name + ".yaml"
		data, err := readBounded(s.from)
		if err != nil {
			return nil, err
		}
		check[path] = data
		if !there(path) {
			files[path] = data
		}
	}
	if err := quotafile.Parse(check, policies.Builtin().Check).Valid(); err != nil {
		return nil, err
	}
	return files, nil
}

// tell says what was seen and how sure it is.
func tell(w io.Writer, found []seen, made string) {
	for _, f := range found {
		state := made
		if f.kept {
			state = "kept as it is"
		}
		fmt.Fprintf(w, "%s: %s, %s\n", f.Name, state, f.about())
		if len(f.Doubts) == 0 {
			fmt.Fprintln(w, "  sure: every check passed")
		}
		for _, d := range f.Doubts {
			fmt.Fprintln(w, "  look:", d)
		}
	}
}

// unowned says where owners come from, where the new policies name none.
func (s *starting) unowned(w io.Writer, found []seen) {
	if len(s.owners) == 0 && slices.ContainsFunc(found, func(f seen) bool { return !f.kept }) {
		fmt.Fprintln(w, "No policy names owners. Give --owners TEAM, write owners: into each, or let CODEOWNERS of the repository name whom a service's quotas.yaml belongs to; a service that none of them names is listed as unowned, and its reviews ask nobody.")
	}
}

// about is what was seen, in half a line.
func (f seen) about() string {
	each := "one counter"
	if f.Each != "" {
		each = "each " + f.Each
	}
	return fmt.Sprintf("%s in the last day, %s (%s)", stat.RateText(f.Rate), each, f.Why)
}
