package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

func profilesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "profiles [NAME]",
		Short: "What the built-in profiles ask of your metrics",
		Long: `A profile says how an organisation's metrics name things: which label is the
caller, which the procedure, and which queries give request rates. Without NAME all
built-in ones are listed. With NAME that one is printed as the file of a profile, to
begin one of your own with: correct its labels and queries, then give the file to
rlc audit, rlc doctor and rlc init, or keep it as profiles/<name>.yaml in the config
repository.`,
		Example: "  rlc profiles\n  rlc profiles grpc >profiles/ours.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			all := quotafile.BuiltinProfiles()
			if len(args) == 1 {
				p := all[args[0]]
				if p == nil {
					return exit{exitInvalid, fmt.Errorf("there is no built-in profile %q: want %s", args[0], strings.Join(slices.Sorted(maps.Keys(all)), ", "))}
				}
				_, err := io.WriteString(c.OutOrStdout(), profileFile(p))
				return err
			}
			switch out, _ := c.Flags().GetString("output"); out {
			case "text":
				return profilesText(c.OutOrStdout(), all)
			case "markdown":
				_, err := io.WriteString(c.OutOrStdout(), profilesTable(all))
				return err
			default:
				return exit{exitInvalid, fmt.Errorf("--output %q: want text or markdown", out)}
			}
		},
	}
	c.Flags().StringP("output", "o", "text", "text, or markdown: the table in docs/history.md")
	return c
}

// asked are a profile's queries by the name of their key, in the file's order.
func asked(p *rlc.Profile) (all [][2]string) {
	for _, s := range p.Sources {
		all = append(all, [2]string{"sources", s})
	}
	for _, q := range [][2]string{{"refused", p.Refused}, {"healthy", p.Healthy}, {"complete", p.Complete}, {"peaks", p.Peaks}} {
		if q[1] != "" {
			all = append(all, q)
		}
	}
	return all
}

// carriedBy is which labels carry an attribute.
func carriedBy(a rlc.AttributeSource) string {
	if len(a.Metric) == 0 {
		return "no label"
	}
	return strings.Join(a.Metric, a.Join)
}

func profilesText(w io.Writer, all map[string]*rlc.Profile) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		fmt.Fprintln(w, name)
		for _, a := range slices.Sorted(maps.Keys(p.Attributes)) {
			fmt.Fprintf(w, "  %-9s  %s\n", a, carriedBy(p.Attributes[a]))
		}
		for _, q := range asked(p) {
			fmt.Fprintf(w, "  %-9s  %s\n", q[0], q[1])
		}
	}
	_, err := fmt.Fprintln(w, "\n\"rlc profiles NAME\" prints one as a file to begin your own with.")
	return err
}

// profilesTable is the table of docs/history.md.
func profilesTable(all map[string]*rlc.Profile) string {
	var b strings.Builder
	b.WriteString("| profile | caller | procedure | asks |\n| --- | --- | --- | --- |\n")
	code := func(s string) string { return "`" + strings.ReplaceAll(s, "|", "\\|") + "`" }
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		label := func(attribute string) string {
			if a := p.Attributes[attribute]; len(a.Metric) > 0 {
				return code(carriedBy(a))
			}
			return "no label"
		}
		var queries []string
		for _, q := range asked(p) {
			queries = append(queries, q[0]+": "+code(q[1]))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, label("caller"), label("procedure"), strings.Join(queries, "<br>"))
	}
	return b.String()
}

// profileFile is a profile as profiles/<name>.yaml would hold it.
func profileFile(p *rlc.Profile) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The built-in profile %s. In a file of another name, change the name below, too.\napiVersion: rlc/v1\nkind: Profile\nname: %[1]s\nattributes:\n", p.Name)
	for _, name := range slices.Sorted(maps.Keys(p.Attributes)) {
		a := p.Attributes[name]
		metric := ""
		switch len(a.Metric) {
		case 0:
		case 1:
			metric = "metric: " + a.Metric[0] + ", "
		default:
			metric = fmt.Sprintf("metric: [%s], join: %s, ", strings.Join(a.Metric, ", "), strconv.Quote(a.Join))
		}
		fmt.Fprintf(&b, "  %s: {%sdescriptor: %s}\n", name, metric, a.Descriptor)
	}
	if len(p.Unknown) > 0 {
		b.WriteString("unknown:\n")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Unknown)) {
		values := make([]string, len(p.Unknown[name]))
		for i, v := range p.Unknown[name] {
			values[i] = strconv.Quote(v)
		}
		fmt.Fprintf(&b, "  %s: [%s]\n", name, strings.Join(values, ", "))
	}
	fmt.Fprintf(&b, "history:\n  step: %gs\n  sources:\n", p.Step.Seconds())
	for _, s := range p.Sources {
		fmt.Fprintf(&b, "    - '%s'\n", strings.ReplaceAll(s, "'", "''"))
	}
	for _, q := range asked(p)[len(p.Sources):] {
		fmt.Fprintf(&b, "  %s: '%s'\n", q[0], strings.ReplaceAll(q[1], "'", "''"))
	}
	return b.String()
}
