package web

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/openrlc/rlc/internal/envoyconfig"
	"github.com/openrlc/rlc/web/ui"
)

// exported is a service's limits, as the base branch has them, for another
// limiter.
type exported struct {
	truth   *truth
	kind    string
	headers string // as people write them: attribute=header, spaces between
	options envoyconfig.Options
	text    []byte
	losses  []envoyconfig.Loss
}

// nothingToExport is why a service whose policy cannot be read is not exported.
var nothingToExport = fault{status: http.StatusUnprocessableEntity, title: "Nothing to export", detail: "The policy cannot be read. What is live stays in force; mend the file first."}

// gatherExport reads the kind and its options from the address.
func (s *server) gatherExport(v *visit) (x exported, err error) {
	name := v.r.PathValue("service")
	if x.truth, err = s.configured(v.ctx(), name); err != nil {
		return x, err
	}
	q := v.r.URL.Query()
	x.kind = q.Get("kind")
	if x.kind == "" {
		x.kind = envoyconfig.Ratelimit
	}
	if !slices.Contains(envoyconfig.Kinds(), x.kind) {
		return x, invalid("kind must be one of %s", strings.Join(envoyconfig.Kinds(), ", "))
	}
	x.headers, x.options = strings.TrimSpace(q.Get("headers")), envoyconfig.Options{Headers: map[string]string{}, Instances: 1}
	for _, pair := range strings.Fields(x.headers) {
		attribute, header, ok := strings.Cut(pair, "=")
		if !ok || attribute == "" || header == "" {
			return x, invalid("headers must be attribute=header, spaces between")
		}
		x.options.Headers[attribute] = header
	}
	if text := q.Get("instances"); text != "" {
		n, ok := positive(text)
		if !ok {
			return x, invalid("instances must be a whole number from 1 on")
		}
		x.options.Instances = n
	}
	_, desired := s.Truths.Desired()
	if desired == nil || desired.Service(name) == nil {
		return x, nothingToExport
	}
	service := desired.Service(name)
	x.text, x.losses, err = envoyconfig.Export(x.kind, envoyconfig.Source{Service: service, Quotas: desired.Quotas[name], Profile: desired.Profiles[service.Profile]}, x.options)
	return x, err
}

// exportKinds names the kinds for people.
var exportKinds = map[string]string{envoyconfig.Ratelimit: "Envoy ratelimit", envoyconfig.Gateway: "Envoy Gateway", envoyconfig.Istio: "Istio"}

// export is /services/{service}/export.
func (s *server) export(v *visit) error {
	x, err := s.gatherExport(v)
	broken := err == error(nothingToExport)
	if err != nil && !broken {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	name := x.truth.name
	f, err := s.frame(v, name+" / export", "services")
	if err != nil {
		return err
	}
	losses := cut(x.losses, page)
	view := ui.Export{
		Head: s.tabbed(x.truth, "export"),
		Kind: x.kind, Text: string(x.text), Download: v.as(".yaml"), Pager: v.pager(page, len(losses), len(x.losses)),
		Headers: x.headers, Instances: strconv.Itoa(x.options.Instances), WithHeaders: x.kind != envoyconfig.Ratelimit, WithInstances: x.kind == envoyconfig.Istio,
		Command: command("rlc export", append([]string{x.kind, "--service", name}, exportFlags(x)...)...),
		Losses:  ui.Grid{Caption: "What gets lost", Columns: []ui.Column{{Label: "Kind"}, {Label: "What", Class: "wide"}}},
	}
	for _, k := range envoyconfig.Kinds() {
		view.Kinds = append(view.Kinds, ui.Choice{Label: exportKinds[k], URL: v.with("kind", k), On: k == x.kind})
	}
	for _, l := range losses {
		view.Losses.Rows = append(view.Losses.Rows, []ui.Cell{{Text: l.Kind}, {Text: l.Text}})
	}
	view.Verdict = []ui.Part{{Text: "Nothing gets lost: "}, {Text: exportKinds[x.kind], Bold: true}, {Text: " can say all that the base branch says of " + name + "."}}
	if len(x.losses) > 0 {
		kinds := map[string]bool{}
		for _, l := range x.losses {
			kinds[l.Kind] = true
		}
		view.Verdict = []ui.Part{{Text: exportKinds[x.kind], Bold: true}, {Text: " says " + plural(len(x.losses), "thing", "things") + " otherwise or not at all, of " + plural(len(kinds), "kind", "kinds") + ": read them before this file decides."}}
	}
	if broken {
		view.Verdict, view.Download = x.truth.invalid(), ""
		view.Empty = &ui.Empty{Title: nothingToExport.title, Reason: nothingToExport.detail, Query: firstProblem(x.truth.problems), Fix: ui.Link{Text: "Policy", URL: serviceURL(name) + "/policy"}}
	}
	return s.render(v, http.StatusOK, ui.ExportPage(f, view))
}

// exportFlags are the options as the command takes them.
func exportFlags(x exported) (flags []string) {
	for a, h := range sortedMap(x.options.Headers) {
		flags = append(flags, "--header", a+"="+h)
	}
	if x.options.Instances > 1 {
		flags = append(flags, "--instances", strconv.Itoa(x.options.Instances))
	}
	return flags
}

// exportYAML is the file itself.
func (s *server) exportYAML(v *visit) error {
	x, err := s.gatherExport(v)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
	v.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": filename(x.truth.name) + ".yaml"}))
	_, err = v.w.Write(x.text)
	return ignoreGone(err)
}

func (s *server) exportJSON(v *visit) error {
	x, err := s.gatherExport(v)
	if err != nil {
		return err
	}
	return answer(v, http.StatusOK, object{"service": x.truth.name, "kind": x.kind, "text": string(x.text), "losses": list(x.losses)})
}

// exportCSV lists what gets lost.
func (s *server) exportCSV(v *visit) error {
	x, err := s.gatherExport(v)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, l := range x.losses {
		rows = append(rows, []string{l.Kind, l.Text})
	}
	return sheet(v, x.truth.name+"-losses", []string{"kind", "what"}, rows)
}
