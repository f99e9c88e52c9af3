package web_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

func TestAnAskIsOfAQuotaThatTheBucketCanHave(t *testing.T) {
	f := newFixture(t)
	h := company(t, f, nil)
	good := url.Values{"service": {"checkout"}, "bucket": {"callers"}, "key": {"caller=search"}, "rate": {"500"}, "reason": {"launch on Friday"}}
	for _, c := range []struct{ field, value, says string }{
		{"key", "zzz=1", "has no quota by"},
		{"key", "caller=search,zzz=1", "has no quota by"},
		{"key", "", "names no caller"},
		{"key", "caller=a\x00b", "printable"},
		{"key", "caller=a\xffb", "printable"},
		{"key", "caller=" + strings.Repeat("x", 257), "longer than 256 bytes"},
		{"bucket", "nope", "nope"},
		{"rate", "280", "not above the limit in force, 280 req/s"},
		{"rate", "1", "not above the limit in force"},
		{"reason", " ", "An ask needs a reason"},
	} {
		bad := url.Values{}
		for name, values := range good {
			bad[name] = values
		}
		bad.Set(c.field, c.value)
		w := request(h, "POST", "/why", bad.Encode(), as("rae", "team-search"))
		if w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %.40q: status %d, want a refusal that says %q", c.field, c.value, w.Code, c.says)
		}
	}
	if did := f.done(); len(did) > 0 {
		t.Errorf("refused asks did %q", did)
	}
	another := url.Values{"service": {"checkout"}, "bucket": {"callers"}, "key": {"caller=" + strings.Repeat("x", 256)}, "rate": {"100000"}, "reason": {"new"}}
	for _, form := range []url.Values{good, good, another} { // one of them sent twice
		if w := request(h, "POST", "/why", form.Encode(), as("rae", "team-search")); w.Code != http.StatusSeeOther {
			t.Errorf("asking: %d %s", w.Code, w.Body)
		}
	}
	want := []string{
		"ask /services/checkout/buckets/callers?key=caller%3Dsearch by rae: 500 req/s: launch on Friday",
		"ask /services/checkout/buckets/callers?key=caller%3D" + strings.Repeat("x", 256) + " by rae: 100000 req/s: new",
	}
	if !slices.Equal(f.done(), want) {
		t.Errorf("done %q, want %q", f.done(), want)
	}
}

// taken are the acts of replicas that have not heard of each other's asks yet.
type taken struct {
	web.Acts
	ids *[]string
}

func (a taken) Ask(_ context.Context, act rlc.AuditEntry, told rlc.Notice) error {
	*a.ids = append(*a.ids, act.ID+" "+told.ID)
	return nil
}

func TestOneAskTakenByTwoReplicasAtOnceHasOneID(t *testing.T) {
	f := newFixture(t)
	var ids []string
	replica := func() http.Handler { return company(t, f, func(c *web.Config) { c.Acts = taken{f, &ids} }) }
	a, b := replica(), replica()
	form := url.Values{"service": {"checkout"}, "bucket": {"callers"}, "key": {"caller=search"}, "rate": {"500"}, "reason": {"launch on Friday"}}
	ask := func(h http.Handler, name string) {
		t.Helper()
		if w := request(h, "POST", "/why", form.Encode(), as(name, "team-search")); w.Code != http.StatusSeeOther {
			t.Fatalf("asking: %d %s", w.Code, w.Body)
		}
	}
	ask(a, "rae")
	ask(b, "rae")
	ask(b, "sol")
	form.Set("rate", "501")
	ask(a, "rae")
	if len(ids) != 4 || ids[0] != ids[1] || ids[2] == ids[0] || ids[3] == ids[0] || ids[3] == ids[2] {
		t.Errorf("ids %q, want the first two to be one and the others their own", ids)
	}
}
