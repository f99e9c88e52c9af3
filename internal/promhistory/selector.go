package promhistory

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"
)

// keywords are the words that PromQL does not read as a metric's name, or reads
// so in some places only.
var keywords = []string{
	"and", "or", "unless", "atan2", "offset", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "start", "end", "inf", "nan", "fill", "fill_left", "fill_right",
	"sum", "avg", "count", "min", "max", "group", "stddev", "stdvar", "topk", "bottomk", "count_values", "quantile", "limitk", "limit_ratio", "anchored", "smoothed", "step", "range",
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*`)
	space      = " \t\r\n"
)

// plainSelector is what expr selects where it is a plain selector,
// metric{matchers}: the form that remote read can give. It is strict: whatever
// it does not know for sure is none (ok is false) and is left to range queries.
func plainSelector(expr string) (matchers []*prompb.LabelMatcher, ok bool) {
	rest := strings.Trim(expr, space)
	named := false
	if name := metricName.FindString(rest); name != "" {
		if slices.Contains(keywords, strings.ToLower(name)) {
			return nil, false
		}
		matchers = append(matchers, &prompb.LabelMatcher{Type: prompb.LabelMatcher_EQ, Name: model.MetricNameLabel, Value: name})
		rest, named = strings.TrimLeft(rest[len(name):], space), true
	}
	if rest == "" {
		return matchers, named
	}
	if rest[0] != '{' {
		return nil, false
	}
	rest = strings.TrimLeft(rest[1:], space)
	for !strings.HasPrefix(rest, "}") {
		m, after := matcher(rest)
		if m == nil || m.Name == model.MetricNameLabel && named {
			return nil, false
		}
		named = named || m.Type == prompb.LabelMatcher_EQ && m.Value != ""
		matchers = append(matchers, m)
		rest = strings.TrimLeft(after, space)
		if strings.HasPrefix(rest, ",") {
			rest = strings.TrimLeft(rest[1:], space)
		} else if !strings.HasPrefix(rest, "}") {
			return nil, false
		}
	}
	return matchers, named && rest == "}"
}

// matcher reads one label matcher; nil where rest does not begin with one.
func matcher(rest string) (m *prompb.LabelMatcher, after string) {
	name := labelName.FindString(rest)
	rest = strings.TrimLeft(rest[len(name):], space)
	if name == "" {
		return nil, ""
	}
	m = &prompb.LabelMatcher{Name: name}
	switch {
	case strings.HasPrefix(rest, "=~"):
		m.Type, rest = prompb.LabelMatcher_RE, rest[2:]
	case strings.HasPrefix(rest, "!~"):
		m.Type, rest = prompb.LabelMatcher_NRE, rest[2:]
	case strings.HasPrefix(rest, "!="):
		m.Type, rest = prompb.LabelMatcher_NEQ, rest[2:]
	case strings.HasPrefix(rest, "="):
		m.Type, rest = prompb.LabelMatcher_EQ, rest[1:]
	default:
		return nil, ""
	}
	rest = strings.TrimLeft(rest, space)
	if rest == "" || !strings.Contains("\"'`", rest[:1]) {
		return nil, ""
	}
	end := closing(rest, 0)
	if end < 0 {
		return nil, ""
	}
	if m.Value, rest = rest[:end], rest[end:]; !unquote(&m.Value) {
		return nil, ""
	}
	return m, rest
}

// unquote takes the quotes off as PromQL does; false where s is no string.
func unquote(s *string) bool {
	quote, body := (*s)[0], (*s)[1:len(*s)-1]
	if !utf8.ValidString(body) || strings.ContainsAny(body, "\r\n") {
		return false
	}
	if quote == '`' {
		*s = body
		return true
	}
	var out []byte
	for body != "" {
		c, multibyte, rest, err := strconv.UnquoteChar(body, quote)
		if err != nil {
			return false
		}
		if c < utf8.RuneSelf || !multibyte {
			out = append(out, byte(c))
		} else {
			out = utf8.AppendRune(out, c)
		}
		body = rest
	}
	*s = string(out)
	return utf8.Valid(out) // a label's value that is not UTF-8 cannot be sent
}

// selection is a selector within an expression.
type selection struct {
	expr   string // metric{matchers}
	metric string
	window time.Duration // of a range selector; 0 for an instant's
}

var (
	metricChars = regexp.MustCompile(`[^a-zA-Z0-9_]+`)
	rangeOf     = regexp.MustCompile(`^\s*\[\s*([0-9a-z]+)\s*\]`)
)

// selections finds the plain selectors within an expression, for advice: one
// that it does not recognise is left out.
func selections(expr string) (all []selection) {
	skip := false // the labels of a by, an on, …
	for i := 0; i < len(expr); {
		c := expr[i]
		name := metricName.FindString(expr[i:])
		switch {
		case c == '"' || c == '\'' || c == '`':
			if i = closing(expr, i); i < 0 {
				return all
			}
		case c == '[' || skip && c == '(':
			end := strings.IndexByte(expr[i:], map[byte]byte{'[': ']', '(': ')'}[c])
			if end < 0 {
				return all
			}
			i, skip = i+end+1, false
		case c >= '0' && c <= '9':
			for i < len(expr) && (expr[i] >= '0' && expr[i] <= '9' || expr[i] >= 'a' && expr[i] <= 'z' || expr[i] == '.') {
				i++
			}
		case name == "":
			i++
		default:
			i += len(name)
			rest := strings.TrimLeft(expr[i:], space)
			word := strings.ToLower(name)
			if slices.Contains([]string{"by", "without", "on", "ignoring", "group_left", "group_right"}, word) {
				skip = strings.HasPrefix(rest, "(")
				continue
			}
			if strings.HasPrefix(rest, "(") || slices.Contains(keywords, word) {
				continue
			}
			end := i
			if strings.HasPrefix(rest, "{") {
				end = len(expr) - len(rest)
				for end < len(expr) && expr[end] != '}' {
					if q := expr[end]; q == '"' || q == '\'' || q == '`' {
						if end = closing(expr, end); end < 0 {
							return all
						}
						continue
					}
					end++
				}
				end = min(end+1, len(expr))
			}
			s := selection{expr: name + expr[i:end], metric: name}
			i = end
			if m := rangeOf.FindStringSubmatch(expr[i:]); m != nil {
				if w, err := model.ParseDuration(m[1]); err == nil {
					s.window = time.Duration(w)
				}
			}
			if _, plain := plainSelector(s.expr); plain {
				all = append(all, s)
			}
		}
	}
	return all
}
