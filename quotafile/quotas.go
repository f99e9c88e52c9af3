package quotafile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

// line is a quota and where it stands.
type line struct {
	rlc.Quota
	line, column int
}

// ParseQuotas reads a quotas.yaml on its own. The quotas are nil when an error
// was found; the service is returned wherever its name was readable.
func ParseQuotas(file string, data []byte) (service string, quotas []rlc.Quota, problems []rlc.Problem) {
	p := &parser{alone: true}
	return p.parseQuotas(file, data)
}

func (p *parser) parseQuotas(file string, data []byte) (service string, quotas []rlc.Quota, problems []rlc.Problem) {
	service, lines, problems := p.quotas(file, data)
	if len(errorsOf(problems)) > 0 {
		return service, nil, problems
	}
	quotas = make([]rlc.Quota, len(lines))
	for i := range lines {
		quotas[i] = lines[i].Quota
	}
	return service, quotas, problems
}

// quotas reads a quotas.yaml.
func (p *parser) quotas(file string, data []byte) (string, []line, []rlc.Problem) {
	if len(data) <= MaxQuotasFile {
		if service, lines, ok := readGenerated(data); ok && p.inPlace(file, service) {
			return service, lines, nil
		}
	}
	return p.quotasByYAML(file, data)
}

// quotasByYAML reads any quotas.yaml.
func (p *parser) quotasByYAML(file string, data []byte) (string, []line, []rlc.Problem) {
	d, o := open(file, kindQuotas, data, MaxQuotasFile)
	if o == nil {
		return "", nil, d.problems
	}
	service := p.serviceName(d, o)
	nodes := d.list(o.need("quotas"), "quotas")
	if len(nodes) > MaxQuotas {
		d.refuse(nodes[MaxQuotas], "lower quotas.max in policy.yaml", "more than %d quotas", MaxQuotas)
		nodes = nil
	}
	o.done()
	lines := make([]line, 0, len(nodes))
	at := make(map[string]int, len(nodes))
	for _, n := range nodes {
		q, ok := d.quota(n)
		if !ok {
			continue
		}
		id := q.ID()
		if first := at[id]; first > 0 {
			d.refuse(n, "remove one", "quota %s is given twice: first at line %d", show(id), first)
			continue
		}
		at[id] = n.Line
		lines = append(lines, line{q, n.Line, n.Column})
	}
	return service, lines, d.problems
}

// quota reads one quota.
func (d *doc) quota(n *yaml.Node) (rlc.Quota, bool) {
	o := d.object(n, "quota")
	if o == nil {
		return rlc.Quota{}, false
	}
	before := len(d.problems)
	var q rlc.Quota
	q.Bucket, _ = d.word(o.need("bucket"), "bucket")
	if k := o.get("key"); k != nil {
		q.Key = d.key(k)
	}
	d.place(o, &q)
	if l := d.rateAndBurst(o); l != nil {
		q.Limit = *l
	}
	if m := o.get("mode"); m != nil {
		mode, ok := d.choice(m, "mode", string(rlc.Shadow), string(rlc.Enforce))
		if ok && mode == string(rlc.Enforce) {
			d.refuse(m, "set the bucket's mode in policy.yaml", "a quota's mode only softens: it can be shadow")
		}
		q.Mode = rlc.Mode(mode)
	}
	if w := o.get("why"); w != nil {
		q.Why, _ = d.str(w, "why")
	}
	o.read("windows", func(n *yaml.Node) { q.Windows = d.quotaWindows(n) })
	o.read("hours", func(n *yaml.Node) { q.Hours = d.quotaHours(n) })
	o.done()
	return q, len(d.problems) == before
}

// key reads the values that a bucket counts by.
func (d *doc) key(n *yaml.Node) rlc.Key {
	o := d.object(n, "key")
	if o == nil {
		return nil
	}
	if len(n.Content) == 0 {
		d.refuse(n, "leave it out for a bucket without each", "key is empty")
	}
	key := make(rlc.Key, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		name := n.Content[i]
		if !d.attribute(name, name.Value) {
			continue
		}
		v, ok := d.str(n.Content[i+1], name.Value)
		if ok && len(v) > MaxValue {
			d.refuse(n.Content[i+1], "", "%s is longer than %d bytes", name.Value, MaxValue)
		}
		key[name.Value] = v
	}
	return key
}

// header is the comment at the top of every generated file.
const header = "# Written by rlc from policy.yaml and traffic history. People edit policy.yaml.\n"

// MarshalQuotas renders a quotas.yaml: sorted by bucket, key and place, one form for
// each value, so that equal quotas are equal bytes and an unchanged quota is
// an unchanged line. What ParseQuotas accepts it reads back as the same
// values. Numbers are written in full: whoever computes them rounds them.
// Names are UTF-8; a byte that is not becomes U+FFFD.
func MarshalQuotas(service string, quotas []rlc.Quota) []byte {
	var b bytes.Buffer
	b.WriteString(header)
	b.WriteString("apiVersion: rlc/v1\nkind: " + kindQuotas + "\nservice: ")
	writeString(&b, service)
	writeQuotas(&b, quotas)
	return b.Bytes()
}

// Hash identifies quotas by content, whatever their order: the numbers, modes
// and reasons that MarshalQuotas would write.
func Hash(quotas []rlc.Quota) string {
	var b bytes.Buffer
	writeQuotas(&b, quotas)
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:16])
}

func writeQuotas(b *bytes.Buffer, quotas []rlc.Quota) {
	if len(quotas) == 0 {
		b.WriteString("\nquotas: []\n")
		return
	}
	type entry struct {
		key   string
		quota *rlc.Quota
	}
	sorted := make([]entry, len(quotas))
	for i := range quotas {
		sorted[i] = entry{quotas[i].Key.String(), &quotas[i]}
	}
	slices.SortStableFunc(sorted, func(a, b entry) int {
		return compareQuotas(a.quota, a.key, b.quota, b.key)
	})
	b.WriteString("\nquotas:\n")
	for _, e := range sorted {
		q := e.quota
		b.WriteString("  - bucket: ")
		writeString(b, q.Bucket)
		if len(q.Key) > 0 {
			b.WriteString("\n    key: {")
			for i, name := range sortedAttributes(q.Key) {
				if i > 0 {
					b.WriteString(", ")
				}
				writeString(b, name)
				b.WriteString(": ")
				writeString(b, q.Key[name])
			}
			b.WriteByte('}')
		}
		if q.Region != "" {
			b.WriteString("\n" + regionPrefix)
			writeString(b, q.Region)
		}
		if q.Zone != "" {
			b.WriteString("\n" + zonePrefix)
			writeString(b, q.Zone)
		}
		b.WriteString("\n    rate: ")
		b.WriteString(decimalText(float64(q.Rate)))
		b.WriteString("\n    burst: ")
		b.WriteString(strconv.FormatInt(int64(q.Burst), 10))
		if q.Mode != "" {
			b.WriteString("\n    mode: ")
			writeString(b, string(q.Mode))
		}
		writeTimed(b, q)
		if q.Why != "" {
			b.WriteString("\n    why: ")
			writeQuoted(b, q.Why)
		}
		b.WriteByte('\n')
	}
}

// compareQuotas orders quotas as a file lists them: by bucket, key, region and
// zone. The keys are given as text.
func compareQuotas(a *rlc.Quota, aKey string, b *rlc.Quota, bKey string) int {
	return cmp.Or(strings.Compare(a.Bucket, b.Bucket), strings.Compare(aKey, bKey), strings.Compare(a.Region, b.Region), strings.Compare(a.Zone, b.Zone))
}

// writeString writes s plain where every YAML reader takes it for the same
// string, else in double quotes.
func writeString(b *bytes.Buffer, s string) {
	if plain(s) {
		b.WriteString(s)
		return
	}
	writeQuoted(b, s)
}

// plain reports whether s reads as itself without quotes: letters, digits and
// a few marks, a letter first, and none of the words that some reader takes
// for a boolean, a null or a number.
func plain(s string) bool {
	if s == "" || len(s) > MaxValue {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || strings.IndexByte("._-/", c) >= 0):
		default:
			return false
		}
	}
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf":
		return false
	}
	return true
}

// writeQuoted writes a double-quoted YAML string on one line.
func writeQuoted(b *bytes.Buffer, s string) {
	const digits = "0123456789abcdef"
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			escape, width := `\u`, 4
			if r > 0xffff {
				escape, width = `\U`, 8
			}
			b.WriteString(escape)
			for shift := 4 * (width - 1); shift >= 0; shift -= 4 {
				b.WriteByte(digits[r>>shift&15])
			}
		}
	}
	b.WriteByte('"')
}
