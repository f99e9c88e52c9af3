package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/distribute"
	"github.com/openrlc/rlc/internal/porttest"
)

// With PostgreSQL, git and Prometheus stopped, a person on call signs in with
// the server's token and blocks a caller in three interactions (fill in,
// preview, apply), in Chromium at 360 px without scripts. Fifty enforcers and a
// built one behind nginx drop that caller; the command lifts it; the records
// hold both acts when they are back.
func TestAnOverrideInThreeInteractionsWithEverythingElseStopped(t *testing.T) {
	w := newWorld(t)
	server := w.serve("first")
	server.ready()
	edge := w.edge("edge-1")
	server.compute()
	eventually(t, "a review", func() bool { return slices.Contains(server.open(), "checkout") })
	w.merge("checkout")
	all := w.fleet(50)
	front := w.nginx(edge)
	answers := func(want int) func() bool {
		return func() bool { code, _ := ask("GET", front, nil); return code == want }
	}
	eventually(t, "everybody has the snapshot", func() bool {
		v, _ := server.live()
		return v != "" && edge.inForce() == v && answers(200)() && !slices.ContainsFunc(all, func(f follower) bool { return f.Version() == (rlc.Version{}) })
	})

	postgres.Kill(t)
	w.git.stop()
	w.prom.stop()
	eventually(t, "not ready without records", func() bool { code, _ := ask("GET", server.url+"/readyz", nil); return code == 503 })
	if !answers(200)() {
		t.Error("without all that, nginx lets nothing pass")
	}

	began := block(t, server)
	eventually(t, "nginx refuses", answers(http.StatusTooManyRequests))
	refused := time.Since(began)
	took := make([]time.Duration, len(all))
	for i, f := range all {
		select {
		case at := <-f.dropped:
			took[i] = at.Sub(began)
		case <-time.After(time.Minute):
			t.Fatalf("enforcer %d does not drop", i)
		}
	}
	slices.Sort(took)
	t.Logf("from before the click: 50 enforcers median %s, p99 %s; nginx, asked every 100 ms once the page had come, %s",
		took[24].Round(time.Millisecond), took[49].Round(time.Millisecond), refused.Round(time.Millisecond)) // of 50, p99 is the last
	if code, _ := ask("GET", edge.url+"/v1/check?service=checkout&caller=mobile", nil); code != 200 {
		t.Errorf("another caller is answered %d", code)
	}

	lift(t, server)
	eventually(t, "nginx lets it pass again", answers(200))
	postgres.Start(t)
	eventually(t, "both acts are recorded, in the person's name and the token's", func() bool {
		var log struct {
			Audit []struct{ Actor, Action string } `json:"audit"`
		}
		server.get("/api/v1/audit?action=override.", &log)
		var acts []string
		for _, e := range log.Audit {
			acts = append(acts, e.Action+" "+e.Actor)
		}
		return slices.Equal(acts, []string{"override.ended token", "override.set Ana Lima"})
	})
}

// block signs in on a phone and blocks checkout's caller 127.0.0.1. It returns
// when the person was about to apply.
func block(t *testing.T, server *process) (began time.Time) {
	t.Helper()
	page := phone(t)
	do := func(what string, actions ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		ctx, cancel := context.WithTimeout(page, time.Minute)
		defer cancel()
		if err := chromedp.Do(ctx, actions...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	// The address fills in whom, as a link in a chat does.
	do("sign in", chromedp.Navigate(server.url+"/login?next="+url.QueryEscape("/emergency?service=checkout&caller=127.0.0.1")),
		chromedp.SendKeys(chromedp.CSS("#token"), token), chromedp.SendKeys(chromedp.CSS("#name"), "Ana Lima"),
		chromedp.Click(chromedp.CSS("button.primary")), chromedp.WaitVisible(chromedp.CSS("#es")))
	do("one, fill in", chromedp.Click(chromedp.CSS(`label.pick:has(input[value=block])`)), chromedp.SendKeys(chromedp.CSS("#ew"), "INC-947 retry storm"))
	do("two, preview", chromedp.Click(chromedp.CSS(`form[action="/emergency"] button.primary`)), chromedp.WaitVisible(chromedp.CSS(".answer")))
	began = time.Now()
	do("three, apply", chromedp.Click(chromedp.CSS(`form[action="/emergency"] button.danger`)), chromedp.WaitVisible(chromedp.CSS(".over b")))
	ctx, cancel := context.WithTimeout(page, time.Minute)
	defer cancel()
	shown, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS(".over")))
	if err != nil || !strings.Contains(shown, "Ana Lima") || !strings.Contains(shown, "INC-947 retry storm") {
		t.Errorf("the page shows %q (%v)", shown, err)
	}
	return began
}

// lift ends the one override that stands, by the command.
func lift(t *testing.T, server *process) {
	t.Helper()
	var standing struct {
		Overrides []struct {
			ID string `json:"id"`
		} `json:"overrides"`
	}
	if !server.get("/api/v1/overrides", &standing) || len(standing.Overrides) != 1 {
		t.Fatalf("standing: %+v", standing)
	}
	cmd := exec.Command(filepath.Join(programs, "rlc"), "lift", standing.Overrides[0].ID, "--server", server.url)
	cmd.Env = append(os.Environ(), "RLC_TOKEN="+token)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ended") {
		t.Fatalf("rlc lift: %v\n%s", err, out)
	}
}

// follower is an enforcer of this process.
type follower struct {
	*enforcer.Enforcer
	dropped chan time.Time // when it first would drop checkout's caller 127.0.0.1
}

// load takes what the bus brings.
func (f follower) load(m distribute.Message) rlc.Ack {
	if m.Snapshot != nil {
		_ = f.Load(*m.Snapshot) // what it refuses it says in its word
	}
	if o := m.Overrides; o != nil {
		_ = f.LoadOverrides(o.Version, o.Content) // as above
		asked := enforcer.Request{Service: "checkout", Attributes: rlc.Attributes{"caller": "127.0.0.1", "procedure": "Get"}}
		if f.Decide(asked).Outcome == enforcer.Drop {
			select {
			case f.dropped <- time.Now():
			default: // it did before
			}
		}
	}
	return f.Ack()
}

// fleet is n enforcers that follow the world's Redis.
func (w *world) fleet(n int) (all []follower) {
	w.t.Helper()
	bus, err := distribute.NewRedis(distribute.RedisConfig{URL: w.redis.URL()})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	w.t.Cleanup(func() { cancel(); following.Wait(); bus.Close() })
	for i := range n {
		e, err := enforcer.New(enforcer.Config{Name: fmt.Sprintf("inner-%d", i)})
		if err != nil {
			w.t.Fatal(err)
		}
		f := follower{e, make(chan time.Time, 1)}
		all = append(all, f)
		following.Go(func() { _ = bus.Follow(ctx, f.load) }) // it ends with the test
	}
	return all
}

// nginx runs deploy/nginx.conf before an enforcer and a service that answers
// 200. It returns its URL.
func (w *world) nginx(edge *process) string {
	w.t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w.t.Cleanup(upstream.Close)
	conf, err := os.ReadFile("../../deploy/nginx.conf")
	if err != nil {
		w.t.Fatal(err)
	}
	addr, dir := porttest.Free(w.t), w.t.TempDir()
	text := strings.NewReplacer("127.0.0.1:8082", strings.TrimPrefix(edge.url, "http://"), "127.0.0.1:9000", strings.TrimPrefix(upstream.URL, "http://"),
		"127.0.0.1:8000", addr, "50ms", "10s").Replace(string(conf)) // a busy machine is no enforcer that is away
	head := "daemon off;\nworker_processes 1;\npid pid;\nerror_log stderr;\nevents {worker_connections 64;}\nhttp {\naccess_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		head += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	w.write(filepath.Join(dir, "nginx.conf"), strings.Replace(head, "pid pid;", "pid "+dir+"/pid;", 1)+text+"}\n")
	cmd := exec.Command("/usr/sbin/nginx", "-e", "stderr", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	ended := begin(w.t, cmd)
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
	})
	return "http://" + addr
}

// phone is a tab of Chromium, 360 px wide, that runs no scripts.
func phone(t *testing.T) context.Context {
	t.Helper()
	alloc, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	err := chromedp.Do(ctx, chromedp.EmulateViewport(360, 780), chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	if err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return ctx
}
