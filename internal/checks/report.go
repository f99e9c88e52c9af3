package checks

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/escape"
	"github.com/openrlc/rlc/internal/review"
	"github.com/openrlc/rlc/policies"
)

// Summary is the edit in one line.
func (e *Edit) Summary() string {
	if n := e.Errors(); n > 0 {
		return "invalid: " + rlc.Plural(n, "error")
	}
	starts := 0
	for _, s := range e.Services {
		starts += len(s.Starts)
	}
	text := "valid, no quota changes"
	if n := e.Changes(); n > 0 {
		text = fmt.Sprintf("valid, %s of %s, %d backtested", rlc.Plural(n, "change"), rlc.Plural(len(e.Services), "service"), e.Backtested)
	}
	if starts > 0 {
		text += fmt.Sprintf(", %d to enforce", starts)
	}
	return text
}

// Text writes the edit for a terminal or a job's log.
func (e *Edit) Text(w io.Writer) error {
	for _, p := range e.Problems {
		fmt.Fprintln(w, p)
	}
	for _, s := range e.Services {
		if len(s.Changes) == 0 {
			fmt.Fprintf(w, "rlc(%s): no quota moves\n", escape.Line(s.Name))
		} else {
			fmt.Fprintf(w, "%s\n  %s%s\n", review.Title(s.Name, s.Changes), review.Verdict(s.Changes), risk(s.Changes))
		}
		for _, c := range s.Changes {
			fmt.Fprintf(w, "  %s: %s%s\n", escape.Line(c.ID()), verdict(c), dropped(c))
		}
		for _, t := range s.Starts {
			fmt.Fprintf(w, "  begins to drop: %s\n", escape.Line(t))
		}
		for _, n := range s.Notes {
			fmt.Fprintf(w, "  %s\n", escape.Line(n))
		}
	}
	if e.Note != "" {
		fmt.Fprintln(w, e.Note)
	}
	_, err := fmt.Fprintln(w, e.Summary())
	return err
}

// risk is the review's sentence on it, "" where nothing was replayed: without
// history there is none to speak of.
func risk(changes []rlc.Change) string {
	if !slices.ContainsFunc(changes, func(c rlc.Change) bool { return c.Backtest.New != nil }) {
		return ""
	}
	return " " + review.Risk(changes)
}

// verdict is what becomes of a quota, and of its mode where that is another.
func verdict(c rlc.Change) string {
	if c.Old != nil && c.New != nil && *c.Old == *c.New && c.OldMode != c.NewMode {
		return fmt.Sprintf("%s → %s at %s/s", c.OldMode, c.NewMode, rlc.Number(c.New.Rate))
	}
	return policies.Explain(c).Verdict
}

// dropped is what the new limit would have dropped, "" where it is not known.
func dropped(c rlc.Change) string {
	if c.Backtest.New == nil {
		return ""
	}
	return fmt.Sprintf("; would have dropped %.0f of %.0f requests", c.Backtest.New.Drops, c.Backtest.New.Requests)
}

// shown bounds what Markdown shows of the problems and services.
const shown = 30

// Markdown is the edit as a review's comment of at most limit bytes. Names from
// outside are escaped: none is markup, a mention or a link.
func (e *Edit) Markdown(limit int) string {
	text := ""
	for _, rows := range []int{review.Riskiest, 5, 1, 0} {
		if text = e.markdown(rows); len(text) <= limit {
			return text
		}
	}
	const rest = "\n… cut: the whole of it is in the job's log.\n"
	cut := text[:max(0, min(len(text), limit-len(rest)))]
	return cut[:strings.LastIndexByte(cut, '\n')+1] + rest
}

func (e *Edit) markdown(rows int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### rlc ci: %s\n", escape.Prose(e.Summary()))
	if len(e.Problems) > 0 {
		b.WriteString("\n")
	}
	for i, p := range e.Problems {
		if i == shown {
			fmt.Fprintf(&b, "- and %d more\n", len(e.Problems)-i)
			break
		}
		fmt.Fprintf(&b, "- %s\n", escape.Prose(p.String()))
	}
	for i, s := range e.Services {
		if i == shown {
			fmt.Fprintf(&b, "\nAnd %s more.\n", rlc.Plural(len(e.Services)-i, "service"))
			break
		}
		fmt.Fprintf(&b, "\n#### %s\n\n", escape.Code(s.Name))
		if len(s.Changes) > 0 {
			fmt.Fprintf(&b, "%s\n\n**%s**%s\n\n", escape.Prose(review.Title(s.Name, s.Changes)), review.Verdict(s.Changes), risk(s.Changes))
		}
		for _, t := range s.Starts {
			fmt.Fprintf(&b, "- **begins to drop**: %s\n", escape.Prose(t))
		}
		for _, n := range s.Notes {
			fmt.Fprintf(&b, "- %s\n", escape.Prose(n))
		}
		if len(s.Changes) > 0 && rows > 0 {
			b.WriteString("\n")
			review.Table(&b, s.Changes, rows)
		}
	}
	if e.Note != "" {
		fmt.Fprintf(&b, "\n%s.\n", escape.Prose(strings.ToUpper(e.Note[:1])+e.Note[1:]))
	}
	fmt.Fprintf(&b, "\nBase %s, head %s.\n", escape.Code(e.Base), escape.Code(e.Head))
	return b.String()
}

// The elements of JUnit's XML that CI systems read.
type (
	suite struct {
		XMLName  xml.Name `xml:"testsuite"`
		Name     string   `xml:"name,attr"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Skipped  int      `xml:"skipped,attr"`
		Cases    []junit  `xml:"testcase"`
	}
	junit struct {
		Class   string `xml:"classname,attr"`
		Name    string `xml:"name,attr"`
		File    string `xml:"file,attr,omitempty"`
		Failure *said  `xml:"failure"`
		Skipped *said  `xml:"skipped"`
		Out     string `xml:"system-out,omitempty"`
	}
	said struct {
		Message string `xml:"message,attr"`
	}
)

// JUnit writes the edit as JUnit's XML: one case per file with an error, or one
// for all where there is none, and one per change. refused are the changes that
// a guard refuses; a change that was not replayed counts as skipped.
func (e *Edit) JUnit(w io.Writer, refused []rlc.Change) error {
	s := suite{Name: "rlc ci"}
	add := func(c junit) {
		s.Tests++
		if c.Failure != nil {
			s.Failures++
		}
		if c.Skipped != nil {
			s.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	files := map[string][]string{}
	var order []string
	for _, p := range e.Problems {
		if p.Warning {
			continue
		}
		if files[p.File] == nil {
			order = append(order, p.File)
		}
		files[p.File] = append(files[p.File], p.String())
	}
	for _, f := range order {
		add(junit{Class: "validate", Name: f, File: f, Failure: &said{strings.Join(files[f], "\n")}})
	}
	if len(order) == 0 {
		add(junit{Class: "validate", Name: "config repository"})
	}
	for _, svc := range e.Services {
		for _, c := range svc.Changes {
			one := junit{Class: "backtest." + svc.Name, Name: c.ID(), Out: verdict(c) + dropped(c)}
			switch {
			case slices.ContainsFunc(refused, func(r rlc.Change) bool { return r.Service == c.Service && r.ID() == c.ID() }):
				one.Failure = &said{one.Out}
			case c.Backtest.New == nil && !c.Remove:
				one.Skipped = &said{"not backtested"}
			}
			add(one)
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
