package web

// Route is one line of the list of routes, for tests outside the package.
type Route struct{ Method, Path, Role string }

// Routes is the list of routes.
func Routes() []Route {
	var out []Route
	for _, r := range (&server{}).routes() {
		out = append(out, Route{r.method, r.path, string(r.role)})
	}
	return out
}

// What renders numbers and text, for tests outside the package.
var (
	Inert    = inert
	Rate     = rate
	Percent  = percent
	Signed   = signed
	Plain    = plain
	Headroom = headroom
	Axis     = axis
)

// Text is a tick's label.
func (t shareTick) Text() string { return t.text }

// OpenAPI is the API's description.
var OpenAPI = openAPI
