package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/envoyconfig"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web/ui"
)

// Imports put policies that come from another limiter on the base branch.
type Imports interface {
	// ImportPolicy commits a first policy of a service, as actor's act. One that
	// is there already is rlc.ErrConflict; one that does not validate, or that
	// enforces anything, rlc.ErrInvalid.
	ImportPolicy(ctx context.Context, service string, policy []byte, actor string) error
}

// Bounds of what the form of an import holds: the text, and the whole form,
// which writes most of its signs with three.
const (
	mostImport     = 1 << 20
	mostImportForm = 3*mostImport + 4096
)

// mostLosses is how many losses a preview shows; rlc import tells all.
const mostLosses = 200

// imported is what a pasted file becomes: a policy in shadow, or problems.
type imported struct {
	text     string
	in       envoyconfig.Imported
	policy   []byte // all in shadow, with owners
	service  *rlc.Service
	problems []rlc.Problem
	there    bool // the service has a policy already
}

// importText translates a pasted file; everything that would enforce is put in
// shadow.
func (s *server) importText(text string, owners []string) (x imported, err error) {
	x.text = strings.ReplaceAll(text, "\r\n", "\n")
	if len(x.text) > mostImport {
		return x, fault{status: http.StatusRequestEntityTooLarge, detail: fmt.Sprintf("The file is larger than %s bytes; import it with rlc import envoy-ratelimit.", rlc.Number(mostImport))}
	}
	if strings.TrimSpace(x.text) == "" {
		return x, invalid("Paste a file of Envoy's ratelimit service, or choose one.")
	}
	if x.in, x.problems = envoyconfig.Import("pasted", []byte(x.text)); len(x.problems) > 0 {
		return x, nil
	}
	x.policy = bytes.Replace(x.in.Policy, []byte("\ndefaults: {mode: enforce,"), []byte("\ndefaults: {mode: shadow,"), 1)
	if len(owners) > 0 {
		line, err := json.Marshal(owners) // JSON's lists of strings are YAML's
		if err != nil {
			return x, err
		}
		x.policy = bytes.Replace(x.policy, []byte("\ndefaults: "), fmt.Appendf(nil, "\nowners: %s\ndefaults: ", line), 1)
	}
	path := quotafile.PolicyPath(x.in.Service)
	parsed := quotafile.Parse(rlc.Files{path: x.policy}, policies.Builtin().Check)
	for _, p := range parsed.Problems {
		if !p.Warning {
			p.Message, p.File, p.Line, p.Column = fmt.Sprintf("as a policy (%s:%d): %s", p.File, p.Line, p.Message), "pasted", 1, 1
			x.problems = append(x.problems, p)
		}
	}
	if x.service = parsed.Service(x.in.Service); x.service == nil {
		return x, nil
	}
	if slices.ContainsFunc(x.service.Buckets, func(b rlc.Bucket) bool { return b.Mode != rlc.Shadow }) {
		return x, fmt.Errorf("import of %q: a bucket is not in shadow", x.in.Service)
	}
	_, desired := s.Truths.Desired()
	x.there = desired != nil && (desired.Service(x.in.Service) != nil || desired.Broken[x.in.Service] != nil)
	return x, nil
}

// importAlone translates a file for a preview, one at a time: anybody may look,
// and a large file takes a core for a while.
func (s *server) importAlone(text string) (imported, error) {
	if !s.importing.TryLock() {
		return imported{}, fault{status: http.StatusServiceUnavailable, detail: "Another file is being looked at. Try again in a few seconds."}
	}
	defer s.importing.Unlock()
	return s.importText(text, nil)
}

// importForm is GET /import: where a file is pasted.
func (s *server) importForm(v *visit) error {
	f, err := s.frame(v, "Import", "services")
	if err != nil {
		return err
	}
	return s.render(v, http.StatusOK, ui.ImportPage(f, ui.Import{Most: count(mostImport / 1024)}))
}

// importPreview is POST /import: what a pasted file becomes. It changes
// nothing.
func (s *server) importPreview(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	x, err := s.importAlone(v.r.PostFormValue("text"))
	if err != nil {
		return err
	}
	f, err := s.frame(v, "Import", "services")
	if err != nil {
		return err
	}
	view := ui.Import{Most: count(mostImport / 1024), Text: x.text, Asked: true, CanAct: v.may(), SignIn: "/login?next=" + query("/import")}
	for _, p := range x.problems {
		view.Problems = append(view.Problems, p.String())
	}
	if len(x.problems) > 0 || x.service == nil {
		errors := plural(len(x.problems), "error", "errors")
		if len(x.problems) > envoyconfig.MaxProblems {
			errors = "More than " + plural(envoyconfig.MaxProblems, "error", "errors")
		}
		view.Verdict = []ui.Part{{Text: errors + ": nothing of the file was taken over. ", Bold: true}, {Text: "Mend it below and look again."}}
		return s.render(v, http.StatusUnprocessableEntity, ui.ImportPage(f, view))
	}
	view.Service, view.Policy, view.Path = x.in.Service, string(x.policy), quotafile.PolicyPath(x.in.Service)
	view.Verdict = []ui.Part{{Text: x.in.Service, Bold: true}, {Text: " gets " + plural(len(x.service.Buckets), "bucket", "buckets") + "; " + lossCount(len(x.in.Losses)) + ". Here everything starts in shadow: it is counted, and nothing is dropped until a bucket is promoted."}}
	if x.there {
		view.There = ui.Link{Text: x.in.Service + " has a policy already", URL: serviceURL(x.in.Service)}
	}
	view.Buckets = importedBuckets(x)
	view.Losses = ui.Grid{Caption: "What gets lost", Columns: []ui.Column{{Label: "Line", Class: "num"}, {Label: "Kind"}, {Label: "What", Class: "wide"}}}
	for _, l := range x.in.Losses[:min(len(x.in.Losses), mostLosses)] {
		view.Losses.Rows = append(view.Losses.Rows, []ui.Cell{{Text: count(float64(l.Line))}, {Text: l.Kind}, {Text: l.Text}})
	}
	if more := len(x.in.Losses) - mostLosses; more > 0 {
		view.Losses.Rows = append(view.Losses.Rows, []ui.Cell{{}, {}, {Text: "and " + count(float64(more)) + " more; rlc import envoy-ratelimit tells all"}})
	}
	return s.render(v, http.StatusOK, ui.ImportPage(f, view))
}

func lossCount(n int) string {
	if n == 0 {
		return "nothing gets lost"
	}
	return plural(n, "thing is", "things are") + " said otherwise or not at all"
}

func importedBuckets(x imported) ui.Grid {
	g := ui.Grid{Caption: "Buckets", Columns: []ui.Column{{Label: "Bucket"}, {Label: "Role"}, {Label: "Matches", Class: "wide"}, {Label: "Counts by"}, {Label: "Limit", Class: "num"}}}
	for i := range x.service.Buckets {
		b := &x.service.Buckets[i]
		var match []string
		for a, p := range sortedMap(b.Match) {
			match = append(match, a+" "+patternText(p))
		}
		if len(match) == 0 {
			match = []string{"any request"}
		}
		each, limit := "one counter", "none: counted only"
		if len(b.Each) > 0 {
			each = "each " + strings.Join(b.Each, ", ")
		}
		switch {
		case b.Window != nil:
			limit = count(float64(b.Window.Requests)) + " per " + span(b.Window.Span())
		case b.Limit != nil:
			limit = limitText(b.Limit) + " req/s"
		}
		g.Rows = append(g.Rows, []ui.Cell{{Text: b.Name}, {Text: string(b.Role)}, {Text: strings.Join(match, ", ")}, {Text: each}, {Text: limit}})
	}
	return g
}

// formImport is POST /import/commit. The service's name travels beside the
// text, so that who may act is known before the text is read; it must be the
// text's own.
func (s *server) formImport(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	owners, err := ownersIn(v.r.PostFormValue("owners"))
	if err != nil {
		return err
	}
	x, err := s.importText(v.r.PostFormValue("text"), owners)
	switch {
	case err != nil:
		return err
	case len(x.problems) > 0 || x.service == nil:
		return invalid("The file has errors: look at its preview first.")
	case x.in.Service != v.r.PostFormValue("service"):
		return invalid("The file is of another service than the preview: look at its preview first.")
	case s.Imports == nil:
		return fault{status: http.StatusNotFound, detail: "This server imports nothing."}
	}
	if err := s.Imports.ImportPolicy(v.ctx(), x.in.Service, x.policy, v.who.name); err != nil {
		return err
	}
	return v.back("/services", "imported")
}

// ownersIn reads owners as people write them: by commas.
func ownersIn(text string) (owners []string, err error) {
	for _, o := range strings.Split(text, ",") {
		if o = strings.TrimSpace(o); o != "" {
			owners = append(owners, o)
		}
	}
	if len(owners) > 20 {
		return nil, wrongIn("owners", invalid("At most 20 owners."))
	}
	return owners, nil
}
