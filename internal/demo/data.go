package demo

import (
	"embed"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// traffic is one line of the demo's traffic: who calls what, and whose recorded
// shape that has. traces/ATTRIBUTION.md repeats the scales for readers of the
// data.
type traffic struct {
	caller    string
	procedure string
	trace     string
	scale     float64 // the recorded rate is multiplied by it
	base      float64 // and this is added, requests/s
	noise     float64 // amplitude, as a share of the recorded rate; at most 0.4
	variant   int     // weeks further back, or another of the recorded days
	event     event
}

// event is what happens to a line, relative to now.
type event int

const (
	nothing    event = iota
	newCaller        // its first request came two days ago
	pastStorm        // retries tripled its daily peak for 40 minutes, nine days ago
	levelShift       // × 2.5 since midnight three days ago
	lostData         // 36 hours without a sample, six days ago
)

// Names of the traces.
const (
	mongoA    = "rpc_ms_mongo_app01_1m"
	mongoB    = "rpc_ms_mongo_app03_1m"
	machine   = "rpc_ms_mongo_machine01_1m"
	ecommerce = "api_ms_ecommerce_a_1h"
	elb       = "api_nab_elb_requests_5m"
	taxi      = "human_nab_nyc_taxi_30m"
	tweetsA   = "event_nab_twitter_aapl_5m"
	tweetsB   = "event_nab_twitter_amzn_5m"
	tweetsC   = "event_nab_twitter_crm_5m"
	tweetsF   = "event_nab_twitter_fb_5m"
	tweetsK   = "event_nab_twitter_ko_5m"
	purchaseA = "txn_ms_purchase02_1h"
	purchaseB = "txn_ms_purchase05_1h"
)

// services is the demo's traffic by service.
var services = []struct {
	name  string
	lines []traffic
}{
	{"billing", []traffic{
		{caller: "checkout", procedure: "Charge", trace: mongoB, scale: 0.2, noise: 0.03},
		{caller: "ledger-batch", procedure: "Export", trace: purchaseB, scale: 800, noise: 0.3}, // nearly idle
		{caller: "orders", procedure: "Refund", trace: purchaseA, scale: 1000, noise: 0.3},
		{caller: "partner-acme", procedure: "Charge", trace: elb, scale: 30, noise: 0.2},
		{caller: "subscriptions", procedure: "Charge", trace: ecommerce, scale: 0.3, noise: 0.15},
	}},
	{"catalog", []traffic{
		{caller: "checkout", procedure: "Get", trace: mongoB, scale: 0.4, noise: 0.03, variant: 1},
		{caller: "price-sync", procedure: "Update", trace: tweetsC, scale: 200, noise: 0.3},
		{caller: "price-watch", procedure: "Poll", trace: taxi, scale: 0.8, base: 30, noise: 0.1, variant: 2}, // steady: the live storm
		{caller: "recommend", procedure: "Get", trace: ecommerce, scale: 0.5, noise: 0.15, variant: 5},
		{caller: "search", procedure: "BatchGet", trace: machine, scale: 0.1, noise: 0.03},
		{caller: "web-frontend", procedure: "Get", trace: taxi, scale: 25, noise: 0.1},
		{caller: "web-frontend", procedure: "List", trace: taxi, scale: 8, noise: 0.1, variant: 1},
	}},
	{"checkout", []traffic{
		{caller: "etl-nightly", procedure: "Export", trace: purchaseA, scale: 500, noise: 0.3}, // nearly idle
		{caller: "mobile-gateway", procedure: "Create", trace: mongoA, scale: 0.03, noise: 0.03},
		{caller: "mobile-gateway", procedure: "Get", trace: mongoA, scale: 0.05, noise: 0.03, variant: 1},
		{caller: "orders", procedure: "Capture", trace: ecommerce, scale: 0.4, noise: 0.15, variant: 1},
		{caller: "partner-acme", procedure: "Create", trace: elb, scale: 40, noise: 0.2, variant: 1},
		{caller: "web-frontend", procedure: "Create", trace: taxi, scale: 6, noise: 0.1},
		{caller: "web-frontend", procedure: "Get", trace: taxi, scale: 14, noise: 0.1},
	}},
	{"notify", []traffic{
		{caller: "auth", procedure: "SendCode", trace: elb, scale: 30, noise: 0.2, variant: 1},
		{caller: "checkout", procedure: "Send", trace: tweetsA, scale: 20, noise: 0.3}, // spiky, as all of these
		{caller: "marketing", procedure: "SendBulk", trace: tweetsK, scale: 150, noise: 0.3},
		{caller: "orders", procedure: "Send", trace: tweetsB, scale: 60, noise: 0.3},
	}},
	{"orders", []traffic{
		{caller: "billing", procedure: "Get", trace: ecommerce, scale: 0.2, noise: 0.15, variant: 2},
		{caller: "checkout", procedure: "Create", trace: mongoB, scale: 0.3, noise: 0.03},
		{caller: "courier-app", procedure: "Update", trace: taxi, scale: 3, noise: 0.1, variant: 3, event: newCaller},
		{caller: "mobile-gateway", procedure: "List", trace: mongoA, scale: 0.008, noise: 0.03},
		{caller: "warehouse", procedure: "Update", trace: machine, scale: 0.05, noise: 0.03, variant: 1, event: lostData},
		{caller: "web-frontend", procedure: "List", trace: taxi, scale: 5, noise: 0.1, variant: 4, event: pastStorm},
	}},
	{"recommend", []traffic{
		{caller: "feature-builder", procedure: "Batch", trace: machine, scale: 0.04, base: 60, noise: 0.03}, // never idle: the surge on the loop
		{caller: "mobile-gateway", procedure: "Rank", trace: mongoA, scale: 0.01, noise: 0.03, variant: 1},
		{caller: "web-frontend", procedure: "Rank", trace: taxi, scale: 20, noise: 0.1, variant: 5},
	}},
	{"search", []traffic{
		{caller: "catalog", procedure: "Reindex", trace: tweetsF, scale: 40, noise: 0.3},
		{caller: "mobile-gateway", procedure: "Query", trace: mongoA, scale: 0.02, noise: 0.03},
		{caller: "mobile-gateway", procedure: "Suggest", trace: mongoA, scale: 0.03, noise: 0.03, variant: 1},
		{caller: "recommend", procedure: "Query", trace: ecommerce, scale: 1, noise: 0.15, variant: 3, event: levelShift},
		{caller: "web-frontend", procedure: "Query", trace: taxi, scale: 30, noise: 0.1, variant: 6},
		{caller: "web-frontend", procedure: "Suggest", trace: taxi, scale: 45, noise: 0.1, variant: 6},
	}},
}

// TrafficSeries is the offered rate of one caller's procedure over time.
type TrafficSeries struct {
	Service   string
	Caller    string
	Procedure string

	line   traffic
	trace  *trace
	seed   uint64
	anchor time.Time // whole minute
	storm  rlc.Window
}

// Series returns the demo's traffic as seen from now, by service, caller and
// procedure. It is deterministic: the same now gives the same rates, and they
// go on after now without a seam. It panics on a trace that cannot be read,
// since traces are part of the program.
func Series(now time.Time) []TrafficSeries {
	now = now.UTC().Truncate(time.Minute)
	traces := map[string]*trace{}
	var all []TrafficSeries
	for _, service := range services {
		for _, line := range service.lines {
			tr := traces[line.trace]
			if tr == nil {
				var err error
				if tr, err = readTrace(line.trace); err != nil {
					panic(fmt.Sprintf("demo: %v", err))
				}
				traces[line.trace] = tr
			}
			h := fnv.New64a()
			fmt.Fprintf(h, "%s/%s/%s", service.name, line.caller, line.procedure)
			s := TrafficSeries{Service: service.name, Caller: line.caller, Procedure: line.procedure, line: line, trace: tr, seed: h.Sum64(), anchor: now}
			if line.event == pastStorm {
				s.storm = s.peakOf(now.Truncate(day).Add(-9*day), 40*time.Minute)
			}
			all = append(all, s)
		}
	}
	return all
}

// Rate is the mean offered rate of the minute that holds t, in requests/s; NaN
// where there is no sample.
func (s *TrafficSeries) Rate(t time.Time) float64 {
	t = t.UTC().Truncate(time.Minute)
	today := s.anchor.Truncate(day)
	factor := 1.0
	switch s.line.event {
	case newCaller:
		if t.Before(s.anchor.Truncate(time.Hour).Add(-2 * day)) {
			return math.NaN()
		}
	case lostData:
		if from := today.Add(-6*day + 6*time.Hour); !t.Before(from) && t.Before(from.Add(36*time.Hour)) {
			return math.NaN()
		}
	case levelShift:
		if !t.Before(today.Add(-3 * day)) {
			factor = 2.5
		}
	case pastStorm:
		if s.storm.Contains(t) {
			factor = 3
		}
	}
	return factor * s.plain(t)
}

// plain is the rate without events. Noise comes in pairs of minutes that cancel
// within a recorded step, so that it leaves the step's mean alone; the last
// minute of an odd step has none.
func (s *TrafficSeries) plain(t time.Time) float64 {
	rate, mean := s.trace.at(t, s.anchor, s.line.variant)
	steps := int64(s.trace.step / time.Minute)
	minute := t.Unix() / 60
	n := 0.0
	switch in := minute % steps; {
	case steps == 1:
		n = noise(s.seed, minute)
	case steps%2 == 0 || in < steps-1:
		n = noise(s.seed, minute/steps<<16|in)
	}
	return s.line.base + s.line.scale*(rate+s.line.noise*n*mean)
}

// peakOf is the window of a day, of the given length, that begins with the
// day's highest quarter of an hour.
func (s *TrafficSeries) peakOf(midnight time.Time, length time.Duration) rlc.Window {
	best := rlc.Window{Reason: "retry storm"}
	highest := -1.0
	for from := midnight; from.Before(midnight.Add(day - length)); from = from.Add(15 * time.Minute) {
		sum := 0.0
		for i := range 15 {
			sum += s.plain(from.Add(time.Duration(i) * time.Minute))
		}
		if sum > highest {
			highest, best.From, best.Until = sum, from, from.Add(length)
		}
	}
	return best
}

// RetryStorm is a caller whose live traffic is multiplied, not its history.
type RetryStorm struct {
	Service string
	Caller  string
	Factor  float64
}

// Storm is the one of the demo: a steady caller, so that at any hour what it
// offers is far above a quota made of its past.
func Storm() RetryStorm { return RetryStorm{Service: "catalog", Caller: "price-watch", Factor: 6} }

// Surge is the caller whose limit is held by the loop, at more than the limit at
// any hour: what the loop drops of it, or would, is to be seen at once.
func Surge() RetryStorm {
	return RetryStorm{Service: "recommend", Caller: "feature-builder", Factor: 8}
}

//go:embed all:config
var configFiles embed.FS

// ConfigFiles is the demo's config repository before anything happened in it:
// what people wrote.
func ConfigFiles() rlc.Files {
	files := rlc.Files{}
	err := fs.WalkDir(configFiles, "config", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := configFiles.ReadFile(path)
		files[strings.TrimPrefix(path, "config/")] = data
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("demo: %v", err)) // they are part of the program
	}
	return files
}

// Edit is what a person changes once the first quotas are in force: the
// service, the commit's message and the file as it is after it. It leads to a
// proposal.
func Edit() (service, message string, files rlc.Files) {
	const path, before, after = "services/search/policy.yaml", "headroom: 0.3}", "headroom: 0.6}"
	policy := string(ConfigFiles()[path])
	if strings.Count(policy, before) != 1 {
		panic("demo: " + path + " does not say " + before + " once")
	}
	policy = strings.Replace(policy, before, after, 1)
	return "search", "search: headroom 0.3 → 0.6 before the winter sale", rlc.Files{path: []byte(policy)}
}
