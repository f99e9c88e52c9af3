package ui

import (
	"context"
	"net/url"
	"slices"

	"github.com/a-h/templ"
)

// Refused is a form that was sent and not carried out. Its page comes back with the
// form as it was filled in and says beside the field what is wrong.
type Refused struct {
	Action string // where the form was sent, as its page writes it
	Field  string // the field that is wrong; "" or one that it does not show: the form
	Text   string
	Values url.Values
}

// WrongID is the id of what is said of a refused form.
const WrongID = "wrong"

type refusedKey struct{}

// With gives a page the form that it has to bring back.
func (r *Refused) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, refusedKey{}, r)
}

// refused is the refused form that is sent to action; nil where that one was not.
func refused(ctx context.Context, action string) *Refused {
	r, _ := ctx.Value(refusedKey{}).(*Refused)
	if r == nil || r.Action != action {
		return nil
	}
	return r
}

// typed is what a field of a form holds: what was typed, else otherwise.
func typed(ctx context.Context, action, name, otherwise string) string {
	if r := refused(ctx, action); r != nil {
		return r.Values.Get(name)
	}
	return otherwise
}

// picked reports whether a choice of a form is on: as it was sent, else otherwise.
func picked(ctx context.Context, action, name, value string, otherwise bool) bool {
	if r := refused(ctx, action); r != nil {
		return slices.Contains(r.Values[name], value)
	}
	return otherwise
}

// marked tells an input that it is the wrong one. hint is the id of what is said of
// the input anyway; "" for nothing.
func marked(ctx context.Context, action, name, hint string) templ.Attributes {
	if r := refused(ctx, action); r != nil && r.Field == name {
		return templ.Attributes{"aria-invalid": "true", "aria-describedby": WrongID, "autofocus": true}
	}
	if hint != "" {
		return templ.Attributes{"aria-describedby": hint}
	}
	return nil
}

// aside reports whether none of the fields that a form shows is the wrong one.
func (r *Refused) aside(fields []string) bool { return !slices.Contains(fields, r.Field) }
