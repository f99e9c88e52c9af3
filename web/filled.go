package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/openrlc/rlc/web/ui"
)

// wrongIn is a refusal of what a field of a form holds.
func wrongIn(field string, err error) error {
	if f, known := faultOf(err); err != nil && known {
		f.field = field
		return f
	}
	return err
}

// lost are the answers that do not bring a form back: who sent it may not, or it
// could not be read.
var lost = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType}

// filled serves a form that people type into. Where act does not carry it out, page
// comes back with the form as it was sent: nobody types anything twice. at is the
// page's address.
func (s *server) filled(act, page func(*visit) error, at func(*visit) string) func(*visit) error {
	return func(v *visit) error {
		err := act(v)
		if err == nil || wantsJSON(v.r) {
			return err
		}
		f := s.told(v, err)
		to, bad := url.Parse(at(v))
		if bad != nil || slices.Contains(lost, f.status) {
			return f
		}
		// What the page was asked for is known by the address that the form came from:
		// its part of a list, its window.
		if from, bad := url.Parse(v.r.Referer()); bad == nil && from.Host == v.r.Host && from.EscapedPath() == to.EscapedPath() && to.RawQuery == "" {
			to.RawQuery = from.RawQuery
		}
		back := *v
		back.r = v.r.Clone(v.ctx())
		back.r.Method, back.r.URL = http.MethodGet, to
		back.refuse(f, v.r.URL.RequestURI(), v.r.PostForm)
		if page(&back) != nil {
			return f // the form is not there any more
		}
		return nil
	}
}

// refuse lets the page that is rendered bring the form back that was sent to action.
func (v *visit) refuse(f fault, action string, in url.Values) {
	if f.status == http.StatusBadRequest {
		f.status = http.StatusUnprocessableEntity
	}
	v.refused = &f
	v.r = v.r.WithContext((&ui.Refused{Action: action, Field: f.field, Text: f.detail, Values: in}).With(v.ctx()))
}

// page is the address of a page whose path is given with the names of this request's
// path in it: /proposals/{id}.
func page(path string) func(*visit) string {
	return func(v *visit) string {
		parts := strings.Split(path, "/")
		for i, p := range parts {
			if strings.HasPrefix(p, "{") {
				parts[i] = segment(v.r.PathValue(strings.Trim(p, "{}")))
			}
		}
		return strings.Join(parts, "/")
	}
}
