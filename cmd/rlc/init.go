package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/promhistory"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

func initCommand() *cobra.Command {
	var profile, out string
	var services []string
	c := &cobra.Command{
		Use:   "init --profile P --from-prometheus URL [--services S,…] --out DIR",
		Short: "First policies, one for each service that the metrics name",
		Long: `Looks at the last day of traffic and writes DIR/services/<service>/policy.yaml for
each service it finds, six lines each: a quota for each caller, or for each procedure
where that tells more of the traffic apart. Everything is in shadow: nothing is ever
dropped by it. What was seen, and how sure it is, is told on stdout.

--profile is a built-in profile (rlc, grpc, http, envoy, istio) or a profile's file,
which is then written to DIR/profiles. A policy that is there already is kept.`,
		Example: "  rlc init --profile istio --from-prometheus http://prometheus:9090 --out limits",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if out == "" {
				return exit{exitInvalid, errors.New("--out is required: the folder to write to")}
			}
			p, err := profileOf(profile)
			if err != nil {
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
			s := starting{history: history, profile: p, now: time.Now().UTC(), progress: c.ErrOrStderr()}
			found, err := s.look(c.Context(), services)
			if err != nil {
				return err
			}
			files, err := s.files(found, profile, out)
			if err != nil {
				return err
			}
			if err := writeFiles(out, files); err != nil {
				return err
			}
			return report(c.OutOrStdout(), found, len(files), out)
		},
	}
	historyFlags(c)
	c.Flags().Lookup("prometheus").Hidden = true
	c.Flags().String("from-prometheus", "", "the Prometheus to look at")
	c.Flags().StringVar(&profile, "profile", "", "how the metrics name things: a built-in profile or a `file`")
	c.Flags().StringSliceVar(&services, "services", nil, "only these services; default: all that the metrics name")
	c.Flags().StringVar(&out, "out", "", "`folder` to write to: a checkout of the config repository, or a new one")
	return c
}

// starting is one look at a history source.
type starting struct {
	history  *promhistory.Reader
	profile  *rlc.Profile
	now      time.Time
	progress io.Writer
}

// seen is what was found of one service.
type seen struct {
	app.Sighted
	kept bool // its policy is there already
}

func (s *starting) look(ctx context.Context, names []string) ([]seen, error) {
	if err := s.history.Check(ctx); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		var err error
		if names, err = s.history.Services(ctx, s.profile, s.now.Add(-24*time.Hour), s.now); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: the metrics of profile %s name no service in the last day; see rlc doctor", rlc.ErrNotFound, s.profile.Name)
	}
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
// without those that out has already.
func (s *starting) files(found []seen, profile, out string) (rlc.Files, error) {
	files := rlc.Files{}
	for i := range found {
		f := &found[i]
		path := quotafile.PolicyPath(f.Name)
		if _, err := os.Lstat(filepath.Join(out, path)); err == nil {
			f.kept = true
			continue
		}
		files[path] = f.Policy(s.profile.Name, nil)
	}
	check := maps.Clone(files)
	if strings.HasSuffix(profile, ".yaml") {
		path := "profiles/" + s.profile.Name + ".yaml"
		data, err := readBounded(profile)
		if err != nil {
			return nil, err
		}
		check[path] = data
		if _, err := os.Lstat(filepath.Join(out, path)); err != nil {
			files[path] = data
		}
	}
	if err := quotafile.Parse(check, policies.Builtin().Check).Valid(); err != nil {
		return nil, err
	}
	return files, nil
}

// report tells what was seen and how sure it is.
func report(w io.Writer, found []seen, written int, out string) error {
	for _, f := range found {
		state := "written"
		if f.kept {
			state = "kept as it is"
		}
		each := "one counter"
		if f.Each != "" {
			each = "each " + f.Each
		}
		fmt.Fprintf(w, "%s: %s, %.4g/s in the last day, %s (%s)\n", f.Name, state, float64(f.Rate), each, f.Why)
		if len(f.Doubts) == 0 {
			fmt.Fprintln(w, "  sure: every check passed")
		}
		for _, d := range f.Doubts {
			fmt.Fprintln(w, "  look:", d)
		}
	}
	_, err := fmt.Fprintf(w, "%s written to %s, all in shadow. Commit them for review; rlc plan then shows the first quotas.\n", plural(written, "file"), out)
	return err
}
