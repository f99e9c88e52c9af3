package quotafile

import "github.com/openrlc/rlc"

// Place is where a quota stands.
type Place struct {
	rlc.Quota
	Line, Column int
}

// ReadGenerated is the fast way to read a quotas.yaml.
func ReadGenerated(data []byte) (string, []Place, bool) {
	service, lines, ok := readGenerated(data)
	return service, places(lines), ok
}

// ReadByYAML is the slow way.
func ReadByYAML(data []byte) (string, []Place, []rlc.Problem) {
	p := &parser{alone: true}
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
