package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// show is the key's effective value in c for people.
func (k Key) show(c *Server) string {
	switch f := k.field(c).(type) {
	case *string:
		if *f == "" && k.Unset != "" {
			return "(" + strings.ReplaceAll(k.Unset, "DATA", c.Data) + ")"
		}
		return *f
	case *int:
		return strconv.Itoa(*f)
	case *bool:
		return strconv.FormatBool(*f)
	case *map[string]string:
		if len(*f) == 0 {
			return "(" + k.Unset + ")"
		}
		return strings.Join(slices.Sorted(maps.Keys(*f)), ", ") + " (values are not shown)"
	case *time.Duration:
		return rlc.DurationText(*f)
	case *Secret:
		// A file's DSN is no secret, and worth seeing.
		if k.Name == "store.dsn" && strings.HasPrefix(f.value, "sqlite:") {
			return f.value
		}
		return f.String()
	}
	return ""
}

// Example is a configuration file with every supported key, each commented out
// at its default. A line to be taken into use starts with # and no space.
func Example() string {
	var b strings.Builder
	b.WriteString("# Configuration of rlc serve --config FILE. Every key is optional; each stands here\n" +
		"# with its default, or with an example where the default is to embed the part.\n" +
		"# Flags win over the environment (RLC_PROMETHEUS_URL), the environment over this\n" +
		"# file. A secret may stand in a file of its own, which is read again when it\n" +
		"# changes: token_file, RLC_TOKEN_FILE, --token-file.\n")
	group := ""
	for _, k := range Keys() {
		name, indent := k.Name, ""
		if g, rest, ok := strings.Cut(k.Name, "."); ok {
			name, indent = rest, "  "
			if g != group {
				fmt.Fprintf(&b, "\n#%s:\n", g)
			}
			group = g
		} else {
			group = ""
			b.WriteString("\n")
		}
		for _, line := range wrap(k.Means+" "+k.Consequence, 80) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		value := k.Default
		switch {
		case value == "":
			fmt.Fprintf(&b, "%s# Default: %s.\n", indent, strings.ReplaceAll(k.Unset, "DATA", "<data>"))
			value = k.Example
		case strings.Contains(value, "DATA"):
			fmt.Fprintf(&b, "%s# Default: %s.\n", indent, strings.ReplaceAll(value, "DATA", "<data>"))
			value = strings.ReplaceAll(value, "DATA", "/var/lib/rlc")
		}
		if k.Secret() && strings.HasPrefix(k.Default, "DATA/") {
			name += "_file"
		}
		fmt.Fprintf(&b, "#%s%s: %s\n", indent, name, quoted(value))
	}
	return b.String()
}

// quoted puts quotes around what YAML would read as something else.
func quoted(text string) string {
	if !strings.HasPrefix(text, "{") && (strings.ContainsAny(text, "*@#{}[]&!|>%") || strings.HasSuffix(text, ":")) {
		return `"` + text + `"`
	}
	return text
}

// Markdown is the operator's table of all keys.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| key | default | what it is, and what follows from changing it |\n| --- | --- | --- |\n")
	for _, k := range Keys() {
		name := "`" + k.Name + "`"
		if k.Secret() {
			name += ", `" + k.Name + "_file`"
		}
		def := "`" + k.Default + "`"
		if k.Default == "" {
			def = strings.ReplaceAll(k.Unset, "DATA", "`DATA`")
		}
		means := k.Means + " " + k.Consequence
		if form := k.Form(); strings.HasPrefix(form, "duration") {
			means += " From " + rlc.DurationText(k.min) + " to " + rlc.DurationText(k.max) + "."
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, def, strings.ReplaceAll(means, "|", "\\|"))
	}
	return b.String()
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
