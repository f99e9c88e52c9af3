package promhistory

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/openrlc/rlc"
)

const placeholder = "${service}"

// expand puts a service's name where expr says ${service}. Inside a quoted
// string the name is escaped for that kind of quote; in a regular expression
// matcher its characters stand for themselves. Anywhere else, and between
// backticks where they cannot hold it, it is refused: a name is data and never
// becomes query.
func expand(expr, service string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(expr); {
		switch c := expr[i]; {
		case c == '#': // a comment, to the end of the line
			end := strings.IndexByte(expr[i:], '\n')
			if end < 0 {
				end = len(expr) - i
			}
			i += end
		case strings.HasPrefix(expr[i:], placeholder):
			return "", fmt.Errorf("%w: %s stands outside a quoted string in %s", rlc.ErrInvalid, placeholder, expr)
		case c == '"' || c == '\'' || c == '`':
			end := closing(expr, i)
			if end < 0 {
				return "", fmt.Errorf("%w: a string is not closed in %s", rlc.ErrInvalid, expr)
			}
			name := service
			if op := strings.TrimRight(expr[:i], " \t\r\n"); strings.HasSuffix(op, "=~") || strings.HasSuffix(op, "!~") {
				if !utf8.ValidString(service) {
					return "", fmt.Errorf("%w: service %q is not UTF-8 and cannot stand in a regular expression", rlc.ErrInvalid, service)
				}
				name = regexp.QuoteMeta(service)
			}
			if strings.Contains(expr[i:end], placeholder) {
				escaped, err := escape(name, c)
				if err != nil {
					return "", err
				}
				out.WriteString(strings.ReplaceAll(expr[i:end], placeholder, escaped))
			} else {
				out.WriteString(expr[i:end])
			}
			i = end
		default:
			out.WriteByte(c)
			i++
		}
	}
	return out.String(), nil
}

// closing is the index after the quote that ends the string which starts at i,
// -1 where there is none.
func closing(expr string, i int) int {
	quote := expr[i]
	for j := i + 1; j < len(expr); j++ {
		switch {
		case expr[j] == '\\' && quote != '`':
			j++
		case expr[j] == quote:
			return j + 1
		}
	}
	return -1
}

// escape writes name so that PromQL reads it back from between the quotes.
func escape(name string, quote byte) (string, error) {
	if quote == '`' {
		// Raw strings have no escapes, and lose carriage returns.
		if strings.ContainsAny(name, "`\r\uFFFD") || !utf8.ValidString(name) {
			return "", fmt.Errorf("%w: service %q cannot stand between backticks", rlc.ErrInvalid, name)
		}
		return name, nil
	}
	q := strconv.QuoteToASCII(name)
	q = q[1 : len(q)-1]
	if quote == '"' {
		return q, nil
	}
	// Between single quotes the single quote is escaped and the double is not.
	var b strings.Builder
	for i := 0; i < len(q); i++ {
		switch {
		case q[i] == '\\' && q[i+1] == '"':
			b.WriteByte('"')
			i++
		case q[i] == '\\':
			b.WriteString(q[i : i+2])
			i++
		case q[i] == '\'':
			b.WriteString(`\'`)
		default:
			b.WriteByte(q[i])
		}
	}
	return b.String(), nil
}

var (
	counterName = regexp.MustCompile(`(^|[^\w:])([a-zA-Z_]\w*_total)($|[^\w:])`)
	perSecond   = regexp.MustCompile(`\b(rate|irate|increase|delta|idelta|deriv)\s*\(`)
	quoted      = regexp.MustCompile("\"(\\\\.|[^\"\\\\])*\"|'(\\\\.|[^'\\\\])*'|`[^`]*`")
)

// rawCounter is the name of the counter that expr reads without a rate, ""
// where it reads none: a running total is no rate. Names of recording rules
// hold a colon and are what they say.
func rawCounter(expr string) string {
	bare := quoted.ReplaceAllString(expr, `""`)
	if perSecond.MatchString(bare) {
		return ""
	}
	if m := counterName.FindStringSubmatch(bare); m != nil {
		return m[2]
	}
	return ""
}
