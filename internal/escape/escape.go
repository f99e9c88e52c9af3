// Package escape makes outside text harmless where people read it: in one line
// of a log or a commit message, in Markdown.
package escape

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line makes outside text one harmless line: whatever is not a visible
// character or a plain space becomes \u{hex}, so that no name can end a line,
// forge a trailer or turn the direction of what follows it.
func Line(s string) string {
	clean := true
	for _, c := range s {
		if !visible(c) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i, c := range s {
		switch {
		case c == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case visible(c):
			b.WriteRune(c)
		default:
			fmt.Fprintf(&b, `\u{%x}`, c)
		}
	}
	return b.String()
}

// visible reports whether a rune may stand in a message as it is. Marks that
// combine, format characters (bidirectional overrides, zero-width joiners) and
// spaces other than the plain one may not.
func visible(c rune) bool {
	return c == ' ' || c != utf8.RuneError && unicode.IsGraphic(c) && !unicode.IsSpace(c) && !unicode.Is(unicode.M, c)
}

// Code renders outside text as a Markdown code span that fits into a table
// cell: nothing inside is markup, a mention, a link or the end of the cell.
func Code(s string) string {
	s = Clip(Line(s), 120)
	return "`" + strings.NewReplacer("`", `\u{60}`, "|", `\u{7c}`).Replace(s) + "`"
}

// Prose renders outside text for a Markdown sentence or table cell. Mentions and
// references are found by forges in the text after the markup is gone: a space
// without width stands in them. Bare addresses become no links.
func Prose(s string) string {
	s = Clip(Line(s), 300)
	var b strings.Builder
	for i, c := range s {
		switch {
		case c == '|' || c == '`':
			fmt.Fprintf(&b, "&#%d;", c)
		case c == '@' || c == '#':
			fmt.Fprintf(&b, "&#%d;&#8203;", c)
		case c == ':' && strings.HasPrefix(s[i:], "://"), c == '.' && strings.HasSuffix(strings.ToLower(s[:i]), "www"):
			fmt.Fprintf(&b, "&#%d;&#8203;", c)
		default:
			if strings.ContainsRune(`\*_[]<>&~!$`, c) {
				b.WriteByte('\\')
			}
			b.WriteRune(c)
		}
	}
	return b.String()
}

// Clip shortens a text to n runes, the last one an ellipsis where it cut.
func Clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
