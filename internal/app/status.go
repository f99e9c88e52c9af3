package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/scheduler"
	"github.com/openrlc/rlc/web"
)

// status is what every page must say: the standing troubles by name. The zero
// value has none.
type status struct {
	mu       sync.Mutex
	started  time.Time
	troubles map[string]web.Banner
	leaders  map[string]web.Banner // the leader's troubles, where this replica does not lead
	saved    string                // what was last saved of troubles
	lastGood time.Time
	told     []string // ids of the runs that were concluded lately
}

// first reports whether this is the first that is heard of a run.
func (s *status) first(run string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.told, run) {
		return false
	}
	if s.told = append(s.told, run); len(s.told) > 200 {
		s.told = s.told[100:]
	}
	return true
}

// set raises the trouble of this name or refreshes its text; it keeps since
// when it stands.
func (s *status) set(name, level, text, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.troubles == nil {
		s.troubles = map[string]web.Banner{}
	}
	since := time.Now().UTC()
	if old, ok := s.troubles[name]; ok {
		since = old.Since
	}
	s.troubles[name] = web.Banner{Level: level, Text: text, Detail: detail, Since: since, Follow: name == "rewritten"}
}

// own is a standing trouble of this replica itself.
func (s *status) own(name string) (web.Banner, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.troubles[name]
	return b, ok
}

func (s *status) clear(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.troubles, name)
}

func (s *status) good(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.lastGood) {
		s.lastGood = at
	}
}

// silence says since when no run has ended well, where that is longer than two
// of the schedule's intervals; zero where all is well.
func (s *status) silence(now time.Time, schedule scheduler.Schedule) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.started
	if s.lastGood.After(since) {
		since = s.lastGood
	}
	next := schedule.Next(since)
	if late := schedule.Next(next).Add(schedule.Next(next).Sub(next)); now.After(late) {
		return since
	}
	return time.Time{}
}

// troublesKey names the leader's troubles in the records.
const troublesKey = "troubles"

// share tells other replicas what troubles the leader, or learns it: runs fail
// on one replica and are asked after on all.
func (a *App) share(ctx context.Context) error {
	s := &a.status
	epoch := a.mine()
	if epoch == 0 {
		text, err := a.Records.Get(ctx, troublesKey)
		if err != nil {
			return err
		}
		leaders := map[string]web.Banner{}
		if text != "" {
			if err := json.Unmarshal([]byte(text), &leaders); err != nil {
				return fmt.Errorf("the leader's troubles: %w", err)
			}
		}
		s.mu.Lock()
		s.leaders = leaders
		s.mu.Unlock()
		return nil
	}
	s.mu.Lock()
	s.leaders = nil
	text, err := json.Marshal(s.troubles)
	same := string(text) == s.saved
	s.mu.Unlock()
	if err != nil || same {
		return err
	}
	if err := a.Records.Fenced(epoch).Set(ctx, troublesKey, string(text)); err != nil {
		return err
	}
	s.mu.Lock()
	s.saved = string(text)
	s.mu.Unlock()
	return nil
}

// Banners are the standing troubles, worst and oldest first: this replica's and
// the leader's.
func (a *App) Banners() []web.Banner {
	s := &a.status
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.leaders)
	if all == nil {
		all = map[string]web.Banner{}
	}
	maps.Copy(all, s.troubles)
	out := slices.Collect(maps.Values(all))
	slices.SortFunc(out, func(x, y web.Banner) int {
		if x.Level != y.Level {
			if x.Level == "bad" {
				return -1
			}
			return 1
		}
		return x.Since.Compare(y.Since)
	})
	return out
}

// Leads reports whether this replica fires runs.
func (a *App) Leads() bool { return a.leads.Load() }

// Ready says why the server is not ready; nil means that it is.
func (a *App) Ready() []string {
	var why []string
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := a.Records.Ping(ctx); err != nil {
		why = append(why, "the records do not answer")
	}
	if b, stands := a.status.own("disk"); stands {
		why = append(why, "the data folder cannot be written to: "+b.Detail)
	}
	if a.leader.Load() == 0 {
		why = append(why, "no replica leads yet: no run can start")
	}
	if a.rewritten.Load() {
		why = append(why, "history of the base branch was rewritten: nothing is computed until a person lets RLC follow it")
	}
	if _, c := a.Desired(); c == nil {
		why = append(why, "the config repository has not been read yet")
	} else if err := a.Repo.Trouble(); err != nil {
		why = append(why, "the config repository's server cannot be talked to: "+err.Error())
	}
	return why
}

// room finds out whether this replica can write to its data folder: on a full disk
// what people do is refused, and nothing that runs find is kept.
func (a *App) room() {
	probe := filepath.Join(a.Config.Data, ".room")
	err := os.WriteFile(probe, make([]byte, 4096), 0o600)
	if err == nil {
		err = os.Remove(probe)
	}
	if err != nil {
		a.status.set("disk", "bad", "A server's disk is full or read-only: limits in force stay, and nothing new is kept.", err.Error())
		return
	}
	a.status.clear("disk")
}

// metrics are the configurator's own, by the names of design.md 5.4.
type metrics struct {
	runs      *prometheus.CounterVec
	duration  prometheus.Histogram
	held      *prometheus.CounterVec
	failures  *prometheus.CounterVec
	proposals prometheus.Gauge
	quota     *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		runs:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rlc_runs_total", Help: "Runs by result."}, []string{"result"}),
		duration:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rlc_run_duration_seconds", Help: "How long runs took.", Buckets: prometheus.ExponentialBuckets(0.25, 2, 12)}),
		held:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rlc_held_total", Help: "Quotas held, by the rule that held them."}, []string{"reason"}),
		failures:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rlc_history_query_failures_total", Help: "Quotas that a failed or partial read held, by rule."}, []string{"reason"}),
		proposals: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rlc_proposals_open", Help: "Proposals that wait for a person."}),
		quota:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rlc_quota_rate", Help: "Sum of the rates in force, in requests per second."}, []string{"service", "bucket"}),
	}
	r.MustRegister(m.runs, m.duration, m.held, m.failures, m.proposals, m.quota)
	for _, result := range []rlc.Result{rlc.ResultOK, rlc.ResultDegraded, rlc.ResultFailed, rlc.ResultRefused} {
		m.runs.WithLabelValues(string(result))
	}
	return m
}

func (m metrics) ran(run rlc.Run) {
	m.runs.WithLabelValues(string(run.Result)).Inc()
	m.duration.Observe(run.Finished.Sub(run.Started).Seconds())
}

// failed counts a run that could not be carried to its end.
func (m metrics) failed() { m.runs.WithLabelValues(string(rlc.ResultFailed)).Inc() }

// heldBy counts what a run held, by rule.
func (m metrics) heldBy(changes []rlc.Change) {
	for _, c := range changes {
		if c.Held == "" {
			continue
		}
		m.held.WithLabelValues(c.Held).Inc()
		if c.Failed {
			m.failures.WithLabelValues(c.Held).Inc()
		}
	}
}

// probe looks whether the history source answers, so that an outage shows
// before the next run.
func (a *App) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := a.History.Check(ctx); err != nil {
		a.status.set("history", "bad", "History is unreachable: every quota is held as it is.", fmt.Sprintf("%s: %v", a.Prom, err))
		return
	}
	a.status.clear("history")
}
