package review

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/escape"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
)

// MaxBytes bounds a body: GitHub, the strictest forge, takes 65,536 characters.
const MaxBytes = 60_000

// About is what a review says beside its proposal. The zero value is silent on
// all of it.
type About struct {
	Service *rlc.Service // as the base branch has it; nil: buckets' modes are not known
	// Owners are who answers for a caller, where the caller is a service itself.
	Owners func(caller string) []string
	// Merges and Because are the word of automatic merging; "": not said.
	Merges  bool
	Because string
	Page    string // the proposal's page; "" for none
	// Rendered are what the files rendered for other limiters cannot say, a line
	// each.
	Rendered []string
	Forge    bool // there is a review on a forge to merge, close and label
}

// Body is a review's text in Markdown, below MaxBytes however many changes
// there are and whatever they are called. It ends with a hidden hash of the
// content, for scripts that read reviews; RLC itself knows content by git.
func Body(p rlc.Proposal, a About) string {
	rows := ByRisk(p.Changes)
	tight := tightened(rows)
	guards := Guards(a.Service, p.Changes)
	// The steps go first, then the rows with less risk.
	for _, fit := range []struct{ rows, steps, tight int }{{Riskiest, Explained, Riskiest}, {Riskiest, 1, 10}, {Riskiest, 0, 5}, {10, 0, 5}} {
		if s := body(p, a, rows, tight, guards, fit.rows, fit.steps, fit.tight); len(s) <= MaxBytes {
			return s
		}
	}
	return body(p, a, rows, tight, guards, 3, 0, 3)
}

func body(p rlc.Proposal, a About, rows, tight []rlc.Change, guards []Guard, most, steps, cut int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s** %s\n\n", Verdict(p.Changes), Risk(p.Changes))
	if t := policies.BurstsText(p.Changes); t != "" {
		fmt.Fprintf(&b, "%s\n\n", t)
	}
	if len(rows) > 0 {
		Table(&b, rows, most)
	}
	if len(tight) > 0 {
		b.WriteString("\n### Callers tightened\n\n")
		tighten(&b, tight, cut, a.Owners)
	}
	b.WriteString("\n### Guards\n\n")
	for _, g := range guards {
		mark := "✔"
		if !g.OK {
			mark = "✖"
		}
		fmt.Fprintf(&b, "- %s %s", mark, escape.Prose(g.Name))
		if g.Detail != "" {
			fmt.Fprintf(&b, ": %s", escape.Prose(g.Detail))
		}
		b.WriteString("\n")
	}
	if a.Because != "" {
		fmt.Fprintf(&b, "\n### Auto-merge\n\n%s\n", escape.Prose(mergeText(a)))
	}
	for i, l := range a.Rendered {
		if i == 0 {
			b.WriteString("\n### What the rendered files cannot say\n\n")
		}
		if i == cut {
			fmt.Fprintf(&b, "- and %d more\n", len(a.Rendered)-i)
			break
		}
		fmt.Fprintf(&b, "- %s\n", escape.Prose(l))
	}
	answers(&b, p, a)
	b.WriteString("\n<details><summary>Where these numbers come from</summary>\n")
	provenance(&b, p, rows)
	if steps = min(steps, len(rows)); steps > 0 {
		Steps(&b, rows[:steps])
	}
	b.WriteString("\n</details>\n\n")
	fmt.Fprintf(&b, "<!-- rlc:content %s -->\n", hexOnly(p.Content))
	return b.String()
}

// MergeText says whether a proposal merges by itself, as review and page do.
func MergeText(merges bool, because string) string {
	if merges {
		return "Merges by itself, because " + because + "."
	}
	return "Does not merge by itself now, because " + because + "."
}

// mergeText is what a review says: it is written once, and judged again ever after.
func mergeText(a About) string {
	text := MergeText(a.Merges, a.Because)
	if a.Service != nil && a.Service.AutoMerge != nil {
		text += " This is judged again each minute: the proposal's page says how it stands."
	}
	return text
}

// Guard is one guard rail's word on a proposal.
type Guard struct {
	Name   string
	OK     bool   // it changed nothing and asks nobody to look, or only rounded
	Rounds bool   // it rounded
	Detail string // the first amendment or question, and how many more
}

// Guards sums up what the guards did, in the order in which they acted first. A
// nil service leaves its buckets' modes out.
func Guards(svc *rlc.Service, changes []rlc.Change) []Guard {
	var order []string
	acted, first, title := map[string]int{}, map[string]string{}, map[string]string{}
	for _, c := range changes {
		for _, l := range policies.Explain(c).Lines {
			if !isGuard(l.Rule) {
				continue
			}
			if title[l.Rule] == "" {
				order = append(order, l.Rule)
				title[l.Rule] = l.Label
			}
			if l.Acted || l.Asks {
				if acted[l.Rule]++; acted[l.Rule] == 1 {
					first[l.Rule] = c.ID() + ": " + l.Detail
				}
			}
		}
	}
	var out []Guard
	for _, rule := range order {
		g := Guard{Name: title[rule], OK: true, Detail: "changed nothing"}
		if n := acted[rule]; n > 0 {
			g.OK, g.Rounds, g.Detail = rule == "rounding", rule == "rounding", first[rule]
			if n > 1 {
				g.Detail += fmt.Sprintf(" (and %d more)", n-1)
			}
		}
		out = append(out, g)
	}
	switch n := hardened(svc, changes); n {
	case 0:
		return append(out, Guard{Name: "nothing goes from shadow to enforce", OK: true})
	case 1:
		return append(out, Guard{Name: "1 quota goes from shadow to enforce"})
	default:
		return append(out, Guard{Name: rlc.Plural(n, "quota") + " go from shadow to enforce"})
	}
}

// isGuard tells the rules that guards leave from the policies' own steps.
func isGuard(rule string) bool {
	switch rule {
	case "data", "evidence", "targets_unknown", "highest_of_week", "deadband", "rounding", "step", "step_up", "step_down",
		"week_up", "week_down", "max_increase", "hours", "censored", "capacity_fit", "blast_gate", "floor", "contract", "invariants", "human_edit":
		return true
	}
	return false
}

func hardened(svc *rlc.Service, changes []rlc.Change) (n int) {
	for _, c := range changes {
		mode := c.NewMode
		if svc != nil && mode == "" {
			if b := svc.Bucket(c.Bucket); b != nil {
				mode = b.Mode
			}
		}
		if c.OldMode == rlc.Shadow && c.NewMode != rlc.Shadow && mode == rlc.Enforce {
			n++
		}
	}
	return n
}

// tightened are the changes that lower a limit, also of an hour of the week. A removal
// is none: what it limited is limited no more.
func tightened(rows []rlc.Change) (out []rlc.Change) {
	for _, c := range rows {
		if !c.Remove && policies.Lowers(&c) {
			out = append(out, c)
		}
	}
	return out
}

func tighten(b *strings.Builder, tight []rlc.Change, most int, owners func(string) []string) {
	for i, c := range tight {
		if i == most {
			fmt.Fprintf(b, "- and %d more\n", len(tight)-i)
			return
		}
		who := "every caller of the bucket"
		caller := c.Key["caller"]
		if caller != "" {
			who = "caller " + escape.Code(caller)
		}
		fmt.Fprintf(b, "- %s in %s: %s", who, escape.Code(c.ID()), escape.Prose(policies.Explain(c).Verdict))
		if owners != nil && caller != "" {
			var names []string
			for _, o := range owners(caller) {
				names = append(names, escape.Code(o))
			}
			if len(names) > 10 {
				names = append(names[:10], "…")
			}
			if len(names) > 0 {
				fmt.Fprintf(b, "; owned by %s", strings.Join(names, ", "))
			}
		}
		b.WriteString("\n")
	}
}

// answers says what merging does, how to undo it, and what else one can say.
func answers(b *strings.Builder, p rlc.Proposal, a About) {
	b.WriteString("\n### On merge\n\n" +
		"Enforcers load the new numbers within seconds. To undo, `rlc rollback` or the service's page: the numbers of before come back, and stay until an estimate leaves them. `git revert` of the merged commit does it too, but then they count as set by hand and are held until their lines are removed.\n" +
		"\n### How to answer\n\n")
	merge, reject := "merge the branch "+escape.Code(p.Branch)+" into the base branch", "delete the branch"
	if a.Forge {
		merge, reject = "merge it, squashed or not", "close it"
	}
	fmt.Fprintf(b, "- **Accept**: %s.\n- **Edit**: commit to the branch; RLC then leaves it alone, and what you merge is the truth.\n"+
		"- **Reject**: %s. It is not opened again for 30 days, unless it comes to differ by more than twice the deadband.\n", merge, reject)
	if a.Forge {
		fmt.Fprintf(b, "- **Wait**: the label `%s` keeps it from merging by itself.\n", HoldLabel)
	}
	if a.Page != "" {
		fmt.Fprintf(b, "- Charts and episodes: <%s>\n", strings.NewReplacer("<", "%3C", ">", "%3E", " ", "%20").Replace(escape.Line(a.Page)))
	}
}

// HoldLabel on a review keeps it from merging by itself.
const HoldLabel = "rlc/hold"

// provenance says what the numbers were computed from, and how to do it again.
func provenance(b *strings.Builder, p rlc.Proposal, rows []rlc.Change) {
	now := p.Created
	if len(rows) > 0 && !rows[0].At.IsZero() {
		now = rows[0].At
	}
	fmt.Fprintf(b, "\n- run %s, history until %s\n- base %s\n", escape.Code(p.RunID), stat.TimeText(now), escape.Code(p.Base))
	kinds := map[string]bool{}
	for _, c := range rows {
		if c.Policy != "" {
			kinds[c.Policy+" "+c.PolicyID] = true
		}
	}
	var names []string
	for k := range kinds {
		names = append(names, escape.Code(k))
	}
	slices.Sort(names)
	if len(names) > 5 {
		names = append(names[:5], fmt.Sprintf("and %d more", len(names)-5))
	}
	if len(names) > 0 {
		fmt.Fprintf(b, "- policies: %s\n", strings.Join(names, ", "))
	}
	fmt.Fprintf(b, "- content %s\n- again: %s\n", escape.Code(p.Content),
		escape.Code("rlc plan --service "+shell(p.Service)+" --now "+now.UTC().Format(time.RFC3339)))
}

// shell quotes a word for a shell where it needs it.
func shell(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-/", c))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// hexOnly keeps a hash from ending the comment that it stands in.
func hexOnly(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == ':' {
			return c
		}
		return -1
	}, s)
}

// TeamBody is the text of a review of several proposals: each in whole while there
// is room below MaxBytes, of the others their first lines.
func TeamBody(bodies []string) string {
	const more = "\n\n… the rest of it is in the branch's commit message and on its page.\n"
	room := MaxBytes / max(len(bodies), 1)
	var b strings.Builder
	for _, text := range bodies {
		if len(text) > room-2 {
			cut := text[:max(0, room-len(more)-2)]
			text = cut[:strings.LastIndexByte(cut, '\n')+1] + more
			if strings.Count(text, "<details>") > strings.Count(text, "</details>") {
				text = strings.TrimSuffix(text, more) + "\n</details>" + more
			}
		}
		b.WriteString(strings.TrimRight(text, "\n") + "\n\n")
	}
	return b.String()
}
