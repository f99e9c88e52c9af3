package promhistory

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Level says how grave a finding is.
type Level string

// The levels of findings.
const (
	OK   Level = "ok"
	Warn Level = "warn" // quotas are computed, though less well than they could be
	Fail Level = "fail" // quotas cannot be computed, or not be believed
)

// Finding is one thing that Diagnose looked at. Check is a stable name: reach,
// metric, cardinality, bill, labels, names, interval, retention, replicas or
// rule. Fix says what to do, "" where nothing is to be done; that of rule is a
// file of recording rules.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"`
}

const (
	joined   = 0.99   // share of traffic that must lead to a bucket
	worst    = 10     // label sets named that do not
	manySets = 10_000 // label sets from which a source is called large
)

// replicaLabels tell the servers of an HA pair apart, as Prometheus Operator,
// Thanos and Mimir name them.
var replicaLabels = []string{"replica", "prometheus_replica", "__replica__"}

// Diagnose looks at a history source with the eyes of one service: findings in
// the order of Finding's list of checks. Its queries are small, and what a
// reading would cost is said before the first that grows with the number of
// label sets, which is left out where there are too many. An error means that
// ctx ended or that service or profile cannot be used at all; what is wrong
// with the server or its data is a finding.
func (r *Reader) Diagnose(ctx context.Context, req rlc.HistoryRequest) ([]Finding, error) {
	rd, err := r.prepare(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("diagnose %s: %w", req.Service.Name, err)
	}
	d := &diagnosis{reading: rd}
	for _, check := range []func(context.Context) bool{d.reach, d.metric, d.cost, d.names, d.interval, d.retention, d.replicas, d.rule} {
		more := check(ctx)
		if ctx.Err() != nil {
			return d.findings, ctx.Err()
		}
		if !more {
			break
		}
	}
	return d.findings, nil
}

// diagnosis is what is known so far. Its checks report whether there is any
// sense in the next.
type diagnosis struct {
	*reading
	findings []Finding
	source   string      // the first source that has data now
	count    float64     // its label sets
	within   []selection // the selectors in it
	large    bool        // too many label sets to list them
}

func (d *diagnosis) say(check string, l Level, fix, format string, args ...any) {
	d.findings = append(d.findings, Finding{check, l, fmt.Sprintf(format, args...), fix})
}

// number is the value of a query that gives one number, 0 where it gives none.
func (d *diagnosis) number(ctx context.Context, expr string, at time.Time) (float64, error) {
	v, err := d.r.instant(ctx, expr, at)
	if err != nil || len(v) == 0 {
		return 0, err
	}
	return float64(v[0].Value), nil
}

func (d *diagnosis) reach(ctx context.Context) bool {
	if err := d.r.Check(ctx); err != nil {
		d.say("reach", Fail, "look at the URL, the network and the credentials", "%s", err)
		return false
	}
	d.say("reach", OK, "", "the history source answers PromQL")
	return true
}

func (d *diagnosis) metric(ctx context.Context) bool {
	for _, source := range d.sources {
		n, err := d.number(ctx, "count("+source+")", d.until)
		switch {
		case err != nil:
			d.say("metric", Fail, "try the query on the server's own page", "%s: %s", source, err)
		case n > 0:
			d.say("metric", OK, "", "%s has %.0f label sets", source, n)
			if d.source == "" {
				d.source, d.count, d.within = source, n, selections(source)
			}
		default:
			level := Warn // another source may have these hours
			if len(d.sources) == 1 {
				level = Fail
			}
			text, fix := "no sample now", "see that the metric is scraped"
			for _, s := range selections(source) {
				all, err := d.number(ctx, "count({__name__="+strconv.Quote(s.metric)+"})", d.until)
				if err == nil && all > 0 {
					text, fix = fmt.Sprintf("no sample now, though the metric %s has %.0f label sets", s.metric, all), "compare the label matchers and the service's name with the labels that it has"
				} else if err == nil {
					text = "there is no metric " + s.metric
				}
			}
			d.say("metric", level, fix, "%s: %s", source, text)
		}
	}
	if d.source == "" && len(d.sources) > 1 {
		d.say("metric", Fail, "", "no source has data of service %s", d.req.Service.Name)
	}
	return d.source != ""
}

// cost tells the number of label sets and, by it, the bill of the first reading
// and of the next.
func (d *diagnosis) cost(ctx context.Context) bool {
	sets := d.count
	for _, s := range d.within {
		if n, err := d.number(ctx, "count("+s.expr+")", d.until); err == nil {
			sets = max(sets, n)
		}
	}
	d.large = d.count > manySets
	switch most := float64(d.r.cfg.MaxSeries); {
	case d.count > most:
		d.say("cardinality", Fail, "sum away the labels that no bucket counts by", "%.0f label sets are more than the %.0f that are read", d.count, most)
	case d.large:
		d.say("cardinality", Warn, "sum away the labels that no bucket counts by", "%.0f label sets are many", d.count)
	default:
		d.say("cardinality", OK, "", "%.0f label sets, of %.0f series on the server", d.count, sets)
	}
	_, plain := plainSelector(d.source)
	bill, stream := d.bill, d.streams()
	first, queries := bill(d.until.Sub(d.from))
	next, more := bill(day)
	how := "range queries"
	if stream {
		how = "streams of remote read, where the server has it"
	}
	text := fmt.Sprintf("the first reading is at most %s samples in %d %s; one a day later %s in %d", amount(first), queries, how, amount(next), more)
	if !plain {
		text += fmt.Sprintf("; for it the server looks at the samples of %.0f series", sets)
	}
	switch {
	case first > float64(d.r.cfg.MaxSamples):
		d.say("bill", Fail, "read a recording rule, or fewer days", "%s: more than the %s that one run may read", text, amount(float64(d.r.cfg.MaxSamples)))
	case !plain && sets > 10*d.count && first > 1e6:
		d.say("bill", Warn, "read the recording rule below", "%s", text)
	default:
		d.say("bill", OK, "", "%s", text)
	}
	return true
}

// streams reports whether the source is read by remote read, as far as is known.
func (d *diagnosis) streams() bool {
	_, plain := plainSelector(d.source)
	return plain && !d.r.cfg.RangeOnly && !d.r.noRemote.Load()
}

// bill is what reading a window costs at most.
func (d *diagnosis) bill(window time.Duration) (samples float64, queries int) {
	perDay := d.count * float64(day/d.step)
	days := math.Ceil(float64(window) / float64(day))
	samples = d.count * float64(window/d.step)
	chunks := 1.0
	if !d.streams() {
		chunks = min(24, math.Ceil(perDay/float64(d.r.cfg.SamplesPerQuery)))
	}
	return samples, int(days * chunks * float64(len(d.sources)))
}

func amount(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f G", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.0f k", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

// names compares the last hour's traffic with the buckets: which labels it has,
// and how much of it leads to a quota bucket by the enforcer's own matcher.
func (d *diagnosis) names(ctx context.Context) bool {
	if d.large {
		d.say("names", Warn, "", "not looked at: %.0f label sets", d.count)
		return true
	}
	over := fmt.Sprintf("(%s)[1h:%ds]", d.source, int(max(d.step.Seconds(), 1)))
	if _, plain := plainSelector(d.source); plain {
		over = d.source + "[1h]"
	}
	v, err := d.r.instant(ctx, "avg_over_time("+over+")", d.until)
	if err != nil {
		d.say("names", Warn, "", "the last hour's traffic: %s", err)
		return true
	}
	var total, lost float64
	var strays model.Vector
	carried := map[string]int{} // label sets, by attribute
	for _, s := range v {
		rate := float64(s.Value)
		if !valid(rate) {
			continue
		}
		attrs := attributes(d.req.Profile, s.Metric)
		for a := range attrs {
			carried[a]++
		}
		total += rate
		if d.matcher.Match(attrs).Quota.Bucket < 0 {
			lost += rate
			strays = append(strays, s)
		}
	}
	d.labelled(carried, len(v))
	switch {
	case total == 0:
		d.say("names", Warn, "", "no traffic in the last hour")
		return true
	case lost <= (1-joined)*total:
		d.say("names", OK, "", "%.1f %% of the last hour's traffic leads to a bucket", 100*(1-lost/total))
		return true
	}
	slices.SortFunc(strays, func(a, b *model.Sample) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Metric.String(), b.Metric.String()))
	})
	var named []string
	for _, s := range strays[:min(len(strays), worst)] {
		named = append(named, clip(s.Metric.String())+" "+stat.RateText(rlc.Rate(s.Value)))
	}
	d.say("names", Fail, "add a bucket for them, or correct the profile's labels and its unknown values",
		"%.1f %% of the last hour's traffic leads to a bucket, want %.0f %%; of %d label sets that do not, the worst are: %s", 100*(1-lost/total), 100*joined, len(strays), strings.Join(named, "; "))
	return true
}

// labelled looks for the labels of the attributes that buckets tell requests
// apart by.
func (d *diagnosis) labelled(carried map[string]int, all int) {
	used := map[string]bool{}
	for i := range d.req.Service.Buckets {
		for _, a := range d.matcher.Uses(i) {
			used[a] = d.told(a)
		}
	}
	fine := true
	for _, a := range slices.Sorted(keys(used)) {
		labels := labelsOf(d.req.Profile, []string{a})
		switch {
		case !used[a]:
		case len(d.req.Profile.Attributes[a].Metric) == 0:
			d.say("labels", Fail, "name its labels under attributes in the profile", "no metric label stands for %s", a)
		case carried[a] == 0:
			d.say("labels", Fail, "correct the profile, or keep the label in the query (sum by)", "no label set has %s (label %s)", a, labels)
		case carried[a] < all:
			d.say("labels", Warn, "", "%d of %d label sets have no %s (label %s)", all-carried[a], all, a, labels)
		default:
			continue
		}
		fine = fine && !used[a]
	}
	if fine {
		d.say("labels", OK, "", "every label set has the labels that buckets match")
	}
}

func keys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// interval compares the distance of samples on the server with the step, or
// with the window of the rate that is taken of them.
func (d *diagnosis) interval(ctx context.Context) bool {
	for _, s := range d.within {
		most := time.Duration(1.05 * float64(d.step)) // jitter is no gap
		if s.window > 0 {
			most = s.window / 2
		}
		every, ok := d.spacing(ctx, s, most)
		switch {
		case !ok:
		case s.window > 0 && every > most:
			d.say("interval", Fail, fmt.Sprintf("take the rate over %s at least", rlc.DurationText(4*every)), "%s has a sample every %s: a rate over %s finds two of them by luck", s.metric, rlc.DurationText(every), rlc.DurationText(s.window))
		case every > most:
			d.say("interval", Fail, fmt.Sprintf("set the profile's step to %s, or record more often", rlc.DurationText(every)), "%s has a sample every %s, the profile's step is %s: %.0f %% of the steps would be gaps", s.metric, rlc.DurationText(every), rlc.DurationText(d.step), 100*(1-float64(d.step)/float64(every)))
		case s.window > d.step:
			d.say("interval", Warn, "", "%s is averaged over %s, more than the step of %s: short peaks look smaller", s.metric, rlc.DurationText(s.window), rlc.DurationText(d.step))
		default:
			d.say("interval", OK, "", "%s has a sample every %s, the step is %s", s.metric, rlc.DurationText(every), rlc.DurationText(d.step))
		}
	}
	return true
}

// spacing is the distance of a selector's samples, the median of its series in
// the last hour; false where they have none. The number of samples tells it of
// series that are an hour old; where it says more than most, series may only be
// young, or gone, and those that have two samples are measured from their first
// to their last.
func (d *diagnosis) spacing(ctx context.Context, s selection, most time.Duration) (time.Duration, bool) {
	n, err := d.number(ctx, "quantile(0.5, count_over_time("+s.expr+"[1h]))", d.until)
	if err != nil || n < 1 {
		return 0, false
	}
	every := time.Duration(float64(time.Hour) / n).Round(time.Second)
	if every <= most {
		return every, true
	}
	// Four looks in each distance that is still right: no sample is missed.
	look := max(time.Second, min(15*time.Second, most/4)).Truncate(time.Second)
	at := fmt.Sprintf("(timestamp(%s)[1h:%s])", s.expr, model.Duration(look))
	seconds, err := d.number(ctx, "quantile(0.5, (max_over_time"+at+" - min_over_time"+at+") / (changes"+at+" > 0))", d.until)
	if err != nil || seconds <= 0 {
		return every, true
	}
	return min(every, time.Duration(seconds*float64(time.Second)).Round(time.Second)), true
}

func (d *diagnosis) retention(ctx context.Context) bool {
	want := d.req.Lookback
	if info, err := d.r.api.Runtimeinfo(ctx); err == nil {
		// "15d", "15d or 10GiB" or a size alone.
		text, _, _ := strings.Cut(info.StorageRetention, " ")
		if kept, err := model.ParseDuration(text); err == nil && kept > 0 && time.Duration(kept) < want {
			d.say("retention", Fail, fmt.Sprintf("keep %s (--storage.tsdb.retention.time), or read a long-term store", rlc.DurationText(want)), "the server keeps %s, policies look back %s", rlc.DurationText(time.Duration(kept)), rlc.DurationText(want))
			return true
		}
	}
	for _, back := range []time.Duration{want, 21 * day, 14 * day, 7 * day, day} {
		if back > want {
			continue
		}
		// The window's first hour, whatever happened at its very beginning.
		for _, source := range d.sources {
			n, err := d.number(ctx, fmt.Sprintf("count(count_over_time((%s)[1h:5m]))", source), d.until.Add(time.Hour-back))
			if err != nil || n == 0 {
				continue
			}
			if back == want {
				d.say("retention", OK, "", "there is data of %s ago", rlc.DurationText(back))
			} else {
				d.say("retention", Warn, "wait, or add a source that reaches further back", "there is data of %s ago, and none of %s ago", rlc.DurationText(back), rlc.DurationText(want))
			}
			return true
		}
	}
	d.say("retention", Warn, "wait: quotas need a day, and 14 days to fall", "there is less than a day of data")
	return true
}

// replicas looks for an HA pair whose two servers are counted twice: series that
// differ by their replica alone, of which the source gives less where it is
// narrowed to one of them.
func (d *diagnosis) replicas(ctx context.Context) bool {
	labels := replicaLabels
	if own := d.r.cfg.Replica; own != "" && !slices.Contains(labels, own) {
		labels = append([]string{own}, labels...)
	}
	for _, s := range d.within {
		for _, l := range labels {
			n, err := d.number(ctx, fmt.Sprintf("max(count without (%s) (%s))", l, s.expr), d.until)
			if err == nil && n > 1 && d.doubled(ctx, s, l) {
				d.say("replicas", Fail, fmt.Sprintf("let the store deduplicate (Thanos: dedup=true and --query.replica-label=%s; Mimir: HA tracker), or write max without (%[1]s) around the selector", l),
					"%s comes %.0f times, told apart by the label %s: traffic would be counted as often", s.metric, n, l)
				return true
			}
		}
	}
	d.say("replicas", OK, "", "no series is counted for more than one replica")
	return true
}

// doubled reports whether the source gives notably more than it does with its
// selector narrowed to one replica.
func (d *diagnosis) doubled(ctx context.Context, s selection, label string) bool {
	v, err := d.r.instant(ctx, fmt.Sprintf("topk(1, count by (%s) (%s))", label, s.expr), d.until)
	if err != nil || len(v) != 1 {
		return true
	}
	_, rest, braced := strings.Cut(s.expr, "{")
	if !braced {
		rest = "}"
	}
	one := fmt.Sprintf("%s{%s=%s,%s", s.metric, label, strconv.QuoteToASCII(string(v[0].Metric[model.LabelName(label)])), rest) // a last comma is legal
	all, err := d.number(ctx, "sum("+d.source+")", d.until)
	if err != nil {
		return true
	}
	narrowed, err := d.number(ctx, "sum("+strings.ReplaceAll(d.source, s.expr, one)+")", d.until)
	return err != nil || all > 1.5*narrowed
}

// rule writes the recording rule that makes reading cheap, where a source is
// none yet.
func (d *diagnosis) rule(context.Context) bool {
	if _, plain := plainSelector(d.source); plain {
		d.say("rule", OK, "", "the source is a plain selector: the cheapest there is")
		return true
	}
	var labels []string
	for _, a := range d.req.Profile.Attributes {
		labels = append(labels, a.Metric...)
	}
	slices.Sort(labels)
	name := "rlc:offered:rate" + model.Duration(d.step).String()
	yaml := fmt.Sprintf(`groups:
  - name: rlc-%[1]s
    interval: %[2]s
    rules:
      - record: %[3]s
        expr: %[4]s
        labels:
          rlc_service: %[5]s
`, strings.Trim(metricChars.ReplaceAllString(d.req.Service.Name, "-"), "-"), model.Duration(d.step), name, strconv.Quote("sum by ("+strings.Join(slices.Compact(labels), ", ")+") ("+d.source+")"), strconv.Quote(d.req.Service.Name))
	d.say("rule", Warn, yaml, "record the query, and name %s{rlc_service=\"${service}\"} as the profile's first source; this query stays the second, for the past", name)
	return true
}
