package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// hit is one place that typed words may mean.
type hit struct {
	kind   string // service, caller, bucket, proposal, run, page or command
	name   string
	url    string // "" for a command, which needs its arguments
	detail string
}

// mostHits bounds the hits of one kind, mostTyped the text, in bytes.
const (
	mostHits  = 20
	mostTyped = 200
)

// typed is a command of the box: its words, and what it does. None changes
// anything: each leads to a page.
type typed struct {
	word, args, does string
	needs            int // arguments at least
	to               func(args []string, attrs url.Values) string
}

// commandsOf the box are named as those of rlc, where it has them.
func commandsOf() []typed {
	tab := func(word, does string) typed {
		return typed{word, "SERVICE", does, 1, func(a []string, _ url.Values) string { return serviceURL(a[0]) + "/" + word }}
	}
	return []typed{
		{"why", "SERVICE [CALLER [PROCEDURE]]", "which bucket counts a request, and what it refused", 1, func(a []string, attrs url.Values) string {
			return "/why?" + of(a, attrs, "service", "caller", "procedure")
		}},
		{"caller", "CALLER", "every limit on what a caller sends", 1, func(a []string, _ url.Values) string { return "/callers/" + segment(a[0]) }},
		{"explain", "SERVICE BUCKET [NAME=VALUE]", "from samples to the number", 2, func(a []string, attrs url.Values) string {
			key := rlc.Key{}
			for name := range attrs {
				key[name] = attrs.Get(name)
			}
			return bucketURL(a[0], a[1], key)
		}},
		{"throttle", "SERVICE [CALLER]", "an override until a fixed time, previewed first", 1, func(a []string, attrs url.Values) string {
			return "/emergency?" + of(a, attrs, "service", "caller", "procedure")
		}},
		tab("shadow", "what would have been dropped"), tab("whatif", "another headroom over the same history"), tab("replay", "all callers together against all buckets"),
		tab("history", "revisions, and going back"), tab("policy", "what people decide"), tab("export", "for other limiters"), tab("onboard", "first limits of a service that has none"),
	}
}

// of names arguments by their place, beside those that have a name.
func of(args []string, attrs url.Values, names ...string) string {
	for i, name := range names {
		if i < len(args) && !attrs.Has(name) {
			attrs.Set(name, args[i])
		}
	}
	return attrs.Encode()
}

// typedCommand is the address of a typed command; "" where the words are none. As in
// a shell, rlc may stand first, and --caller web is caller=web.
func typedCommand(words []string) string {
	if len(words) > 0 && words[0] == "rlc" {
		words = words[1:]
	}
	if len(words) < 2 {
		return ""
	}
	var args []string
	attrs := url.Values{}
	for i := 1; i < len(words); i++ {
		flag, isFlag := strings.CutPrefix(words[i], "--")
		name, value, pair := strings.Cut(flag, "=")
		switch {
		case pair && name != "":
			attrs.Set(name, value)
		case isFlag && i+1 < len(words):
			i++
			attrs.Set(flag, words[i])
		default:
			args = append(args, words[i])
		}
	}
	for _, c := range commandsOf() {
		if c.word == words[0] && len(args) >= c.needs {
			return c.to(args, attrs)
		}
	}
	return ""
}

// find is /find: a typed command leads to its page, a name that only one thing
// has to that thing, and any other text lists what holds it. It looks through
// the configuration in memory and asks the store for ids alone.
func (s *server) find(v *visit) error {
	q := strings.TrimSpace(v.r.URL.Query().Get("q"))
	q = strings.ToValidUTF8(q[:min(len(q), mostTyped)], "")
	if to := typedCommand(strings.Fields(q)); to != "" {
		http.Redirect(v.w, v.r, to, http.StatusSeeOther)
		return nil
	}
	all, more := s.hits(v, q)
	var exact []hit
	for _, h := range all {
		if strings.EqualFold(h.name, q) {
			exact = append(exact, h)
		}
	}
	if len(exact) == 1 {
		http.Redirect(v.w, v.r, exact[0].url, http.StatusSeeOther)
		return nil
	}
	f, err := s.frame(v, "Find", "find")
	if err != nil {
		return err
	}
	f.Search = q
	view := ui.Caller{
		Head: ui.Head{Margin: "Find", Title: cmp.Or(q, "Find")}, Section: "Found", About: "By name, or by an owner. A command leads straight to its page; none changes anything.",
		Grid:  ui.Grid{Caption: "Found", Columns: []ui.Column{{Label: "Name"}, {Label: "What"}, {Label: "About", Class: "wide"}}},
		Pager: ui.Pager{Range: plural(len(all), "hit", "hits"), JSON: v.as(".json"), CSV: v.as(".csv")},
	}
	for _, h := range all {
		view.Grid.Rows = append(view.Grid.Rows, []ui.Cell{{Text: h.name, URL: h.url}, {Text: h.kind, Kind: "soft"}, {Text: h.detail}})
	}
	switch {
	case q == "":
		view.Verdict = []ui.Part{{Text: "A name, or one of these commands, finds its page."}}
	case len(all) == 0:
		view.Verdict = []ui.Part{{Text: "Nothing is named like that."}}
		view.Empty = &ui.Empty{Title: "Nothing found", Reason: "No service, owner, caller, bucket, proposal, run or page has " + q + " in its name" + meant(q, s.names(v)), Fix: ui.Link{Text: "All services", URL: "/services"}}
	default:
		view.Verdict = []ui.Part{{Text: plural(len(all), "thing is", "things are") + " named like that."}}
	}
	if more {
		view.Note = "There are more; type more of the name."
	}
	return s.render(v, http.StatusOK, ui.CallerPage(f, view))
}

func (s *server) findJSON(v *visit) error {
	all, more := s.hits(v, strings.TrimSpace(v.r.URL.Query().Get("q")))
	out := make([]object, 0, len(all))
	for _, h := range all {
		out = append(out, object{"kind": h.kind, "name": h.name, "url": h.url, "detail": h.detail})
	}
	return answer(v, http.StatusOK, object{"hits": out, "more": more})
}

func (s *server) findCSV(v *visit) error {
	all, _ := s.hits(v, strings.TrimSpace(v.r.URL.Query().Get("q")))
	rows := make([][]string, 0, len(all))
	for _, h := range all {
		rows = append(rows, []string{h.kind, h.name, h.url, h.detail})
	}
	return sheet(v, "find", []string{"kind", "name", "url", "detail"}, rows)
}

// hits are what a text is part of the name of, that the viewer may see, at most
// mostHits of a kind; more says that there are others. No text lists pages and
// commands.
func (s *server) hits(v *visit, q string) (out []hit, more bool) {
	q = q[:min(len(q), mostTyped)]
	id := q
	q = strings.ToLower(q)
	counted := map[string]int{}
	add := func(h hit) {
		if counted[h.kind]++; counted[h.kind] > mostHits {
			more = true
			return
		}
		out = append(out, h)
	}
	if q != "" {
		s.named(v, func(h hit, also string) {
			if strings.Contains(strings.ToLower(h.name), q) || strings.Contains(strings.ToLower(also), q) {
				add(h)
			}
		})
		if p, err := s.Records.ProposalByID(v.ctx(), id); err == nil && s.maySee(v.who, p.Service) {
			add(hit{"proposal", p.ID, proposalURL(p.ID), p.Service})
		}
		if r, err := s.Records.RunByID(v.ctx(), id); err == nil && s.maySee(v.who, r.Service) {
			add(hit{"run", r.ID, runURL(r.ID), string(r.Result)})
		}
	}
	for _, name := range []string{"Overview", "Scorecard", "Services", "Proposals", "Runs", "Audit", "Why", "Emergency", "Loop", "Import", "Settings"} {
		if strings.Contains(strings.ToLower(name), q) {
			add(hit{"page", name, "/" + strings.TrimPrefix(strings.ToLower(name), "overview"), ""})
		}
	}
	for _, c := range commandsOf() {
		if strings.HasPrefix(c.word, q) {
			add(hit{"command", c.word + " " + c.args, "", c.does})
		}
	}
	return out, more
}

// named goes through what has a name: services (also by owner), callers and
// buckets, in this order, each sorted.
func (s *server) named(v *visit, tell func(h hit, also string)) {
	_, desired := s.Truths.Desired()
	if desired == nil {
		return
	}
	callers := map[string]bool{}
	var buckets []hit
	for _, svc := range desired.Services {
		if !s.maySee(v.who, svc.Name) {
			continue
		}
		owners := strings.Join(svc.Owners, ", ")
		tell(hit{"service", svc.Name, serviceURL(svc.Name), cmp.Or(owners, "unowned")}, owners)
		for _, b := range svc.Buckets {
			buckets = append(buckets, hit{"bucket", b.Name, bucketURL(svc.Name, b.Name, nil), svc.Name})
			if p := b.Match["caller"]; p.Kind == rlc.Exact {
				for _, c := range p.Values {
					callers[c] = true
				}
			}
		}
		for _, q := range desired.Quotas[svc.Name] {
			if c := q.Key["caller"]; c != "" {
				callers[c] = true
			}
		}
	}
	for name := range sortedMap(desired.Broken) {
		if s.maySee(v.who, name) {
			tell(hit{"service", name, serviceURL(name), "its policy cannot be read"}, "")
		}
	}
	for _, name := range s.unmanagedFor(v.who) {
		tell(hit{"service", name, serviceURL(name) + "/onboard", "has no policy yet"}, "")
	}
	for name := range sortedMap(callers) {
		tell(hit{"caller", name, "/callers/" + segment(name), "what limits it, and what was refused"}, "")
	}
	for _, b := range buckets {
		tell(b, "")
	}
}

// names are those of services and callers, for finding the one that was meant.
func (s *server) names(v *visit) (out []string) {
	s.named(v, func(h hit, _ string) {
		if h.kind != "bucket" && !slices.Contains(out, h.name) {
			out = append(out, h.name)
		}
	})
	return out
}
