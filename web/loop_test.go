package web_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

// loopWord is a controller that says one thing.
type loopWord struct {
	state web.LoopState
	err   error
}

func (l loopWord) LoopState(context.Context) (web.LoopState, error) { return l.state, l.err }

func looped(t *testing.T, l web.Loop) http.Handler {
	t.Helper()
	c := newFixture(t).config()
	c.Loop = l
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// someLoop has a bucket above its limit, in both worlds, and one whose names
// are hostile.
func someLoop() loopWord {
	limit, doubted := 200.0, uint64(3)
	return loopWord{state: web.LoopState{
		Buckets: []web.LoopBucket{
			{Service: "checkout", Bucket: "callers", Key: "caller=orders", Scope: rlc.ScopeZone, Zone: "eu-1a", Region: "eu", Limit: &limit, Offered: 190, Admitted: 190, Nodes: 4, Zones: 1},
			{Service: hostileService, Bucket: hostile[0], Key: "caller=" + hostile[5], Scope: rlc.ScopeGlobal, Offered: 7, Admitted: 7, Nodes: 1, Zones: 1},
			{Service: "checkout", Bucket: "callers", Key: "caller=search", AsIf: true, Scope: rlc.ScopeGlobal, Limit: &limit, Offered: 800, Admitted: 200, Ratio: .75, Peak: 900, Nodes: 5, Zones: 2},
		},
		Zones:   []web.LoopZone{{Zone: "eu-1a", Region: "eu", Age: .2}, {Zone: hostile[4], Age: 61}, {Region: "us", Doubted: true}, {Zone: "us-1", Region: "us", Name: "a2", Flagged: []string{"node-7", hostile[0]}}},
		Doubted: &doubted,
	}}
}

func TestTheLoopIsShownWithWhatItDrops(t *testing.T) {
	h := looped(t, someLoop())
	w := get(h, "/loop")
	page := w.Body.String()
	for _, want := range []string{"3 counters", "75\u00a0%", "800", "200", "zone eu/eu-1a", "0.2\u00a0s", "3 claims of nodes were", "Region us reported", "Aggregator a2 of zone us/us-1", "told by node-7, ", "closes the loop by itself", "Region us claims more than",
		`href="/services/checkout/buckets/callers?key=caller%3Dsearch"`, `data-mode="shadow"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if w.Code != 200 || strings.Index(page, "caller=search") > strings.Index(page, "caller=orders") && strings.Contains(page, "caller=orders") {
		t.Errorf("status %d; the largest ratio comes first", w.Code)
	}
	for _, name := range hostile {
		if strings.ContainsAny(name, "<>") && strings.Contains(page, name) {
			t.Errorf("%q is in the page as it is", name)
		}
	}
	if only := get(h, "/loop?service=checkout").Body.String(); strings.Contains(only, "eval") || !strings.Contains(only, "2 counters") {
		t.Error("the filter keeps one service")
	}
}

func TestTheLoopAnswersPrograms(t *testing.T) {
	h := looped(t, someLoop())
	for _, path := range []string{"/loop.json", "/api/v1/loop"} {
		var got struct {
			Buckets []web.LoopBucket `json:"buckets"`
			Zones   []web.LoopZone   `json:"zones"`
			Doubted *uint64          `json:"claims_clipped"`
			Total   int              `json:"total"`
		}
		w := get(h, path+"?service=checkout&per_page=1")
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Buckets) != 1 || got.Buckets[0].Ratio != .75 || !got.Buckets[0].AsIf || got.Total != 2 || len(got.Zones) != 4 || len(got.Zones[3].Flagged) != 2 || got.Doubted == nil || *got.Doubted != 3 {
			t.Errorf("%s: %+v", path, got)
		}
	}
	w := get(h, "/loop.csv")
	rows, err := csv.NewReader(w.Body).ReadAll()
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	want := []string{"checkout", "callers", "caller=search", "as_if", "global", "", "", "800", "200", "200", "0.75", "900", "5", "2", "61"}
	if fmt.Sprint(rows[1]) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", rows[1], want)
	}
	if rows[3][14] != "0.2" { // its own zone's, not the silent one's
		t.Errorf("a zone's counter is %s s old, want 0.2", rows[3][14])
	}
}

func TestALoopThatCannotBeAskedSaysWhyAndWhatHelps(t *testing.T) {
	for name, c := range map[string]struct {
		loop web.Loop
		page string
		code int
	}{
		"none":       {nil, "loop:\n  controller:", 404},
		"not told":   {loopWord{err: fmt.Errorf("%w: loop.controller", rlc.ErrNotFound)}, "loop:\n  controller:", 404},
		"no answer":  {loopWord{err: fmt.Errorf("%w: dial: refused", rlc.ErrUnavailable)}, "does not answer", 503},
		"no buckets": {loopWord{}, "algorithm: drop_ratio", 200},
	} {
		h := looped(t, c.loop)
		if w := get(h, "/loop"); w.Code != 200 || !strings.Contains(w.Body.String(), c.page) {
			t.Errorf("%s: the page answers %d without %q", name, w.Code, c.page)
		}
		for _, ending := range []string{".json", ".csv"} {
			if w := get(h, "/loop"+ending); w.Code != c.code {
				t.Errorf("%s: %s answers %d, want %d", name, ending, w.Code, c.code)
			}
		}
	}
}
