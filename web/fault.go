package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// fault is an error with its answer: a status, a sentence for people, and a
// title where the status' own does not fit.
type fault struct {
	status int
	detail string
	title  string
	field  string // of the form that is wrong; "" for none
}

func (f fault) Error() string { return f.detail }

func invalid(format string, args ...any) error {
	return fault{status: http.StatusBadRequest, detail: fmt.Sprintf(format, args...)}
}

func missing(what, name string) error {
	return fault{status: http.StatusNotFound, detail: fmt.Sprintf("There is no %s %q.", what, name)}
}

// faultOf is the one function from an error to its answer. Texts that adapters
// made are shown only where they speak to people, and never with a place of
// this machine in them.
func faultOf(err error) (f fault, known bool) {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &f):
	case errors.As(err, &tooLarge):
		f = fault{status: http.StatusRequestEntityTooLarge, detail: fmt.Sprintf("The request is larger than %s bytes.", rlc.Number(tooLarge.Limit))}
	case errors.Is(err, rlc.ErrNotFound):
		f = fault{status: http.StatusNotFound, detail: absent(err)}
	case errors.Is(err, rlc.ErrConflict):
		f = fault{status: http.StatusConflict, detail: "It has changed meanwhile; look again. " + plain(err)}
	case errors.Is(err, rlc.ErrFenced):
		f = fault{status: http.StatusServiceUnavailable, detail: "This replica does not lead now. Try again in a few seconds."}
	case errors.Is(err, rlc.ErrUnavailable):
		f = fault{status: http.StatusServiceUnavailable, detail: "The records cannot be reached. Limits in force stay as they are, and overrides work. Try again in a few seconds."}
	case errors.Is(err, rlc.ErrRefused):
		f = fault{status: http.StatusUnprocessableEntity, detail: plain(err)}
	case errors.Is(err, rlc.ErrInvalid):
		f = fault{status: http.StatusBadRequest, detail: plain(err)}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EROFS):
		return fault{status: http.StatusInsufficientStorage, detail: "This server cannot write to its disk: it is full or read-only. Nothing was changed that the page does not show; make room on it, and do it again."}, false
	case errors.Is(err, context.DeadlineExceeded):
		f = fault{status: http.StatusServiceUnavailable, detail: "It took too long and was given up. Try again."}
	case errors.Is(err, context.Canceled):
		f = fault{status: 499, detail: "The request was given up."}
	default:
		return fault{status: http.StatusInternalServerError, detail: "Something went wrong here; nothing was changed that the page does not show."}, false
	}
	return f, true
}

// places are absolute paths and URLs: nothing that a viewer should learn.
var places = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://\S+|(^|[\s"'=(:])(/[^\s"')]+)+`)

func plain(err error) string {
	text := strings.ToValidUTF8(rlc.Say(err), "�")
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		text = text[:i]
	}
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "") + "…"
	}
	return places.ReplaceAllString(text, "${1}…")
}

// unnamed is what the records call a row that is not there: proposal "7".
var unnamed = regexp.MustCompile(`^[a-z]+ "`)

// absent says what is not there, where the error names it.
func absent(err error) string {
	_, what, _ := strings.Cut(err.Error(), rlc.ErrNotFound.Error()+": ")
	what = plain(errors.New(what))
	switch {
	case strings.HasPrefix(what, "no "):
		return "There is " + what + "."
	case strings.HasPrefix(what, "there is no"):
		return "T" + what[1:] + "."
	case unnamed.MatchString(what):
		return "There is no " + what + "."
	}
	return "It does not exist, or not any more."
}

// told is the answer to err. What is no fault of whoever asked is logged, and the
// answer refers to the log.
func (s *server) told(v *visit, err error) fault {
	f, known := faultOf(err)
	if !known {
		ref := reference()
		s.Log.Error("request", "ref", ref, "method", v.r.Method, "path", v.r.URL.EscapedPath(), "err", err)
		f.detail += " Reference for the log: " + ref + "."
	}
	return f
}

// fail answers with err: a problem document for programs, a plain page for
// browsers.
func (s *server) fail(v *visit, err error) {
	f := s.told(v, err)
	var next ui.Link
	if f.status == http.StatusNotFound {
		f.detail, next = s.nearest(v.who, f.detail)
	}
	if f.status == http.StatusUnauthorized {
		v.w.Header().Set("WWW-Authenticate", `Bearer realm="rlc"`)
	}
	if f.status == http.StatusServiceUnavailable && v.w.Header().Get("Retry-After") == "" {
		v.w.Header().Set("Retry-After", "5")
	}
	if wantsJSON(v.r) {
		v.w.Header().Set("Content-Type", "application/problem+json")
		v.w.WriteHeader(f.status)
		json.NewEncoder(v.w).Encode(map[string]any{ //nolint:errcheck // nobody is left to tell
			"type": "about:blank", "title": title(f), "status": f.status,
			// Programs go on with a hint of their own: no full stop before it.
			"detail": strings.TrimSuffix(f.detail, "."),
		})
		return
	}
	if strings.TrimSuffix(f.detail, ".") == title(f) {
		f.detail = "" // the title says it
	}
	view := ui.Fault{Status: fmt.Sprint(f.status), Title: title(f), Detail: f.detail, Next: next}
	if f.status == http.StatusUnauthorized {
		back := "/"
		if v.r.Method == http.MethodGet {
			back = v.r.URL.RequestURI()
		} else if u, err := url.Parse(v.r.Referer()); err == nil {
			back = u.RequestURI()
		}
		view.SignIn = "/login?next=" + url.QueryEscape(local(back))
	}
	if f.status == http.StatusServiceUnavailable && v.r.Method == http.MethodGet {
		view.Again = v.r.URL.RequestURI()
	}
	if f.status == http.StatusServiceUnavailable || f.status == http.StatusUnauthorized {
		view.Resend = v.resend()
	}
	frame := s.bareFrame(v, view.Title)
	if err := s.render(v, f.status, ui.FaultPage(frame, view)); err != nil {
		s.Log.Error("render an error", "err", err)
	}
}

// resend are the fields of a form that met no session or no answer in time, so that
// it can be sent again when somebody has signed in or the server answers: nobody types
// anything twice. A form that another site sent is not kept: it is not the person's own.
func (v *visit) resend() (fields []ui.Field) {
	if v.r.Method != http.MethodPost || v.r.Header.Get("Sec-Fetch-Site") != "same-origin" || form(v) != nil {
		return nil
	}
	for name, values := range sortedMap(v.r.PostForm) {
		for _, value := range values {
			fields = append(fields, ui.Field{Name: name, Value: value})
		}
	}
	return fields
}

func title(f fault) string {
	if f.title != "" {
		return f.title
	}
	switch f.status {
	case http.StatusInternalServerError:
		return "Something went wrong"
	case http.StatusUnprocessableEntity:
		return "Refused by a guard"
	case 499:
		return "Given up"
	case http.StatusUnauthorized:
		return "Sign in first"
	}
	return http.StatusText(f.status)
}

// wantsJSON reports whether a program asks: the API, a .json address, or an
// Accept header without HTML.
func wantsJSON(r *http.Request) bool {
	if strings.HasPrefix(r.URL.Path, "/api/") || strings.HasSuffix(r.URL.Path, ".json") {
		return true
	}
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "json") && !strings.Contains(accept, "text/html")
}
