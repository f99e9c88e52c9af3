package web

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"unicode"

	"github.com/a-h/templ"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/jsontext"
	"github.com/openrlc/rlc/web/ui"
)

// render answers with a page. The page is built whole before its first byte
// leaves, so that an error is still an answer of its own.
func (s *server) render(v *visit, status int, c templ.Component) error {
	if v.gone != nil && status == http.StatusOK {
		return v.gone
	}
	var b bytes.Buffer
	if err := c.Render(v.ctx(), &b); err != nil {
		return err
	}
	if v.refused != nil {
		if !bytes.Contains(b.Bytes(), []byte(` id="`+ui.WrongID+`"`)) {
			return *v.refused
		}
		if status = v.refused.status; status == http.StatusServiceUnavailable {
			v.w.Header().Set("Retry-After", "5")
		}
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, err := v.w.Write(visible(b.Bytes()))
	return ignoreGone(err)
}

// visible writes out the characters that would make a name look like another:
// those that turn the direction of text, and control characters. No page needs
// them, and addresses carry them escaped.
func visible(page []byte) []byte {
	hidden := func(r rune) bool {
		return unicode.Is(unicode.Bidi_Control, r) || r == '\u200b' || r == '\ufeff' || (unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r')
	}
	if bytes.IndexFunc(page, hidden) < 0 {
		return page
	}
	var out bytes.Buffer
	for _, r := range string(page) {
		if hidden(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.Bytes()
}

// answer answers with JSON.
func answer(v *visit, status int, value any) error {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(value); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.WriteHeader(status)
	_, err := b.WriteTo(v.w)
	return ignoreGone(err)
}

// ignoreGone drops the error of writing to a client that has left: the status
// is sent and nobody is there to read another.
func ignoreGone(error) error { return nil }

// sheet answers with CSV. Cells that a spreadsheet would take for a formula
// are made text by a leading apostrophe.
func sheet(v *visit, name string, header []string, rows [][]string) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	w.Write(header) //nolint:errcheck // a buffer takes everything; Error is asked below
	for _, r := range rows {
		for i := range r {
			r[i] = inert(r[i])
		}
		w.Write(r) //nolint:errcheck // as above
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
	v.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": filename(name) + ".csv"}))
	_, err := b.WriteTo(v.w)
	return ignoreGone(err)
}

// inert makes a cell that no spreadsheet evaluates. Numbers of our own, which
// may be negative, stay numbers.
func inert(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == 0 {
			return -1
		}
		return r
	}, s)
	t := strings.TrimLeft(s, " \t\r\n\v\f")
	if t == "" {
		return s
	}
	if s[0] == '\t' || s[0] == '\r' || s[0] == '\n' {
		return "'" + s
	}
	switch []rune(t)[0] {
	case '=', '+', '@', '＝', '＋', '＠', '－':
		return "'" + s
	case '-':
		if !number(t[1:]) {
			return "'" + s
		}
	}
	return s
}

func number(s string) bool {
	return s != "" && strings.Trim(s, "0123456789.") == ""
}

func filename(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, s)
	return s[:min(len(s), 60)]
}

// isJSON reports whether a request's body says that it is JSON.
func isJSON(r *http.Request) bool {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && t == "application/json"
}

// read decodes one JSON document strictly into value: no name is unknown, in
// another case or given twice.
func read(v *visit, value any) error {
	if !isJSON(v.r) {
		return fault{status: http.StatusUnsupportedMediaType, detail: "Send JSON, with Content-Type: application/json."}
	}
	content, err := io.ReadAll(v.r.Body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return err
	}
	if err != nil {
		return invalid("The body cannot be read to its end.")
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(value); err != nil {
		if errors.Is(err, rlc.ErrInvalid) {
			return err
		}
		return invalid("The JSON cannot be read: %s.", jsontext.Of(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalid("There is more after the JSON document.")
	}
	return unambiguous(content, reflect.TypeOf(value))
}

// form parses a form that a page posted.
func form(v *visit) error {
	if t, _, err := mime.ParseMediaType(v.r.Header.Get("Content-Type")); err != nil || t != "application/x-www-form-urlencoded" {
		return fault{status: http.StatusUnsupportedMediaType, detail: "Send a form."}
	}
	if err := v.r.ParseForm(); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return err
		}
		return invalid("The form cannot be read.")
	}
	return nil
}
