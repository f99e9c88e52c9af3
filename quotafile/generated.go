package quotafile

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/openrlc/rlc"
)

// readGenerated reads a quotas.yaml exactly as MarshalQuotas writes it, twenty
// times as fast as the YAML parser does: a snapshot of a large fleet holds a
// million quotas. It returns false for any other file, valid or not; the YAML
// parser then says what is wrong with it, if anything is. Both give the same
// quotas for the files that this one reads.
func readGenerated(data []byte) (service string, lines []line, ok bool) {
	r := generated{rest: data}
	for r.peek("#") {
		if !quotable(r.next()) {
			return "", nil, false
		}
	}
	if string(r.next()) != "apiVersion: rlc/v1" || string(r.next()) != "kind: "+kindQuotas {
		return "", nil, false
	}
	if service, ok = scalarAfter(r.next(), "service: "); !ok || !validName(service) {
		return "", nil, false
	}
	if string(r.rest) == "quotas: []\n" {
		return service, []line{}, true
	}
	if string(r.next()) != "quotas:" {
		return "", nil, false
	}
	lines = make([]line, 0, bytes.Count(r.rest, []byte("\n  - "))+1)
	before := "" // the key of the line before
	for len(r.rest) > 0 {
		l := line{line: r.line + 1, column: 5}
		if len(lines) == MaxQuotas || !r.quota(&l.Quota) {
			return "", nil, false
		}
		key := l.Key.String()
		if n := len(lines); n > 0 && compareQuotas(&lines[n-1].Quota, before, &l.Quota, key) >= 0 {
			return "", nil, false
		}
		before = key
		lines = append(lines, l)
	}
	return service, lines, len(lines) > 0
}

// generated is a file being read line by line.
type generated struct {
	rest []byte
	line int // lines read
}

// next takes a line, without its end. It is nil where no complete line is left.
func (r *generated) next() []byte {
	i := bytes.IndexByte(r.rest, '\n')
	if i < 0 {
		r.rest = nil
		return nil
	}
	taken := r.rest[:i]
	r.rest = r.rest[i+1:]
	r.line++
	return taken
}

func (r *generated) peek(prefix string) bool { return bytes.HasPrefix(r.rest, []byte(prefix)) }

// quota reads the lines of one quota, whose values it checks as the slow way
// does.
func (r *generated) quota(q *rlc.Quota) bool {
	var ok bool
	if q.Bucket, ok = scalarAfter(r.next(), bucketPrefix); !ok || !plainSegment(strings.ToLower(q.Bucket)) {
		return false
	}
	if r.peek(keyPrefix) {
		if q.Key, ok = flowKey(r.next()); !ok {
			return false
		}
	}
	if !r.word(regionPrefix, &q.Region) || !r.word(zonePrefix, &q.Zone) || q.Region != "" && q.Zone != "" {
		return false
	}
	rate, ok1 := after(r.next(), ratePrefix)
	burst, ok2 := after(r.next(), burstPrefix)
	if !ok1 || !ok2 {
		return false
	}
	if q.Limit, ok = generatedLimit(rate, burst); !ok {
		return false
	}
	if r.peek(shadowLine + "\n") {
		r.next()
		q.Mode = rlc.Shadow
	}
	if r.peek(windowsPrefix) {
		s, _ := after(r.next(), windowsPrefix)
		if q.Windows, ok = generatedWindows(s); !ok {
			return false
		}
	}
	if r.peek(hoursPrefix) {
		s, _ := after(r.next(), hoursPrefix)
		if q.Hours, ok = generatedHours(s); !ok {
			return false
		}
	}
	if r.peek(whyPrefix + `"`) {
		if q.Why, ok = scalarAfter(r.next(), whyPrefix); !ok || q.Why == "" {
			return false
		}
	}
	return true
}

// word reads a line with a region's or zone's name, where there is one.
func (r *generated) word(prefix string, into *string) bool {
	if !r.peek(prefix) {
		return true
	}
	name, ok := scalarAfter(r.next(), prefix)
	*into = name
	return ok && plainSegment(strings.ToLower(name))
}

const (
	bucketPrefix = "  - bucket: "
	regionPrefix = "    region: "
	zonePrefix   = "    zone: "
	keyPrefix    = "    key: {"
	ratePrefix   = "    rate: "
	burstPrefix  = "    burst: "
	shadowLine   = "    mode: shadow"
	whyPrefix    = "    why: "
)

// generatedRank is where a line stands in a generated quota, from 1 for its
// first, or 0 for a line that MarshalQuotas does not write.
func generatedRank(l []byte) int {
	if bytes.HasPrefix(l, []byte(keyPrefix)) {
		if key, ok := flowKey(l); ok && len(key) <= maxEach {
			return 2
		}
		return 0
	}
	for i, prefix := range []string{regionPrefix, zonePrefix} {
		if _, ok := scalarAfter(l, prefix); ok {
			return 3 + i
		}
	}
	for i, prefix := range []string{ratePrefix, burstPrefix} {
		if v, ok := after(l, prefix); ok && decimal(v) {
			return 5 + i
		}
	}
	if string(l) == shadowLine {
		return 7
	}
	if s, ok := after(l, windowsPrefix); ok {
		if _, ok := generatedWindows(s); ok {
			return 8
		}
	}
	if s, ok := after(l, hoursPrefix); ok {
		if _, ok := generatedHours(s); ok {
			return 9
		}
	}
	if _, ok := scalarAfter(l, whyPrefix); ok {
		return 10
	}
	if _, ok := scalarAfter(l, bucketPrefix); ok {
		return 1
	}
	return 0
}

// after is what follows a prefix.
func after(l []byte, prefix string) (string, bool) {
	if !bytes.HasPrefix(l, []byte(prefix)) {
		return "", false
	}
	return string(l[len(prefix):]), true
}

// scalarAfter is the string that follows a prefix and ends the line.
func scalarAfter(l []byte, prefix string) (string, bool) {
	s, ok := after(l, prefix)
	if !ok {
		return "", false
	}
	v, rest, ok := scalar(s)
	return v, ok && rest == ""
}

// flowKey reads "    key: {caller: search}".
func flowKey(l []byte) (rlc.Key, bool) {
	s, ok := after(l, keyPrefix)
	if !ok || !strings.HasSuffix(s, "}") {
		return nil, false
	}
	key := make(rlc.Key, 1)
	for {
		name, rest, ok := scalar(s)
		if !ok || !validAttribute(name) {
			return nil, false
		}
		rest, ok = strings.CutPrefix(rest, ": ")
		if !ok {
			return nil, false
		}
		value, rest, ok := scalar(rest)
		if _, twice := key[name]; !ok || twice || value == "" || len(value) > MaxValue {
			return nil, false
		}
		key[name] = value
		if rest == "}" {
			return key, true
		}
		if s, ok = strings.CutPrefix(rest, ", "); !ok {
			return nil, false
		}
	}
}

// scalar reads what writeString writes, up to the next mark, and returns what
// follows.
func scalar(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, ":,} ")
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:], plain(s[:end])
	}
	s = s[1:]
	end := strings.IndexAny(s, `"\`)
	if end >= 0 && s[end] == '"' {
		return s[:end], s[end+1:], quotable([]byte(s[:end]))
	}
	return unescape(s)
}

// unescape reads the rest of a double-quoted string with the escapes that
// writeQuoted writes.
func unescape(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r == '"':
			return b.String(), s[i:], true
		case r == utf8.RuneError && n == 1 || r != '\\' && !unicode.IsPrint(r):
			return "", "", false
		case r != '\\':
			b.WriteRune(r)
			continue
		case i == len(s):
			return "", "", false
		}
		escape := s[i]
		i++
		width := 0
		switch escape {
		case '"', '\\':
			b.WriteByte(escape)
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'u':
			width = 4
		case 'U':
			width = 8
		default:
			return "", "", false
		}
		if width == 0 {
			continue
		}
		if i+width > len(s) {
			return "", "", false
		}
		code, err := strconv.ParseUint(s[i:i+width], 16, 32)
		if err != nil || !utf8.ValidRune(rune(code)) {
			return "", "", false
		}
		b.WriteRune(rune(code))
		i += width
	}
	return "", "", false
}

// quotable reports whether text stands for itself between double quotes or in
// a comment.
func quotable(text []byte) bool {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			return false
		}
		text = text[n:]
	}
	return true
}
