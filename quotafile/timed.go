package quotafile

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

// The limits of what a quota carries beside its rate.
const (
	maxWindows = 50
	maxHours   = 31 * 24
)

// place reads the region or the zone whose own limit a quota is.
func (d *doc) place(o *object, q *rlc.Quota) {
	o.read("region", func(n *yaml.Node) { q.Region, _ = d.word(n, "region") })
	o.read("zone", func(n *yaml.Node) { q.Zone, _ = d.word(n, "zone") })
	if q.Region != "" && q.Zone != "" {
		d.refuse(o.get("zone"), "remove one of the two", "region excludes zone")
	}
}

// quotaWindows reads [{from, until, rate, burst}], ascending and apart.
func (d *doc) quotaWindows(n *yaml.Node) (all []rlc.QuotaWindow) {
	items := d.list(n, "windows")
	if n.Kind == yaml.SequenceNode && len(items) == 0 {
		d.refuse(n, "leave it out", "windows is an empty list")
	}
	if len(items) > maxWindows {
		d.refuse(items[maxWindows], "", "windows lists more than %d", maxWindows)
		return nil
	}
	for _, item := range items {
		o := d.object(item, "window")
		if o == nil {
			continue
		}
		var w rlc.QuotaWindow
		var ok bool
		w.From, w.Until, ok = d.span(o.need("from"), o.need("until"))
		if l := d.rateAndBurst(o); l != nil {
			w.Limit = *l
		}
		o.done()
		if len(all) > 0 && ok && w.From.Before(all[len(all)-1].Until) {
			d.refuse(item, "windows stand in order of time and do not overlap", "window starts before the one above it ends")
		}
		if ok {
			all = append(all, w)
		}
	}
	return all
}

// quotaHours reads {from, rates}.
func (d *doc) quotaHours(n *yaml.Node) *rlc.QuotaHours {
	o := d.object(n, "hours")
	if o == nil {
		return nil
	}
	h := &rlc.QuotaHours{}
	var ok bool
	if h.From, ok = d.instant(o.need("from"), "from"); ok && !h.From.Equal(h.From.Truncate(time.Hour)) {
		d.refuse(o.get("from"), "write it as 2026-11-27T00:00:00Z", "from is no full hour")
	}
	list := o.need("rates")
	items := d.list(list, "rates")
	if list != nil && list.Kind == yaml.SequenceNode && len(items) == 0 {
		d.refuse(list, "leave hours out", "rates is an empty list")
	}
	if len(items) > maxHours {
		d.refuse(items[maxHours], "", "rates lists more than %d hours", maxHours)
		items = nil
	}
	for _, item := range items {
		rate, ok := d.within(item, "rate", 0, rlc.MaxRate)
		if ok && rate == 0 {
			d.refuse(item, "", "rate is 0: an hour that admits nothing is written as a window")
		}
		h.Rates = append(h.Rates, rlc.Rate(rate))
	}
	o.done()
	return h
}

// writeTimed writes a quota's windows and hours.
func writeTimed(b *bytes.Buffer, q *rlc.Quota) {
	for i, w := range q.Windows {
		if i == 0 {
			b.WriteString("\n" + windowsPrefix)
		} else {
			b.WriteString(", ")
		}
		b.WriteString("{from: " + instantText(w.From) + ", until: " + instantText(w.Until))
		b.WriteString(", rate: " + decimalText(float64(w.Rate)) + ", burst: " + strconv.FormatInt(int64(w.Burst), 10) + "}")
	}
	if len(q.Windows) > 0 {
		b.WriteByte(']')
	}
	if q.Hours != nil {
		b.WriteString("\n" + hoursPrefix + instantText(q.Hours.From) + ", rates: [")
		for i, r := range q.Hours.Rates {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(decimalText(float64(r)))
		}
		b.WriteString("]}")
	}
}

const (
	windowsPrefix = "    windows: ["
	hoursPrefix   = "    hours: {from: "
)

// instantText is the one form in which an instant is written.
func instantText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// generatedWindows reads the line that writeTimed writes, after its prefix.
func generatedWindows(s string) (all []rlc.QuotaWindow, ok bool) {
	s, ok = strings.CutSuffix(s, "}]")
	if !ok {
		return nil, false
	}
	for s, more := s, true; more; {
		var one string
		if one, s, more = strings.Cut(s, "}, "); len(all) == maxWindows {
			return nil, false
		}
		var w rlc.QuotaWindow
		var ok1, ok2, ok3, ok4 bool
		w.From, one, ok1 = generatedInstant(one, "{from: ", ", ")
		w.Until, one, ok2 = generatedInstant(one, "until: ", ", ")
		rate, burst, ok3 := strings.Cut(one, ", burst: ")
		rate, ok4 = strings.CutPrefix(rate, "rate: ")
		if !ok1 || !ok2 || !ok3 || !ok4 || !w.From.Before(w.Until) || len(all) > 0 && w.From.Before(all[len(all)-1].Until) {
			return nil, false
		}
		if w.Limit, ok = generatedLimit(rate, burst); !ok {
			return nil, false
		}
		all = append(all, w)
	}
	return all, true
}

// generatedHours reads the line that writeTimed writes, after its prefix.
func generatedHours(s string) (*rlc.QuotaHours, bool) {
	h := &rlc.QuotaHours{}
	s, ok := strings.CutSuffix(s, "]}")
	if !ok {
		return nil, false
	}
	if h.From, s, ok = generatedInstant(s, "", ", rates: ["); !ok || !h.From.Equal(h.From.Truncate(time.Hour)) {
		return nil, false
	}
	for _, text := range strings.Split(s, ", ") {
		rate, ok := generatedRate(text)
		if !ok || rate == 0 || len(h.Rates) == maxHours {
			return nil, false
		}
		h.Rates = append(h.Rates, rate)
	}
	return h, true
}

// generatedInstant reads an instant between two marks, in its one form.
func generatedInstant(s, before, after string) (t time.Time, rest string, ok bool) {
	s, ok1 := strings.CutPrefix(s, before)
	text, rest, ok2 := strings.Cut(s, after)
	if !ok1 || !ok2 {
		return t, "", false
	}
	t, err := time.Parse(time.RFC3339, text)
	return t, rest, err == nil && instantText(t) == text
}

// generatedLimit reads a rate and a burst as the slow way does.
func generatedLimit(rate, burst string) (l rlc.Limit, ok bool) {
	if l.Rate, ok = generatedRate(rate); !ok || len(burst) > 12 || !decimal(burst) {
		return l, false
	}
	n, err := strconv.ParseInt(burst, 10, 64)
	l.Burst = rlc.Burst(n)
	return l, err == nil && l.Valid() == nil && (l.Rate == 0) == (n == 0) && (l.Rate != 0 || rate == "0")
}

func generatedRate(s string) (rlc.Rate, bool) {
	if !decimal(s) {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return rlc.Rate(f), err == nil && f <= rlc.MaxRate && (f > 0 || s == "0")
}
