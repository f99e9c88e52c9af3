package main

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// Redis stops answering without a word while the built enforcer is under load
// over both protocols, in its default set-up: hot quotas and a cap in shadow,
// leased. Every call is answered, by the local share; when Redis is back it
// decides again.
func TestEveryCallIsAnsweredWhileRedisIsABlackHole(t *testing.T) {
	t.Parallel()
	redis, config := redistest.Start(t), t.TempDir()
	write(t, config, "services/s/policy.yaml", `apiVersion: rlc/v1
kind: ServicePolicy
service: s
owners: [team]
defaults: {mode: enforce}
buckets:
  - {name: callers, each: [caller], limit: {rate: 100000, burst: 100000}}
  - {name: all, role: cap, mode: shadow, limit: {rate: 1000000, burst: 1000000}}
`)
	p := launch(t, "--config-dir", config, "--redis", redis.URL(), "--peers", "2")
	p.snapshot("0.1")
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	load := storm{url: p.url, web: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}, rls: pb.NewRateLimitServiceClient(conn)}
	defer load.web.CloseIdleConnections()
	fallbacks := func() (n float64) {
		_, body := p.get("/metrics")
		for _, line := range strings.Split(body, "\n") {
			if strings.HasPrefix(line, "rlc_enforcer_fallbacks_total{") {
				v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
				if err != nil {
					t.Fatal(err)
				}
				n += v
			}
		}
		return n
	}

	load.run(t, "Redis answers")
	redis.Freeze()
	before := fallbacks()
	load.run(t, "the first moment without")
	load.run(t, "after that")
	fell := fallbacks() - before
	if fell == 0 {
		t.Error("nothing fell back to the local share")
	}
	t.Logf("%.0f bucket decisions of %d calls without Redis", fell, 2*stormCalls)
	redis.Thaw()
	deadline := time.After(time.Minute)
	for again := false; !again; {
		before := fallbacks()
		load.run(t, "with it again")
		again = fallbacks()-before < stormCalls/2 // a busy machine may be late now and then
		select {
		case <-deadline:
			t.Fatal("Redis is back, and a minute later it is not asked")
		default:
		}
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.logged())
	}
}

// storm is callers that ask one call after another, over both protocols.
type storm struct {
	url string
	web *http.Client
	rls pb.RateLimitServiceClient
}

const (
	stormCallers = 16
	stormCalls   = stormCallers * 60
)

// run sends stormCalls and fails the test for one that is not answered, or not
// admitted: all are far within the local share.
func (s *storm) run(t *testing.T, phase string) {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	for caller := range stormCallers {
		all.Go(func() {
			ask := s.http
			if caller%2 == 0 {
				ask = s.grpc
			}
			for range stormCalls / stormCallers {
				began := time.Now()
				if said := ask(t, "c"+strconv.Itoa(caller%4)); said != "" {
					t.Errorf("%s: %s", phase, said)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	if n := len(took); n > 0 {
		t.Logf("%s: %d answered, p50 %s, p99 %s, longest %s", phase, n, took[n/2], took[n*99/100], took[n-1])
	}
}

// http asks once; it returns what is wrong with the answer.
func (s *storm) http(t *testing.T, caller string) string {
	res, err := s.web.Post(s.url+"/v1/check", "application/json", strings.NewReader(`{"service":"s","attributes":{"caller":"`+caller+`"}}`))
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || !bytes.Contains(body, []byte(`"outcome":"admit"`)) {
		return res.Status + " " + string(body)
	}
	return ""
}

// grpc is http in Envoy's protocol.
func (s *storm) grpc(t *testing.T, caller string) string {
	out, err := s.rls.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "caller", Value: caller}}},
	}})
	if err != nil {
		return err.Error()
	}
	if out.OverallCode != pb.RateLimitResponse_OK {
		return out.OverallCode.String()
	}
	return ""
}
