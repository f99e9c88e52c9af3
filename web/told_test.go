package web_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

// Headroom is what was added above what was observed: the policy's 0.3 reads
// as +30 %, and the gauge's fill ends at 63.4 / 1.3 = 48.8 of its 88 units.
func TestHeadroomIsWhatWasAddedAboveThePeak(t *testing.T) {
	for _, c := range []struct{ limit, peak, want float64 }{{130, 100, .3}, {100, 100, 0}, {50, 100, -.5}, {300, 100, 2}} {
		if got, ok := web.Headroom(&rlc.Limit{Rate: rlc.Rate(c.limit), Burst: 1}, rlc.Rate(c.peak)); !ok || got != c.want {
			t.Errorf("limit %g over peak %g: %g %v, want %g", c.limit, c.peak, got, ok, c.want)
		}
	}
	f := newFixture(t)
	head := rlc.Ratio(.3)
	if err := f.db.SaveSummaries(context.Background(), []rlc.ServiceSummary{{Name: "media", Buckets: 1, Headroom: &head, Updated: runAt}}); err != nil {
		t.Fatal(err)
	}
	holds(t, f.handler(t), "/services?q=media", "+30 %", `class="m-fill" width="48.8"`)
}

// broken is the fixture with a service whose policy.yaml is invalid on the base
// branch, while the version before is live: one quota in shadow, one bucket
// with a limit by hand that enforces.
func broken(t *testing.T, quotas []rlc.Quota) *fixture {
	t.Helper()
	f := newFixture(t)
	files := rlc.Files{}
	for path, data := range f.files {
		files[path] = data
	}
	files["services/pricing/policy.yaml"] = []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: pricing\nowners: [team-money]\nbuckets:\n  - {name: callers, each: [caller]}\n  - {name: quote, match: {procedure: Quote}, mode: enforce, limit: {rate: 70, burst: 140}}\n")
	if quotas != nil {
		files[quotafile.QuotasPath("pricing")] = quotafile.MarshalQuotas("pricing", quotas)
	}
	f.live = quotafile.Parse(files, policies.Builtin().Check)
	if f.live.Service("pricing") == nil || f.desired.Broken["pricing"] == nil {
		t.Fatalf("live %v, broken %v", f.live.Problems, f.desired.Broken)
	}
	return f
}

func TestABrokenPolicyLeavesWhatIsLiveOnThePage(t *testing.T) {
	f := broken(t, []rlc.Quota{{Bucket: "callers", Key: rlc.Key{"caller": "web"}, Limit: rlc.Limit{Rate: 410, Burst: 820}, Why: "weekly peak 315 × 1.30"}})
	h := f.handler(t)
	const sentence = "<b>services/pricing/policy.yaml:5</b> is not valid on the base branch: what is live stays in force."
	key := "/services/pricing/buckets/callers?key=" + url.QueryEscape("caller=web")
	for target, want := range map[string][]string{
		"/services/pricing":               {sentence, "callers / web", "410", "70", "480", "team-money, as live", "policy not read", "shadow", "enforce", ">unknown</td>"},
		key:                               {sentence, "410", "stays in force, snapshot 3.41", "services/pricing/policy.yaml:5 is not valid", "unknown"},
		"/services/pricing/buckets/quote": {sentence, "70", "enforce", "stays in force"},
		"/services/pricing/shadow":        {sentence, "unknown"},
	} {
		page := holds(t, h, target, want...)
		for _, lie := range []string{"not in the policy", "nothing on the base branch", `<dd>0 `, "0 quotas"} {
			if strings.Contains(page, lie) {
				t.Errorf("%s says %q", target, lie)
			}
		}
	}
	out := body(t, get(h, "/api/v1/services/pricing"), 200)
	if out["buckets"] != 2.0 || out["enforcing"] != 1.0 || out["limit_sum"] != 410.0 || out["headroom"] != nil || out["offered"] != nil {
		t.Errorf("the API's figures: %v", out)
	}
	r := first(t, body(t, get(h, "/api/v1/services/pricing/buckets"), 200)["buckets"], map[string]any{"bucket": "quote"})
	if r["mode"] != "enforce" || r["live"] == nil || r["desired"] != nil {
		t.Errorf("the API's bucket: %v", r)
	}
	f.live = nil // no snapshot either
	h = f.handler(t)
	page := holds(t, h, "/services/pricing", "its buckets and limits are unknown", "unknown")
	if regexp.MustCompile(`<dd>\s*0`).MatchString(page) {
		t.Error("a figure that nobody knows is 0")
	}
	if w := get(h, "/services/pricing/buckets/quote"); w.Code != 404 || !strings.Contains(w.Body.String(), "services/pricing/policy.yaml:5") {
		t.Errorf("a bucket that nobody knows: %d %s", w.Code, w.Body)
	}
}

func TestCountersThatCannotBeReadAreUnknown(t *testing.T) {
	f := newFixture(t)
	c := f.config()
	c.History = deaf{f}
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, h, "/services/checkout", ">unknown</td>", "<dd>unknown </dd>", "counters cannot be read")
	holds(t, h, "/services/checkout/shadow", "What is counted live is unknown", "The live counters cannot be read")
	rows, err := csv.NewReader(get(h, "/services/checkout/buckets/callers.csv").Body).ReadAll()
	if err != nil || rows[1][13] != "" || rows[0][13] != "drops_24h" {
		t.Errorf("%v: %q", err, rows[1])
	}
}

// deaf cannot read what enforcers count.
type deaf struct{ web.History }

func (deaf) Counts(context.Context, string, time.Duration, time.Time) ([]rlc.Count, error) {
	return nil, errors.New("no answer")
}

func (deaf) CountedSince(context.Context, string, time.Duration, time.Time) (time.Time, error) {
	return time.Time{}, errors.New("no answer")
}

// lines are a page's diff, without markup.
func lines(page string) []string {
	_, diff, _ := strings.Cut(page, `<pre class="diff"`)
	_, diff, _ = strings.Cut(diff, ">")
	diff, _, _ = strings.Cut(diff, "</pre>")
	var out []string
	for _, m := range regexp.MustCompile(`<(?:del|ins|span|i)>([^<]*)</`).FindAllStringSubmatch(diff, -1) {
		out = append(out, strings.NewReplacer("&#34;", `"`, "&amp;", "&", "&#39;", "'").Replace(m[1]))
	}
	return out
}

// The diff of a proposal is the one that git would show of quotas.yaml: the
// lines that go, with their why, before those that come.
func TestAProposalsDiffIsTheFilesOwn(t *testing.T) {
	f := newFixture(t)
	p, err := f.db.ProposalByID(context.Background(), "cron-2026-12-02T060000Z-checkout")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(lines(get(f.handler(t), "/proposals/"+p.ID).Body.String()), "\n")
	for _, c := range p.Changes {
		q := rlc.Quota{Bucket: c.Bucket, Key: c.Key, Limit: *c.New, Mode: c.NewMode, Why: c.Why}
		neu := strings.Split(strings.TrimSuffix(strings.SplitN(string(quotafile.MarshalQuotas("checkout", []rlc.Quota{q})), "\nquotas:\n", 2)[1], "\n"), "\n")
		if c.Old == nil {
			if want := "+" + strings.Join(neu, "\n+"); !strings.Contains(got, want) {
				t.Errorf("a new quota lacks\n%s\nin\n%s", want, got)
			}
			continue
		}
		old := f.desired.Quota("checkout", c.Bucket, c.Key)
		var head []string
		for _, l := range neu {
			if !strings.HasPrefix(l, "    rate:") {
				head = append(head, " "+l)
				continue
			}
			break
		}
		want := append(head, fmt.Sprintf("-    rate: %g", float64(old.Rate)), fmt.Sprintf("-    burst: %d", old.Burst), "-    why: "+fmt.Sprintf("%q", old.Why))
		for _, l := range neu[len(head):] {
			want = append(want, "+"+l)
		}
		if w := strings.Join(want, "\n"); !strings.Contains(got, w) {
			t.Errorf("the diff lacks\n%s\nin\n%s", w, got)
		}
	}
	// Of an accepted one the old why comes from the proposal before it.
	again := rlc.Run{ID: "cron-2026-11-28T060000Z", Trigger: rlc.ByCron, Now: runAt.AddDate(0, 0, -4), Started: runAt.AddDate(0, 0, -4), Finished: runAt.AddDate(0, 0, -4), Result: rlc.ResultOK}
	change := rlc.Change{RunID: again.ID, Service: "checkout", Bucket: "mobile-create", At: again.Now, Old: &rlc.Limit{Rate: 1900, Burst: 3800}, New: &rlc.Limit{Rate: 2000, Burst: 3800}, Why: "weekly peak 1,539 × 1.30"}
	f.run(t, again, []rlc.Change{change}, []rlc.Proposal{{ID: again.ID + "-checkout", RunID: again.ID, Service: "checkout", State: rlc.Pending, Created: again.Now, Content: "cc", Changes: []rlc.Change{change}}})
	f.desired = quotafile.Parse(rlc.Files{"services/checkout/policy.yaml": f.files["services/checkout/policy.yaml"]}, nil)
	want := []string{"   - bucket: mobile-create", "-    rate: 1900", "+    rate: 2000", "     burst: 3800", `-    why: "weekly peak 1,460 × 1.30"`, `+    why: "weekly peak 1,539 × 1.30"`}
	if got := lines(get(f.handler(t), "/proposals/"+again.ID+"-checkout").Body.String()); strings.Join(got[:len(want)], "\n") != strings.Join(want, "\n") {
		t.Errorf("diff\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAWrongTokenIsCalledOne(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, c := range []struct {
		name, method, target string
		change               func(*http.Request)
		title                string
	}{
		{"a wrong token reads", "GET", "/api/v1/services", func(r *http.Request) { r.Header.Set("Authorization", "Bearer nonsense") }, "That is not the token"},
		{"a wrong token acts", "POST", "/api/v1/runs", func(r *http.Request) { r.Header.Set("Authorization", "Bearer nonsense") }, "That is not the token"},
		{"an old session acts", "POST", "/api/v1/runs", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "rlc_session", Value: "gone"}) }, "The session has ended"},
		{"no token acts", "POST", "/api/v1/runs", nil, "Sign in first"},
		{"an old session reads from afar", "GET", "/api/v1/services", func(r *http.Request) {
			r.RemoteAddr = "192.0.2.7:4711"
			r.AddCookie(&http.Cookie{Name: "rlc_session", Value: "gone"})
		}, "The session has ended"},
		{"no token reads from afar", "GET", "/api/v1/services", func(r *http.Request) { r.RemoteAddr = "192.0.2.7:4711" }, "Sign in first"},
	} {
		out := body(t, request(h, c.method, c.target, "", c.change), http.StatusUnauthorized)
		if out["title"] != c.title || strings.HasSuffix(fmt.Sprint(out["detail"]), ".") || c.title == "That is not the token" && out["detail"] != c.title {
			t.Errorf("%s: %v", c.name, out)
		}
	}
	// A reader on this machine whose cookie is old still reads.
	if w := request(h, "GET", "/", "", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "rlc_session", Value: "gone"}) }); w.Code != 200 {
		t.Errorf("an old cookie on loopback: %d", w.Code)
	}
	holds(t, h, "/login", "<code>rlc demo</code> prints the file it is in")
}

// The newest run looked at one service and was fine; the overview speaks of all
// of them nonetheless.
func TestOverviewSpeaksOfAllServices(t *testing.T) {
	f := newFixture(t)
	ctx := context.Background()
	save := func(all ...rlc.ServiceSummary) {
		t.Helper()
		if err := f.db.SaveSummaries(ctx, all); err != nil {
			t.Fatal(err)
		}
	}
	var calm []rlc.ServiceSummary
	rows, _, err := f.db.Summaries(ctx, rlc.ServiceFilter{}, rlc.Page{Size: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		calm = append(calm, rlc.ServiceSummary{Name: r.Name, Counted: 1e6, VirtualDrops: 9000}) // 0.9 %
	}
	save(calm...)
	for _, p := range []string{"cron-2026-12-02T060000Z-checkout", "cron-2026-12-02T060000Z-" + quotafile.PathSegment(hostileService)} {
		if err := f.decide(ctx, p, rlc.Rejected, "ana", "no"); err != nil {
			t.Fatal(err)
		}
	}
	good := rlc.Run{ID: "person-2026-12-02T060300Z", Trigger: rlc.ByPerson, Service: "geo", Now: runAt.Add(3 * time.Minute), Started: runAt.Add(3 * time.Minute), Finished: runAt.Add(3 * time.Minute), Result: rlc.ResultOK, Total: 2}
	f.run(t, good, nil, nil)
	f.desired = f.live // nothing is broken
	h := f.handler(t)
	holds(t, h, "/", "The last run of geo", "Nothing waits for you", "No quota is held")

	save(rlc.ServiceSummary{Name: "geo", Counted: 1e6, VirtualDrops: 120_000, Held: 3}, rlc.ServiceSummary{Name: "media", Counted: 1e6, Drops: 7000, Held: 4}, rlc.ServiceSummary{Name: "notify", VirtualDrops: 44})
	page := holds(t, h, "/", "<b>120,000</b> requests in 24 h, 12 % of its requests; so would have 1 more service.", "<b>7,000</b> requests in 24 h, 0.7 % of its requests", "7 quotas in 2 services are held",
		"would have dropped 120,000 requests in 24 h, 12 % of its requests", "dropped 7,000 requests in 24 h", "would have dropped 44 requests in 24 h<", "3 quotas left as they are")
	if strings.Contains(page, "Nothing waits for you") {
		t.Error("nothing waits, it says")
	}
	holds(t, h, "/services", "would have dropped 120,000 requests in 24 h, 12 % of its requests")
	save(rlc.ServiceSummary{Name: "geo", Counted: 1e6, VirtualDrops: 9000}, rlc.ServiceSummary{Name: "media"}, rlc.ServiceSummary{Name: "notify", Held: 1})
	if page := holds(t, h, "/", "1 quota in 1 service is held"); strings.Contains(page, "Nothing waits for you") {
		t.Error("a held quota does not wait, it says")
	}
}

func TestShadowAndServiceSpeakOfNowFirst(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	// notify: 61 × 0.6 × 86,400 × 0.1 % = 3,162; search: 310 × 0.6 × 86,400 = 16,070,400 offered, 1.2 % of it virtual.
	page := holds(t, h, "/services/checkout/shadow", "Live in 24 h <b>196,007</b>", "callers / search", "192,845", "1.2 %", "Counted by enforcers in 24 h, until now", ">06:04:00<", "Not until now: until the last run", "Replayed over four weeks")
	if live, back := strings.Index(page, `id="live"`), strings.Index(page, `id="cmp"`); live < 0 || live > back {
		t.Errorf("live at %d, the comparison at %d", live, back)
	}
	holds(t, h, "/services/checkout", "callers / search</a> would have dropped <b>192,845</b> requests in 24 h, 1.2 % of what it was offered.")
	holds(t, h, "/services/geo", "no peak that counts is known to set its limits against")
	f.counts = append(f.counts, rlc.Count{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "a-new-one"}, Offered: 77})
	holds(t, h, "/services/checkout/shadow", "callers / a-new-one", ">77<")
	out := body(t, get(h, "/api/v1/services/checkout/shadow"), 200)["live"].(map[string]any)
	if q := out["quotas"].([]any)[0].(map[string]any); out["at"] != "2026-12-02T06:04:00Z" || fmt.Sprint(q["key"]) != "map[caller:search]" || q["offered"] != 16070400.0 {
		t.Errorf("live: %v", out)
	}
}

func TestAQuietServiceSaysOverWhichWindow(t *testing.T) {
	f := newFixture(t)
	var wide []rlc.Quota
	for _, q := range f.live.Quotas["checkout"] {
		q.Rate, q.Burst = 1e6, 1e6
		wide = append(wide, q)
	}
	f.files[quotafile.QuotasPath("checkout")] = quotafile.MarshalQuotas("checkout", wide)
	f.live = quotafile.Parse(f.files, nil)
	f.counts = []rlc.Count{{Service: "checkout", Bucket: "mobile-create", Offered: 5000, VirtualDrops: 5}} // 0.1 % is not spoken of
	holds(t, f.handler(t), "/services/checkout", "Nothing was dropped in 24 h, and every limit whose peak that counts is known lies above it in the last run")
}

func TestHistoryTellsWhatBecameOfEachChange(t *testing.T) {
	f := newFixture(t)
	add := func(days int, state rlc.ProposalState, who, reason string) {
		t.Helper()
		at := runAt.AddDate(0, 0, -days)
		r := rlc.Run{ID: "cron-" + at.Format("2006-01-02T150405Z"), Trigger: rlc.ByCron, Now: at, Started: at, Finished: at, Result: rlc.ResultOK}
		c := rlc.Change{RunID: r.ID, Service: "checkout", Bucket: "mobile-create", At: at, Old: &rlc.Limit{Rate: 1900, Burst: 3800}, New: &rlc.Limit{Rate: rlc.Rate(1900 + 10*days), Burst: 3800}, Why: "made"}
		p := rlc.Proposal{ID: r.ID + "-checkout", RunID: r.ID, Service: "checkout", State: rlc.Pending, Created: at, Content: fmt.Sprint(days), Changes: []rlc.Change{c}}
		f.run(t, r, []rlc.Change{c}, []rlc.Proposal{p})
		p, err := f.db.ProposalByID(context.Background(), p.ID)
		if err != nil {
			t.Fatal(err)
		}
		p.State, p.Actor, p.Reason, p.Decided = state, who, reason, at
		if err := f.db.SetProposal(context.Background(), p, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, open, _ := strings.Cut(holds(t, f.handler(t), "/services/checkout/buckets/mobile-create"), `id="history"`)
	if !regexp.MustCompile(`>\s*proposed\s*</span>`).MatchString(open) {
		t.Error("what waits is not called proposed")
	}
	// Each of these takes the place of the one that was open.
	add(3, rlc.Rejected, "bo", "the batch came once")
	add(4, rlc.Superseded, "", "")
	add(5, rlc.Accepted, "", "")
	page := holds(t, f.handler(t), "/services/checkout/buckets/mobile-create", "by ana", "by bo", "rejected", "the batch came once · made", "superseded", "by somebody outside RLC")
	_, page, _ = strings.Cut(page, `id="history"`)
	for state, n := range map[string]int{"rejected": 1, "superseded": 2, "accepted": 2} {
		if got := len(regexp.MustCompile(`>\s*`+state+`\s*</span>`).FindAllString(page, -1)); got != n {
			t.Errorf("%d changes are %s, want %d", got, state, n)
		}
	}
	holds(t, f.handler(t), "/services/checkout/buckets/callers?key="+url.QueryEscape("caller=loyalty"), "held")
}

func TestRequestsInSheetsAreWhole(t *testing.T) {
	f := newFixture(t)
	for i := range f.counts {
		f.counts[i].VirtualDrops += .37
	}
	if err := f.db.SaveSummaries(context.Background(), []rlc.ServiceSummary{{Name: "geo", VirtualDrops: 12.4, Drops: .6}}); err != nil {
		t.Fatal(err)
	}
	h := f.handler(t)
	whole := regexp.MustCompile(`^[0-9]*$`)
	for _, target := range []string{"/services.csv", "/services/checkout.csv", "/services/checkout/shadow.csv", "/proposals.csv", "/proposals/cron-2026-12-02T060000Z-checkout.csv"} {
		rows, err := csv.NewReader(get(h, target).Body).ReadAll()
		if err != nil || len(rows) < 2 {
			t.Fatalf("%s: %v, %d rows", target, err, len(rows))
		}
		found := false
		for i, name := range rows[0] {
			if !strings.Contains(name, "drops") {
				continue
			}
			found = true
			for _, r := range rows[1:] {
				if !whole.MatchString(r[i]) {
					t.Errorf("%s: %s is %q", target, name, r[i])
				}
			}
		}
		if !found {
			t.Errorf("%s counts no requests", target)
		}
	}
}

func TestAnUnknownKeyIsAnsweredWithThoseThatExist(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, c := range []struct{ service, bucket, key, want string }{
		{"geo", "callers", "caller=search", "There is no quota callers/caller=search; this bucket has caller=mobile, caller=web"},
		{"checkout", "mobile-create", "caller=search", "There is no quota mobile-create/caller=search; this bucket counts without a key"},
	} {
		target := "/services/" + c.service + "/buckets/" + c.bucket + "?key=" + url.QueryEscape(c.key)
		if out := body(t, get(h, "/api/v1"+target), 404); out["detail"] != c.want {
			t.Errorf("%s: %v", target, out["detail"])
		}
		if w := get(h, target); w.Code != 404 || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d without %q", target, w.Code, c.want)
		}
	}
	// Fifteen keys: ten are named.
	out := body(t, get(h, "/api/v1/services/"+url.PathEscape(hostileService)+"/buckets/callers?key=caller=x"), 404)
	if detail := fmt.Sprint(out["detail"]); !strings.HasSuffix(detail, " and 5 more") {
		t.Error(detail)
	}
	in, _ := json.Marshal(map[string]any{"service": "geo", "bucket": "callers", "key": rlc.Key{"caller": "x"}, "rate": 10})
	if out := body(t, post(h, "/api/v1/backtest", string(in), nil), 404); !strings.Contains(fmt.Sprint(out["detail"]), "this bucket has caller=mobile, caller=web") {
		t.Errorf("backtest: %v", out)
	}
}

// At 360 px an empty cell has no label, and the search box's words fit.
func TestTheSumOfAProposalHasNoEmptyLabels(t *testing.T) {
	page := get(newFixture(t).handler(t), "/proposals/cron-2026-12-02T060000Z-checkout").Body.Bytes()
	_, total, _ := bytes.Cut(page, []byte(`class="total"`))
	total, _, _ = bytes.Cut(total, []byte("</tr>"))
	if len(total) == 0 || bytes.Contains(total, []byte(`data-l="Mode"`)) || bytes.Contains(total, []byte(`trend`)) {
		t.Errorf("%s", total)
	}
	if empty := regexp.MustCompile(`data-l="[^"]*">(<span[^>]*>)?\s*(</span>)?</td>`).Find(total); empty != nil {
		t.Errorf("a label without a value: %s", empty)
	}
	if !bytes.Contains(page, []byte(`placeholder="Search or command"`)) {
		t.Error("the search box's words are too long for 360 px")
	}
}
