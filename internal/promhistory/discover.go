package promhistory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/openrlc/rlc"
)

// Bill is what reading a service's window costs at most.
type Bill struct {
	LabelSets float64 // at once, of the source that has the most; 0: none has
	Samples   float64
	Queries   int
	Trouble   string // why there is none, or what a reading would fail with; ""
}

// Bill asks what reading req would cost, by counts alone: the most label sets that
// the window had at once, every six hours and now, times its steps. An error means that
// ctx ended or that service or profile cannot be used.
func (r *Reader) Bill(ctx context.Context, req rlc.HistoryRequest) (Bill, error) {
	rd, err := r.prepare(ctx, req)
	if err != nil {
		return Bill{}, fmt.Errorf("bill %s: %w", req.Service.Name, err)
	}
	d := &diagnosis{reading: rd}
	d.metric(ctx)
	// A look at this instant misses what came and went within the window.
	for _, source := range d.sources {
		over := fmt.Sprintf("max_over_time(count(%s)[%ds:6h])", source, int(d.until.Sub(d.from).Seconds()))
		if n, err := d.number(ctx, over, d.until); err == nil && n > d.count {
			d.source, d.count = source, n
		}
	}
	if d.source != "" {
		b := Bill{LabelSets: d.count}
		b.Samples, b.Queries = d.bill(d.until.Sub(d.from))
		if most := float64(r.cfg.MaxSamples); b.Samples > most {
			b.Trouble = fmt.Sprintf("%s samples are more than the %s that may be read", amount(b.Samples), amount(most))
		}
		return b, ctx.Err()
	}
	b := Bill{Trouble: "no source has data"}
	for _, f := range d.findings {
		if f.Level != OK {
			b.Trouble = f.Text
		}
	}
	return b, ctx.Err()
}

// Services names the services that a profile's sources have samples of in
// [from, until), sorted: the values of the labels that the sources compare with
// ${service}. One query for each selector, over the labels alone.
func (r *Reader) Services(ctx context.Context, p *rlc.Profile, from, until time.Time) ([]string, error) {
	var all []string
	asked := false
	for _, source := range p.Sources {
		for _, s := range selections(source) {
			matchers, _ := plainSelector(s.expr)
			i := slices.IndexFunc(matchers, func(m *prompb.LabelMatcher) bool {
				return m.Type == prompb.LabelMatcher_EQ && m.Value == placeholder
			})
			if i < 0 {
				continue
			}
			asked = true
			values, warnings, _, err := r.api.LabelValues(ctx, matchers[i].Name, []string{anyService(matchers, i)}, from, until)
			if err == nil && len(warnings) > 0 {
				err = fmt.Errorf("the server warns: %s", clip(strings.Join(warnings, "; ")))
			}
			if err != nil {
				return nil, fmt.Errorf("list the services of profile %s: %w", p.Name, r.http.translate(err))
			}
			if len(all)+len(values) > r.cfg.MaxSeries {
				return nil, fmt.Errorf("%w: %d services in one answer, at most %d", ErrTooLarge, len(all)+len(values), r.cfg.MaxSeries)
			}
			for _, v := range values {
				if v != "" && !Folded(string(v)) {
					all = append(all, string(v))
				}
			}
		}
	}
	if !asked {
		return nil, fmt.Errorf("%w: no source of profile %s compares a label with %q, so that services cannot be listed", rlc.ErrInvalid, p.Name, placeholder)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Folded reports whether a label value stands for many names or for none, as
// enforcers count what is beyond their series (__other__) and what no bucket
// matches (__unmatched__): nobody's name begins and ends so.
func Folded(value string) bool {
	return len(value) > 4 && strings.HasPrefix(value, "__") && strings.HasSuffix(value, "__")
}

// anyService is a selector whose i-th matcher takes any service.
func anyService(matchers []*prompb.LabelMatcher, i int) string {
	ops := map[prompb.LabelMatcher_Type]string{
		prompb.LabelMatcher_EQ: "=", prompb.LabelMatcher_NEQ: "!=", prompb.LabelMatcher_RE: "=~", prompb.LabelMatcher_NRE: "!~",
	}
	var parts []string
	for j, m := range matchers {
		op, value := ops[m.Type], m.Value
		if j == i {
			op, value = "!=", ""
		}
		parts = append(parts, m.Name+op+strconv.QuoteToASCII(value))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// Flow is the mean rate of the requests that share their attributes.
type Flow struct {
	Attributes rlc.Attributes
	Rate       rlc.Rate
}

// Flows is the traffic of a service over window up to req.Now, the largest
// first, from the first source that has any: means over the steps at which any of it
// was seen, so that the flows add up to the service's mean. It is a look, one query: what
// quotas are made of, Service reads.
func (r *Reader) Flows(ctx context.Context, req rlc.HistoryRequest, window time.Duration) ([]Flow, error) {
	rd, err := r.prepare(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", req.Service.Name, err)
	}
	for _, source := range rd.sources {
		over := fmt.Sprintf("[%ds:%ds]", int(window.Seconds()), int(max(rd.step, window/288).Seconds()))
		mean := fmt.Sprintf("sum_over_time((%s)%s) / scalar(count_over_time((count(%[1]s))%[2]s))", source, over)
		v, err := r.instant(ctx, mean, rd.until)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", req.Service.Name, err)
		}
		var flows []Flow
		for _, s := range v {
			if rate := float64(s.Value); valid(rate) {
				flows = append(flows, Flow{attributes(req.Profile, s.Metric), rlc.Rate(rate)})
			}
		}
		if len(flows) > 0 {
			slices.SortStableFunc(flows, func(a, b Flow) int { return cmp.Compare(b.Rate, a.Rate) })
			return flows, nil
		}
	}
	return nil, nil
}
