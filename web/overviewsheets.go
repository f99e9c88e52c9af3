package web

import (
	"net/http"
	"strings"

	"github.com/openrlc/rlc/web/ui"
)

// overviewJSON is /overview.json: what / says and lists.
func (s *server) overviewJSON(v *visit) error {
	h, err := s.gatherHome(v)
	if err != nil {
		return err
	}
	view := s.home(v, h)
	state, queue := make([]object, 0, len(view.Say)), make([]object, 0, len(view.Queue))
	for _, x := range view.Say {
		state = append(state, object{"level": x.Level, "text": signText(x), "url": orNull(x.Link.URL)})
	}
	for _, x := range view.Queue {
		queue = append(queue, object{"kind": x.Chip.Text, "service": x.Title, "text": x.Detail, "url": orNull(x.Action.URL)})
	}
	return answer(v, http.StatusOK, object{"verdict": sentenceText(view.Verdict), "state": state, "needs_you": queue, "counted": view.Counted})
}

// overviewCSV is /overview.csv: what needs a person.
func (s *server) overviewCSV(v *visit) error {
	h, err := s.gatherHome(v)
	if err != nil {
		return err
	}
	view := s.home(v, h)
	var rows [][]string
	for _, x := range view.Queue {
		rows = append(rows, []string{x.Chip.Text, x.Title, x.Detail, x.Action.URL})
	}
	return sheet(v, "needs-you", []string{"kind", "service", "text", "url"}, rows)
}

// signText is a sign's sentence without markup.
func signText(x ui.Sign) string {
	return strings.Join(strings.Fields(strings.Join([]string{x.Before, x.Link.Text, x.After, x.Soft}, " ")), " ")
}

// sentenceText is a sentence without markup.
func sentenceText(parts []ui.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return strings.TrimSpace(b.String())
}
