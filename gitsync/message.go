package gitsync

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/escape"
	said "github.com/openrlc/rlc/internal/review"
)

// trailer is one line of a message's last paragraph.
type trailer struct{ name, value string }

// withTrailers ends a message with its trailers. Values are made one line, so
// none can forge another.
func withTrailers(body string, all []trailer, edited map[string]string) string {
	var b strings.Builder
	b.WriteString(strings.TrimRight(body, "\n"))
	b.WriteString("\n\n")
	for _, t := range all {
		fmt.Fprintf(&b, "%s: %s\n", t.name, inert(t.value))
	}
	for _, id := range slices.Sorted(maps.Keys(edited)) {
		fmt.Fprintf(&b, "%s: %s by %s\n", editedTrailer, strconv.QuoteToASCII(id), strconv.QuoteToASCII(edited[id]))
	}
	return b.String()
}

// cutTrailers splits a message that RLC wrote at its last paragraph.
func cutTrailers(msg string) (body, last string, found bool) {
	msg = strings.TrimRight(msg, "\n")
	i := strings.LastIndex(msg, "\n\n")
	if i < 0 {
		return msg, "", false
	}
	return msg[:i], msg[i+2:], true
}

// person is a name fit for a trailer.
func person(name string) string {
	return cmp.Or(strings.TrimSpace(clip(inert(name), 100)), "unknown")
}

// personal makes a person's own words a message body: its lines stay, and one
// that looks like a trailer of RLC no longer does.
func personal(text string) string {
	var lines []string
	for l := range strings.SplitSeq(clip(strings.ReplaceAll(text, "\r\n", "\n"), 16<<10), "\n") {
		l = inert(strings.ReplaceAll(l, "\t", "    "))
		if len(l) >= 4 && strings.EqualFold(l[:4], "RLC-") {
			l = "> " + l
		}
		lines = append(lines, strings.TrimRight(l, " "))
	}
	return cmp.Or(strings.Trim(strings.Join(lines, "\n"), "\n"), "edit")
}

// onMerge begins what a proposal's message says of the answers to it.
const onMerge = "\nMerging puts these numbers in force; `rlc rollback` takes them back (after a\n" +
	"`git revert` they count as set by hand). To change a number, commit to this\n" +
	"branch: rlc then leaves it alone. To reject, delete the branch.\n\n"

// message is the commit message of a proposal, and the text of its review.
func message(p rlc.Proposal, n *next, epoch uint64, segment, team string) string {
	var b strings.Builder
	b.WriteString(said.Title(p.Service, n.moved))
	b.WriteString("\n\n")
	b.WriteString(said.Verdict(n.moved))
	b.WriteString("\n\n")
	rows := said.ByRisk(n.moved)
	if len(rows) > 0 {
		said.Table(&b, rows, said.Riskiest)
	}
	said.Steps(&b, rows[:min(said.Explained, len(rows))])
	if len(n.kept) > 0 {
		b.WriteString("\nLeft as they are:\n\n")
		for i, c := range n.kept {
			if i == said.Riskiest {
				fmt.Fprintf(&b, "- and %d more\n", len(n.kept)-i)
				break
			}
			fmt.Fprintf(&b, "- %s: %s\n", escape.Code(rlc.QuotaID(c.Bucket, c.Key)), escape.Prose(c.HeldWhy))
		}
	}
	for i, l := range n.losses {
		if i == 0 {
			b.WriteString("\nWhat the rendered files cannot say:\n\n")
		}
		if i == said.Riskiest {
			fmt.Fprintf(&b, "- and %d more\n", len(n.losses)-i)
			break
		}
		fmt.Fprintf(&b, "- %s\n", escape.Prose(l))
	}
	b.WriteString(onMerge)
	fmt.Fprintf(&b, "Run %s on %s", escape.Code(p.RunID), short(plumbing.NewHash(p.Base)))
	if len(rows) > 0 && !rows[0].At.IsZero() {
		fmt.Fprintf(&b, ", history until %s", rows[0].At.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(&b, ".\nContent %s\n", p.Content)

	moved := map[string]bool{}
	for _, c := range n.moved {
		moved[c.ID()] = true
	}
	edited := maps.Clone(n.edited)
	maps.DeleteFunc(edited, func(id, _ string) bool { return moved[id] })
	facts := []trailer{{runTrailer, p.RunID}, {serviceTrailer, segment}, {epochTrailer, fmt.Sprint(epoch)}}
	if team != "" {
		facts = append(facts, trailer{teamTrailer, team})
	}
	return withTrailers(b.String(), facts, edited)
}
