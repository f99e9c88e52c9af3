package web

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// standingShown is how many overrides a page lists beside its own matter.
const standingShown = 5

// emergency is /emergency. It is there with the records away: then only what is
// over is not listed. A form that asks for a preview carries its fields in the
// URL.
func (s *server) emergency(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	part, err := standingPage(v)
	if err != nil {
		return err
	}
	f, err := s.frame(v, "Emergency", "emergency")
	if err != nil {
		return err
	}
	view := ui.Emergency{Form: s.overrideForm(v), Pager: ui.Pager{CSV: "/emergency.csv?all=true", JSON: "/emergency.json?all=true"}}
	if v.who.role != actor {
		view.SignIn = "/login?next=" + f.Back
	}
	if v.r.URL.Query().Get("service") != "" && v.r.URL.Query().Get("reason") != "" {
		o, err := formed(v.r.URL.Query().Get, s.Now())
		if err == nil {
			err = s.Overrides.CheckOverride(o, cmp.Or(v.who.name, "somebody"))
		}
		switch {
		case err == nil:
			p := s.previewOf(v, o)
			view.Preview = &p
		case v.refused == nil:
			v.refuse(s.told(v, err), ui.EmergencyForm, v.r.URL.Query())
		}
	}
	if err := s.standing(v, s.Overrides.Overrides(), part, &view); err != nil {
		return err
	}
	switches := s.Overrides.Switches()
	view.Zones = s.zoneSigns(len(view.Standing) > 0 || slices.ContainsFunc(switches, func(k rlc.KillSwitch) bool { return k.On }))
	view.Switches = switchRows(switches)
	view.NoRecent = "None is on record yet."
	log, total, err := s.Records.OverrideLog(v.ctx(), page)
	switch {
	case unavailable(err):
		view.NoRecent = "The records cannot be reached: what is over is not listed."
	case err != nil:
		return err
	default:
		for _, o := range log {
			view.Recent = append(view.Recent, s.overrideRow(v, o))
		}
		pager := v.pager(page, len(log), total)
		view.Pager.Range, view.Pager.Prev, view.Pager.Next = pager.Range, pager.Prev, pager.Next
	}
	return s.render(v, http.StatusOK, ui.EmergencyPage(f, view))
}

// overridden puts the overrides that stand for this page's matter on it: all of
// them on the overview, a service's on its pages.
func (s *server) overridden(v *visit, f *ui.Frame) {
	service := v.r.PathValue("service")
	if f.Tab != "overview" && service == "" {
		return
	}
	more, here := 0, []rlc.Override(nil)
	for _, o := range s.Overrides.Overrides() {
		if service != "" && o.Service != service && o.Service != "*" {
			continue
		}
		if bucket := v.r.PathValue("bucket"); bucket != "" {
			key, _ := rlc.ParseKey(v.r.URL.Query().Get("key"))
			if some, _ := s.touchesBucket(o, service, bucket, key); !some {
				continue
			}
		}
		if len(here) == standingShown {
			more++
			continue
		}
		here = append(here, o)
	}
	did := s.overridesDid(v.ctx(), here)
	for _, o := range here {
		f.Overrides = append(f.Overrides, s.standingRow(v, o, did))
	}
	if f.Tab == "overview" {
		f.OverZones = s.zoneSigns(len(here) > 0)
	}
	if more > 0 {
		f.MoreOver = plural(more, "more override", "more overrides")
	}
}

func (s *server) touchesBucket(o rlc.Override, service, bucket string, key rlc.Key) (some, all bool) {
	t, err := s.known(service)
	if err != nil || t.service == nil {
		return true, false
	}
	return touches(t.service, o, rlc.Count{Bucket: bucket, Key: key})
}

func (s *server) overrideRow(v *visit, o rlc.Override) ui.OverrideRow {
	now := s.Now()
	r := ui.OverrideRow{
		ID: o.ID, Until: v.timeAs(o.Until, "2 Jan 15:04:05"), From: v.time(o.From), Subject: o.Subject(), Does: o.Does(), By: o.Actor, Reason: o.Reason,
		Left: countdown(o.Until.Sub(now)), Held: span(o.Until.Sub(o.From)), Keep: o.Service != "*" && (o.Action == "limit" || o.Action == "block"),
	}
	if !o.Stands(now) {
		r.Ramp, r.Left = true, "over"
	}
	if o.EndedBy != "" {
		r.By += ", reverted by " + o.EndedBy
	}
	return r
}

// standingRow is the row of an override that stands or comes back, with what it did.
func (s *server) standingRow(v *visit, o rlc.Override, d did) ui.OverrideRow {
	r := s.overrideRow(v, o)
	if !r.Ramp {
		r.Did = d.says(o)
	}
	return r
}

// countdown is 18:42, or 3 h 5 min from two hours on.
func countdown(d time.Duration) string {
	if d >= 2*time.Hour {
		return span(d)
	}
	d = max(d, 0)
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func (s *server) zoneSigns(standing bool) (out []ui.Sign) {
	if !standing {
		return nil
	}
	for _, z := range s.zonesOf() {
		where := "In zone " + z.Zone
		if z.Zone == "" {
			where = "Without a zone"
		}
		has := "have"
		if z.Have == 1 || z.Enforcers == 1 {
			has = "has"
		}
		sign := ui.Sign{Level: "good", Before: fmt.Sprintf("%s: %d of %s", where, z.Have, plural(z.Enforcers, "enforcer", "enforcers")), After: has + " the newest overrides"}
		switch {
		case z.Refused > 0:
			sign.Level, sign.Soft = "bad", plural(z.Refused, "refused them", "refused them")
		case z.Have < z.Enforcers:
			sign.Level = "warn"
		}
		out = append(out, sign)
	}
	if len(out) == 0 {
		out = []ui.Sign{{Level: "warn", Before: "No enforcer has been heard of yet"}}
	}
	if s.Alone {
		out = append(out, s.reachSign())
	}
	return out
}

// switchText names the kill switches.
var switchText = map[string]string{rlc.StopAutomation: "Stop automation", rlc.AllToShadow: "All to shadow"}

func switchRows(all []rlc.KillSwitch) (out []ui.SwitchRow) {
	for _, k := range all {
		r := ui.SwitchRow{Name: k.Name, Text: switchText[k.Name], On: k.On}
		if k.On {
			r.By = k.Actor + ": " + k.Reason
		}
		out = append(out, r)
	}
	return out
}

// overrideForm is the form as the URL fills it.
func (s *server) overrideForm(v *visit) ui.OverrideForm {
	q := v.r.URL.Query()
	f := ui.OverrideForm{
		Service: q.Get("service"), Caller: q.Get("caller"), Procedure: q.Get("procedure"), Also: q.Get("also"),
		Rate: q.Get("rate"), Drop: q.Get("drop"), Other: q.Get("other"), Reason: q.Get("reason"),
	}
	if _, desired := s.Truths.Desired(); desired != nil {
		for _, svc := range desired.Services {
			f.Services = append(f.Services, svc.Name)
		}
	}
	f.Actions = choices(q.Get("action"), "limit", "limit", "limit to", "drop", "drop", "block", "drop all", "lift", "lift every drop")
	f.Lives = choices(q.Get("ttl"), "30m", "15m", "15 min", "30m", "30 min", "1h", "1 h", "4h", "4 h")
	return f
}

// choices makes radio buttons of pairs of value and label.
func choices(on, standard string, pairs ...string) (out []ui.Choice) {
	if on == "" {
		on = standard
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, ui.Choice{Value: pairs[i], Label: pairs[i+1], On: pairs[i] == on})
	}
	return out
}

// formed is the override that a form's fields make.
func formed(field func(string) string, now time.Time) (rlc.Override, error) {
	in := overrideIn{Service: strings.TrimSpace(field("service")), Action: field("action"), Reason: field("reason"), Match: map[string]patterns{}}
	for _, name := range []string{"caller", "procedure"} {
		if value := strings.TrimSpace(field(name)); value != "" {
			in.Match[name] = patterns{value}
		}
	}
	for _, pair := range strings.Fields(field("also")) {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" || value == "" {
			return rlc.Override{}, wrongIn("also", invalid("Other attributes are written name=value, with a space between two."))
		}
		if _, twice := in.Match[name]; twice {
			return rlc.Override{}, wrongIn("also", invalid("%.100q is given twice, and one request has one. Either of two is written name=a,b.", name))
		}
		in.Match[name] = strings.Split(value, ",")
	}
	ttl := field("ttl")
	if other := strings.TrimSpace(field("other")); other != "" {
		ttl = other
	}
	life, err := rlc.ParseDuration(ttl)
	switch {
	case err != nil:
		return rlc.Override{}, wrongIn("other", invalid("For how long: write 90m, 3h or 2d."))
	case life < time.Second || life > maxLife:
		return rlc.Override{}, wrongIn("other", invalid("For how long: from 1 second to 7 days, not %s.", clipped(ttl)))
	}
	in.TTL = life.Seconds()
	if in.Reason, err = reasonOf(in.Reason, overrideNeeds); err != nil {
		return rlc.Override{}, err
	}
	switch in.Action {
	case "limit":
		n, err := decimal(field("rate"), "The rate", "requests per second")
		if err != nil {
			return rlc.Override{}, wrongIn("rate", err)
		}
		in.Rate = new(rlc.Rate)
		if *in.Rate = rlc.Rate(n); n > rlc.MaxRate {
			return rlc.Override{}, wrongIn("rate", invalid("The rate may be %s requests per second at most.", count(rlc.MaxRate)))
		}
	case "drop":
		share, err := decimal(strings.TrimSuffix(strings.TrimSpace(field("drop")), "%"), "The share", "percent")
		if err != nil {
			return rlc.Override{}, wrongIn("drop", err)
		}
		if share == 0 || share > 100 {
			return rlc.Override{}, wrongIn("drop", invalid("The share that is dropped is above 0 and at most 100 percent, not %s.", clipped(field("drop"))))
		}
		in.DropRatio = rlc.Ratio(share / 100)
	}
	return in.override(now)
}

// mostAffected is how many quotas a preview lists.
const mostAffected = 8

func (s *server) previewOf(v *visit, o rlc.Override) ui.Preview {
	e := s.preview(v.ctx(), o)
	p := ui.Preview{Command: throttleCommand(o), Sentence: saysOf(o, e)}
	say := func(text string) { p.Sentence = append(p.Sentence, ui.Part{Text: text}) }
	bold := func(text string) { p.Sentence = append(p.Sentence, ui.Part{Text: text, Bold: true}) }
	say("It ends at ")
	bold(v.timeAs(o.Until, "15:04 MST on 2 January").Text)
	say(".")
	if s.Alone {
		say(" Mind: " + s.reach() + ".")
	}
	for _, a := range e.Affected[:min(len(e.Affected), mostAffected)] {
		row := ui.AffectedRow{Quota: ui.Link{Text: rlc.QuotaID(a.Bucket, a.Key), URL: bucketURL(o.Service, a.Bucket, a.Key)}, Rate: rate(a.Rate) + " req/s"}
		if strings.HasPrefix(a.Bucket, "__") {
			row.Quota = ui.Link{Text: "requests without a quota"}
		}
		if !a.All {
			row.Note = "others among them"
		}
		p.Affected = append(p.Affected, row)
	}
	return p
}

// throttleCommand is the same override for a shell.
func throttleCommand(o rlc.Override) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	b := "rlc throttle " + quote(o.Service)
	for _, name := range slices.Sorted(maps.Keys(o.Match)) {
		if p := o.Match[name]; len(p) == 1 && strings.Contains(p[0], ",") && (name == "caller" || name == "procedure") {
			b += " --" + name + " " + quote(p[0]) // --match would take it for a list
			continue
		}
		b += " --match " + quote(name+"="+strings.Join(o.Match[name], ","))
	}
	switch o.Action {
	case "limit":
		b += " --rate " + strconv.FormatFloat(float64(*o.Rate), 'f', -1, 64)
	case "drop":
		b += " --drop " + strconv.FormatFloat(float64(o.DropRatio), 'f', -1, 64)
	default:
		b += " --" + o.Action
	}
	return b + " --ttl " + rlc.DurationText(o.Until.Sub(o.From)) + " --reason " + quote(o.Reason)
}

// --- by form

func (s *server) formOverride(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	o, err := formed(v.r.PostFormValue, s.Now())
	if err != nil {
		return err
	}
	if _, err := s.Overrides.SetOverride(v.ctx(), o, v.who.name); err != nil {
		return err
	}
	return v.back("/emergency", "override")
}

func (s *server) formExtend(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	by, err := rlc.ParseDuration(v.r.PostFormValue("by"))
	if err != nil || by <= 0 || by > maxLife {
		return invalid("by must be a duration, 30m for one")
	}
	from := time.Time{} // not said: from its end as it stands
	if text := v.r.PostFormValue("from"); text != "" {
		if from, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return invalid("from must be a time, 2026-12-02T07:00:00Z for one")
		}
	}
	if _, err := s.Overrides.ExtendOverride(v.ctx(), v.r.PathValue("id"), from, by, v.who.name); err != nil {
		return err
	}
	return v.back("/emergency", "extended")
}

func (s *server) formEnd(v *visit) error {
	if _, err := s.Overrides.EndOverride(v.ctx(), v.r.PathValue("id"), v.who.name); err != nil {
		return err
	}
	return v.back("/emergency", "ended")
}

func (s *server) formKeep(v *visit) error {
	if _, err := s.Overrides.KeepOverride(v.ctx(), v.r.PathValue("id"), v.who.name); err != nil {
		return err
	}
	return v.back("/emergency", "kept")
}

func (s *server) formSwitch(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	on := v.r.PostFormValue("on")
	if on != "true" && on != "false" {
		return invalid("on must be true or false")
	}
	reason, err := reasonOf(v.r.PostFormValue("reason"), switchNeeds)
	if err != nil {
		return err
	}
	if err := s.Overrides.SetSwitch(v.ctx(), v.r.PathValue("switch"), on == "true", v.who.name, reason); err != nil {
		return err
	}
	return v.back("/emergency", "switch")
}

// emergencyCSV lists what stands; ?all=true what stood, too. Both by page.
func (s *server) emergencyCSV(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	past, err := v.flag("all")
	if err != nil {
		return err
	}
	all := cut(s.Overrides.Overrides(), page)
	if past {
		if all, _, err = s.Records.OverrideLog(v.ctx(), page); err != nil {
			return err
		}
	}
	var rows [][]string
	did := s.overridesDid(v.ctx(), all)
	for _, o := range all {
		judged, drops := did.cells(o)
		rows = append(rows, []string{o.ID, o.Service, o.Subject(), o.Does(), o.From.UTC().Format(time.RFC3339), o.Until.UTC().Format(time.RFC3339), o.Actor, o.EndedBy, o.Reason, s.returnCell(o), judged, drops})
	}
	return sheet(v, "overrides", []string{"id", "service", "whom", "what", "from", "expires_at", "actor", "ended_by", "reason", "returns", "judged", "drops"}, rows)
}
