package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
)

// Access says how people's groups become rights. The zero value gives nobody
// more than the services whose owners name them.
type Access struct {
	Admins []string // groups, or names of people; nil: only the server's token
	OnCall []string // as Admins
	// Private lets a person see the services of its own, and those that one of
	// them calls; lists over all services are for on-call then.
	Private bool
	// FourEyes keeps who asked for a run from accepting what it proposes.
	FourEyes bool
}

// right is what a person in these groups may do, services of its own apart.
func (s *server) right(name string, groups []string) rlc.Right {
	in := func(list []string) bool {
		return slices.ContainsFunc(list, func(one string) bool { return one == name || slices.Contains(groups, one) })
	}
	switch {
	case in(s.Access.Admins):
		return rlc.MayAdmin
	case in(s.Access.OnCall):
		return rlc.MayActAll
	}
	_, c := s.Truths.Desired()
	if c != nil {
		for _, service := range c.Services {
			if in(service.Owners) {
				return rlc.MayOwn
			}
		}
	}
	return rlc.MayRead
}

// owns reports whether who is an owner of the service by the config repository
// as it is now.
func (s *server) owns(who identity, service string) bool {
	_, c := s.Truths.Desired()
	if c == nil {
		return false
	}
	found := c.Service(service)
	return found != nil && slices.ContainsFunc(found.Owners, func(o string) bool { return o == who.name || slices.Contains(who.groups, o) })
}

// mayAct reports whether who may change something of a service; "" is all.
func (s *server) mayAct(who identity, service string) bool {
	if len(who.services) > 0 && !slices.Contains(who.services, service) {
		return false
	}
	switch who.right {
	case rlc.MayAdmin, rlc.MayActAll:
		return true
	case rlc.MayOwn:
		// A token's services are its word on what it owns. Nobody owns all.
		return service != "" && service != "*" && (len(who.services) > 0 || s.owns(who, service))
	}
	return false
}

// maySee reports whether who may read of a service; "" is all of them.
func (s *server) maySee(who identity, service string) bool {
	if who.loopback { // the machine's own users
		return true
	}
	if len(who.services) > 0 && s.Access.Private {
		return slices.Contains(who.services, service)
	}
	if !s.Access.Private || who.right == rlc.MayAdmin || who.right == rlc.MayActAll {
		return true
	}
	if service == "" {
		return false
	}
	if s.owns(who, service) {
		return true
	}
	_, c := s.Truths.Desired()
	if c == nil {
		return false
	}
	return slices.ContainsFunc(c.Quotas[service], func(q rlc.Quota) bool {
		caller := q.Key["caller"]
		return caller != "" && s.owns(who, caller)
	})
}

// open are routes that tell nothing of any service, or, as finding does, only
// of those that the viewer may see.
var open = []string{"/favicon.ico", "/api/openapi.json", "/find", "/find.json", "/find.csv"}

// byQuery are the requests whose service stands in the address' query: their
// handlers read it there and nowhere else.
var byQuery = []string{"POST /runs", "GET /api/v1/why", "GET /why", "GET /why.json", "GET /why.csv", "GET /api/v1/verdicts"}

// byBody are the acts whose service stands in the body.
var byBody = []string{
	"POST /api/v1/runs", "POST /api/v1/plan", "POST /api/v1/backtest", "POST /api/v1/replay",
	"POST /api/v1/verdicts", "POST /api/v1/overrides", "POST /emergency", "POST /why", "POST /import/commit",
}

// object finds the service that a request is about: "" where it is about all of
// them, or where nobody can say; then only those pass who may act on all.
func (s *server) object(v *visit, r route) (string, error) {
	if service := v.r.PathValue("service"); service != "" {
		service, _ = format(service, s.serviceExists)
		return service, nil
	}
	if caller := v.r.PathValue("caller"); caller != "" { // its owners see what limits it
		caller, _ = format(caller, s.serviceExists)
		return caller, nil
	}
	id := v.r.PathValue("id")
	switch {
	case id != "" && strings.Contains(r.path, "/proposals/{id}"):
		id, _ = format(id, func(id string) bool { _, err := s.Records.ProposalByID(v.ctx(), id); return err == nil })
		p, err := s.Records.ProposalByID(v.ctx(), id)
		return p.Service, err
	case id != "" && strings.Contains(r.path, "/runs/{id}"):
		id, _ = format(id, func(id string) bool { _, err := s.Records.RunByID(v.ctx(), id); return err == nil })
		run, err := s.Records.RunByID(v.ctx(), id)
		return run.Service, err
	case id != "" && (strings.Contains(r.path, "/overrides/{id}") || strings.Contains(r.path, "/emergency/{id}")):
		for _, o := range s.Overrides.Overrides() {
			if o.ID == id {
				return o.Service, nil
			}
		}
		return "", nil
	case slices.Contains(byBody, r.method+" "+r.path):
		return bodyService(v)
	case slices.Contains(byQuery, r.method+" "+r.path):
		return v.r.URL.Query().Get("service"), nil
	}
	return "", nil
}

// bodyService reads the field "service" of a body and leaves the body as it
// was. It decodes as handlers do, so that both read one value.
func bodyService(v *visit) (string, error) {
	b, err := io.ReadAll(v.r.Body)
	if err != nil {
		return "", err
	}
	v.r.Body = io.NopCloser(bytes.NewReader(b))
	switch kind, _, _ := mime.ParseMediaType(v.r.Header.Get("Content-Type")); kind {
	case "application/json":
		var in struct {
			Service string `json:"service"`
		}
		if json.NewDecoder(bytes.NewReader(b)).Decode(&in) == nil {
			return in.Service, nil
		}
	case "application/x-www-form-urlencoded":
		if form, err := url.ParseQuery(string(b)); err == nil {
			return form.Get("service"), nil
		}
	}
	return "", nil
}

// allow decides on the object, after admit has decided on the route. Whoever
// may not see a thing learns nothing of it, not even that it is there.
func (s *server) allow(v *visit, r route) error {
	if r.role == anyone || v.who.server || slices.Contains(open, r.path) {
		return nil
	}
	if r.role == admin {
		if v.who.right == rlc.MayAdmin && len(v.who.services) == 0 {
			return nil
		}
		return s.refuse(v, fault{status: http.StatusForbidden, detail: "This is for administrators."})
	}
	service, err := s.object(v, r)
	if err != nil && !errors.Is(err, rlc.ErrNotFound) {
		return err
	}
	hidden := fault{status: http.StatusNotFound, detail: "It does not exist, or it is not for you to see."}
	if err != nil {
		if s.Access.Private {
			return hidden
		}
		return nil // the handler says in its own words what is missing
	}
	computes := r.role == viewer || r.role == person
	if !s.maySee(v.who, service) {
		if service == "" && computes {
			return s.refuse(v, fault{status: http.StatusForbidden, detail: "This lists every service and is for on-call. Open one of your own services at /services/NAME."})
		}
		if service != "" {
			return s.refuse(v, hidden)
		}
	}
	if computes {
		return nil
	}
	if v.who.right == rlc.MayRun && strings.HasSuffix(r.path, "/runs") && (len(v.who.services) == 0 || slices.Contains(v.who.services, service)) {
		return nil
	}
	if strings.HasSuffix(r.path, "/follow") && v.who.right != rlc.MayAdmin && v.who.right != rlc.MayActAll || !s.mayAct(v.who, service) {
		if service == "" {
			return s.refuse(v, fault{status: http.StatusForbidden, detail: "Acting on all services is for on-call."})
		}
		return s.refuse(v, fault{status: http.StatusForbidden, detail: "Acting on " + service + " is for its owners and for on-call."})
	}
	if s.Access.FourEyes && strings.HasSuffix(r.path, "/proposals/{id}/accept") {
		return s.otherEyes(v)
	}
	return nil
}

// otherEyes refuses who asked for the run that a proposal came from, and who changed
// a number of it.
func (s *server) otherEyes(v *visit) error {
	p, err := s.Records.ProposalByID(v.ctx(), v.r.PathValue("id"))
	if err != nil {
		return err
	}
	if edited, err := s.amendedBy(v, p.ID, v.who.name); err != nil {
		return err
	} else if edited {
		return s.refuse(v, fault{status: http.StatusForbidden, detail: "You changed a number of this: somebody else must accept it."})
	}
	run, err := s.Records.RunByID(v.ctx(), p.RunID)
	if errors.Is(err, rlc.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if run.Actor == v.who.name {
		return s.refuse(v, fault{status: http.StatusForbidden, detail: "You asked for the run that proposes this: somebody else must accept it."})
	}
	return nil
}

// refuse leaves an audit row for what somebody known was refused, at most
// sixty a minute, and returns the answer.
func (s *server) refuse(v *visit, f fault) error {
	if v.who.name == "" || !s.logins.take("refused", 60) {
		return f
	}
	err := s.Identities.AddAudit(v.ctx(), rlc.AuditEntry{At: s.Now().UTC(), Actor: v.who.name, Action: "access.refused", Object: v.r.Method + " " + v.r.URL.EscapedPath(), Detail: f.detail})
	if err != nil {
		s.Log.Warn("audit a refusal", "err", err)
	}
	return f
}
