package web

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// services is /services.
func (s *server) services(v *visit) error {
	if v.r.URL.Query().Get("show") == "unmanaged" {
		return s.unmanaged(v)
	}
	filter, page, err := serviceFilter(v)
	if err != nil {
		return err
	}
	f, err := s.frame(v, "Services", "services")
	if err != nil {
		return err
	}
	rows, total, err := s.Records.Summaries(v.ctx(), filter, page)
	if err != nil {
		return err
	}
	_, unowned, err := s.Records.Summaries(v.ctx(), rlc.ServiceFilter{Unowned: true}, rlc.Page{Number: 1, Size: 1})
	if err != nil {
		return err
	}
	all := total
	if filter.Query != "" || filter.Unowned || filter.Owner != "" {
		if _, all, err = s.Records.Summaries(v.ctx(), rlc.ServiceFilter{}, rlc.Page{Number: 1, Size: 1}); err != nil {
			return err
		}
	}
	acks := s.Truths.Acks()
	commit, _ := s.Truths.Desired()
	version, live := s.Truths.Live()
	sync := s.syncSign(commit, version, live != nil, acks)
	short := ui.Sign{Level: sync.Level, After: syncShort(commit, version, live != nil, acks)}
	age, over := s.counting(v, ""), s.overriddenServices()
	view := ui.Services{
		Counted: age.label, Owner: filter.Owner,
		Count: plural(all, "service", "services"), Query: filter.Query, Pager: v.pager(page, len(rows), total),
		Sort: v.r.URL.Query().Get("sort"), Dir: v.r.URL.Query().Get("dir"),
		Show: []ui.Choice{
			{Label: "all " + count(float64(all)), URL: v.with("show", ""), On: !filter.Unowned},
			{Label: "unowned " + count(float64(unowned)), URL: v.with("show", "unowned"), On: filter.Unowned},
			{Label: strings.TrimSpace("unmanaged " + s.unmanagedCount()), URL: "/services?show=unmanaged"},
		},
		Columns: v.sorted(filter.Sort, filter.Desc, [3]string{"Service", "name", ""}, [3]string{"Owner", "", ""}, [3]string{"Buckets by mode", "", "wide"},
			[3]string{"Least headroom", "headroom", "num"}, [3]string{"Would drop " + age.label, "virtual_drops", "num"}, [3]string{"Dropped " + age.label, "drops", "num"},
			[3]string{"Review", "", ""}, [3]string{"Enforcers", "", ""}, [3]string{"7 days", "", "trend"}),
	}
	if filter.Unowned {
		view.ShowName = "unowned"
	}
	var tight, dropping, virtual []rlc.ServiceSummary
	var asof time.Time
	for _, r := range rows {
		view.Rows = append(view.Rows, serviceRow(r, short, over[r.Name]+over["*"]))
		if r.Updated.After(asof) {
			asof = r.Updated
		}
		if r.Headroom != nil && *r.Headroom < 0.1 {
			tight = append(tight, r)
		}
		if r.Drops >= 0.5 {
			dropping = append(dropping, r)
		}
		if r.VirtualDrops >= 0.5 {
			virtual = append(virtual, r)
		}
	}
	view.Asof = "Limits as live; headroom above the peak that counts in the last run's window. Drops beside positive headroom came after that run, or in bursts shorter than a step."
	if !asof.IsZero() {
		view.Asof = "As of " + v.time(asof).Text + ". " + view.Asof
	}
	where := ""
	switch {
	case len(rows) < total:
		where = " on this page"
	case total < all:
		where = " matching the filter"
	}
	view.Verdict = servicesVerdict(where, rows, tight, dropping, waits{virtual: virtual}.storms(), age)
	if len(rows) == 0 {
		view.Empty = s.servicesEmpty(filter, all)
		if all == 0 && !s.empty() {
			view.Verdict = []ui.Part{{Text: "No service is listed yet."}}
		}
	}
	return s.render(v, http.StatusOK, ui.ServicesPage(f, view))
}

func (s *server) servicesEmpty(f rlc.ServiceFilter, all int) *ui.Empty {
	if all > 0 && f.Owner != "" {
		return &ui.Empty{Title: "No service of " + f.Owner + " fits the filter", Reason: "An owner stands in the service's policy.yaml, spelt just so.", Fix: ui.Link{Text: "Show all", URL: "/services"}}
	}
	if all > 0 {
		return &ui.Empty{Title: "No service fits the filter", Reason: "The name or an owner must contain the text.", Query: strings.TrimSpace("q=" + f.Query), Fix: ui.Link{Text: "Show all", URL: "/services"}}
	}
	if s.empty() {
		return s.firstStep()
	}
	if _, c := s.Truths.Desired(); c != nil {
		return &ui.Empty{Title: "Not summed up yet", Reason: "The config repository has " + plural(len(c.Services)+len(c.Broken), "service", "services") + "; the list has them as soon as they are summed up, within seconds of their first reading.", Fix: ui.Link{Text: "Runs", URL: "/runs"}}
	}
	return &ui.Empty{
		Title: "No services yet", Reason: "A service is a folder in the config repository. Six lines are enough for a first policy.",
		Query: "services/checkout/policy.yaml", Fix: ui.Link{Text: "Commit it to the base branch; it is read within a minute."},
	}
}

// servicesVerdict speaks of the services of a list; where says which those are,
// "" for all there are.
func servicesVerdict(where string, rows, tight, dropping, storms []rlc.ServiceSummary, age counting) []ui.Part {
	if len(rows) == 0 {
		return []ui.Part{{Text: "No service" + cmp.Or(where, " is there yet") + "."}}
	}
	if len(tight) == 0 && len(dropping) == 0 && len(storms) == 0 {
		return []ui.Part{{Text: calm(where, rows, age)}}
	}
	var out []ui.Part
	if len(storms) > 0 {
		slices.SortStableFunc(storms, func(a, b rlc.ServiceSummary) int { return cmpFloat(b.VirtualDrops, a.VirtualDrops) })
		r := storms[0]
		out = append(out, ui.Part{Text: r.Name, URL: serviceURL(r.Name) + "/shadow"}, ui.Part{Text: " would have dropped " + count(r.VirtualDrops) + " requests " + age.text + ofItsOwn(r.VirtualDrops, r)})
		if n := len(storms) - 1; n > 0 {
			out = append(out, ui.Part{Text: "; so would have " + plural(n, "more service", "more services") + where})
		}
		out = append(out, ui.Part{Text: ". "})
	}
	if len(tight) > 0 {
		verb := plural(len(tight), "service"+where+" has", "services"+where+" have")
		out = append(out, ui.Part{Text: verb + " less than 10 % headroom, the least "}, ui.Part{Text: tight[0].Name, URL: serviceURL(tight[0].Name)}, ui.Part{Text: "."})
	}
	if len(dropping) > 0 {
		out = append(out, ui.Part{Text: " " + plural(len(dropping), "service"+where+" drops", "services"+where+" drop") + " requests: "}, ui.Part{Text: dropping[0].Name, URL: serviceURL(dropping[0].Name)}, ui.Part{Text: "."})
	}
	return out
}

// calm says of services none of which is tight or drops what that rests on.
func calm(where string, rows []rlc.ServiceSummary, age counting) string {
	known := 0
	for _, r := range rows {
		if r.Headroom != nil {
			known++
		}
	}
	say := "Every service" + where
	switch {
	case known == 0:
		say = "Of no service" + where + " a limit and the peak that counts are known, so neither is its headroom"
	case known < len(rows):
		say += " whose peak that counts is known has at least 10 % headroom (" + count(float64(known)) + " of " + count(float64(len(rows))) + ")"
	default:
		say += " has at least 10 % headroom"
	}
	if age.none || age.err != nil {
		return say + ". What is dropped is not known: no enforcer has counted a request in 24 h."
	}
	return say + "; none drops requests or would have dropped more than 1 % of them."
}

// serviceFilter reads the list's filter, order and page from the URL.
func serviceFilter(v *visit) (f rlc.ServiceFilter, p rlc.Page, err error) {
	q := v.r.URL.Query()
	f = rlc.ServiceFilter{Query: strings.TrimSpace(q.Get("q")), Owner: q.Get("owner"), Unowned: q.Get("show") == "unowned", Sort: q.Get("sort"), Desc: q.Get("dir") == "desc"}
	switch f.Sort {
	case "":
		f.Sort = "headroom"
		if wantsJSON(v.r) || strings.HasSuffix(v.r.URL.Path, ".csv") {
			f.Sort = "name"
		}
	case "name", "headroom", "virtual_drops", "drops":
	default:
		return f, p, invalid("sort must be name, headroom, virtual_drops or drops")
	}
	p, err = v.page()
	return f, p, err
}

// serviceRow is a line of a list of services; over counts the overrides that
// stand for it.
func serviceRow(r rlc.ServiceSummary, sync ui.Sign, over int) ui.ServiceRow {
	row := ui.ServiceRow{
		Link: ui.Link{Text: r.Name, URL: serviceURL(r.Name)}, Owners: ownerLinks(r.Owners),
		Headroom: "—", Virtual: digits(r.VirtualDrops), VirtualN: r.VirtualDrops > 0, Drops: digits(r.Drops), DropsN: r.Drops > 0,
		Sync: sync, Spark: serviceSpark(r),
	}
	if r.Problem != "" {
		row.Chips = append(row.Chips, ui.Chip{Mode: "held", Text: "policy broken"})
		row.Sync = ui.Sign{Level: "bad", After: "not read"}
	}
	if r.Enforcing > 0 {
		row.Chips = append(row.Chips, ui.Chip{Mode: "enforce", Text: count(float64(r.Enforcing))})
	}
	if n := r.Buckets - r.Enforcing; n > 0 {
		row.Chips = append(row.Chips, ui.Chip{Mode: "shadow", Text: count(float64(n))})
	}
	if over > 0 {
		row.Chips = append(row.Chips, ui.Chip{Mode: "override", Text: count(float64(over))})
	}
	if r.Held > 0 {
		row.Chips = append(row.Chips, ui.Chip{Mode: "held", Text: count(float64(r.Held))})
	}
	if r.Headroom != nil {
		h := float64(*r.Headroom)
		row.Headroom, row.Bad = signed(h), h < 0
		row.Gauge = gauge(1, 1+h, r.Enforcing > 0)
	}
	if r.OpenReview != "" {
		row.Review = ui.Link{Text: "open", URL: proposalURL(r.OpenReview)}
	}
	return row
}

func ownerLinks(owners []string) []ui.Link {
	var out []ui.Link
	for _, o := range owners {
		out = append(out, ui.Link{Text: o, URL: "/services?owner=" + query(o)})
	}
	return out
}

// limitOfAll is the sum of a service's limits where nearly all of its traffic
// has one; 0 where a line of it beside that traffic would mislead.
func limitOfAll(r rlc.ServiceSummary) rlc.Rate {
	if r.Requests <= 0 || r.Limited < 0.999*r.Requests {
		return 0
	}
	return r.LimitSum
}

// overriddenServices counts the overrides that stand, by service; those of all
// services under "*".
func (s *server) overriddenServices() map[string]int {
	out := map[string]int{}
	for _, o := range s.Overrides.Overrides() {
		if o.Stands(s.Now()) {
			out[o.Service]++
		}
	}
	return out
}

// syncShort is syncSign in a word or two, for a cell.
func syncShort(commit rlc.Commit, live rlc.Version, some bool, acks []rlc.Ack) string {
	in := 0
	for _, a := range acks {
		if a.Refused != "" {
			return "refused by " + a.Enforcer
		}
		if a.Version.Compare(commit.Version) >= 0 {
			in++
		}
	}
	switch {
	case len(acks) == 0:
		return "none heard of"
	case in < len(acks):
		return count(float64(in)) + " of " + count(float64(len(acks)))
	case !some || live.Compare(commit.Version) < 0:
		return "behind"
	}
	return "in sync"
}

func serviceJSON(r rlc.ServiceSummary) object {
	return object{
		"name": r.Name, "owners": list(r.Owners), "buckets": r.Buckets, "enforcing": r.Enforcing, "held": r.Held,
		"virtual_drops_24h": r.VirtualDrops, "drops_24h": r.Drops, "open_review": orNull(r.OpenReview),
		"offered": r.Offered, "limit_sum": r.LimitSum, "capacity": r.Capacity, "headroom": r.Headroom, "headroom_at": orNull(r.HeadroomAt),
		"problem": orNull(r.Problem), "updated_at": timeJSON(r.Updated),
	}
}

func (s *server) apiServices(v *visit) error {
	if v.r.URL.Query().Get("show") == "unmanaged" {
		return s.unmanaged(v)
	}
	filter, page, err := serviceFilter(v)
	if err != nil {
		return err
	}
	all, total, err := s.Records.Summaries(v.ctx(), filter, page)
	if err != nil {
		return err
	}
	out := make([]object, 0, len(all))
	for _, r := range all {
		out = append(out, serviceJSON(r))
	}
	return answer(v, http.StatusOK, paged("services", out, page, total))
}

func (s *server) servicesCSV(v *visit) error {
	if v.r.URL.Query().Get("show") == "unmanaged" {
		return s.unmanaged(v)
	}
	filter, page, err := serviceFilter(v)
	if err != nil {
		return err
	}
	all, _, err := s.Records.Summaries(v.ctx(), filter, page)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, r := range all {
		h := ""
		if r.Headroom != nil {
			h = float(float64(*r.Headroom))
		}
		rows = append(rows, []string{r.Name, strings.Join(r.Owners, " "), strconv.Itoa(r.Buckets), strconv.Itoa(r.Enforcing), strconv.Itoa(r.Held), h, whole(r.VirtualDrops), whole(r.Drops), r.OpenReview, r.Problem})
	}
	return sheet(v, "services", []string{"name", "owners", "buckets", "enforcing", "held", "headroom", "virtual_drops_24h", "drops_24h", "open_review", "problem"}, rows)
}
