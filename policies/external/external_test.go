package external

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

var now = time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)

// input is four weeks at 100/s.
func input() rlc.Input {
	values := make([]float64, 28*24*60)
	for i := range values {
		values[i] = 100
	}
	return rlc.Input{
		Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "search"}, Now: now,
		History: stat.Summarise(time.Minute, now.Add(-28*24*time.Hour), values),
		Current: &rlc.Limit{Rate: 150, Burst: 300}, Capacity: &rlc.Capacity{Rate: 1000, Reserve: 0.2},
	}
}

// asking is a policy that may ask the server.
func asking(t testing.TB, server *httptest.Server, timeout time.Duration) *Policy {
	t.Helper()
	u, _ := url.Parse(server.URL)
	client := NewClient(ClientConfig{Allow: []string{u.Host}, Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	p, err := New(Config{URL: server.URL + "/quota?token=hush", Timeout: timeout}, client)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func answering(t testing.TB, answer http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s
}

func saying(t testing.TB, body string) *httptest.Server {
	return answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
}

func TestTheModelSeesTheInputAndItsAnswerIsTheEstimate(t *testing.T) {
	var asked Question
	s := answering(t, func(w http.ResponseWriter, r *http.Request) {
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&asked); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v", r.Method, err)
		}
		_, _ = io.WriteString(w, `{"rate": 180, "burst": 90, "why": "two\nlines", "look": "new season", "shadow": true}`)
	})
	p := asking(t, s, 0)
	est, err := p.Propose(context.Background(), input())
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(s.URL, "http://")
	if est.Limit != (rlc.Limit{Rate: 180, Burst: 90}) || est.Why != "model "+host+" 180/s: two lines" || est.Look != "new season" || !est.Shadow || est.Peak.Rate != 100 {
		t.Errorf("%+v", est)
	}
	room := rlc.Rate(800)
	if asked.Version != 1 || asked.Service != "checkout" || asked.Key["caller"] != "search" || !asked.Now.Equal(now) || asked.Step != 60 ||
		*asked.Current != (rlc.Limit{Rate: 150, Burst: 300}) || *asked.Capacity != room || asked.Contract != nil || asked.WeeklyPeak != 100 ||
		len(asked.Hours) != 28*24 || asked.Hours[0].Max != 100 || asked.Hours[0].Present != 60 {
		asked.Hours, asked.Tail = nil, nil
		t.Errorf("asked %+v", asked)
	}
}

func TestARunThatWasMadeBeforeReadsTheRecordedAnswer(t *testing.T) {
	calls := 0
	s := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		fmt.Fprintf(w, `{"rate": %d}`, 100+calls)
	})
	p := asking(t, s, 0)
	first, err := p.Propose(context.Background(), input())
	if err != nil || first.Answer != `{"rate": 101}` {
		t.Fatalf("answer %q (%v)", first.Answer, err)
	}
	again := input()
	again.Answer = first.Answer
	second, err := p.Propose(context.Background(), again)
	if err != nil || calls != 1 || !reflect.DeepEqual(first, second) {
		t.Errorf("%d calls, %+v (%v); want one call and an equal estimate", calls, second, err)
	}
}

func TestEveryFailureAbstainsWithItsReason(t *testing.T) {
	for want, answer := range map[string]http.HandlerFunc{
		"it answers 503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"a redirect, which is not followed": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		},
		"no answer within 50ms": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the asker has left
			<-r.Context().Done()
		},
		"the answer is empty":                    func(http.ResponseWriter, *http.Request) {},
		"longer than 65536 bytes":                func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat(" ", 1<<17)) },
		"not as the schema wants it":             func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `<html>`) },
		`unknown field "quota"`:                  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"quota": 5}`) },
		"something follows the object":           func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"rate": 5}{"rate": 6}`) },
		"neither a rate nor a reason":            func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"why": "x"}`) },
		"a rate of 0 is outside":                 func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"rate": 0}`) },
		"a rate of −5 is outside":                func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"rate": -5}`) },
		"a rate of 1,000,000,000,000 is outside": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"rate": 1e12}`) },
		"a burst of 0 is outside":                func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"rate": 5, "burst": 0}`) },
		"both a rate or burst and a reason":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"rate": 5, "abstain": "x"}`) },
		"declines: too young":                    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"abstain": "too young"}`) },
	} {
		t.Run(want, func(t *testing.T) {
			p := asking(t, answering(t, answer), 50*time.Millisecond)
			if !strings.Contains(want, "no answer") {
				p.timeout = DefaultTimeout
			}
			est, err := p.Propose(context.Background(), input())
			if !errors.Is(err, rlc.ErrAbstain) || !strings.Contains(err.Error(), want) || est.Limit != (rlc.Limit{}) {
				t.Errorf("%v (%v), want %q", est.Limit, err, want)
			}
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("the reason tells the query: %v", err)
			}
		})
	}
	closed := answering(t, nil)
	p := asking(t, closed, 0)
	closed.Close()
	if _, err := p.Propose(context.Background(), input()); !errors.Is(err, rlc.ErrAbstain) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestAModelThatIsDownIsAskedThreeTimesInARun(t *testing.T) {
	calls := 0
	s := answering(t, func(w http.ResponseWriter, _ *http.Request) { calls++; w.WriteHeader(500) })
	p := asking(t, s, 0)
	var err error
	for range 10 {
		_, err = p.Propose(context.Background(), input())
	}
	if calls != 3 || !errors.Is(err, rlc.ErrAbstain) || !strings.Contains(err.Error(), "not asked any more in this run: 3 failures") {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestOnlyWhomTheOperatorAllowsIsAsked(t *testing.T) {
	s := saying(t, `{"rate": 5}`)
	u, _ := url.Parse(s.URL)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for name, c := range map[string]struct {
		config ClientConfig
		want   string
	}{
		"nobody":              {ClientConfig{Private: loopback}, "the operator does not allow this host"},
		"another":             {ClientConfig{Allow: []string{"models.example"}, Private: loopback}, "the operator does not allow this host"},
		"a private address":   {ClientConfig{Allow: []string{u.Hostname()}}, "127.0.0.1 is a private address"},
		"another network":     {ClientConfig{Allow: []string{u.Host}, Private: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, "127.0.0.1 is a private address"},
		"host and network":    {ClientConfig{Allow: []string{u.Hostname()}, Private: loopback}, ""},
		"host, port, network": {ClientConfig{Allow: []string{u.Host}, Private: loopback}, ""},
	} {
		client := NewClient(c.config)
		p, err := New(Config{URL: s.URL}, client)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Propose(context.Background(), input())
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, rlc.ErrAbstain) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		client.Close()
	}
	for _, inside := range []string{
		"10.1.2.3", "172.16.0.1", "192.168.1.1", "127.0.0.1", "169.254.169.254", "0.0.0.0", "100.64.1.1", "224.0.0.1", "255.255.255.255",
		"::1", "fe80::1", "fd00::1", "::", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::ffff:10.0.0.1", "::ffff:127.0.0.1",
	} {
		if public(netip.MustParseAddr(inside).Unmap()) {
			t.Errorf("%s passes as public", inside)
		}
	}
	for _, outside := range []string{"93.184.216.34", "2606:2800:220:1::1"} {
		if !public(netip.MustParseAddr(outside)) {
			t.Errorf("%s passes as private", outside)
		}
	}
}

func TestTheURLIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"": "blank", "ftp://x/": "not an http", "/quota": "not an http", "http://": "not an http", "http://a b/": "not a URL",
		"https://user:pw@models.example/": "carries a user", "https://models.example/#x": "carries a user or a fragment",
	} {
		if _, err := New(Config{URL: text}, NewClient(ClientConfig{})); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Whatever comes back, it is a possible limit or an abstention.
func TestAnyAnswerIsSafe(t *testing.T) {
	p, err := New(Config{URL: "http://models.example/"}, NewClient(ClientConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"{", "}", `"rate"`, `"burst"`, `"abstain"`, ":", ",", "5", "-1", "1e400", "NaN", "null", `"x"`, "[", "]", "true", " "}
	in := input()
	rapid.Check(t, func(t *rapid.T) {
		in.Answer = "{" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 8).Draw(t, "words"), "")
		est, err := p.Propose(context.Background(), in)
		if err == nil && (est.Limit.Valid() != nil || est.Limit.Rate <= 0) || err != nil && !errors.Is(err, rlc.ErrAbstain) {
			t.Fatalf("%s: %v, %v", in.Answer, est.Limit, err)
		}
	})
}

// The example server of the documentation, as its reader would run it.
func TestTheExampleServerAnswers(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-o", binary, "../../docs/policies/external").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(binary, "--listen", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	target, ok := strings.CutPrefix(strings.TrimSpace(line), "ready: ")
	if err != nil || !ok {
		t.Fatalf("%q (%v)", line, err)
	}
	client := NewClient(ClientConfig{Allow: []string{"127.0.0.1"}, Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	defer client.Close()
	p, err := New(Config{URL: target}, client)
	if err != nil {
		t.Fatal(err)
	}
	est, err := p.Propose(context.Background(), input())
	if err != nil || est.Limit != (rlc.Limit{Rate: 120, Burst: 240}) || !strings.HasSuffix(est.Why, "highest hour of 7 days 100/s × 1.2") {
		t.Errorf("%v, %q (%v)", est.Limit, est.Why, err)
	}
	young := input()
	young.History.Hours = young.History.Hours[len(young.History.Hours)-36:]
	if _, err := p.Propose(context.Background(), young); !errors.Is(err, rlc.ErrAbstain) || !strings.Contains(err.Error(), "declines: 1.5 days of history, 2 needed") {
		t.Errorf("a young caller: %v", err)
	}
}

// The published schemas name what is sent and read, no more and no less.
func TestTheSchemasNameEveryField(t *testing.T) {
	type schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Defs       map[string]schema          `json:"$defs"`
	}
	read := func(name string) (s schema) {
		text, err := os.ReadFile("../../docs/policies/external/" + name)
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	same := func(what string, s schema, value any) {
		var fields []string
		for f := range reflect.TypeOf(value).Fields() {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous {
				for inner := range f.Type.Fields() {
					tag, _, _ := strings.Cut(inner.Tag.Get("json"), ",")
					fields = append(fields, tag)
				}
				continue
			}
			fields = append(fields, tag)
		}
		slices.Sort(fields)
		if named := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(named, fields) {
			t.Errorf("%s: the schema has %v, the code %v", what, named, fields)
		}
	}
	q := read("question.schema.json")
	same("question", q, Question{})
	same("hour", q.Defs["hour"], Hour{})
	same("sample", q.Defs["sample"], TailSample{})
	same("window", q.Defs["window"], rlc.Window{})
	same("flag", q.Defs["flag"], rlc.Flag{})
	same("limit", q.Defs["limit"], rlc.Limit{})
	same("answer", read("answer.schema.json"), Answer{})
}
