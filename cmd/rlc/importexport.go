package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/audit"
	"github.com/openrlc/rlc/internal/envoyconfig"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

func importCommand() *cobra.Command {
	c := &cobra.Command{Use: "import", Short: "Take over another limiter's limits", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	var out string
	envoy := &cobra.Command{
		Use:   "envoy-ratelimit FILE… --out DIR",
		Short: "Policies from files of Envoy's ratelimit service",
		Long: `Writes DIR/services/<domain>/policy.yaml for each file of Envoy's ratelimit service:
each descriptor becomes a bucket with its limit, which enforces as it does there.
What has no equivalent is reported on stderr. An error in any file, or a policy that
is there already, and nothing is written.`,
		Example: "  rlc import envoy-ratelimit config/*.yaml --out limits",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if out == "" {
				return exit{exitInvalid, errors.New("--out is required: the folder to write to")}
			}
			files, losses, err := importEnvoy(args)
			if err != nil {
				return err
			}
			for _, l := range losses {
				fmt.Fprintln(c.ErrOrStderr(), l)
			}
			if err := writeFiles(out, files); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "%s written, %s\n", rlc.Plural(len(files), "policy file"), rlc.Plural(len(losses), "note"))
			return nil
		},
	}
	envoy.Flags().StringVar(&out, "out", "", "`folder` to write to: a checkout of the config repository, or a new one")
	c.AddCommand(envoy)
	return c
}

// importEnvoy reads files of Envoy's ratelimit service into policies that
// validate, with what got lost.
func importEnvoy(names []string) (rlc.Files, []string, error) {
	files, from := rlc.Files{}, map[string]string{}
	var losses []string
	var problems []rlc.Problem
	for _, name := range names {
		data, err := readBounded(name)
		if err != nil {
			return nil, nil, exit{exitInvalid, err}
		}
		in, bad := envoyconfig.Import(name, data)
		if len(bad) > 0 {
			problems = append(problems, bad...)
			continue
		}
		to := quotafile.PolicyPath(in.Service)
		if was := from[to]; was != "" {
			problems = append(problems, rlc.Problem{File: name, Line: 1, Column: 1, Message: fmt.Sprintf("domain %q is that of %s, too", in.Service, was), Hint: "join the two files"})
			continue
		}
		files[to], from[to] = in.Policy, name
		for _, l := range in.Losses {
			losses = append(losses, fmt.Sprintf("%s:%d: %s", name, l.Line, l))
		}
	}
	for _, p := range quotafile.Parse(files, policies.Builtin().Check).Problems {
		if !p.Warning {
			p.Message = fmt.Sprintf("%s: as a policy (%s:%d): %s", from[p.File], p.File, p.Line, p.Message)
			p.File, p.Line, p.Column = from[p.File], 1, 1
			problems = append(problems, p)
		}
	}
	if len(problems) > 0 {
		all := make([]error, len(problems))
		for i, p := range problems {
			all[i] = errors.New(p.String())
		}
		return nil, nil, exit{exitInvalid, errors.Join(all...)}
	}
	return files, losses, nil
}

// writeFiles writes files below a folder that it makes; one that is there
// already is left alone, and then nothing is written.
func writeFiles(dir string, files rlc.Files) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for name := range files {
		if _, err := root.Lstat(name); err == nil {
			return exit{exitInvalid, fmt.Errorf("%s is there already; nothing was written", filepath.Join(dir, name))}
		}
	}
	for name, data := range files {
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// envoyLimits are the limits of a file of Envoy's ratelimit service.
func envoyLimits(name string) ([]audit.Limits, error) {
	files, _, err := importEnvoy([]string{name})
	if err != nil {
		return nil, err
	}
	return limitsOf(quotafile.Parse(files, policies.Builtin().Check))
}

// exported is one service's limits for another limiter.
type exported struct {
	Service string             `json:"service"`
	Text    string             `json:"text"`
	Losses  []envoyconfig.Loss `json:"losses"`
}

func exportCommand() *cobra.Command {
	c := &cobra.Command{Use: "export", Short: "Write limits for another limiter", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	for kind, short := range map[string]string{
		envoyconfig.Ratelimit: "A file of Envoy's ratelimit service for each service",
		envoyconfig.Gateway:   "A BackendTrafficPolicy of Envoy Gateway for each service",
		envoyconfig.Istio:     "An EnvoyFilter with Envoy's local limiter for each service",
	} {
		c.AddCommand(exportKind(kind, short))
	}
	return c
}

func exportKind(kind, short string) *cobra.Command {
	var repo, service, out string
	var headers map[string]string
	var instances int
	var strict bool
	c := &cobra.Command{
		Use:   kind + " [--repo DIR] [--service S] [--out DIR] [--strict]",
		Short: short,
		Long: short + `.

Reads a checkout of the config repository and writes its quotas and hand-written
limits to stdout, or to DIR/<service>.yaml. What the other limiter cannot say is
reported on stderr: exit code 2 says that something was lost. With --strict nothing
is written then, and the exit code is 4.`,
		Example: "  rlc export " + kind + " --service checkout >checkout.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, lost, err := exportAll(c.Context(), kind, repo, service, envoyconfig.Options{Headers: headers, Instances: instances})
			if err != nil {
				return err
			}
			for _, e := range all {
				for _, l := range e.Losses {
					fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", e.Service, l)
				}
			}
			if strict && lost > 0 {
				return exit{exitRefused, fmt.Errorf("%s and --strict: nothing was written", rlc.Plural(lost, "loss"))}
			}
			if err := writeExports(c, all, out); err != nil {
				return err
			}
			if lost > 0 {
				return exit{exitChanges, nil}
			}
			return nil
		},
	}
	c.Flags().StringVar(&repo, "repo", ".", "the config repository: a checkout, or a bare one")
	c.Flags().StringVar(&service, "service", "", "only this service")
	c.Flags().StringVar(&out, "out", "", "`folder` to write to, a file for each service; default: stdout")
	c.Flags().BoolVar(&strict, "strict", false, "write nothing where something would be lost")
	c.Flags().StringP("output", "o", "yaml", "yaml, or json with the losses")
	if kind != envoyconfig.Ratelimit {
		c.Flags().StringToStringVar(&headers, "header", nil, "attribute=header that carries it; default x-<attribute>")
	}
	if kind == envoyconfig.Istio {
		c.Flags().IntVar(&instances, "instances", 1, "instances that share a limit")
	}
	return c
}

func exportAll(ctx context.Context, kind, repo, service string, o envoyconfig.Options) (all []exported, lost int, err error) {
	parsed, err := readRepository(ctx, repo)
	if err != nil {
		return nil, 0, err
	}
	if err := parsed.Valid(); err != nil {
		return nil, 0, exit{exitInvalid, err}
	}
	for _, s := range parsed.Services {
		if service != "" && s.Name != service {
			continue
		}
		text, losses, err := envoyconfig.Export(kind, envoyconfig.Source{Service: s, Quotas: parsed.Quotas[s.Name], Profile: parsed.Profiles[s.Profile]}, o)
		if err != nil {
			return nil, 0, err
		}
		if losses == nil {
			losses = []envoyconfig.Loss{}
		}
		all = append(all, exported{s.Name, string(text), losses})
		lost += len(losses)
	}
	if len(all) == 0 {
		return nil, 0, exit{exitInvalid, fmt.Errorf("%s has no service %q", repo, service)}
	}
	return all, lost, nil
}

func writeExports(c *cobra.Command, all []exported, out string) error {
	switch o, _ := c.Flags().GetString("output"); {
	case o == "json":
		return writeJSON(c.OutOrStdout(), map[string]any{"exports": all})
	case o != "yaml":
		return exit{exitInvalid, fmt.Errorf("--output %q: want yaml or json", o)}
	case out != "":
		files := rlc.Files{}
		for _, e := range all {
			files[quotafile.PathSegment(e.Service)+".yaml"] = []byte(e.Text)
		}
		return writeFiles(out, files)
	}
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(c.OutOrStdout(), "---")
		}
		fmt.Fprint(c.OutOrStdout(), e.Text)
	}
	return nil
}
