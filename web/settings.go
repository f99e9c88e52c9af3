package web

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web/ui"
)

// Settings are the server's word on how it is set up.
type Settings interface {
	Settings(ctx context.Context) Setup
}

// Setup is a server's configuration in force and its parts. No field holds a
// secret.
type Setup struct {
	Version  string // of the program
	Started  time.Time
	Leads    bool   // this replica fires runs
	Schedule string // as configured
	Next     time.Time
	Parts    []SetupPart
	Keys     []Setting // one for each key, in the order of the documents
}

// SetupPart is an engine in use.
type SetupPart struct {
	Name    string    // what it is for
	Engine  string    // what it is
	Where   string    // its address or folder
	Trouble string    // why it cannot be used; "" where it answers
	Since   time.Time // of the trouble; zero: not known
}

// Setting is one key's value in force.
type Setting struct {
	Key    string
	Value  string // of a secret: whether it is set
	From   string // default, program, file, environment or flag
	Source string // as From, with the file, line, variable or flag
	Means  string
}

// withheld stands where a name of a file or of a host would, for those who may
// not read it.
const withheld = "not shown"

// trusted reports whether names of the server's files and hosts are for the
// visitor to read.
func (v *visit) trusted() bool {
	return v.who.server || (v.who.right == rlc.MayAdmin || v.who.right == rlc.MayActAll) && len(v.who.services) == 0
}

// setup is the server's word, without what the visitor may not read, and its
// keys by the address' filter.
func (s *server) setup(v *visit) (Setup, error) {
	if s.Config.Settings == nil {
		return Setup{}, fault{status: http.StatusNotFound, detail: "This server does not tell how it is set up."}
	}
	out := s.Config.Settings.Settings(v.ctx())
	q := v.r.URL.Query()
	show, text := q.Get("show"), strings.ToLower(strings.TrimSpace(q.Get("q")))
	if show != "" && show != "set" {
		return out, invalid("show must be set, or be left out")
	}
	keys := out.Keys
	out.Keys = nil
	for _, k := range keys {
		if show == "set" && k.From == "default" || !strings.Contains(strings.ToLower(k.Key+" "+k.Means), text) {
			continue
		}
		if !v.trusted() {
			k.Value, k.Source = withheld, k.From
		}
		out.Keys = append(out.Keys, k)
	}
	if !v.trusted() {
		parts := slices.Clone(out.Parts)
		for i := range parts {
			parts[i].Where = withheld
			if parts[i].Trouble != "" {
				parts[i].Trouble = withheld
			}
		}
		out.Parts = parts
	}
	return out, nil
}

// settings is /settings.
func (s *server) settings(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	setup, err := s.setup(v)
	if err != nil {
		return err
	}
	f, err := s.frame(v, "Settings", "")
	if err != nil {
		return err
	}
	shown, q := cut(setup.Keys, page), v.r.URL.Query()
	view := ui.Settings{
		Head:  ui.Head{Margin: "This server", Title: "Settings", Facts: []ui.Link{{Text: "rlc " + setup.Version}, {Text: "up since " + v.time(setup.Started).Text}}},
		Parts: partsGrid(v, setup.Parts), Profiles: s.profilesGrid(), Keys: keysGrid(v, shown), Pager: v.pager(page, len(shown), len(setup.Keys)),
		Verdict: s.setupVerdict(v, setup), Broken: s.brokenProfiles(), Search: q.Get("q"), Show: q.Get("show"),
		Filters: []ui.Choice{{Label: "All", URL: v.with("show", ""), On: q.Get("show") == ""}, {Label: "Set here", URL: v.with("show", "set"), On: q.Get("show") == "set"}},
	}
	if !v.trusted() {
		view.Withheld = "/login?next=" + f.Back
	}
	for _, k := range s.Overrides.Switches() {
		view.Switches = append(view.Switches, switchSign(v, k))
	}
	if len(setup.Keys) == 0 {
		view.Empty = &ui.Empty{Title: "No key", Reason: "No key of the configuration fits the filter.", Query: "rlc config dump", Fix: ui.Link{Text: "All keys", URL: "/settings"}}
	}
	return s.render(v, http.StatusOK, ui.SettingsPage(f, view))
}

// setupVerdict says whether every part answers, and when the next run is.
func (s *server) setupVerdict(v *visit, setup Setup) []ui.Part {
	var bad []string
	for _, p := range setup.Parts {
		if p.Trouble != "" {
			bad = append(bad, p.Name)
		}
	}
	say := []ui.Part{{Text: "Every part answers.", Bold: true}}
	if len(bad) > 0 {
		say = []ui.Part{{Text: "In trouble: " + strings.Join(bad, ", ") + ".", Bold: true}}
	}
	stopped := slices.ContainsFunc(s.Overrides.Switches(), func(k rlc.KillSwitch) bool { return k.Name == rlc.StopAutomation && k.On })
	say = append(say, ui.Part{Text: " All services are recomputed at " + setup.Schedule + " (UTC), "})
	switch {
	case stopped:
		say = append(say, ui.Part{Text: "but automation is stopped: ", Bold: true}, ui.Part{Text: "let go of the switch", URL: "/emergency"}, ui.Part{Text: "."})
	case setup.Leads:
		say = append(say, ui.Part{Text: "next on "}, dated(v.time(setup.Next)), ui.Part{Text: ", by this replica."})
	default:
		say = append(say, ui.Part{Text: "next on "}, dated(v.time(setup.Next)), ui.Part{Text: ", by the replica that leads; this one does not."})
	}
	return say
}

func switchSign(v *visit, k rlc.KillSwitch) ui.Sign {
	name := switchText[k.Name]
	if !k.On {
		return ui.Sign{Level: "good", Link: ui.Link{Text: name, URL: "/emergency"}, After: " is off."}
	}
	on := " is on."
	if !k.At.IsZero() {
		on = " is on since " + v.time(k.At).Text + "."
	}
	return ui.Sign{Level: "bad", Link: ui.Link{Text: name, URL: "/emergency"}, After: on, Soft: k.Actor + ": " + k.Reason}
}

// partsGrid is a line for each part. Addresses and errors have columns for those
// who may read them only: what is withheld is said once, above.
func partsGrid(v *visit, parts []SetupPart) ui.Grid {
	g := ui.Grid{Caption: "Parts of this server", Columns: []ui.Column{{Label: "Part"}, {Label: "Engine"}, {Label: "State"}}}
	if v.trusted() {
		g.Columns = append(g.Columns, ui.Column{Label: "Where", Class: "wide"}, ui.Column{Label: "Last error", Class: "wide"})
	}
	for _, p := range parts {
		state := ui.Cell{Text: "answers"}
		if p.Trouble != "" {
			state = ui.Cell{Text: "in trouble", Kind: "bad"}
			if !p.Since.IsZero() {
				state.Text += " since " + v.time(p.Since).Text
			}
		}
		row := []ui.Cell{{Text: p.Name}, {Text: p.Engine}, state}
		if v.trusted() {
			row = append(row, ui.Cell{Text: p.Where}, ui.Cell{Text: p.Trouble})
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// keysGrid is a line for each key, with its value for those who may read it.
func keysGrid(v *visit, keys []Setting) ui.Grid {
	g := ui.Grid{Caption: "Keys of the configuration", Columns: []ui.Column{{Label: "Key"}}}
	if v.trusted() {
		g.Columns = append(g.Columns, ui.Column{Label: "In force", Class: "wide"})
	}
	g.Columns = append(g.Columns, ui.Column{Label: "From"}, ui.Column{Label: "What it is", Class: "wide"})
	for _, k := range keys {
		from := ui.Cell{Text: k.Source}
		if k.From == "default" {
			from.Kind = "soft"
		}
		row := []ui.Cell{{Text: k.Key}}
		if v.trusted() {
			row = append(row, ui.Cell{Text: k.Value})
		}
		g.Rows = append(g.Rows, append(row, from, ui.Cell{Text: k.Means, Kind: "soft"}))
	}
	return g
}

// profile is a profile of the config repository, and how many services use it.
type profile struct {
	Name       string   `json:"name"`
	Builtin    bool     `json:"builtin"`
	Services   int      `json:"services"`
	Step       float64  `json:"step_seconds"`
	Attributes []string `json:"attributes"`
	Sources    int      `json:"sources"`
}

// profiles are those that policies may name, the most used first.
func (s *server) profiles() []profile {
	_, c := s.Truths.Desired()
	if c == nil {
		return []profile{}
	}
	used := map[string]int{}
	for _, svc := range c.Services {
		used[svc.Profile]++
	}
	builtin := quotafile.BuiltinProfiles()
	out := []profile{}
	for name, p := range c.Profiles {
		b := builtin[name]
		out = append(out, profile{Name: name, Builtin: b != nil && slices.Equal(b.Sources, p.Sources), Services: used[name], Step: p.Step.Seconds(), Attributes: slices.Sorted(maps.Keys(p.Attributes)), Sources: len(p.Sources)})
	}
	slices.SortFunc(out, func(a, b profile) int {
		return cmp.Or(cmp.Compare(b.Services, a.Services), strings.Compare(a.Name, b.Name))
	})
	return out
}

func (s *server) profilesGrid() ui.Grid {
	g := ui.Grid{Caption: "Profiles", Columns: []ui.Column{{Label: "Profile"}, {Label: "From"}, {Label: "Services", Class: "num"}, {Label: "Step", Class: "num"}, {Label: "Sources", Class: "num"}, {Label: "Attributes", Class: "wide"}}}
	for _, p := range s.profiles() {
		from := ui.Cell{Text: "built in", Kind: "soft"}
		if !p.Builtin {
			from = ui.Cell{Text: "profiles/" + p.Name + ".yaml"}
		}
		step := "—"
		if p.Step > 0 {
			step = span(time.Duration(p.Step * float64(time.Second)))
		}
		g.Rows = append(g.Rows, []ui.Cell{{Text: p.Name}, from, {Text: count(float64(p.Services))}, {Text: step}, {Text: count(float64(p.Sources))}, {Text: strings.Join(p.Attributes, ", ")}})
	}
	return g
}

// brokenProfiles are the files of profiles that do not validate.
func (s *server) brokenProfiles() (out []ui.Sign) {
	_, c := s.Truths.Desired()
	if c == nil {
		return nil
	}
	for _, p := range c.Problems {
		if strings.HasPrefix(p.File, "profiles/") && !p.Warning {
			out = append(out, ui.Sign{Level: "bad", Before: p.String()})
		}
	}
	return out
}

func (s *server) settingsJSON(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	setup, err := s.setup(v)
	if err != nil {
		return err
	}
	keys := []object{}
	for _, k := range cut(setup.Keys, page) {
		keys = append(keys, object{"key": k.Key, "value": k.Value, "source": k.Source})
	}
	parts := []object{}
	for _, p := range setup.Parts {
		o := object{"name": p.Name, "engine": p.Engine, "where": p.Where, "ok": p.Trouble == "", "error": orNull(p.Trouble), "since": nil}
		if !p.Since.IsZero() {
			o["since"] = p.Since.UTC()
		}
		parts = append(parts, o)
	}
	out := paged("config", keys, page, len(setup.Keys))
	out["version"], out["started_at"], out["leads"] = setup.Version, setup.Started.UTC(), setup.Leads
	out["schedule"], out["next_run_at"] = setup.Schedule, setup.Next.UTC()
	out["parts"], out["switches"], out["profiles"] = parts, s.Overrides.Switches(), s.profiles()
	return answer(v, http.StatusOK, out)
}

// settingsCSV is /settings.csv: the keys, or with ?table=parts or ?table=profiles
// one of the tables beside them.
func (s *server) settingsCSV(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	setup, err := s.setup(v)
	if err != nil {
		return err
	}
	var rows [][]string
	switch v.r.URL.Query().Get("table") {
	case "":
	case "parts":
		for _, p := range setup.Parts {
			rows = append(rows, []string{p.Name, p.Engine, p.Where, strconv.FormatBool(p.Trouble == ""), p.Trouble, stamp(p.Since)})
		}
		return sheet(v, "parts", []string{"name", "engine", "where", "ok", "error", "since"}, rows)
	case "profiles":
		for _, p := range s.profiles() {
			rows = append(rows, []string{p.Name, strconv.FormatBool(p.Builtin), strconv.Itoa(p.Services), float(p.Step), strconv.Itoa(p.Sources), strings.Join(p.Attributes, " ")})
		}
		return sheet(v, "profiles", []string{"name", "builtin", "services", "step_seconds", "sources", "attributes"}, rows)
	default:
		return invalid("table must be parts or profiles, or be left out for the keys")
	}
	for _, k := range cut(setup.Keys, page) {
		rows = append(rows, []string{k.Key, k.Value, k.Source})
	}
	return sheet(v, "settings", []string{"key", "value", "source"}, rows)
}
