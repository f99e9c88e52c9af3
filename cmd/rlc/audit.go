package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/audit"
	"github.com/openrlc/rlc/internal/promhistory"
	"github.com/openrlc/rlc/internal/store"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

func auditCommand() *cobra.Command {
	var profile, limits, service string
	var days int
	c := &cobra.Command{
		Use:   "audit --prometheus URL --profile P [--limits FILE] [--service S] [-o table|json|csv|html]",
		Short: "Today's limits against weeks of traffic, read-only",
		Long: `Reads weeks of traffic from a Prometheus and holds today's limits against it:
which are too tight (they would have dropped requests), which protect nothing (more
than three times the peak), which are fine, and what traffic has none. Needs no git
and no database, and writes nothing but its output.

--profile is a built-in profile (rlc, grpc, http, envoy, istio) or a profile's file.
--limits is a config repository, a policy.yaml or quotas.yaml, a file of Envoy's
ratelimit service, or a CSV of service,caller,procedure,rate,burst. Without it every
caller is listed with its peak and the limit that the historical policy suggests.

What reading costs is told on stderr before it begins.`,
		Example: "  rlc audit --prometheus http://prometheus:9090 --profile istio --limits limits.csv\n" +
			"  rlc audit --prometheus http://prometheus:9090 --profile envoy --limits ratelimit.yaml -o html >audit.html",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out, _ := c.Flags().GetString("output")
			if !slices.Contains([]string{"table", "json", "csv", "html"}, out) {
				return exit{exitInvalid, fmt.Errorf("--output %q: want table, json, csv or html", out)}
			}
			if days < 1 || days > 366 {
				return exit{exitInvalid, fmt.Errorf("--days %d: want 1 to 366", days)}
			}
			p, err := profileOf(profile)
			if err != nil {
				return exit{exitInvalid, err}
			}
			all, err := readLimits(c.Context(), limits)
			if err != nil {
				return exit{exitInvalid, err}
			}
			history, done, err := openHistory(c)
			if err != nil {
				return err
			}
			defer done()
			a := auditing{history: history, profile: p, limits: all, progress: c.ErrOrStderr(), now: time.Now().UTC(), lookback: time.Duration(days) * 24 * time.Hour}
			table, err := a.run(c.Context(), service)
			if err != nil {
				return err
			}
			switch out {
			case "json":
				return writeJSON(c.OutOrStdout(), table)
			case "csv":
				return table.WriteCSV(c.OutOrStdout())
			case "html":
				return table.WriteHTML(c.OutOrStdout())
			}
			return table.WriteText(c.OutOrStdout())
		},
	}
	historyFlags(c)
	c.Flags().StringVar(&profile, "profile", "", "how the metrics name things: a built-in profile or a `file`")
	c.Flags().StringVar(&limits, "limits", "", "today's limits: a config repository, policy.yaml, quotas.yaml, Envoy ratelimit `file` or CSV")
	c.Flags().StringVar(&service, "service", "", "only this service; default: all that the metrics or the limits name")
	c.Flags().IntVar(&days, "days", 28, "days of traffic to look at")
	c.Flags().StringP("output", "o", "table", "table, json, csv or html")
	return c
}

// historyFlags say how to reach a Prometheus without a server.
func historyFlags(c *cobra.Command) {
	c.Flags().String("prometheus", "", "the Prometheus to read")
	c.Flags().String("config", "", "`file` of rlc serve, for how to reach the Prometheus")
	c.Flags().String("bearer-file", "", "file with a bearer token")
	c.Flags().String("ca-file", "", "file with the authorities to trust")
}

// openHistory opens the Prometheus of historyFlags with a store that is thrown
// away by done.
func openHistory(c *cobra.Command) (reader *promhistory.Reader, done func(), err error) {
	settings := loadConfig(c)
	if err := settings.Err(); err != nil {
		for _, p := range settings.Problems {
			fmt.Fprintln(c.ErrOrStderr(), p)
		}
		return nil, nil, exit{exitInvalid, err}
	}
	from, err := app.History(settings.Server.Prometheus)
	if err != nil {
		return nil, nil, exit{exitInvalid, err}
	}
	for flag, to := range map[string]*string{"prometheus": &from.URL, "bearer-file": &from.Auth.TokenFile, "ca-file": &from.TLS.CAFile} {
		if v, _ := c.Flags().GetString(flag); v != "" {
			*to = v
		}
	}
	if from.URL == "" {
		flag := "prometheus"
		if c.Flags().Lookup("from-prometheus") != nil {
			flag = "from-prometheus" // as rlc init calls it
		}
		return nil, nil, exit{exitInvalid, fmt.Errorf("--%s (or prometheus.url by --config) is required; see %q", flag, c.CommandPath()+" --help")}
	}
	dir, err := os.MkdirTemp("", "rlc-history-")
	if err != nil {
		return nil, nil, err
	}
	records, err := store.Open(c.Context(), "sqlite:"+filepath.Join(dir, "history.db"))
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	from.Store, from.Log = records, logger(c)
	if reader, err = promhistory.New(from); err != nil {
		records.Close()
		os.RemoveAll(dir)
		return nil, nil, exit{exitInvalid, err}
	}
	return reader, func() { reader.Close(); records.Close(); os.RemoveAll(dir) }, nil
}

// profileOf finds a built-in profile, or reads one from a file.
func profileOf(name string) (*rlc.Profile, error) {
	builtin := quotafile.BuiltinProfiles()
	if p := builtin[name]; p != nil {
		return p, nil
	}
	if name == "" || !strings.HasSuffix(name, ".yaml") {
		return nil, fmt.Errorf("--profile %q: want rlc, grpc, http, envoy, istio or the file of a profile (.yaml)", name)
	}
	data, err := readBounded(name)
	if err != nil {
		return nil, err
	}
	stem := strings.TrimSuffix(filepath.Base(name), ".yaml")
	parsed := quotafile.Parse(rlc.Files{"profiles/" + stem + ".yaml": data}, nil)
	if err := parsed.Valid(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return parsed.Profiles[stem], nil
}

// readBounded reads a file that people write, up to the limit of a quotas.yaml.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, quotafile.MaxQuotasFile+1))
	if err == nil && len(data) > quotafile.MaxQuotasFile {
		err = fmt.Errorf("%s: more than %d bytes", name, quotafile.MaxQuotasFile)
	}
	return data, err
}

// auditing is one audit under way.
type auditing struct {
	history  *promhistory.Reader
	profile  *rlc.Profile
	limits   []audit.Limits
	progress io.Writer
	now      time.Time
	lookback time.Duration
}

func (a *auditing) run(ctx context.Context, only string) (*audit.Table, error) {
	fmt.Fprintf(a.progress, "Reading %s of %s: names first, then counts, then what they add up to.\n", a.days(), a.profile.Name)
	if err := a.history.Check(ctx); err != nil {
		return nil, err
	}
	subjects, err := a.subjects(ctx, only)
	if err != nil {
		return nil, err
	}
	t := &audit.Table{Profile: a.profile.Name, From: a.now.Add(-a.lookback), Until: a.now, Rows: []audit.Row{}, Notes: []string{}, Totals: map[audit.Verdict]int{}}
	if t.Notes, err = a.bill(ctx, subjects); err != nil {
		return nil, err
	}
	for i, s := range subjects {
		fmt.Fprintf(a.progress, "%d of %d: %s\n", i+1, len(subjects), s.Service.Name)
		for _, n := range s.Notes {
			t.Notes = append(t.Notes, s.Service.Name+": "+n)
		}
		lacking := false
		err := a.history.Service(ctx, a.request(s), func(x rlc.Series) error {
			lacking = lacking || slices.ContainsFunc(x.History.Problems, func(p rlc.HistoryProblem) bool { return p.Rule == "attribute_not_in_history" })
			row, ok, err := s.Row(ctx, x, a.now)
			if ok {
				t.Add(row)
			}
			return err
		})
		if lacking {
			t.Notes = append(t.Notes, s.Service.Name+": "+a.wayOut(ctx, s.Service.Name))
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			t.Notes = append(t.Notes, fmt.Sprintf("%s: not read: %s", s.Service.Name, err))
		}
		for _, row := range s.Unseen() {
			t.Add(row)
		}
	}
	requests, samples := a.history.Cost()
	fmt.Fprintf(a.progress, "Read %s in %s.\n", rlc.Plural(int(samples), "sample"), rlc.Plural(int(requests), "request"))
	if a.profile.Refused == "" && len(a.limits) > 0 && a.profile.Name != "rlc" {
		t.Notes = append(t.Notes, "The profile names no query of refused requests: what today's limiter dropped is not in this traffic, and a limit that drops looks like one that is just met.")
	}
	if len(t.Rows) == 0 {
		fmt.Fprintf(a.progress, "Nothing matched: in %s no query of the profile %s gave traffic, and no limit was given. \"rlc doctor --profile\" with the same flags says query by query what is missing, \"rlc profiles %[2]s\" what is asked.\n", a.days(), a.profile.Name)
	}
	t.Sort()
	return t, nil
}

// days is over how long traffic is read, in words.
func (a *auditing) days() string { return rlc.Plural(int(a.lookback.Hours()/24), "day") }

// wayOut is what to do where the metrics carry no label that the profile names.
func (a *auditing) wayOut(ctx context.Context, service string) string {
	has := "which labels its metrics have could not be read"
	if labels, err := a.history.Labels(ctx, a.profile, service, a.now.Add(-a.lookback), a.now); err == nil && len(labels) > 0 {
		has = "its metrics have the labels " + strings.Join(labels, ", ")
	}
	return fmt.Sprintf("%s; write a profile that names the right one: rlc profiles %s >mine.yaml, correct it, and give --profile mine.yaml", has, a.profile.Name)
}

func (a *auditing) request(s *audit.Subject) rlc.HistoryRequest {
	return rlc.HistoryRequest{Service: s.Service, Profile: a.profile, Lookback: a.lookback, Now: a.now}
}

// subjects are the services that the limits or the metrics name, or the one
// asked for.
func (a *auditing) subjects(ctx context.Context, only string) ([]*audit.Subject, error) {
	byName := map[string]audit.Limits{}
	var names []string
	for _, l := range a.limits {
		byName[l.Service.Name] = l
		names = append(names, l.Service.Name)
	}
	if only != "" {
		names = []string{only}
	} else {
		found, err := a.history.Services(ctx, a.profile, a.now.Add(-a.lookback), a.now)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
		slices.Sort(names)
		names = slices.Compact(names)
	}
	var all []*audit.Subject
	for _, name := range names {
		l, ok := byName[name]
		if !ok {
			l = audit.Limits{Service: &rlc.Service{Name: name}}
		}
		svc := *l.Service
		if svc.Unknown == nil {
			svc.Unknown = a.profile.Unknown
		}
		s, err := audit.New(&svc, l.Quotas, eachOf(a.profile))
		if err != nil {
			return nil, exit{exitInvalid, fmt.Errorf("service %s: %w", name, err)}
		}
		all = append(all, s)
	}
	return all, nil
}

// eachOf is what tells traffic without a limit apart: callers, where the metrics
// name them, else procedures.
func eachOf(p *rlc.Profile) []string {
	for _, name := range []string{"caller", "procedure"} {
		if len(p.Attributes[name].Metric) > 0 {
			return []string{name}
		}
	}
	return nil
}

// bill tells what reading costs before it begins, and returns what cannot be
// read.
func (a *auditing) bill(ctx context.Context, subjects []*audit.Subject) (trouble []string, err error) {
	var whole promhistory.Bill
	trouble = []string{}
	for _, s := range subjects {
		b, err := a.history.Bill(ctx, a.request(s))
		if err != nil {
			return nil, err
		}
		whole.LabelSets += b.LabelSets
		whole.Samples += b.Samples
		whole.Queries += b.Queries
		if b.Trouble != "" {
			trouble = append(trouble, s.Service.Name+": "+b.Trouble)
		}
	}
	fmt.Fprintf(a.progress, "The bill: %s, %s label sets at once, about %s samples in %s.\n", rlc.Plural(len(subjects), "service"), rlc.Number(math.Round(whole.LabelSets)), rlc.Number(math.Round(whole.Samples)), rlc.Plural(whole.Queries, "query"))
	return trouble, nil
}

// readLimits reads today's limits from whatever file a team has; none where name
// is empty.
func readLimits(ctx context.Context, name string) ([]audit.Limits, error) {
	if name == "" {
		return nil, nil
	}
	if info, err := os.Stat(name); err != nil {
		return nil, err
	} else if info.IsDir() {
		parsed, err := readRepository(ctx, name)
		if err != nil {
			return nil, err
		}
		return limitsOf(parsed)
	}
	data, err := readBounded(name)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, ".csv") || bytes.HasPrefix(data, []byte("service,")) {
		all, err := audit.ReadCSV(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return all, nil
	}
	if bytes.HasPrefix(data, []byte("domain:")) || bytes.Contains(data, []byte("\ndomain:")) {
		return envoyLimits(name)
	}
	return serviceLimits(name)
}

// serviceLimits reads a policy.yaml or quotas.yaml, with the other one beside it.
func serviceLimits(name string) ([]audit.Limits, error) {
	files := rlc.Files{}
	for _, beside := range []string{"policy.yaml", "quotas.yaml"} {
		from := filepath.Join(filepath.Dir(name), beside)
		if filepath.Base(name) != "policy.yaml" && filepath.Base(name) != "quotas.yaml" && beside == "policy.yaml" {
			from = name
		}
		data, err := readBounded(from)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[beside] = data
	}
	service := ""
	if q := files["quotas.yaml"]; q != nil {
		service, _, _ = quotafile.ParseQuotas(name, q)
	}
	if files["policy.yaml"] == nil {
		return nil, fmt.Errorf("%s: no policy.yaml beside it, which says what its buckets match", name)
	}
	if service == "" {
		service = policyService(files["policy.yaml"])
	}
	moved := rlc.Files{quotafile.PolicyPath(service): files["policy.yaml"]}
	if q := files["quotas.yaml"]; q != nil {
		moved[quotafile.QuotasPath(service)] = q
	}
	return limitsOf(quotafile.Parse(moved, policies.Builtin().Check))
}

// policyService is the name on a policy's line "service:", "" where there is
// none; what is wrong with it the parser says.
func policyService(policy []byte) string {
	for line := range strings.Lines(string(policy)) {
		if v, ok := strings.CutPrefix(line, "service:"); ok {
			v, _, _ = strings.Cut(v, " #")
			return strings.Trim(strings.TrimSpace(v), `"'`)
		}
	}
	return ""
}

func limitsOf(parsed *quotafile.Config) ([]audit.Limits, error) {
	if err := parsed.Valid(); err != nil {
		return nil, err
	}
	var all []audit.Limits
	for _, s := range parsed.Services {
		all = append(all, audit.Limits{Service: s, Quotas: parsed.Quotas[s.Name]})
	}
	return all, nil
}
