package quotafile

import "github.com/openrlc/rlc"

// Place is where a quota stands.
type Place struct {
	rlc.Quota
	Line, Column int
}

// ReadGenerated is the fast way to read a quotas.yaml.
func ReadGenerated(data []byte) (string, []Place, bool) {
	service, lines, ok := readGenerated(data, nil)
	return service, places(lines), ok
}

// ReadByYAML is the slow way.
func ReadByYAML(data []byte) (string, []Place, []rlc.Problem) {
	p := &parser{alone: true} // no gates
	service, lines, problems := p.quotasByYAML("quotas.yaml", data)
	return service, places(lines), problems
}

func places(lines []line) []Place {
	all := make([]Place, len(lines))
	for i, l := range lines {
		all[i] = Place{l.Quota, l.line, l.column}
	}
	return all
}

// ParseUngated is Parse with everything acted on.
func ParseUngated(files rlc.Files) *Config {
	p := newParser(nil)
	p.gates = nil
	p.parse(files)
	return p.config
}

// ParseQuotasUngated is ParseQuotas with everything acted on.
func ParseQuotasUngated(data []byte) (string, []rlc.Quota, []rlc.Problem) {
	p := &parser{alone: true}
	return p.parseQuotas("quotas.yaml", data)
}

// Unsupported is what is read and refused by name.
func Unsupported() []string { return unsupported() }
