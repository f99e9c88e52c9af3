package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loopstate"
)

// ratioPolicy holds every caller of s to 200/s over all zones.
const ratioPolicy = "apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\ndefaults: {mode: enforce}\n" +
	"buckets:\n  - {name: callers, each: [caller], algorithm: drop_ratio, limit: {rate: %d, burst: 200}}\n"

func writePolicy(t *testing.T, dir string, rate int) {
	t.Helper()
	writeService(t, dir, fmt.Sprintf(ratioPolicy, rate))
}

// writeService puts the policy of s into a config folder.
func writeService(t *testing.T, dir, policy string) {
	t.Helper()
	file := filepath.Join(dir, "services", "s", "policy.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
}

// output is a writer that can be waited on.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// within polls until so, for at most 60 s.
func within(t *testing.T, what string, so func() bool) {
	t.Helper()
	end := time.NewTimer(60 * time.Second)
	defer end.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("not within 60 s: %s", what)
		}
	}
}

// begun is a command under way.
type begun struct {
	out, log *output
	end      func()
}

type subcommand func(context.Context, []string, func(string) string, io.Writer, io.Writer) error

func begin(t *testing.T, run subcommand, args ...string) *begun {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	b := &begun{out: &output{}, log: &output{}}
	done := make(chan error, 1)
	go func() { done <- run(ctx, args, func(string) string { return "" }, b.out, b.log) }()
	var once sync.Once
	b.end = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("%v ended with %v\n%s", args, err, b.log)
			}
		})
	}
	t.Cleanup(b.end)
	return b
}

// address is where a command listens, by its URL's scheme.
func (b *begun) address(t *testing.T, scheme string) string {
	t.Helper()
	re := regexp.MustCompile(`listening: ` + scheme + `://(\S+)`)
	within(t, "listening", func() bool { return re.MatchString(b.out.String()) })
	return re.FindStringSubmatch(b.out.String())[1]
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The whole chain: the controller reads a folder, the enforcer takes its
// snapshot from the aggregator and drops by the ratio; a changed limit arrives
// the same way.
func TestServeOnTheLoop(t *testing.T) {
	dir := t.TempDir()
	writePolicy(t, dir, 200)
	controller := begin(t, control, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config-dir", dir, "--state", t.TempDir())
	aggregator := begin(t, aggregate, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--zone", "z1", "--region", "r", "--controller", controller.address(t, "grpc"))
	server := begin(t, serve, "--grpc", "off", "--http", "127.0.0.1:0", "--zone", "z1", "--name", "e1", "--aggregator", aggregator.address(t, "grpc"))
	url := "http://" + server.address(t, "http")
	within(t, "a snapshot over the loop", func() bool {
		return strings.Contains(get(t, url+"/v1/config"), `"buckets":1`) || strings.Contains(get(t, url+"/v1/config"), `callers`)
	})

	// About 1,000/s of offered load, as fast as the ticker allows.
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		defer http.DefaultClient.CloseIdleConnections()
		tick := time.NewTicker(4 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				for range 4 {
					resp, err := http.Post(url+"/v1/check", "application/json", strings.NewReader(`{"service":"s","attributes":{"caller":"web"}}`))
					if err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}
			}
		}
	})
	defer load.Wait()
	defer stop()
	state := func() (s loopstate.State) {
		if err := json.Unmarshal([]byte(get(t, "http://"+controller.address(t, "http")+"/v1/loop")), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	var last loopstate.State
	within(t, "the ratio holds the load to its limit", func() bool {
		last = state()
		return len(last.Buckets) == 1 && last.Buckets[0].Offered > 260 && last.Buckets[0].Admitted > 150 && last.Buckets[0].Admitted < 250 && last.Buckets[0].Ratio > 0.1
	})
	b := last.Buckets[0]
	if b.Service != "s" || b.Bucket != "callers" || b.Key != "caller=web" || *b.Limit != 200 || b.Scope != rlc.ScopeGlobal || b.Nodes != 1 || b.Zones != 1 ||
		len(last.Zones) != 1 || last.Zones[0].Zone != "z1" || last.Zones[0].Region != "r" {
		t.Errorf("state %+v", last)
	}
	within(t, "acknowledged", func() bool {
		return strings.Contains(get(t, "http://"+controller.address(t, "http")+"/metrics"), `rlc_loop_enforcers{version="0.1"} 1`)
	})
	if m := get(t, "http://"+aggregator.address(t, "http")+"/metrics"); !strings.Contains(m, "rlc_loop_nodes 1\n") || !strings.Contains(m, "rlc_loop_controller_connected 1\n") {
		t.Errorf("the aggregator's metrics:\n%s", m)
	}
	if m := get(t, url+"/metrics"); !strings.Contains(m, "\nrlc_loop_aggregator_connected 1\n") || !strings.Contains(m, "\nrlc_loop_local_buckets 0\n") || !strings.Contains(m, "\nrlc_loop_silent_seconds ") {
		t.Errorf("the enforcer's metrics:\n%s", m)
	}
	writePolicy(t, dir, 100_000)
	within(t, "the raised limit", func() bool {
		s := state()
		return len(s.Buckets) == 1 && *s.Buckets[0].Limit == 100_000 && s.Buckets[0].Ratio == 0
	})
	stop()
	load.Wait()
	aggregator.end()
	within(t, "the zone has left", func() bool { return len(state().Zones) == 0 })
	within(t, "the enforcer says that it is on its own", func() bool {
		return strings.Contains(get(t, url+"/metrics"), "\nrlc_loop_aggregator_connected 0\n") && strings.Contains(get(t, url+"/readyz"), "the loop is silent for")
	})
	server.end()
}

func TestLoopCommandsCheckTheirInput(t *testing.T) {
	for _, c := range []struct {
		run  subcommand
		args string
		want string
	}{
		{aggregate, "--zone z", "give --controller ADDR"},
		{aggregate, "--controller a:1", "give --zone Z"},
		{aggregate, "--controller a:1 --zone z --ca f", "go together"},
		{aggregate, "--controller a:1 --zone z extra", `unexpected argument "extra"`},
		{aggregate, "--controller a:1 --zone z --nonsense", "nonsense"},
		{aggregate, "--controller a:1 --zone z --grpc 0.0.0.0:0 --http off", "can be reached from other machines"},
		{control, "", "nowhere to take the limits from"},
		{control, "--config-dir d --redis redis://x", "exclude each other"},
		{control, "--config-dir d --release-after -1s", "negative"},
		{control, "--config-dir d --grpc 0.0.0.0:0 --http off", "can be reached from other machines"},
	} {
		var out, log bytes.Buffer
		err := c.run(t.Context(), strings.Fields(c.args), func(string) string { return "" }, &out, &log)
		if !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
