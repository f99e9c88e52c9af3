package ui

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// doors let text into a page without escaping it, or let a page run or style
// what does not come from /static: the policy would stop most of them in a
// browser, this stops them before.
var doors = map[string]*regexp.Regexp{
	"text that is not escaped":         regexp.MustCompile(`templ\.(Raw|FromGoHTML|ToGoHTML)\b|template\.HTML\b`),
	"an address that is not looked at": regexp.MustCompile(`templ\.(SafeURL|URL)\b`),
	"style that is not escaped":        regexp.MustCompile(`templ\.(SafeCSS|SafeCSSProperty)\b|(?i)[\s"]style\s*=|(?i)<style\b|(?m)^css \w+\(`),
	"script of a template":             regexp.MustCompile(`templ\.(ComponentScript|SafeScript|JSFuncCall|JSUnsafeFuncCall|JSExpression)\b|(?m)^script \w+\(`),
	"inline script":                    regexp.MustCompile(`(?i)<script(>|\s[^>]*>\s*[^<\s])`),
	"a handler in an attribute":        regexp.MustCompile(`(?i)\son[a-z]+=`),
	"an attribute that htmx runs":      regexp.MustCompile(`(?i)\s(data-)?hx-[a-z:-]+\s*=`),
	"a document in an attribute":       regexp.MustCompile(`(?i)\ssrcdoc\s*=`),
	"attributes by a map":              regexp.MustCompile(`templ\.Attributes\b|\{\s*[a-zA-Z.]*[^n\s]\.\.\.\s*\}`), // but { children... }
}

// address finds an attribute that a browser goes to, and what fills it.
var address = regexp.MustCompile(`\s(href|src|action|formaction|xlink:href|poster|data|cite|ping)=\{([^}]*)\}`)

// joined are the addresses that a template puts together: of constants, of ids
// that this server makes, and of what its handler has escaped. All others come
// whole from the handler, whose tests look at them.
var joined = []string{
	`"/login?next=" + f.Back`, `"/login/provider?next=" + v.Back`, `"/switches/" + s.Name`,
	`"/emergency/" + o.ID + "/extend"`, `"/emergency/" + o.ID + "/end"`, `"/emergency/" + o.ID + "/keep"`,
}

var asset = regexp.MustCompile(`^f\.Assets \+ "[a-zA-Z0-9./-]+"$`)

// opened is what is wrong with a source.
func opened(source string) (wrong []string) {
	for what, door := range doors {
		for _, found := range door.FindAllString(source, -1) {
			wrong = append(wrong, what+": "+strings.TrimSpace(found))
		}
	}
	for _, m := range address.FindAllStringSubmatch(source, -1) {
		value := strings.TrimSpace(m[2])
		if !plain.MatchString(value) && !asset.MatchString(value) && !slices.Contains(joined, value) {
			wrong = append(wrong, "an address put together: "+m[1]+"={ "+value+" }")
		}
	}
	slices.Sort(wrong)
	return wrong
}

// plain is one value, not put together.
var plain = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*(\.[a-zA-Z][a-zA-Z0-9_]*|\[[a-z0-9]+\])*$`)

func TestTemplatesOpenNoDoor(t *testing.T) {
	var sources []string
	for _, pattern := range []string{"*.templ", "*.go", "../*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, found...)
	}
	templates := 0
	for _, path := range sources {
		if strings.HasSuffix(path, "_templ.go") || strings.HasSuffix(path, "_test.go") {
			continue // made of the templates; not served
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		source := string(text)
		if strings.HasSuffix(path, ".templ") {
			templates++
		} else if !strings.Contains(source, "templ") {
			continue // Go that speaks of no template
		}
		if path == "refused.go" { // their names are written out, their values ids of templates
			for _, known := range []string{
				`"aria-invalid": "true", "aria-describedby": WrongID, "autofocus": true}`, `"aria-describedby": hint}`,
			} {
				source = strings.Replace(source, "templ.Attributes{"+known, "", 1)
			}
			source = strings.Replace(source, "hint string) templ.Attributes {", "", 1)
		}
		for _, wrong := range opened(source) {
			t.Errorf("%s: %s", path, wrong)
		}
	}
	if templates < 10 {
		t.Errorf("%d templates looked at", templates)
	}
}

func TestEachDoorIsSeen(t *testing.T) {
	for source, want := range map[string]string{
		`<p>@templ.Raw(v.Text)</p>`:                                "text that is not escaped: templ.Raw",
		`<a href={ templ.SafeURL(v.URL) }>x</a>`:                   "an address that is not looked at: templ.SafeURL",
		`<a href={ "/services/" + v.Name }>x</a>`:                  `an address put together: href={ "/services/" + v.Name }`,
		`<form action={ url(v.Name) }></form>`:                     "an address put together: action={ url(v.Name) }",
		`<i style={ v.Style }></i>`:                                "style that is not escaped: style=",
		"<style>p{}</style>":                                       "style that is not escaped: <style",
		"css red() {":                                              "style that is not escaped: css red(",
		`<script>go()</script>`:                                    "inline script: <script>",
		"<script type=\"module\">\n go()</script>":                 "inline script: <script type=\"module\">\n g",
		"script go(x string) {":                                    "script of a template: script go(",
		`<b onclick={ templ.JSFuncCall("go") }></b>`:               "a handler in an attribute: onclick=",
		`<b hx-get={ v.URL }></b>`:                                 "an attribute that htmx runs: hx-get=",
		`<iframe srcdoc={ v.Text }></iframe>`:                      "a document in an attribute: srcdoc=",
		`<b { v.Attrs... }></b>`:                                   "attributes by a map: { v.Attrs... }",
		`<script src={ f.Assets + "app.js" } defer></script>`:      "",
		`<a href={ v.URL } data-n={ "1" }>{ "a" + v.Name }</a>`:    "",
		`@templ.JSONScript("chart-data", c.Data)`:                  "",
		`<link rel="stylesheet" href={ f.Assets + "app.css" }/>`:   "",
		`<form action={ "/emergency/" + o.ID + "/end" }></form>`:   "",
		`<p>for the next run, on the page Emergency, once = 1</p>`: "",
	} {
		got := opened(source)
		if (want == "") != (len(got) == 0) || want != "" && !slices.Contains(got, want) {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}
